"""A progress bar for work that is done piece by piece."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_bar(total: int, what: str, wanted: bool | None) -> Iterator[Callable[[int], None]]:
    """Yield a function that advances the bar; silent unless ``wanted``, or on a terminal when that is None."""
    if not (sys.stderr.isatty() and total > 1 if wanted is None else wanted):
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.advance(task, done)

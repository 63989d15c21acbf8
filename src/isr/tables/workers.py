"""Many calls shared out among joblib's workers: threads, processes, or a cluster; and the progress of such work.

Everything in isr that runs many times goes through here. Where the calls run is the user's choice
(``with joblib.parallel_config("dask"): ...``); what they give must not depend on it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

import joblib
from joblib.parallel import get_active_backend

# Calls for each worker before the next ones are handed out, on backends that give all results back together.
BLOCK = 4


def as_they_end(calls: Iterable[Any], *, n_jobs: int | None = None) -> Iterator[Any]:
    """Yield what each call gives, made by ``joblib.delayed``, the first that ends first.

    Some backends (Ray's, ``multiprocessing``) cannot give results back one by one; there they come in blocks of a few
    for each worker.
    """
    if getattr(get_active_backend()[0], "supports_return_generator", False):
        one_by_one: Any = joblib.Parallel(n_jobs=n_jobs, return_as="generator_unordered")
        yield from one_by_one(calls)
        return
    # Ray refuses more workers than its cluster has; others wait their turn anyway. None is what the user configured.
    count: Any = joblib.effective_n_jobs
    n_workers, remaining = min(count(n_jobs), count(-1)), iter(calls)
    with joblib.Parallel(n_jobs=n_workers) as block_by_block:
        while block := list(islice(remaining, BLOCK * n_workers)):
            yield from block_by_block(block)


def is_watched() -> bool:
    """Return whether somebody sees stderr as it grows: on a terminal or in a notebook."""
    return sys.stderr.isatty() or "ipykernel" in sys.modules


@contextmanager
def progress_lines(wanted: bool | None, *, transient: bool = True) -> Iterator[Any]:
    """Yield Rich's progress display, or None where none is wanted; None shows it where it `is_watched`."""
    if not (is_watched() if wanted is None else wanted):
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (
        TextColumn("[bold]{task.description:<9}"), BarColumn(bar_width=24),
        TextColumn("{task.completed:.0f}/{task.total:.0f}"), TextColumn("{task.fields[note]}"),
        TimeElapsedColumn(), TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True), transient=transient) as progress:
        yield progress


@contextmanager
def progress_bar(total: int, what: str, wanted: bool | None) -> Iterator[Callable[[int], None]]:
    """Yield a function that advances a single bar; see `progress_lines`."""
    with progress_lines(False if wanted is None and total <= 1 else wanted, transient=False) as progress:
        task = progress and progress.add_task(what, total=total, note="")
        yield lambda done: progress and progress.advance(task, done)

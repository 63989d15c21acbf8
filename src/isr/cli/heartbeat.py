"""A sign of life: while work goes on, a line on stderr every ten seconds says what and how long."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from isr.cli.output import say

EVERY = 10.0


@contextmanager
def heartbeat(what: str, *, most: float | None = None, every: float = EVERY) -> Iterator[None]:
    """Say every so many seconds that ``what`` goes on, and how long it may take at most, until the block ends."""
    ended, begun = threading.Event(), time.monotonic()

    def beat() -> None:
        while not ended.wait(every):
            spent = time.monotonic() - begun
            left = "" if most is None else f", at most {max(0.0, most - spent):.0f} s left"
            say(f"{what}: {spent:.0f} s so far{left}", err=True)

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()

"""What watches a training run: progress, deadline and interruption.

A run asks its monitor after every epoch whether to go on. Nothing here changes what is computed, only how far.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from isr.tables.workers import progress_lines


@dataclass
class Monitor:
    """Watches one run."""

    verbose: bool | None = None
    max_time: float | None = None
    stopped: str | None = None
    _begun: float = field(default_factory=time.monotonic)
    _progress: Any = None
    _task: Any = None

    @property
    def seconds(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self._begun

    def should_stop(self) -> bool:
        """Return whether the run should end now, keeping the best it has."""
        if self.stopped is None and self.max_time is not None and self.seconds > self.max_time:
            self.stopped = f"max_time of {self.max_time:g} s reached"
        return self.stopped is not None

    def has_used(self, share: float) -> bool:
        """Return whether this share of ``max_time`` is over."""
        return self.max_time is not None and self.seconds > share * self.max_time

    def until(self, share: float) -> Monitor:
        """Return a monitor of a first part of the run, which ends at this share of ``max_time``."""
        return self if self.max_time is None else _Part(self, share)

    def begin(self, phase: str, total: int) -> None:
        """Tell that a phase of ``total`` epochs begins."""
        if self._progress is not None:
            if self._task is not None:
                self._progress.remove_task(self._task)
            self._task = self._progress.add_task(phase, total=total, note="")

    def advance(self, note: str = "") -> None:
        """Tell that one epoch of the phase is done."""
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, advance=1, note=note)

    @contextmanager
    def watching(self) -> Iterator[Monitor]:
        """Show progress and turn the first interrupt into a clean stop; a second one interrupts for real."""
        with _first_interrupt(self), progress_lines(self.verbose) as progress:
            self._progress = progress
            try:
                yield self
            finally:
                self._progress = self._task = None


class _Part(Monitor):
    """Stops when another monitor does, or at a share of its time, and shows its progress there."""

    def __init__(self, other: Monitor, share: float) -> None:
        super().__init__(verbose=False)
        self._other, self._share = other, share

    def should_stop(self) -> bool:
        if self._other.should_stop():
            self.stopped = self._other.stopped
        elif self._other.has_used(self._share):
            self.stopped = f"max_time of {self._other.max_time:g} s reached"
        return self.stopped is not None

    def has_used(self, share: float) -> bool:
        return self._other.has_used(share)

    def begin(self, phase: str, total: int) -> None:
        self._other.begin(phase, total)

    def advance(self, note: str = "") -> None:
        self._other.advance(note)


@contextmanager
def _first_interrupt(monitor: Monitor) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(signum: int, frame: Any) -> None:
        if monitor.stopped is not None:
            raise KeyboardInterrupt
        monitor.stopped = f"stopped by {signal.Signals(signum).name}"
        # Safe in a signal handler.
        os.write(2, b"isr: stopping with the best so far; once more to stop at once\n")

    kept = {s: signal.signal(s, stop) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for signum, handler in kept.items():
            signal.signal(signum, handler)

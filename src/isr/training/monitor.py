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
from dataclasses import dataclass, field, replace
from typing import Any

from isr.tables.workers import progress_lines


@dataclass
class Monitor:
    """Watches one run, or a part of one that ends at a share of ``max_time`` or when the ``whole`` does."""

    verbose: bool | None = None
    max_time: float | None = None
    stopped: str | None = None
    share: float = 1.0
    whole: Monitor | None = None
    _begun: float = field(default_factory=time.monotonic)
    # The bar and the task it shows, which parts have in common.
    _shown: dict[str, Any] = field(default_factory=dict)

    def should_stop(self) -> bool:
        """Return whether the run should end now, keeping the best it has."""
        if self.whole is not None and self.whole.should_stop():
            self.stopped = self.whole.stopped
        elif self.stopped is None and self.has_used(self.share):
            self.stopped = f"max_time of {self.max_time:g} s reached"
        return self.stopped is not None

    def has_used(self, share: float) -> bool:
        """Return whether this share of ``max_time`` is over."""
        return self.max_time is not None and time.monotonic() - self._begun > share * self.max_time

    def until(self, share: float) -> Monitor:
        """Return a monitor of a first part of the run, which ends at this share of ``max_time``."""
        return self if self.max_time is None else replace(self, share=share, whole=self)

    def begin(self, phase: str, total: int) -> None:
        """Tell that a phase of ``total`` epochs begins."""
        if progress := self._shown.get("progress"):
            if "task" in self._shown:
                progress.remove_task(self._shown["task"])
            self._shown["task"] = progress.add_task(phase, total=total, note="")

    def advance(self, note: str = "") -> None:
        """Tell that one epoch of the phase is done."""
        if "task" in self._shown:
            self._shown["progress"].update(self._shown["task"], advance=1, note=note)

    @contextmanager
    def watching(self) -> Iterator[Monitor]:
        """Show progress and turn the first interrupt into a clean stop; a second one interrupts for real."""
        with _first_interrupt(self), progress_lines(self.verbose) as progress:
            self._shown["progress"] = progress
            try:
                yield self
            finally:
                self._shown.clear()


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

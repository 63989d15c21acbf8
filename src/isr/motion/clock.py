"""Clock: when a search's time ends. What takes long asks often, however deep inside, and ends by an exception."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_ENDS: ContextVar[float] = ContextVar("ends", default=float("inf"))


class OutOfTime(Exception):
    """The time of a search is over."""


def keep_time() -> None:
    """Raise `OutOfTime` once the time is over."""
    if time.monotonic() > _ENDS.get():
        raise OutOfTime


def time_left() -> float:
    """Return how many seconds are left."""
    return _ENDS.get() - time.monotonic()


@contextmanager
def until(ends: float) -> Iterator[None]:
    """Let `keep_time` raise from this monotonic time on, or from an earlier one that was set around it.

    Example:
        >>> with until(0.0):
        ...     keep_time()
        Traceback (most recent call last):
        ...
        isr.motion.clock.OutOfTime
    """
    before = _ENDS.set(min(ends, _ENDS.get()))
    try:
        yield
    finally:
        _ENDS.reset(before)

"""How much memory this process may still take, and a sentence for what would not fit.

XLA ends the process, without an error that could be caught, where it cannot have an array.
"""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

# Of each number drawn, with what is needed on the way.
BYTES_PER_DRAW = 64


def memory_left() -> float:
    """Return the bytes this process may still take: of the machine's free memory and of its own limit, the lesser."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        free = 1024.0 * next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))
        used = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * os.sysconf(
            "SC_PAGE_SIZE"
        )
        return min(free, address_space() - used)
    except (OSError, StopIteration, ValueError):  # not Linux
        pages = os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 0
        return float(pages) * os.sysconf("SC_PAGE_SIZE") if pages > 0 else math.inf


def address_space() -> float:
    """Return the limit of this process's address space (``ulimit -v``) in bytes."""
    try:
        import resource
    except ImportError:  # Windows
        return math.inf
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return math.inf if limit == resource.RLIM_INFINITY else float(limit)


def refuse_too_large(n_bytes: float, what: str, remedy: str) -> None:
    """Raise where something would take more memory than there is."""
    left = memory_left()
    if n_bytes > left:
        raise ValueError(
            f"{what} would take about {n_bytes / 1e9:,.0f} GB of memory, and {left / 1e9:,.1f} GB are left; {remedy}"
        )


def draw_count(n: Any, width: int, *, least: int = 1, what: str = "the number of draws") -> int:
    """Return how many rows of ``width`` numbers are to be drawn, once it is a whole number of them that has room.

    Example:
        >>> draw_count(4000.0, 2)
        4000
    """
    try:
        number = int(n)
        if isinstance(n, bool | str | bytes) or number != n or number < least:
            raise ValueError
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{what} must be a whole number, at least {least}, got {n!r}") from None
    refuse_too_large(BYTES_PER_DRAW * number * width, f"{number:,} draws", "ask for fewer at a time")
    return number


def refuse_small_address_space(n_bytes: float) -> None:
    """Raise where a limit of this process's address space would let XLA end it without a word."""
    limit = address_space()
    if limit < n_bytes:
        raise ValueError(
            f"this process may use {limit / 1e9:.1f} GB of address space (ulimit -v), and this needs about "
            f"{n_bytes / 1e9:.1f} GB; raise the limit, or limit memory by other means (a container, cgroups)"
        )

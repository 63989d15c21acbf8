"""Runs of things that come again and again in the same order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple


class Run(NamedTuple):
    """From ``start`` on, ``period`` things in a row that come ``times`` times one after the other."""

    start: int
    period: int
    times: int


def runs(looks: Sequence[Any], *, longest: int | None = None, least: int = 2) -> list[Run]:
    """Return how things that look like this fall into runs, each covering as many as can be.

    Args:
        looks: One look a thing; things are alike where their looks are equal.
        longest: Longest period; any when left out.
        least: What comes less often than this is taken one by one.

    Example:
        >>> [(run.period, run.times) for run in runs("ababab-cc")]
        [(2, 3), (1, 1), (1, 2)]
    """
    found, start = [], 0
    while start < len(looks):
        most = (len(looks) - start) // least
        periods = range(1, (most if longest is None else min(longest, most)) + 1)
        several = [
            run for run in (Run(start, p, _times(looks, start, p)) for p in periods) if run.times >= least
        ]
        found.append(max(several, key=lambda run: run.period * run.times, default=Run(start, 1, 1)))
        start += found[-1].period * found[-1].times
    return found


def _times(looks: Sequence[Any], start: int, period: int) -> int:
    first, end = looks[start : start + period], start + period
    while looks[end : end + period] == first:
        end += period
    return (end - start) // period

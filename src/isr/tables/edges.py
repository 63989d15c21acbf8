"""Edges: where the rows of a column end sharply, and what the bound there may be."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

# An end is sharp where half of its outermost rows (4 %, at least 40) lie within 0.61 of their distance from the end: a
# density that is level there gives a half, one that falls to zero in a straight line 0.71, a tail more.
OUTERMOST = 0.04
LEAST_OUTERMOST = 40
MOST_OF_DISTANCE = 0.61
# Gaps between rows within which the bound lies, and the share of its grid that they may be for a round number to count.
NEAR, ROUND = 7.0, 0.1


def ends_sharply(distance: Float[np.ndarray, "n d"], width: Float[np.ndarray, " d"]) -> np.ndarray:
    """Return for each column whether rows at these distances from its end stop there at once."""
    n = max(LEAST_OUTERMOST, int(OUTERMOST * len(distance)))
    if len(distance) < n / OUTERMOST:
        return np.zeros(len(width), bool)
    nearest = np.sort(distance, axis=0)[:n]
    return (nearest[n // 2] <= MOST_OF_DISTANCE * nearest[-1]) & (width > 0)


def sharp_ends(x: Float[np.ndarray, " n"]) -> tuple[float | None, float | None]:
    """Return the bounds that rows of a column end sharply at, a little outside of them; None where there is none.

    Example:
        >>> sharp_ends(np.random.default_rng(0).uniform(0, 3, 5000))
        (0.0, 3.0)
        >>> sharp_ends(np.random.default_rng(0).normal(size=5000))
        (None, None)
    """
    ends = []
    for sign in (1.0, -1.0):
        distance = np.sort(sign * x)
        distance = (distance - distance[0])[:, None]
        is_sharp = ends_sharply(distance, distance[-1])[0]
        ends.append(sign * _outside(float(np.min(sign * x)), distance[:, 0], sign) if is_sharp else None)
    return ends[0], ends[1]


def _outside(first: float, distance: np.ndarray, sign: float) -> float:
    """A round number just below the first row, or else one so far below that hardly a row will lie beyond."""
    n = max(LEAST_OUTERMOST, int(OUTERMOST * len(distance))) - 1
    gap = float(distance[min(n, len(distance) - 1)]) / n
    for digits in range(-int(np.floor(np.log10(distance[-1]))), 16):
        near = float(np.floor(first * 10.0**digits) / 10.0**digits)
        if 0 <= first - near <= NEAR * gap:
            return near if NEAR * gap <= ROUND * 10.0**-digits else first - NEAR * gap
    return first - NEAR * gap

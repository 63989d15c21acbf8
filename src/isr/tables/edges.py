"""Edges: where the rows of a column end sharply, and what the bound there may be."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from isr.tables.bounds import Bounds

# An end is sharp where its outermost rows (4 %, at least 40) are on average within 0.58 of the farthest one's distance
# from the end: a density that is level there gives a half, one that falls to zero in a straight line 0.67, a tail more.
OUTERMOST = 0.04
LEAST_OUTERMOST, LEAST_ROWS = 40, 400
MOST_OF_DISTANCE, BESIDE_A_SHARP_END = 0.58, 0.62
# From the low end rows are counted upwards, from the high end downwards.
SIGNS = (1.0, -1.0)
# Gaps between rows within which the bound lies, and the share of its grid that they may be for a round number to count.
NEAR, ROUND = 7.0, 0.06


def ends_sharply(
    distance: Float[np.ndarray, "n d"], width: Float[np.ndarray, " d"], most: float = MOST_OF_DISTANCE
) -> np.ndarray:
    """Return for each column whether rows at these distances from its end stop there at once."""
    n = max(LEAST_OUTERMOST, int(OUTERMOST * len(distance)))
    if len(distance) < LEAST_ROWS:
        return np.zeros(len(width), bool)
    nearest = np.sort(distance, axis=0)[:n]
    return (np.mean(nearest, axis=0) <= most * nearest[-1]) & (width > 0)


def sharp_ends(x: Float[np.ndarray, " n"]) -> tuple[float | None, float | None]:
    """Return the bounds that rows of a column end sharply at, a little outside of them; None where there is none.

    Example:
        >>> sharp_ends(np.random.default_rng(0).uniform(0, 3, 5000))
        (0.0, 3.0)
        >>> sharp_ends(np.random.default_rng(0).normal(size=5000))
        (None, None)
    """
    ordered = [np.sort(sign * x)[:, None] for sign in SIGNS]
    distances = [column - column[0] for column in ordered]
    is_any_sharp = any(ends_sharply(distance, distance[-1])[0] for distance in distances)
    most = BESIDE_A_SHARP_END if is_any_sharp else MOST_OF_DISTANCE
    low, high = (
        sign * _outside(float(column[0, 0]), distance[:, 0])
        if ends_sharply(distance, distance[-1], most)[0]
        else None
        for sign, column, distance in zip(SIGNS, ordered, distances, strict=True)
    )
    return low, high


def sharp_box(x: Float[np.ndarray, "n d"]) -> Bounds | None:
    """Return the bounds of every column at which its rows end sharply; None where no column has any.

    Rows that lie on such a bound themselves, as those of whole numbers do, leave it open.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> rows = [rng.uniform(0, 3, 5000), rng.normal(size=5000), rng.integers(0, 4, 5000)]
        >>> sharp_box(np.column_stack(rows)).pairs()
        ((0.0, 3.0), (None, None), (None, None))
    """
    pairs = []
    for column in x.T:
        low, high = sharp_ends(column)
        inside_low, inside_high = (
            low is not None and low < column.min(),
            high is not None and high > column.max(),
        )
        pairs.append((low if inside_low else None, high if inside_high else None))
    box = Bounds.from_pairs(pairs)
    return box if np.isfinite([*box.low, *box.high]).any() else None


def end_gap(x: Float[np.ndarray, " n"]) -> float:
    """Return how far rows are apart near the lower end of a column, by its outermost ones."""
    distance = np.sort(x) - x.min()
    n = min(max(LEAST_OUTERMOST, int(OUTERMOST * len(x))), len(x)) - 1
    return float(distance[n]) / n


def _outside(first: float, distance: np.ndarray) -> float:
    """A round number just below the first row, or else one so far below that hardly a row will lie beyond."""
    gap = end_gap(distance)
    for digits in range(-int(np.floor(np.log10(distance[-1]))), 16):
        near = float(np.floor(first * 10.0**digits) / 10.0**digits)
        if 0 <= first - near <= NEAR * gap:
            return near if NEAR * gap <= ROUND * 10.0**-digits else first - NEAR * gap
    return first - NEAR * gap

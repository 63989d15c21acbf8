"""Bounds: the box the values of a table must lie in, and where its rows end sharply."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float

from isr.tables.names import quoted

Pair = tuple[float | None, float | None]


@dataclasses.dataclass(frozen=True)
class Bounds:
    """A closed box, one interval per column from ``low`` to ``high``; ``-inf`` and ``inf`` are open ends.

    Example:
        >>> box = Bounds((0.0, 200.0), (1.0, float("inf")))
        >>> str(box), box.pairs() == Bounds.from_pairs(box.pairs()).pairs()
        ('[0, 1] x [200, inf]', True)
        >>> box.pairs(), box.is_finite, box.contains(np.array([[0.5, 210.0], [2.0, 210.0]])).tolist()
        (((0.0, 1.0), (200.0, None)), False, [True, False])
        >>> box.widths
        array([ 1., inf])
        >>> box.check(np.array([[0.5, 210.0]]), ("share", "depth"))
    """

    low: tuple[float, ...]
    high: tuple[float, ...]

    @classmethod
    def from_pairs(cls, pairs: Sequence[Pair]) -> Bounds:
        """Return the box of pairs ``(low, high)``, None for an open end."""
        low, high = zip(*pairs, strict=True)
        return cls(
            tuple(-math.inf if a is None else float(a) for a in low),
            tuple(math.inf if b is None else float(b) for b in high),
        )

    def __str__(self) -> str:
        return " x ".join(f"[{a:.10g}, {b:.10g}]" for a, b in zip(self.low, self.high, strict=True))

    @property
    def is_finite(self) -> bool:
        """Whether no end is open."""
        return bool(np.isfinite([*self.low, *self.high]).all())

    @property
    def widths(self) -> np.ndarray:
        """How wide each interval is."""
        return np.subtract(self.high, self.low)

    def contains(self, rows: np.ndarray) -> np.ndarray:
        """Return for each row whether it lies inside."""
        return np.all((rows >= np.asarray(self.low)) & (rows <= np.asarray(self.high)), axis=1)

    def pairs(self) -> tuple[Pair, ...]:
        """Return ``(low, high)`` of each column, with None for an open end."""
        return tuple(
            (low if math.isfinite(low) else None, high if math.isfinite(high) else None)
            for low, high in zip(self.low, self.high, strict=True)
        )

    def check(self, values: np.ndarray, names: Sequence[str], *, what: str = "x") -> None:
        """Raise ValueError, naming column, row, value and bound, unless all values lie in the box."""
        below, above = values < np.asarray(self.low), values > np.asarray(self.high)
        outside = below | above
        if not outside.any():
            return
        column = int(np.flatnonzero(outside.any(axis=0))[0])
        row = int(np.flatnonzero(outside[:, column])[0])
        side, bound = (
            ("below its lower bound", self.low[column])
            if below[row, column]
            else ("above its upper bound", self.high[column])
        )
        n_rows = int(outside[:, column].sum())
        raise ValueError(
            f"column {names[column]!r} of {what} has the value {float(values[row, column])!r} in row {row}, "
            f"{side} {bound!r} ({n_rows} of {len(values)} rows are outside); widen the bound or drop these rows"
        )


def parse_bounds(
    bounds: Bounds | Mapping[str, Sequence[float | None]] | Sequence[Sequence[float | None] | None] | None,
    names: Sequence[str],
) -> Bounds | None:
    """Return bounds in the order of ``names``, or None when every side is open.

    Args:
        bounds: A mapping from name to ``(low, high)``, where names left out are unbounded; or a list with one pair,
            or None, a column. None within a pair leaves that side open.
        names: Names of the columns.

    Example:
        >>> parse_bounds({"depth": (0, None)}, ["speed", "depth"])
        Bounds(low=(-inf, 0.0), high=(inf, inf))
    """
    if bounds is None:
        return None
    if isinstance(bounds, Bounds):
        bounds = bounds.pairs()
    if isinstance(bounds, Mapping):
        unknown = [str(name) for name in bounds if name not in names]
        if unknown:
            raise ValueError(f"bounds for unknown columns {quoted(unknown)}; the columns are {quoted(names)}")
        bounds = [bounds.get(name) for name in names]
    if isinstance(bounds, str) or not isinstance(bounds, Sequence | np.ndarray):
        raise TypeError(f"bounds must be a mapping or a list of pairs, got {type(bounds).__name__}")
    if len(bounds) != len(names):
        raise ValueError(
            f"{len(bounds)} bounds for {len(names)} columns; give one (low, high) pair for each column"
        )
    return _box([_interval(pair, name) for pair, name in zip(bounds, names, strict=True)])


def _box(pairs: Sequence[Pair]) -> Bounds | None:
    box = Bounds.from_pairs(pairs)
    return box if np.isfinite([*box.low, *box.high]).any() else None


def _interval(pair: Sequence[float | None] | None, name: str) -> tuple[float, float]:
    try:
        low, high = (None, None) if pair is None else pair
        ends = (-math.inf if low is None else low, math.inf if high is None else high)
        if any(isinstance(end, str | bytes) or math.isnan(end) for end in ends):
            raise ValueError
    except (TypeError, ValueError):
        raise ValueError(
            f"bounds of {name!r} must be a pair (low, high) of numbers or None, got {pair!r}"
        ) from None
    if not ends[0] < ends[1]:
        raise ValueError(f"bounds of {name!r} must have low < high, got low={ends[0]} and high={ends[1]}")
    return float(ends[0]), float(ends[1])


# Sharp ends ----------------------------------------------------------------------------------------------------------

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
    """Return the bounds that rows of a column end sharply at, a little outside of them; None where there is none."""
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
    """
    pairs: list[Pair] = []
    for column in x.T:
        low, high = sharp_ends(column)
        low = low if low is not None and low < column.min() else None
        pairs.append((low, high if high is not None and high > column.max() else None))
    return _box(pairs)


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

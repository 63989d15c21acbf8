"""Where training rows of x lie, and how many draws of a posterior leave that range.

A model knows nothing of x outside its rows. Where rows end sharply, as those of a uniform prior do, draws beyond them
are wrong.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

# Share of draws outside the range of the training rows above which a warning is issued.
MOST_OUTSIDE = 0.01
# An end is sharp where half of its outermost rows (4 %, at least 40) lie within 0.61 of their distance from the end: a
# density that is level there gives a half, one that falls to zero in a straight line 0.71, a tail more.
OUTERMOST = 0.04
LEAST_OUTERMOST = 40
MOST_OF_DISTANCE = 0.61


class OutsideDataWarning(UserWarning):
    """Many draws of a posterior lie outside the range of the training rows; the message says how many."""


@dataclass(frozen=True, eq=False)
class Extent:
    """The range of training rows: smallest and largest value of each column, and whether rows end sharply there.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> extent = Extent.of(np.column_stack([rng.uniform(0, 80, 5000), rng.normal(size=5000)]))
        >>> extent.sharp_low.tolist(), extent.sharp_high.tolist()
        ([True, False], [True, False])
        >>> extent.share_outside(np.array([[40.0, 0.0], [81.0, 0.0]]))
        0.5
        >>> Extent.from_dict(extent.to_dict()).suggestion(["temperature", "drift"])
        "bounds={'temperature': (0, 80)}"
    """

    low: Float[np.ndarray, " d"]
    high: Float[np.ndarray, " d"]
    sharp_low: np.ndarray
    sharp_high: np.ndarray

    @classmethod
    def of(cls, x: Float[np.ndarray, "n d"]) -> Extent:
        """Return the extent of rows."""
        low, high = x.min(axis=0), x.max(axis=0)
        return cls(low, high, _ends_sharply(x - low, high - low), _ends_sharply(high - x, high - low))

    def share_outside(self, draws: Float[np.ndarray, "n d"]) -> float:
        """Return the share of draws with a value outside the range of its column."""
        return float(np.mean(np.any((draws < self.low) | (draws > self.high), axis=1)))

    def suggestion(self, names: Sequence[str]) -> str:
        """Return the option that keeps draws inside where rows end sharply; empty where none does."""
        found = []
        for name, low, high, at_low, at_high in zip(names, *self.to_dict().values(), strict=True):
            width = high - low
            ends = [
                _rounded(end, width) if sharp else None for end, sharp in ((low, at_low), (high, at_high))
            ]
            if at_low or at_high:
                found.append(f"{name!r}: ({ends[0]}, {ends[1]})")
        return f"bounds={{{', '.join(found)}}}" if found else ""

    def to_dict(self) -> dict[str, np.ndarray]:
        """Return the arrays by name."""
        return {name: getattr(self, name) for name in ("low", "high", "sharp_low", "sharp_high")}

    @classmethod
    def from_dict(cls, arrays: Mapping[str, Any]) -> Extent:
        """Return the extent that `to_dict` took apart."""
        ends = (np.asarray(arrays[name], float) for name in ("low", "high"))
        return cls(*ends, *(np.asarray(arrays[name], bool) for name in ("sharp_low", "sharp_high")))


def warn_if_outside(extent: Extent, draws: np.ndarray, names: Sequence[str], *, stacklevel: int = 2) -> None:
    """Issue an `OutsideDataWarning` where more than 1 % of the draws lie outside the range of the training rows."""
    share = extent.share_outside(draws)
    if share > MOST_OUTSIDE:
        suggestion = extent.suggestion(names)
        remedy = f"fit with {suggestion}" if suggestion else "give bounds where x is known to be bounded"
        warnings.warn(
            f"{share:.1%} of the draws lie outside the range of the training rows, where the model has seen nothing; "
            f"{remedy}, or train on rows that reach farther",
            OutsideDataWarning,
            stacklevel=stacklevel + 1,
        )


def _ends_sharply(distance: np.ndarray, width: np.ndarray) -> np.ndarray:
    n = max(LEAST_OUTERMOST, int(OUTERMOST * len(distance)))
    if len(distance) < n / OUTERMOST:
        return np.zeros(len(width), bool)
    nearest = np.sort(distance, axis=0)[:n]
    return (nearest[n // 2] <= MOST_OF_DISTANCE * nearest[-1]) & (width > 0)


def _rounded(end: float, width: float) -> str:
    """The end as a person would write it: rounded to a five-hundredth of the range where that is near."""
    digits = 2 - int(np.floor(np.log10(width)))
    near = round(float(end), digits)
    return f"{near + 0.0:.10g}" if abs(near - end) < 0.005 * width else f"{end:.6g}"

"""Is an observation like those a model was trained on, and do draws stay where training rows were?

A model extrapolates where they do not, and cannot tell. Three measures of an observation are each compared with those
of training rows: the distance from the centre (Mahalanobis), the distance from the nearest training rows, which sees
gaps between modes, and the largest deviation of a single column. Where rows of x end sharply, as those of a uniform
prior do, draws beyond them are wrong.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy.spatial.distance import cdist

from isr.tables.bounds import Bounds, ends_sharply
from isr.tables.names import quoted

# Share of draws outside the range of the training rows above which a warning is issued.
MOST_OUTSIDE = 0.01


class OutsideDataWarning(UserWarning):
    """Many draws of a posterior lie outside the range of the training rows; the message says how many."""


class _Arrays:
    """Arrays that a file holds by name."""

    def to_dict(self) -> dict[str, np.ndarray]:
        """Return the arrays by name."""
        return dict(vars(self))

    @classmethod
    def from_dict(cls, arrays: Mapping[str, Any]) -> Self:
        """Return what `to_dict` took apart."""
        kinds = {name: bool if name.startswith("sharp") else float for name in cls.__annotations__}
        return cls(**{name: np.asarray(arrays[name], kind) for name, kind in kinds.items()})


@dataclass(frozen=True, eq=False)
class Extent(_Arrays):
    """The range of training rows: smallest and largest value of each column, and whether rows end sharply there.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> extent = Extent.of(np.column_stack([rng.uniform(0, 80, 5000), rng.normal(size=5000)]))
        >>> extent.sharp_low.tolist(), extent.sharp_high.tolist()
        ([True, False], [True, False])
        >>> extent.share_outside(np.array([[40.0, 0.0], [81.0, 0.0]]))
        0.5
        >>> extent.widened(Bounds.from_pairs([(-5, 85), (None, None)])).share_outside(np.array([[81.0, 0.0]]))
        0.0
        >>> Extent.from_dict(extent.to_dict()).low.tolist() == extent.low.tolist()
        True
    """

    low: Float[np.ndarray, " d"]
    high: Float[np.ndarray, " d"]
    sharp_low: np.ndarray
    sharp_high: np.ndarray

    @classmethod
    def of(cls, x: Float[np.ndarray, "n d"]) -> Extent:
        """Return the extent of rows."""
        low, high = x.min(axis=0), x.max(axis=0)
        return cls(low, high, ends_sharply(x - low, high - low), ends_sharply(high - x, high - low))

    def widened(self, bounds: Bounds) -> Extent:
        """Return the extent out to the bounds that draws never leave, where there are any."""
        low, high = np.asarray(bounds.low), np.asarray(bounds.high)
        low, high = np.where(np.isfinite(low), low, self.low), np.where(np.isfinite(high), high, self.high)
        return replace(self, low=np.minimum(low, self.low), high=np.maximum(high, self.high))

    def share_outside(self, draws: Float[np.ndarray, "n d"]) -> float:
        """Return the share of draws with a value outside the range of its column."""
        return float(np.mean(np.any((draws < self.low) | (draws > self.high), axis=1)))


def warn_if_outside(extent: Extent, draws: np.ndarray, names: Sequence[str]) -> None:
    """Issue an `OutsideDataWarning` where more than 1 % of the draws lie outside the range of the training rows."""
    share = extent.share_outside(draws)
    if share > MOST_OUTSIDE:
        left = np.any((draws < extent.low) | (draws > extent.high), axis=0)
        where = quoted([name for name, is_left in zip(names, left, strict=True) if is_left])
        warnings.warn(
            f"{share:.1%} of the draws lie outside the range of the training rows, in {where}, where the model has "
            "seen nothing; give bounds where x is known to be bounded, or train on rows that reach farther",
            OutsideDataWarning,
            stacklevel=3,
        )


N_ROWS = 20_000
N_REFERENCES = 1000
N_SCORES = 4000
N_DIRECTIONS = 32
NEIGHBOUR = 3
# Directions in which training rows hardly vary count as this wide (correlation units), so that rounding is no alarm.
LEAST_WIDTH = 1e-3


class OutOfDistributionWarning(UserWarning):
    """An observation is unlike the training data; the message says where and what to do."""


@dataclass(frozen=True)
class Likeness:
    """How like the training data one observation is, or some rows of them.

    Args:
        p_value: Share of training rows at least as far out, corrected for three measures; the smallest of all rows.
        unusual: Whether some row is farther out than every training row compared with.
        outside: Numbers of the columns with a value outside the range of the training rows.
        n_unusual: How many of the rows are unusual.
    """

    p_value: float
    unusual: bool
    outside: tuple[int, ...]
    n_unusual: int


@dataclass(frozen=True, eq=False)
class TrainingRecord(_Arrays):
    """What to remember of the training observations, small enough to be saved with a model.

    Args:
        shift: Mean of each column.
        scale: Standard deviation of each column.
        low: Smallest value of each column.
        high: Largest value of each column.
        directions: Columns are principal directions of the standardised rows, over their standard deviation.
        residual_scale: Typical distance of a row from these directions; 0 where they span all columns.
        references: Some training rows in these directions.
        scores: The three measures of some training rows, each column sorted.

    Example:
        >>> y = np.random.default_rng(0).normal(size=(500, 2))
        >>> record = TrainingRecord.of(y)
        >>> record.check([0.1, 0.2]).unusual, record.check([0.1, 9.0]).outside
        (False, (1,))
        >>> TrainingRecord.from_dict(record.to_dict()).check(np.zeros(2)).unusual
        False
    """

    shift: Float[np.ndarray, " d"]
    scale: Float[np.ndarray, " d"]
    low: Float[np.ndarray, " d"]
    high: Float[np.ndarray, " d"]
    directions: Float[np.ndarray, "d r"]
    residual_scale: Float[np.ndarray, ""]
    references: Float[np.ndarray, "m q"]
    scores: Float[np.ndarray, "n 3"]

    @classmethod
    def of(cls, y: ArrayLike, *, random_state: int = 0) -> "TrainingRecord":
        """Return the record of training observations, given as rows, noise included."""
        rows = np.asarray(y, dtype=float)
        if rows.ndim != 2 or len(rows) < 2 or not np.isfinite(rows).all():
            raise ValueError(f"y must be at least two finite rows, got an array of shape {rows.shape}")
        low, high = rows.min(axis=0), rows.max(axis=0)
        rows = np.random.default_rng(random_state).permutation(rows)[:N_ROWS]
        shift, scale = rows.mean(axis=0), rows.std(axis=0)
        largest = np.maximum(np.abs(rows).max(axis=0), 1e-300)
        scale = np.where(scale > 1e-12 * largest, scale, 1e-6 * largest)
        # Principal directions over their standard deviation, and the root mean square of what they leave.
        standard = (rows - shift) / scale
        variances, vectors = np.linalg.eigh(standard.T @ standard / len(standard))
        order = np.argsort(variances)[::-1]
        kept, left = order[:N_DIRECTIONS], order[N_DIRECTIONS:]
        directions = vectors[:, kept] / np.sqrt(np.maximum(variances[kept], LEAST_WIDTH**2))
        residual = np.sqrt(np.maximum(variances[left], 0.0).sum())
        residual_scale = np.asarray(max(residual, LEAST_WIDTH) if len(left) else 0.0)
        draft = cls(shift, scale, low, high, directions, residual_scale, np.empty((0, 0)), np.empty((0, 3)))
        draft = replace(draft, references=draft._whiten(rows[:N_REFERENCES])[1])
        # A row that is a reference itself must not count as its own neighbour.
        scores = draft._scores(rows[:N_SCORES], own=len(draft.references))
        return replace(draft, scores=np.sort(scores, axis=0))

    def check(self, y_star: ArrayLike) -> Likeness:
        """Return how like the training data one observation, or each of some rows, is."""
        rows = np.atleast_2d(np.asarray(y_star, dtype=float))
        if rows.shape[1] != len(self.shift):
            raise ValueError(
                f"y_star has {rows.shape[1]} values, the training data {len(self.shift)} columns"
            )
        scores, n = self._scores(rows), len(self.scores)
        below = [np.searchsorted(known, score) for known, score in zip(self.scores.T, scores.T, strict=True)]
        fewest_above = n - np.max(below, axis=0)
        outside = np.any((rows < self.low) | (rows > self.high), axis=0)
        p_value = min(1.0, len(below) * float(1 + fewest_above.min()) / (n + 1))
        n_unusual = int(np.sum(fewest_above == 0))
        return Likeness(p_value, n_unusual > 0, tuple(np.flatnonzero(outside).tolist()), n_unusual)

    def _whiten(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        standard = (rows - self.shift) / self.scale
        inside = standard @ self.directions
        if self.residual_scale == 0:
            return standard, inside
        basis = self.directions / np.linalg.norm(self.directions, axis=0)
        residual = np.linalg.norm(standard - standard @ basis @ basis.T, axis=1)
        return standard, np.column_stack([inside, residual / self.residual_scale])

    def _scores(self, rows: np.ndarray, own: int = 0) -> np.ndarray:
        standard, whitened = self._whiten(rows)
        distances = np.sort(cdist(whitened, self.references), axis=1)
        k = min(NEIGHBOUR, distances.shape[1] - 1)
        nearest = np.where(np.arange(len(rows)) < own, distances[:, k], distances[:, k - 1])
        return np.column_stack([np.linalg.norm(whitened, axis=1), nearest, np.abs(standard).max(axis=1)])


def warn_if_unlike(
    training: TrainingRecord, y_star: ArrayLike, names: Sequence[str], *, stacklevel: int = 2
) -> Likeness:
    """Return how like the training data ``y_star`` is, and issue an `OutOfDistributionWarning` where it is not.

    Example:
        >>> training = TrainingRecord.of(np.random.default_rng(0).normal(size=(200, 2)))
        >>> warn_if_unlike(training, [0.1, 0.2], ["vertical", "horizontal"]).unusual
        False
    """
    rows = np.atleast_2d(np.asarray(y_star, dtype=float))
    found = training.check(rows)
    if found.unusual:
        who = "y_star is" if len(rows) == 1 else f"{found.n_unusual} of {len(rows)} observations are"
        low, high = training.low, training.high
        farthest = rows[np.argmax(np.maximum(low - rows, rows - high), axis=0), np.arange(rows.shape[1])]
        what = [
            f"{names[i]!r} is {farthest[i]:.4g}, trained on {low[i]:.4g} to {high[i]:.4g}"
            for i in found.outside
        ] or ["each value lies within its trained range, but not their combination"]
        more = [f"and {len(what) - 5} more columns"] if len(what) > 5 else []
        warnings.warn(
            f"{who} unlike the training data, farther out than each of {len(training.scores)} training rows: "
            f"{'; '.join([*what[:5], *more])}. The posterior is an extrapolation; check units and "
            "order of the columns, or train on data that cover this observation",
            OutOfDistributionWarning,
            stacklevel=stacklevel + 1,
        )
    return found

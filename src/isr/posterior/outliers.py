"""Is an observation like those a model was trained on, was the model right there, and do draws stay in the data?

A model extrapolates where they do not, and cannot tell. Three measures of an observation are each compared with those
of training rows: the distance from the centre (Mahalanobis), the distance from the nearest training rows, which sees
gaps between modes, and the largest deviation of a single column. The latents of the rows nearest to it tell whether the
model was right there. Where rows of x end sharply, as those of a uniform prior do, draws beyond them are wrong.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy import stats
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
        return cls(**{n: np.asarray(arrays[n], kind) for n, kind in kinds.items() if n in arrays})


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
# Rows whose latents are kept, and numbers in all; how many of the nearest are judged, and when chance is no excuse.
N_LATENTS, MOST_NUMBERS = 4000, 100_000
NEAREST, CHANCE = (15, 30, 60, 120), 0.002


class MiscalibratedWarning(UserWarning):
    """The model was wrong about the training rows nearest to an observation; the message says how."""


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
        places: Some training rows in these directions again, where their latents are known.
        latents: The latents a model gives them: standard normal numbers wherever it is right.

    Example:
        >>> y = np.random.default_rng(0).normal(size=(500, 2))
        >>> record = TrainingRecord.of(y)
        >>> record.check([0.1, 0.2]).unusual, record.check([0.1, 9.0]).outside
        (False, (1,))
        >>> TrainingRecord.from_dict(record.to_dict()).check(np.zeros(2)).unusual
        False
        >>> record.with_latents(y, 2 * np.random.default_rng(1).normal(size=(500, 3))).misfit_near([0.0, 0.0])
        'of the 120 training rows nearest to it, truths lie farther out than it allows: 2.2'
    """

    shift: Float[np.ndarray, " d"]
    scale: Float[np.ndarray, " d"]
    low: Float[np.ndarray, " d"]
    high: Float[np.ndarray, " d"]
    directions: Float[np.ndarray, "d r"]
    residual_scale: Float[np.ndarray, ""]
    references: Float[np.ndarray, "m q"]
    scores: Float[np.ndarray, "n 3"]
    places: Float[np.ndarray, "k q"] = field(default_factory=lambda: np.empty(0))
    latents: Float[np.ndarray, "k d"] = field(default_factory=lambda: np.empty(0))

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

    def with_latents(self, y: Float[np.ndarray, "n d"], latents: Float[np.ndarray, "n x"]) -> Self:
        """Return the record with what a model makes of training rows: their latents, beside their y with its noise."""
        places, seen = self._whiten(y)[1], np.isfinite(latents).all(axis=1)
        n = min(N_LATENTS, MOST_NUMBERS // (places.shape[1] + latents.shape[1]))
        return replace(self, places=places[seen][:n], latents=latents[seen][:n])

    def misfit_near(self, y_star: ArrayLike) -> str:
        """Return how the model was wrong about the training rows nearest to an observation; empty where it was not.

        The sum and the sum of squares of their latents are compared with those of normal numbers, for several numbers
        of neighbours: chance is corrected for all of these tests, and for the number of observations.
        """
        if len(self.latents) < NEAREST[0]:
            return ""
        order = np.argsort(cdist(self._whiten(np.atleast_2d(y_star))[1], self.places), axis=1, kind="stable")
        worst, found = 1.0, ""
        for k in (k for k in NEAREST if k <= len(self.latents)):
            near = self.latents[order[:, :k]]
            shift, size = near.mean(axis=1), np.sqrt(np.mean(near**2, axis=1))
            tests = {
                "off to one side by": (np.abs(shift), 2 * stats.norm.sf(np.abs(shift) * np.sqrt(k))),
                "farther out than it allows:": (size, 2 * stats.chi2.sf(k * size**2, k)),
                "closer in than it allows:": (size, 2 * stats.chi2.cdf(k * size**2, k)),
            }
            for what, (far, p_values) in tests.items():
                p = float(np.min(p_values)) * 2 * len(NEAREST) * p_values.size
                if p < min(worst, CHANCE):
                    worst, far = p, far.flat[np.argmin(p_values)]
                    found = f"of the {k} training rows nearest to it, truths lie {what} {far:.2g}"
        return found

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
    """Return how like the training data ``y_star`` is; issue an `OutOfDistributionWarning` where it is not, and a
    `MiscalibratedWarning` where the model was wrong about training rows near it.

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
    elif misfit := training.misfit_near(rows):
        warnings.warn(
            f"near {'this observation' if len(rows) == 1 else 'some of these observations'} the model is not right: "
            f"{misfit} standard deviations. Give more rows there, take the accurate goal, or isr.Inversion, which "
            "corrects by the law of y",
            MiscalibratedWarning,
            stacklevel=stacklevel + 1,
        )
    return found

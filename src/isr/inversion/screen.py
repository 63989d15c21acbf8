"""Tests of dependence: does a column, its size, or a product of residuals change with x?

Scores are sums of a column times features of x, each compared with its own spread, so that heavy tails and unequal
noise raise no alarm. Features are polynomials, waves and products of the ranks of x; the largest score is judged at a
level corrected for their number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np
from jaxtyping import Float
from scipy.spatial import KDTree
from scipy.special import log_ndtr, ndtri
from scipy.stats import rankdata

# Chance of a false alarm in one test of all features.
LEVEL = 1e-3
# Rows that laws are found on, at most; fewer than FEW are told.
N_ROWS, FEW = 20_000, 100
# An instrument saturates where a larger share of rows than this, and more than so many, lie on one end of a column.
PILED, FEWEST_PILED = 0.01, 5
# Rounding to steps that are this many times what a law leaves is no noise.
COARSE = 1.5
# Windows that stand out hold so many rows at least, a quarter of all at most; those around a row no more than this.
NARROWEST, WIDEST_BALL = 8, 64
# Pairs of variables whose products are features, at most.
MOST_PAIRS = 400


def normal_scores(values: Float[np.ndarray, "n ..."]) -> Float[np.ndarray, "n ..."]:
    """Return the standard normal quantiles of ranks along the first axis.

    Example:
        >>> normal_scores(np.array([3.0, 100.0, -1.0])).round(2).tolist()
        [0.0, 0.67, -0.67]
    """
    return ndtri(rankdata(values, axis=0) / (len(values) + 1))


def _widths(n: int, most: int | None = None) -> list[int]:
    """Powers of two from the narrowest window to a quarter of the rows, or the most."""
    widest = n // 4 if most is None else most
    return [w for w in (NARROWEST * 2**k for k in range(16)) if w <= widest]


def two_sided(z: float) -> float:
    """Return the p-value of a standard normal score."""
    return float(2 * np.exp(log_ndtr(-abs(z))))


@dataclass(frozen=True, eq=False)
class Features:
    """Features of rows of x that a dependence would show in.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> x = rng.uniform(-1, 1, size=(2000, 3))
        >>> features = Features(x)
        >>> noise = rng.normal(size=2000)
        >>> features.p_value(noise) > LEVEL, features.p_value(x[:, 1] ** 2 + noise) < 1e-6
        (True, True)
        >>> features.variables(x[:, 1] ** 2 + 0.1 * rng.normal(size=2000))
        [1]
    """

    x: Float[np.ndarray, "n d"]

    @cached_property
    def _built(self) -> tuple[np.ndarray, list[tuple[int, ...]]]:
        """Standardised features, and the variables that each reads."""
        d, u = self.x.shape[1], normal_scores(self.x)
        v = np.pi * (rankdata(self.x, axis=0) / (len(self.x) + 1))
        columns: list[np.ndarray] = []
        owners: list[tuple[int, ...]] = []
        for j in range(d):
            waves = [f(k * v[:, j]) for k in (1, 2, 3, 4, 6) for f in (np.sin, np.cos)]
            columns += [u[:, j], u[:, j] ** 2, u[:, j] ** 3, np.abs(u[:, j]), *waves]
            owners += [(j,)] * (4 + len(waves))
        for j, i in list(combinations(range(d), 2))[:MOST_PAIRS]:
            columns += [u[:, i] * u[:, j], np.abs(u[:, i] + u[:, j]), np.abs(u[:, i] - u[:, j])]
            columns += [np.sin(v[:, i] + v[:, j]), np.cos(v[:, i] + v[:, j]), np.sin(v[:, i] - v[:, j])]
            owners += [(i, j)] * 6
        features = np.column_stack(columns)
        spread = features.std(axis=0)
        kept = spread > 1e-9
        features = (features[:, kept] - features[:, kept].mean(axis=0)) / spread[kept]
        return features, [owner for owner, keep in zip(owners, kept, strict=True) if keep]

    @cached_property
    def _squares(self) -> np.ndarray:
        return self._built[0] ** 2

    def scores(self, values: Float[np.ndarray, " n"]) -> Float[np.ndarray, " k"]:
        """Return the score of each feature, standard normal where the values do not depend on x."""
        centred = values - values.mean()
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.nan_to_num(centred @ self._built[0] / np.sqrt((centred**2) @ self._squares))

    def p_value(self, values: Float[np.ndarray, " n"], *, trend: bool = False) -> float:
        """Return the p-value of "the mean of the values does not depend on x", corrected for the number of features.

        With ``trend`` nearest neighbours are looked at too, all together and window by window: they see what no feature
        does.
        """
        largest = float(np.max(np.abs(self.scores(values)), initial=0.0))
        least = two_sided(largest) * max(1, len(self._built[1]))
        if trend:
            # The three share the chance of a false alarm as 3 : 1 : 1.
            local = min(two_sided(self.neighbours(values)), self.windows(values))
            least = min(least / 0.6, local / 0.2)
        return min(1.0, least)

    def neighbours(self, values: Float[np.ndarray, " n"]) -> float:
        """Return how alike values of nearest neighbours in x are, standard normal where they do not depend on x."""
        centred = values - values.mean()
        products = np.prod(centred[self._pairs], axis=0)
        size = np.sqrt(np.sum(products**2))
        return float(max(np.sum(products) / size, 0.0)) if size > 0 else 0.0

    def windows(self, values: Float[np.ndarray, " n"]) -> float:
        """Return the p-value of the window of rows whose values stand out most, corrected for the number of windows.

        Windows of 8, 16, ... rows are neighbours along one variable, or around a row in all. A law that bends where the
        truth jumps is wrong in one of them alone. Ranks decide, so heavy tails raise no alarm.
        """
        scores, largest, n_windows = normal_scores(values), 0.0, 0
        for order in self._orders:
            sums = np.concatenate([[0.0], np.cumsum(scores[order])])
            for width in _widths(len(scores)):
                found = (sums[width:] - sums[:-width])[:: width // 4] / np.sqrt(width)
                largest, n_windows = max(largest, float(np.abs(found).max())), n_windows + len(found)
        for width in _widths(len(scores), self._balls.shape[1]):
            found = scores[self._balls[:, :width]].sum(axis=1) / np.sqrt(width)
            largest, n_windows = max(largest, float(np.abs(found).max())), n_windows + len(found)
        return min(1.0, two_sided(largest) * n_windows) if n_windows else 1.0

    @cached_property
    def _orders(self) -> list[np.ndarray]:
        """The rows in the order of each variable."""
        return [np.argsort(column, kind="stable") for column in self.x.T if np.ptp(column) > 0]

    @cached_property
    def _balls(self) -> np.ndarray:
        """Neighbours, nearest first, of every fourth row where there is more than one variable."""
        points, most = rankdata(self.x, axis=0) / len(self.x), min(WIDEST_BALL, len(self.x) // 4)
        if len(self._orders) < 2 or most < NARROWEST:
            return np.zeros((0, 0), int)
        return np.asarray(KDTree(points).query(points[::4], k=most)[1])

    @cached_property
    def _pairs(self) -> np.ndarray:
        """Nearest neighbours, each pair once and no row in two pairs, ``(2, pairs)``."""
        points = rankdata(self.x, axis=0) / len(self.x)
        nearest = np.asarray(KDTree(points).query(points, k=2)[1])[:, 1]
        free = np.ones(len(points), bool)
        pairs = []
        for i, j in enumerate(nearest):
            if free[i] and free[j] and i != j:
                free[[i, j]] = False
                pairs.append((i, j))
        return np.array(pairs).T

    def variables(self, values: Float[np.ndarray, " n"]) -> list[int]:
        """Return the variables that some significant feature of the values reads, seen after stronger ones are out."""
        features, owners = self._built
        scores_of = normal_scores(values)
        rest, found = scores_of, set[int]()
        bound = -ndtri(0.5 * LEVEL / len(owners))
        for _ in range(2 * self.x.shape[1]):
            scores = np.abs(self.scores(rest))
            best = int(np.argmax(scores))
            if scores[best] < bound:
                break
            found |= set(owners[best])
            block = features[:, [k for k, owner in enumerate(owners) if set(owner) <= found]]
            gram = block.T @ block + 1e-3 * len(block) * np.eye(block.shape[1])
            rest = scores_of - block @ np.linalg.solve(gram, block.T @ scores_of)
        return sorted(found)


def depends(features: Features, values: Float[np.ndarray, " n"], n_tests: int = 1) -> bool:
    """Return whether a column changes with x: its ranks, or how far they are from the middle.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> x = rng.normal(size=(2000, 1))
        >>> depends(Features(x), rng.standard_cauchy(2000)), depends(Features(x), x[:, 0] * rng.standard_cauchy(2000))
        (False, True)
    """
    sizes = np.abs(values - np.median(values))
    return 2 * n_tests * min(features.p_value(normal_scores(v)) for v in (values, sizes)) < LEVEL


def alike(features: Features, a: Float[np.ndarray, " n"], b: Float[np.ndarray, " n"]) -> bool:
    """Return whether two columns may have the same mean for every x: their difference has mean 0 and no trend."""
    difference = a - b
    spread = difference.std()
    if spread == 0:
        return True
    mean_score = float(difference.mean() / spread * np.sqrt(len(difference)))
    return two_sided(mean_score) > LEVEL and features.p_value(difference) > LEVEL


def classes(features: Features, columns: Sequence[np.ndarray]) -> list[list[int]]:
    """Return the numbers of columns sorted into classes whose members are alike.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> x = rng.normal(size=(2000, 1))
        >>> classes(Features(x), (x + 0.5 * rng.normal(size=(2000, 3)) + [0, 0, 1]).T)
        [[0, 1], [2]]
    """
    found: list[list[int]] = []
    for j, column in enumerate(columns):
        for members in found:
            if all(alike(features, columns[i], column) for i in members[:3]):
                members.append(j)
                break
        else:
            found.append([j])
    return found


def different_rows(x: np.ndarray, y: np.ndarray, notes: list[str]) -> np.ndarray:
    """Return which rows to use: each once where many of a continuous y are repeated; notes say so."""
    n = len(x)
    if n < FEW:
        notes.append(f"it rests on {n} rows alone, too few to refute much")
    first = np.sort(np.unique(np.hstack([x, y]), axis=0, return_index=True)[1])
    if len(first) > 0.9 * n or len(np.unique(y, axis=0)) < 0.2 * len(first):
        return np.arange(n)
    notes.append(f"of {n} rows {len(first)} are different; each counts once")
    return first


def rounding_step(y: Float[np.ndarray, " n"]) -> float:
    """Return the step of the grid that a column's values lie on; 0 where most values are there once.

    Example:
        >>> values = np.random.default_rng(0).normal(size=500)
        >>> rounding_step(np.round(values, 1)), rounding_step(values)
        (0.1, 0.0)
    """
    values = np.unique(y)
    gaps = np.diff(values)
    if len(values) > 0.5 * len(y) or not len(gaps):
        return 0.0
    step = float(gaps.min())
    steps = gaps / step
    return float(f"{step:.6g}") if np.all(np.abs(steps - np.round(steps)) < 1e-3) else 0.0


def saturation(y: Float[np.ndarray, " n"]) -> float | None:
    """Return the end of a column that many of its rows lie on exactly, as where an instrument saturates; None without.

    Example:
        >>> values = np.random.default_rng(0).normal(size=500)
        >>> saturation(np.minimum(values, 1.5)), saturation(values), saturation(np.round(values))
        (1.5, None, None)
    """
    inside = y[(y > y.min()) & (y < y.max())]
    if len(np.unique(inside)) < max(0.5 * len(inside), 20):
        return None
    count, end = max((int(np.sum(y == end)), float(end)) for end in (y.min(), y.max()))
    return end if count > max(PILED * len(y), FEWEST_PILED) else None


def is_coarse(y: Float[np.ndarray, " n"]) -> bool:
    """Return whether a column may be rounded or cut off."""
    return rounding_step(y) > 0 or saturation(y) is not None


def what_is_coarse(
    x: Float[np.ndarray, "n d"], y: Float[np.ndarray, " n"], residual: Float[np.ndarray, " n"]
) -> str:
    """Return that a column is cut off, or rounded more than it scatters around a law; nothing of counts and other."""
    end, step, size = saturation(y), rounding_step(y), float(np.std(residual))
    if end is not None:
        return f"is {end:.4g} in {np.mean(y == end):.0%} of the rows, as if cut off there"
    is_count = step == 1 and y.min() >= 0
    has_few = len(np.unique(x, axis=0)) < 0.5 * len(y)
    if is_count or has_few or not COARSE * size < step or size < 1e-8 * np.std(y):
        return ""
    return f"is rounded to {step:.3g}, more than it scatters, which its law knows nothing of"

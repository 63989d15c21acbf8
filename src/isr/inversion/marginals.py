"""Marginals: the law of one variable of x, stated or recognised from rows, with the test that it passed.

A marginal turns standard normal numbers into values through its quantiles, so discrete and bounded ones need no care.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy import optimize, stats
from scipy.special import logsumexp, ndtr, ndtri

from isr.densities.mixtures import find_mixture
from isr.tables.bounds import end_gap, sharp_ends

# A family passes unless rows it was not fitted to refute it at this level (Kolmogorov-Smirnov).
REFUTED = 1e-3
Ends = tuple[float | None, float | None]
# A column with at most so many different values, each met often, is discrete.
MOST_VALUES = 200
# Of the table that turns quantiles of a mixture into values.
N_TABLE = 4001
MOST_MODES = 6
# With fewer rows no end is known to be sharp; a box is then tried that goes this many gaps beyond the rows.
ENOUGH_FOR_EDGES, GAPS = 1000, 1.5
# A round number is the end of a box within so many gaps, and where those are this share of its step.
FARTHEST_ROUND, ROUND = 4.0, 0.3
# Families of positive variables, or of those beyond a sharp end.
ONE_SIDED = ("lognorm", "gamma", "weibull_min", "expon")


@dataclass(frozen=True, eq=False)
class Marginal:
    """A distribution with its parameters.

    Args:
        kind: A distribution of ``scipy.stats``, or ``"mixture"`` of normals (weights, means, deviations one after
            another), or ``"values"`` (values, then their shares).
        parameters: Its shape parameters, location and scale.
        p_value: Of the test on rows that it was not fitted to; NaN where it was stated.

    Example:
        >>> speed = Marginal("norm", (15.0, 2.0))
        >>> speed, speed.from_normal(np.array([0.0, 1.0])), speed.log_prob(np.array([15.0])).round(3)
        (norm(15, 2), array([15., 17.]), array([-1.612]))
        >>> recognise(np.random.default_rng(0).uniform(0, 80, 5000))
        uniform(0, 80)
    """

    kind: str
    parameters: tuple[float, ...]
    p_value: float = float("nan")

    def __post_init__(self) -> None:
        known = isinstance(getattr(stats, self.kind, None), stats.rv_continuous | stats.rv_discrete)
        if not known and self.kind not in ("mixture", "values"):
            raise ValueError(f"unknown distribution {self.kind!r}; give the name of one of scipy.stats")

    @cached_property
    def _frozen(self) -> Any:
        return getattr(stats, self.kind)(*self.parameters)

    @cached_property
    def _parts(self) -> list[np.ndarray]:
        """Weights, means and deviations of a mixture; values and shares of a discrete law."""
        return np.array_split(np.asarray(self.parameters), 3 if self.kind == "mixture" else 2)

    @cached_property
    def _table(self) -> tuple[np.ndarray, np.ndarray]:
        """Normal numbers and the values of a mixture with the same odds."""
        weights, means, sds = self._parts
        ends = np.min(means - 9 * sds), np.max(means + 9 * sds)
        near = (m + s * np.linspace(-9, 9, 801) for m, s in zip(means, sds, strict=True))
        x = np.unique(np.concatenate([np.linspace(*ends, N_TABLE), *near]))
        z = (x[:, None] - means) / sds
        below, above = ndtr(z) @ weights, ndtr(-z) @ weights
        u = np.where(below < 0.5, ndtri(below), -ndtri(above))
        kept = np.concatenate([[True], np.diff(np.maximum.accumulate(u)) > 0]) & np.isfinite(u)
        return u[kept], x[kept]

    @property
    def support(self) -> tuple[float, float]:
        """Smallest and largest possible value."""
        if self.kind == "mixture":
            return -np.inf, np.inf
        if self.kind == "values":
            return float(self._parts[0][0]), float(self._parts[0][-1])
        low, high = self._frozen.support()
        return float(low), float(high)

    @property
    def is_discrete(self) -> bool:
        """Whether single values have a probability."""
        return self.kind == "values" or isinstance(getattr(stats, self.kind, None), stats.rv_discrete)

    def from_normal(self, u: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        """Return the values that standard normal numbers stand for."""
        if self.kind == "norm":
            return self.parameters[0] + self.parameters[1] * u
        if self.kind == "uniform":
            return self.parameters[0] + self.parameters[1] * ndtr(u)
        if self.kind == "mixture":
            return np.interp(u, *self._table)
        if self.kind == "values":
            values, shares = self._parts
            at = np.searchsorted(np.cumsum(shares), ndtr(u))
            return values[np.minimum(at, len(values) - 1)]
        return np.where(u < 0, self._frozen.ppf(ndtr(u)), self._frozen.isf(ndtr(-u)))

    def to_normal(self, x: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        """Return the standard normal numbers that values of a continuous variable stand for."""
        if self.kind == "norm":
            return (x - self.parameters[0]) / self.parameters[1]
        if self.kind == "mixture":
            u, values = self._table
            return np.interp(x, values, u)
        below = self._frozen.cdf(x)
        return np.where(below < 0.5, ndtri(below), -ndtri(self._frozen.sf(x)))

    def log_prob(self, x: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        """Return the log-density of values, or the log-probability of a discrete variable."""
        if self.kind == "norm":
            mean, sd = self.parameters
            return -0.5 * ((x - mean) / sd) ** 2 - np.log(sd) - 0.5 * np.log(2 * np.pi)
        if self.kind == "uniform":
            low, width = self.parameters
            return np.where((x >= low) & (x <= low + width), -np.log(width), -np.inf)
        if self.kind == "mixture":
            weights, means, sds = self._parts
            return logsumexp(stats.norm.logpdf(x[:, None], means, sds) + np.log(weights), axis=1)
        if self.kind == "values":
            values, shares = self._parts
            at = np.minimum(np.searchsorted(values, x), len(values) - 1)
            return np.where(values[at] == x, np.log(shares[at]), -np.inf)
        return self._frozen.logpmf(x) if self.is_discrete else self._frozen.logpdf(x)

    def sample(self, n: int, rng: np.random.Generator) -> Float[np.ndarray, " n"]:
        """Return draws."""
        return self.from_normal(rng.normal(size=n))

    def __repr__(self) -> str:
        if self.kind == "values":
            return f"one of {len(self._parts[0])} values from {self.support[0]:.4g} to {self.support[1]:.4g}"
        if self.kind == "mixture":
            parts = zip(*self._parts, strict=True)
            return "mixture of " + " and ".join(f"{w:.2g} norm({m:.4g}, {s:.4g})" for w, m, s in parts)
        numbers = self.parameters
        if self.kind == "uniform":
            numbers = (numbers[0], numbers[0] + numbers[1])
        return f"{self.kind}({', '.join(f'{v:.4g}' for v in numbers)})"


def stated(distribution: Any) -> Marginal | None:
    """Return the marginal of a frozen SciPy distribution with numbers as parameters, or None for anything else."""
    shapes = getattr(getattr(distribution, "dist", None), "_parse_args", None)
    if shapes is None:
        return None
    args, location, scale = shapes(*distribution.args, **distribution.kwds)
    numbers = (*args, location) if hasattr(distribution, "pmf") else (*args, location, scale)
    if any(np.ndim(v) for v in numbers):
        return None
    return Marginal(distribution.dist.name, tuple(float(v) for v in numbers))


# Recognising ----------------------------------------------------------------------------------------------------


def recognise(x: Float[np.ndarray, " n"]) -> Marginal:
    """Return the law of a column: the family that half of the rows fit best and the other half does not refute.

    Where every family is refuted it is a mixture of normals, whose ``p_value`` says how well that does.
    """
    values, counts = np.unique(x, return_counts=True)
    if len(values) <= min(MOST_VALUES, len(x) / 10):
        return Marginal("values", (*values.tolist(), *(counts / len(x)).tolist()))
    half, other, found = x[::2], x[1::2], []
    ends, box = _ends(x)
    for kind, own in _families(half, ends, box):
        guess = Marginal(kind, own)
        p_value = float(stats.kstest(other, guess._frozen.cdf).pvalue)
        likelihood = float(np.sum(guess.log_prob(other)))
        if p_value > REFUTED and np.isfinite(likelihood):
            price = 0.5 * len(own) * np.log(len(x))
            found.append((likelihood - price, kind, p_value))
    if not found:
        return _mixture(half, other)
    _, best, p_value = max(found)
    return Marginal(best, dict(_families(x, ends, box, only=best))[best], p_value)


def _ends(x: np.ndarray) -> tuple[Ends, Ends]:
    """Where rows end sharply, or a positive variable or a share may end; and the box that they may fill."""
    low, high = (
        end if end is None else _end(x, sign) for end, sign in zip(sharp_ends(x), (1, -1), strict=True)
    )
    box = low, high
    if len(x) < ENOUGH_FOR_EDGES:
        box = _end(x, 1) if low is None else low, _end(x, -1) if high is None else high
    if low is None and x.min() > 0:
        low = 0.0
    if low == 0 and high is None and x.max() < 1:
        high = 1.0
    return (low, high), (low, high) if None in box else box


def _end(x: np.ndarray, sign: int) -> float:
    """The end of a box: a round number where one is near by no accident, else a gap or so beyond the last row.

    So many gaps are the odds of one in twenty that the box goes on; a wider one would move what is inferred near it.
    """
    first = float(np.min(sign * x))
    gap = min(float(np.ptp(x)) / len(x), 2 * end_gap(sign * x))
    for digits in range(-int(np.floor(np.log10(np.ptp(x)))), 16):
        for step in (10.0**-digits, 0.5 * 10.0**-digits):
            near = float(np.floor(first / step) * step)
            if first - near <= FARTHEST_ROUND * gap:
                return sign * (
                    round(near, digits + 1) if FARTHEST_ROUND * gap <= ROUND * step else first - GAPS * gap
                )
    return sign * (first - GAPS * gap)


def _families(
    x: np.ndarray, ends: Ends, box: Ends, only: str = ""
) -> Iterator[tuple[str, tuple[float, ...]]]:
    """The families that a column may follow, with their best parameters."""
    low, high = ends
    fits: dict[str, Any] = {"norm": lambda: stats.norm.fit(x), "t": lambda: stats.t.fit(x)}
    if box[0] is not None and box[1] is not None:
        fits["uniform"] = lambda: (box[0], box[1] - box[0])
    if low is not None:
        fits |= {kind: lambda kind=kind: getattr(stats, kind).fit(x, floc=low) for kind in ONE_SIDED}
        fits["beta"] = lambda: _beta(x, low, high)
    if (cut := ends if ends != (None, None) else box) != (None, None):
        fits["truncnorm"] = lambda: _truncated_normal(x, *cut)
    for kind in [only] if only else fits:
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                yield kind, tuple(float(v) for v in fits[kind]())
        except (ValueError, RuntimeError, FloatingPointError, stats.FitError):
            continue


def _beta(x: np.ndarray, low: float, high: float | None) -> tuple[float, ...]:
    """The beta law from one end to the other; where that is not known it may not rise up to it."""
    if high is not None:
        return stats.beta.fit(x, floc=low, fscale=high - low)
    found = stats.beta.fit(x, floc=low)
    if found[1] < 1:
        raise ValueError("the density has no bound at the largest row")
    return found


def _truncated_normal(x: np.ndarray, low: float | None, high: float | None) -> tuple[float, ...]:
    """The normal law cut off at one end or both."""
    bottom, top = -np.inf if low is None else low, np.inf if high is None else high

    def numbers(p: np.ndarray) -> tuple[float, ...]:
        mean, sd = x.mean() + x.std() * p[0], x.std() * np.exp(p[1])
        return (bottom - mean) / sd, (top - mean) / sd, mean, sd

    def loss(p: np.ndarray) -> float:
        value = -float(np.mean(stats.truncnorm.logpdf(x, *numbers(p))))
        return value if np.isfinite(value) else 1e9

    # Much wider than its range it is uniform, and SciPy's distribution function would not come to an end.
    box = [(-5.0, 5.0), (-2.0, 1.5)]
    found = optimize.minimize(loss, [0.0, 0.2], method="Nelder-Mead", bounds=box, options={"maxiter": 200})
    return numbers(found.x)


def _mixture(half: np.ndarray, other: np.ndarray) -> Marginal:
    found = find_mixture(np.concatenate([half, other])[:, None], most=MOST_MODES, kinds=("spherical",))
    if found is None:
        raise ValueError("a column without spread has no law")
    weights, means, sds = found.weights, found.means[:, 0], np.sqrt(found.covariances[:, 0, 0])
    p_value = float(stats.kstest(other, lambda v: ndtr((v[:, None] - means) / sds) @ weights).pvalue)
    return Marginal("mixture", tuple(np.concatenate([weights, means, sds]).tolist()), p_value)

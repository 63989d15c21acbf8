"""Marginals: the law of one variable of x, stated or recognised from rows, with the test that it passed.

A marginal turns standard normal numbers into values through its quantiles, so discrete and bounded ones need no care.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy import stats
from scipy.special import logsumexp, ndtr, ndtri

from isr.bijections.marginals import find_mixture
from isr.tables.edges import sharp_ends

# A family passes unless rows it was not fitted to refute it at this level (Kolmogorov-Smirnov).
REFUTED = 1e-3
# A column with at most so many different values, each met often, is discrete.
MOST_VALUES = 200
# Of the table that turns quantiles of a mixture into values.
N_TABLE = 4001
MOST_MODES = 6
# With fewer rows the test of their distribution alone decides whether they fill a box.
ENOUGH_FOR_EDGES = 1000


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
    def _thirds(self) -> tuple[np.ndarray, ...]:
        return tuple(np.array_split(np.asarray(self.parameters), 3 if self.kind == "mixture" else 2))

    @cached_property
    def _table(self) -> tuple[np.ndarray, np.ndarray]:
        """Normal numbers and the values of a mixture with the same odds."""
        weights, means, sds = self._thirds
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
            return float(self._thirds[0][0]), float(self._thirds[0][-1])
        return tuple(float(end) for end in self._frozen.support())  # type: ignore[return-value]

    @property
    def is_discrete(self) -> bool:
        """Whether single values have a probability."""
        return self.kind == "values" or hasattr(self._frozen_or_none, "pmf")

    @property
    def _frozen_or_none(self) -> Any:
        return None if self.kind in ("mixture", "values") else getattr(stats, self.kind)

    def from_normal(self, u: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        """Return the values that standard normal numbers stand for."""
        if self.kind == "norm":
            return self.parameters[0] + self.parameters[1] * u
        if self.kind == "uniform":
            return self.parameters[0] + self.parameters[1] * ndtr(u)
        if self.kind == "lognorm" and self.parameters[1] == 0:
            return self.parameters[2] * np.exp(self.parameters[0] * u)
        if self.kind == "mixture":
            return np.interp(u, *self._table)
        if self.kind == "values":
            values, shares = self._thirds
            at = np.searchsorted(np.cumsum(shares), ndtr(u))
            return values[np.minimum(at, len(values) - 1)]
        return np.where(u < 0, self._frozen.ppf(ndtr(u)), self._frozen.isf(ndtr(-u)))

    def log_prob(self, x: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        """Return the log-density of values, or the log-probability of a discrete variable."""
        if self.kind == "norm":
            mean, sd = self.parameters
            return -0.5 * ((x - mean) / sd) ** 2 - np.log(sd) - 0.5 * np.log(2 * np.pi)
        if self.kind == "uniform":
            low, width = self.parameters
            return np.where((x >= low) & (x <= low + width), -np.log(width), -np.inf)
        if self.kind == "mixture":
            weights, means, sds = self._thirds
            return logsumexp(stats.norm.logpdf(x[:, None], means, sds) + np.log(weights), axis=1)
        if self.kind == "values":
            values, shares = self._thirds
            at = np.minimum(np.searchsorted(values, x), len(values) - 1)
            return np.where(values[at] == x, np.log(shares[at]), -np.inf)
        return self._frozen.logpmf(x) if self.is_discrete else self._frozen.logpdf(x)

    def sample(self, n: int, rng: np.random.Generator) -> Float[np.ndarray, " n"]:
        """Return draws."""
        return self.from_normal(rng.normal(size=n))

    def __repr__(self) -> str:
        if self.kind == "values":
            return f"one of {len(self._thirds[0])} values from {self.support[0]:.4g} to {self.support[1]:.4g}"
        if self.kind == "mixture":
            parts = zip(*self._thirds, strict=True)
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


def recognise(x: Float[np.ndarray, " n"]) -> Marginal:
    """Return the law of a column: the family that half of the rows fit best and the other half does not refute.

    Where every family is refuted it is a mixture of normals, whose ``p_value`` says how well that does.
    """
    values, counts = np.unique(x, return_counts=True)
    if len(values) <= min(MOST_VALUES, len(x) / 10):
        return Marginal("values", (*values.tolist(), *(counts / len(x)).tolist()))
    half, other = x[::2], x[1::2]
    fitted = {
        name: fit for name, fit in _FITS.items() if name not in ("lognorm", "gamma", "expon") or x.min() > 0
    }
    found: list[tuple[float, Marginal]] = []
    for name, fit in fitted.items():
        try:
            guess = Marginal(name, fit(half, x))
            p_value = float(stats.kstest(other, guess._frozen.cdf).pvalue)
            likelihood = float(np.sum(guess.log_prob(other)))
        except (ValueError, FloatingPointError, RuntimeError):
            continue
        if p_value > REFUTED and np.isfinite(likelihood):
            price = 0.5 * len(guess.parameters) * np.log(len(x))
            found.append((likelihood - price, Marginal(name, fit(x, x), p_value)))
    if found:
        return max(found, key=lambda pair: pair[0])[1]
    return _mixture(half, other)


def _uniform(part: np.ndarray, x: np.ndarray) -> tuple[float, float]:
    """The box that rows end sharply at."""
    low, high = sharp_ends(x)
    if low is None or high is None:
        raise ValueError("the rows do not end sharply")
    return low, high - low


def _expon(part: np.ndarray, x: np.ndarray) -> tuple[float, float]:
    return 0.0, float(part.mean())


_FITS: Mapping[str, Callable[[np.ndarray, np.ndarray], tuple[float, ...]]] = {
    "uniform": _uniform,
    "norm": lambda part, x: (float(part.mean()), float(part.std())),
    "lognorm": lambda part, x: (float(np.log(part).std()), 0.0, float(np.exp(np.log(part).mean()))),
    "gamma": lambda part, x: tuple(float(v) for v in stats.gamma.fit(part, floc=0)),
    "expon": _expon,
    "t": lambda part, x: tuple(float(v) for v in stats.t.fit(part)),
}


def _mixture(half: np.ndarray, other: np.ndarray) -> Marginal:
    found = find_mixture(np.concatenate([half, other])[:, None], most=MOST_MODES, kinds=("spherical",))
    if found is None:
        raise ValueError("a column without spread has no law")
    parts = (found.weights, found.means[:, 0], np.sqrt(found.covariances[:, 0, 0]))

    def cdf(v: np.ndarray) -> np.ndarray:
        return ndtr((v[:, None] - parts[1]) / parts[2]) @ parts[0]

    p_value = float(stats.kstest(other, cdf).pvalue)
    return Marginal("mixture", tuple(np.concatenate(parts).tolist()), p_value)

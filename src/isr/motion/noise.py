"""Noise: how a channel is measured, with normal noise on its value or on its logarithm, or by counting."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import stats
from scipy.special import xlogy

KINDS = ("normal", "lognormal", "poisson", "binomial")
# Anscombe's: what makes the noise of small counts about constant.
SHIFT, LEAST_MEAN = 3 / 8, 1e-12


@dataclass(frozen=True)
class Noise:
    """The noise of a channel.

    Args:
        kind: One of `KINDS`; empty where the channel was not measured at all.
        trials: Of a binomial, of how many was counted.
        is_stated: Whether somebody said so, and it stays.
    """

    kind: str = "normal"
    trials: float = np.inf
    is_stated: bool = field(default=False, compare=False, repr=False)

    def __str__(self) -> str:
        return f"binomial({self.trials:.0f})" if self.kind == "binomial" else self.kind

    @classmethod
    def read(cls, text: str, channel: str = "") -> Noise:
        """Return the noise that a text such as ``"binomial(1000)"`` names."""
        kind, _, rest = text.partition("(")
        counted = kind == "binomial" and rest.endswith(")") and rest[:-1].isdigit()
        if not (counted or text in KINDS[:3]):
            raise ValueError(
                f"the noise of {channel!r} is {text!r}; known: auto, normal, lognormal, poisson, binomial(n) with the "
                "number of trials"
            )
        return cls(kind, float(rest[:-1]) if counted else np.inf, is_stated=True)

    @property
    def is_count(self) -> bool:
        """Whether values are counted."""
        return self.kind in ("poisson", "binomial")

    def law(self, mean: np.ndarray, scale: float) -> Any:
        """Return the law of a measurement, a frozen SciPy distribution; ``scale`` means nothing to counts."""
        if self.kind == "lognormal":
            return stats.lognorm(scale, scale=np.maximum(mean, 1e-300))
        if self.kind == "poisson":
            return stats.poisson(np.clip(mean, LEAST_MEAN, 1e15))
        if self.kind == "binomial":
            return stats.binom(int(self.trials), np.clip(mean / self.trials, LEAST_MEAN, 1 - LEAST_MEAN))
        return stats.norm(mean, scale)

    def on_scale(self, v: np.ndarray) -> np.ndarray:
        """Return values on a scale on which their noise is the same everywhere."""
        if self.kind == "lognormal":
            return np.log(v)
        if self.kind == "poisson":
            return 2 * np.sqrt(np.maximum(v, 0) + SHIFT)
        if self.kind == "binomial":
            n = self.trials
            return 2 * np.sqrt(n + 0.5) * np.arcsin(np.sqrt((np.clip(v, 0, n) + SHIFT) / (n + 2 * SHIFT)))
        return v

    def residual(self, y: np.ndarray, mean: np.ndarray) -> np.ndarray:
        """Return values less means on that scale; of counts the root of their deviance, which is twice a likelihood."""
        if not self.is_count:
            return self.on_scale(y) - self.on_scale(mean)
        n, mean = self.trials, self._inside(mean)
        deviance = xlogy(y, y / mean)
        deviance += -(y - mean) if np.isinf(n) else xlogy(n - y, (n - y) / (n - mean))
        return np.sign(y - mean) * np.sqrt(np.maximum(2 * deviance, 0.0))

    def score(self, y: np.ndarray, mean: np.ndarray, scale: float, rng: np.random.Generator) -> np.ndarray:
        """Return what is standard normal where means are true: residuals, of counts their randomised rank."""
        if not self.is_count:
            return self.residual(y, mean) / scale
        law = self.law(mean, scale)
        rank = law.cdf(y - 1) + rng.uniform(size=y.shape) * law.pmf(y)
        return stats.norm.ppf(np.clip(rank, 1e-12, 1 - 1e-12))

    def slope(self, y: np.ndarray, mean: np.ndarray) -> np.ndarray:
        """Return minus the derivative of `residual` by the mean."""
        if not self.is_count:
            return 1 / mean if self.kind == "lognormal" else np.ones_like(mean)
        inside, r = self._inside(mean), self.residual(y, mean)
        variance = inside * (1 - inside / self.trials)
        return np.where(np.abs(r) > 1e-4, (y - inside) / (variance * r), variance**-0.5) * (inside == mean)

    def _inside(self, mean: np.ndarray) -> np.ndarray:
        return np.clip(mean, LEAST_MEAN, self.trials * (1 - LEAST_MEAN))


NORMAL = Noise()

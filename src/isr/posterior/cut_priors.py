"""Priors cut to a box: exactly, variable by variable, or by throwing draws away."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from isr.posterior.priors import Prior

# Rejection gives up after so many draws.
MAX_REJECTED = 3_000_000


@dataclass(frozen=True)
class CutMarginal:
    """One variable of a prior, given that it lies in an interval.

    Args:
        whole: The variable, with its ``distribution`` of SciPy, ``log_prob`` and ``text``.
        low: Lower end.
        high: Upper end.
    """

    whole: Any
    low: float
    high: float

    def draw(self, n: int, rng: np.random.Generator) -> np.ndarray:
        start, mass, above = self._mass()
        shares = start + mass * rng.uniform(size=n)
        quantile = self.whole.distribution.isf if above else self.whole.distribution.ppf
        return np.clip(quantile(shares), self.low, self.high)

    def log_prob(self, values: np.ndarray) -> np.ndarray:
        inside = (values >= self.low) & (values <= self.high)
        return np.where(inside, self.whole.log_prob(values) - np.log(self._mass()[1]), -np.inf)

    def _mass(self) -> tuple[float, float, bool]:
        """Probability before the interval and inside it, and whether both count from above: exact in a far tail."""
        distribution = self.whole.distribution
        above = bool(distribution.cdf(self.low) > 0.5)
        ends = [distribution.sf(self.high), distribution.sf(self.low)] if above else [
            distribution.cdf(self.low), distribution.cdf(self.high)]  # fmt: skip
        if not ends[1] > ends[0]:
            raise ValueError(
                f"{self.whole.text} has no mass between {self.low:.6g} and {self.high:.6g}; widen the range"
            )
        return float(ends[0]), float(ends[1] - ends[0]), above


@dataclass(frozen=True)
class Rejected:
    """Draws of a prior that fall into a box."""

    prior: Prior
    low: np.ndarray
    high: np.ndarray

    def __call__(self, n: int, rng: np.random.Generator) -> np.ndarray:
        kept: list[np.ndarray] = []
        n_kept = n_drawn = 0
        while n_kept < n:
            if n_drawn >= MAX_REJECTED:
                raise ValueError(
                    f"only {n_kept} of {n_drawn} draws of the prior fall within {box_text(self.low, self.high)}; give "
                    "the prior as a mapping from name to (low, high) or to a frozen scipy.stats distribution, which "
                    "is cut exactly, or ask for fewer rounds"
                )
            rows = self.prior.sample(10_000, rng)
            inside = rows[np.all((rows >= self.low) & (rows <= self.high), axis=1)]
            kept.append(inside)
            n_kept, n_drawn = n_kept + len(inside), n_drawn + len(rows)
        return np.concatenate(kept)[:n]


def box_text(low: np.ndarray, high: np.ndarray) -> str:
    """Return a box in words."""
    return " x ".join(f"[{a:.10g}, {b:.10g}]" for a, b in zip(low, high, strict=True))

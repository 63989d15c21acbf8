"""Pools: weighted draws of a posterior, block by block, from a proposal that is adapted to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from isr.inversion import cells, mixture
from isr.inversion.target import Target
from isr.posterior.pareto import Weights, smooth

# Up to so many coordinates boxes are split; beyond, a mixture is fitted.
MOST_FOR_CELLS = 3
# A pool is as much larger than what is drawn from it as makes its effective size so many times that number.
RESERVE = 3.0
LARGEST_POOL = 400_000


class Impossible(ValueError):
    """No draw has any density: the observation is impossible under the law and the prior."""


@dataclass(frozen=True, eq=False)
class Sampler:
    """A target with the proposal that was adapted to it.

    Args:
        target: What to draw from.
        proposal: What to draw with.
        effective_share: Effective size of a weighted pool over its size, as first seen.
        pareto_k: Shape of the tail of its weights.
        log_mean: Logarithm of the mean weight, the block's share of the log evidence.
    """

    target: Target
    proposal: Any
    effective_share: float
    pareto_k: float
    log_mean: float

    def pool(self, n: int, rng: np.random.Generator) -> tuple[Float[np.ndarray, "n d_x"], Weights]:
        """Return ``n`` rows of x and their smoothed weights."""
        return _pool(self.target, self.proposal, n, rng)

    def sample(self, n: int, rng: np.random.Generator) -> tuple[Float[np.ndarray, "n d_x"], Weights]:
        """Return ``n`` draws, from a pool large enough for them, and the weights of that pool."""
        wanted = RESERVE * n / max(self.effective_share, 1e-3)
        rows, weights = self.pool(int(np.clip(wanted, 2 * n, LARGEST_POOL)), rng)
        return rows[weights.resample(n, rng)], weights


def _pool(target: Target, proposal: Any, n: int, rng: np.random.Generator) -> tuple[np.ndarray, Weights]:
    u, log_q = proposal.sample(n, rng)
    rows, log_prob = target.finish(u, rng)
    log_w = np.where(np.isfinite(log_prob), log_prob - log_q, -np.inf)
    if not np.any(log_w > -np.inf):
        raise Impossible("no draw has any density under both the law and the prior")
    return rows, smooth(log_w)


def adapted(target: Target, seed: int, n: int = 4000) -> Sampler:
    """Return a target with a proposal fitted to it, judged by a pool of ``n``."""
    rng = np.random.default_rng([seed, *target.columns])
    fit = cells.adapt if target.dim <= MOST_FOR_CELLS else mixture.adapt
    proposal = fit(target.log_prob, target.dim, rng)
    weights = _pool(target, proposal, n, rng)[1]
    return Sampler(target, proposal, weights.effective_size / n, weights.pareto_k, weights.log_mean)


def worst(samplers: Sequence[Sampler]) -> tuple[float, float]:
    """Return the least effective share and the largest k of several blocks; 1 and 0 without any."""
    shares = [s.effective_share for s in samplers]
    return min(shares, default=1.0), max((s.pareto_k for s in samplers), default=0.0)

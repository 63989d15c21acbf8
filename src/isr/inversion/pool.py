"""Pools: weighted draws of a posterior, block by block, from a proposal that is adapted to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from jaxtyping import Float

from isr.inversion import cells, mixture
from isr.inversion.target import Target
from isr.posterior.pareto import TRUSTED, Weights, smooth

# Up to so many coordinates boxes are split; beyond, a mixture is fitted.
MOST_FOR_CELLS = 3
# A pool is as much larger than what is drawn from it as makes its effective size so many times that number.
RESERVE = 2.0
LARGEST_POOL = 400_000
N_JUDGED = 4000
# Weights that rest on a smaller share of the draws than this ask for a better source.
LEAST_SHARE = 0.04


class Impossible(ValueError):
    """No draw has any density: the observation is impossible under the law and the prior."""


class Source(Protocol):
    """What makes weighted draws."""

    columns: tuple[int, ...]

    def draw(
        self, n: int, rng: np.random.Generator
    ) -> tuple[Float[np.ndarray, "m d_x"], Float[np.ndarray, " m"]]:
        """Return rows of x and the logarithms of their weights, whose mean estimates the evidence."""
        ...


@dataclass(frozen=True, eq=False)
class Adapted:
    """Draws of a proposal that was adapted to a target.

    Args:
        target: What to draw from.
        proposal: What to draw with.
    """

    target: Target
    proposal: Any

    @property
    def columns(self) -> tuple[int, ...]:
        """The variables of the block."""
        return self.target.columns

    def draw(self, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        u, log_q = self.proposal.sample(n, rng)
        rows, log_prob = self.target.finish(u, rng)
        return rows, np.where(np.isfinite(log_prob), log_prob - log_q, -np.inf)


@dataclass(frozen=True, eq=False)
class Sampler:
    """A source of weighted draws, judged.

    Args:
        source: What makes the draws.
        effective_share: Effective size of a weighted pool over its size, as first seen.
        rows: The pool that it was judged by.
        weights: Their weights.
    """

    source: Source
    effective_share: float
    rows: Float[np.ndarray, "m d_x"]
    weights: Weights

    @property
    def pareto_k(self) -> float:
        """Shape of the tail of the weights."""
        return self.weights.pareto_k

    @property
    def log_mean(self) -> float:
        """Logarithm of the mean weight, the block's share of the log evidence."""
        return self.weights.log_mean

    @property
    def is_good(self) -> bool:
        """Whether its weights can be trusted and rest on many draws."""
        return self.pareto_k <= TRUSTED and self.effective_share >= LEAST_SHARE

    def pool(self, n: int, rng: np.random.Generator) -> tuple[Float[np.ndarray, "n d_x"], Weights]:
        """Return about ``n`` rows of x and their smoothed weights."""
        return _pool(self.source, n, rng)

    def sample(self, n: int, rng: np.random.Generator) -> tuple[Float[np.ndarray, "n d_x"], Weights]:
        """Return ``n`` draws, from a pool large enough for them, and the weights of that pool."""
        wanted = RESERVE * n / max(self.effective_share, 1e-3)
        rows, weights = self.pool(int(np.clip(wanted, 2 * n, LARGEST_POOL)), rng)
        return rows[weights.resample(n, rng)], weights


def _pool(source: Source, n: int, rng: np.random.Generator) -> tuple[np.ndarray, Weights]:
    rows, log_w = source.draw(n, rng)
    if not np.any(log_w > -np.inf):
        raise Impossible("no draw has any density under both the law and the prior")
    return rows, smooth(log_w)


def judged(source: Source, n: int = N_JUDGED) -> Sampler:
    """Return a source of draws with what a pool of about ``n`` says of it."""
    rows, weights = _pool(source, n, np.random.default_rng([1, *source.columns]))
    return Sampler(source, weights.effective_size / n, rows, weights)


def adapted(target: Target, seed: int) -> Sampler:
    """Return a target with a proposal fitted to it, judged."""
    return judged(Adapted(target, _proposal(target, np.random.default_rng([seed, *target.columns]))))


def _proposal(target: Target, rng: np.random.Generator) -> Any:
    if not target.dim:
        return Nothing()
    fit = cells.adapt if target.dim <= MOST_FOR_CELLS else mixture.adapt
    return fit(target.log_prob, target.dim, rng)


class Nothing:
    """The proposal of a target without coordinates."""

    def sample(self, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Return ``n`` rows without columns, and their log-density, 0."""
        return np.zeros((n, 0)), np.zeros(n)


def worst(samplers: Sequence[Sampler]) -> tuple[float, float]:
    """Return the least effective share and the largest k of several blocks; 1 and 0 without any."""
    shares = [s.effective_share for s in samplers]
    return min(shares, default=1.0), max((s.pareto_k for s in samplers), default=0.0)

"""Importance weights: draws of a proposal become draws of a target, and how far to trust them.

The largest weights are replaced by the quantiles of a generalised Pareto law fitted to them (Vehtari, Simpson, Gelman,
Yao and Gabry 2024), whose shape k tells how heavy their tail is; its fit is that of Zhang and Stephens (2009).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from scipy.special import logsumexp

TRUSTED = 0.7
"""Weights whose tail has a larger shape than this are not to be trusted."""
# Weights as equal as this have no tail.
EQUAL = 1e-6


def effective_size(log_weights: Float[np.ndarray, " n"]) -> float:
    """Return how many equally weighted draws are worth as much, ``(Σ w)² / Σ w²``."""
    weights = np.exp(log_weights - log_weights.max())
    return float(weights.sum() ** 2 / np.sum(weights**2))


@dataclass(frozen=True)
class Weights:
    """Smoothed weights of a pool of draws.

    Args:
        log_weights: Their logarithms, normalised; ``-inf`` drops a draw.
        pareto_k: Shape of the tail; up to 0.7 the weights can be trusted, above they rest on too few draws.
        log_mean: Logarithm of the mean weight before it was normalised: the log evidence of a posterior.
    """

    log_weights: Float[np.ndarray, " n"]
    pareto_k: float
    log_mean: float

    @property
    def effective_size(self) -> float:
        """How many equally weighted draws the pool is worth."""
        return effective_size(self.log_weights)

    def resample(self, n: int, rng: np.random.Generator) -> Int[np.ndarray, " n"]:
        """Return ``n`` indices of the pool; a draw whose share is below ``1 / n`` comes at most once."""
        order = rng.permutation(len(self.log_weights))
        cumulative = np.cumsum(np.exp(self.log_weights[order]))
        positions = (np.arange(n) + rng.uniform()) / n * cumulative[-1]
        chosen = np.minimum(np.searchsorted(cumulative, positions), len(order) - 1)
        return rng.permutation(order[chosen])


def smooth(log_weights: Float[np.ndarray, " n"]) -> Weights:
    """Return weights with a Pareto-smoothed tail, normalised, with its shape and their mean.

    Example:
        >>> x = np.random.default_rng(0).normal(size=4000)
        >>> good = smooth(-0.5 * (x / 0.8) ** 2 - np.log(0.8) + 0.5 * x**2)  # a normal proposal wider than its target
        >>> good.pareto_k < 0.7, abs(good.log_mean) < 0.05, good.effective_size > 3000
        (True, True, True)
        >>> smooth(-0.5 * (x / 3) ** 2 - np.log(3) + 0.5 * x**2).pareto_k > 0.7  # a narrower one
        True
        >>> good.resample(3, np.random.default_rng(0)).shape
        (3,)
    """
    log_w = np.asarray(log_weights, dtype=float)
    if np.isnan(log_w).any() or not np.any(log_w > -np.inf) or np.any(log_w == np.inf):
        raise ValueError("log_weights must hold at least one finite value, and neither NaN nor +inf")
    top = log_w.max()
    log_w = log_w - top
    pareto_k = 0.0
    if log_w.min() < -EQUAL:
        log_w, pareto_k = _smoothed(log_w)
    total = float(logsumexp(log_w))
    return Weights(log_w - total, pareto_k, total + float(top) - float(np.log(len(log_w))))


def _smoothed(log_w: np.ndarray) -> tuple[np.ndarray, float]:
    """Log-weights, the largest 0, with a smoothed tail, and the shape of the tail."""
    n = len(log_w)
    n_tail = int(np.ceil(min(n / 5, 3 * np.sqrt(n))))
    if n_tail >= n:
        return log_w, np.inf
    order = np.argsort(log_w, kind="stable")
    cutoff = max(log_w[order[n - n_tail - 1]], np.log(np.finfo(float).tiny))
    tail = order[log_w[order] > cutoff]
    if len(tail) <= 4:  # a tail of equal weights has no shape, one of few draws none that can be known
        return log_w, (0.0 if cutoff > -EQUAL else np.inf)
    excess = np.exp(log_w[tail]) - np.exp(cutoff)
    pareto_k, sigma = _fit_pareto(excess)
    if not np.isfinite(pareto_k):
        return log_w, np.inf
    at = (np.arange(len(tail)) + 0.5) / len(tail)
    quantiles = -np.log1p(-at) if abs(pareto_k) < 1e-12 else np.expm1(-pareto_k * np.log1p(-at)) / pareto_k
    smoothed = log_w.copy()
    smoothed[tail] = np.minimum(np.log(np.exp(cutoff) + sigma * quantiles), 0.0)
    return smoothed, float(pareto_k)


def _fit_pareto(excess: np.ndarray) -> tuple[float, float]:
    """Shape and scale of the generalised Pareto law of positive values in ascending order."""
    n = len(excess)
    m = 30 + int(np.sqrt(n))
    quarter = excess[int(n / 4 + 0.5) - 1]
    if not quarter > 0:
        return np.inf, np.nan
    b = 1 / excess[-1] + (1 - np.sqrt(m / (np.arange(1, m + 1) - 0.5))) / (3 * quarter)
    k = np.mean(np.log1p(-b[:, None] * excess), axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        profile = n * (np.log(-b / k) - k - 1)
    profile = np.where(np.isfinite(profile), profile, -np.inf)
    weight = np.exp(profile - logsumexp(profile))
    b_mean = float(np.sum(b * weight))
    k_mean = float(np.mean(np.log1p(-b_mean * excess)))
    # A weak prior of ten draws at one half, as in the paper, steadies short tails.
    return (n * k_mean + 5) / (n + 10), -k_mean / b_mean

"""A proposal in four dimensions and more: a mixture of Student t laws, fitted to weighted draws, again and again.

The first draws are the prior's. Weights are flattened until they rest on enough draws, so that a narrow posterior is
approached in steps and no mode is lost at the first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.special import gammaln, logsumexp

from isr.posterior.references import effective_size

DEGREES = 8.0
# Share of draws that keep coming from a law a little wider than the prior, which bounds the weights.
DEFENSIVE, DEFENSIVE_SCALE = 0.08, 1.15
N_FIRST, N_ROUND, N_FITTED = 40_000, 12_000, 6000
MOST_ROUNDS = 40
# Good enough, as the effective share of the draws; and how often in a row it may fail to grow.
ENOUGH, PATIENCE = 0.45, 4
LEAST_SHARE = 0.08
N_MODES = 24
N_STEPS = 6

LogDensity = Callable[[Float[np.ndarray, "n dim"]], Float[np.ndarray, " n"]]


@dataclass(frozen=True)
class Mixture:
    """A mixture of Student t laws with a share of a wide normal one.

    Args:
        weights: Of the components.
        means: Their centres.
        roots: A lower triangular root of the scale matrix of each.
    """

    weights: Float[np.ndarray, " k"]
    means: Float[np.ndarray, "k dim"]
    roots: Float[np.ndarray, "k dim dim"]

    def sample(
        self, n: int, rng: np.random.Generator
    ) -> tuple[Float[np.ndarray, "n dim"], Float[np.ndarray, " n"]]:
        """Return coordinates and their log-density."""
        dim = self.means.shape[1]
        n_wide = round(DEFENSIVE * n)
        cumulative = np.cumsum(self.weights)
        positions = (np.arange(n - n_wide) + rng.uniform()) / (n - n_wide) * cumulative[-1]
        chosen = np.minimum(np.searchsorted(cumulative, positions), len(self.weights) - 1)
        z = rng.normal(size=(n - n_wide, dim)) / np.sqrt(rng.chisquare(DEGREES, (n - n_wide, 1)) / DEGREES)
        u = self.means[chosen] + np.einsum("nij,nj->ni", self.roots[chosen], z)
        u = np.concatenate([DEFENSIVE_SCALE * rng.normal(size=(n_wide, dim)), u])
        u = u[rng.permutation(n)]
        return u, self.log_prob(u)

    def log_prob(self, u: Float[np.ndarray, "n dim"]) -> Float[np.ndarray, " n"]:
        """Return the log-density of coordinates."""
        own = logsumexp(_components(u, self.means, self.roots) + np.log(self.weights), axis=1)
        return np.logaddexp(np.log1p(-DEFENSIVE) + own, np.log(DEFENSIVE) + _wide(u))


def _wide(u: np.ndarray) -> np.ndarray:
    constant = u.shape[1] * np.log(DEFENSIVE_SCALE * np.sqrt(2 * np.pi))
    return -0.5 * np.sum((u / DEFENSIVE_SCALE) ** 2, axis=1) - constant


def _distances(u: np.ndarray, means: np.ndarray, roots: np.ndarray) -> np.ndarray:
    """Squared distance of each row from each component, in units of its scale, ``(n, k)``."""
    inverse = np.linalg.inv(roots)
    z = np.matmul(u[None] - means[:, None], inverse.transpose(0, 2, 1))
    return np.sum(z * z, axis=2).T


def _components(u: np.ndarray, means: np.ndarray, roots: np.ndarray) -> np.ndarray:
    dim = u.shape[1]
    constant = gammaln(0.5 * (DEGREES + dim)) - gammaln(0.5 * DEGREES) - 0.5 * dim * np.log(DEGREES * np.pi)
    log_det = np.sum(np.log(np.diagonal(roots, axis1=1, axis2=2)), axis=1)
    return constant - log_det - 0.5 * (DEGREES + dim) * np.log1p(_distances(u, means, roots) / DEGREES)


def adapt(log_prob: LogDensity, dim: int, rng: np.random.Generator) -> Mixture:
    """Return a mixture fitted to a density of coordinates, which need not be normalised.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> def two_modes(u):
        ...     return np.logaddexp(*(-0.5 * np.sum((u - centre) ** 2, axis=1) / 0.01 for centre in (-1, 1)))
        >>> u, log_q = adapt(two_modes, 4, rng).sample(4000, rng)
        >>> effective_size(two_modes(u) - log_q) > 2000, bool(abs(np.mean(u[:, 0] > 0) - 0.5) < 0.1)
        (True, True)
    """
    u = DEFENSIVE_SCALE * rng.normal(size=(N_FIRST, dim))
    log_w = _weights(log_prob(u), _wide(u))
    mixture, best, waited = None, (-1.0, Mixture(np.ones(1), np.zeros((1, dim)), np.eye(dim)[None])), 0
    for _ in range(MOST_ROUNDS):
        flat, power = flattened(log_w, LEAST_SHARE * len(log_w) if mixture else 10 * N_MODES)
        mixture = _fitted(u, flat, mixture, rng)
        u, log_q = mixture.sample(N_ROUND, rng)
        log_w = _weights(log_prob(u), log_q)
        share = effective_size(log_w) / len(log_w) if np.any(log_w > -np.inf) else 0.0
        if share > best[0]:
            best, waited = (share, mixture), 0
        elif power == 1.0:
            waited += 1
        if share > ENOUGH or waited >= PATIENCE:
            break
    return best[1]


def _weights(target: np.ndarray, proposal: np.ndarray) -> np.ndarray:
    return np.where(np.isfinite(target), target - proposal, -np.inf)


def flattened(log_w: Float[np.ndarray, " n"], wanted: float) -> tuple[Float[np.ndarray, " n"], float]:
    """Return weights to the largest power, up to 1, that leaves an effective size of ``wanted``, and that power."""
    possible = log_w > -np.inf
    if not possible.any():
        return np.zeros(len(log_w)), 0.0
    wanted = min(wanted, 0.5 * np.sum(possible))

    def powered(power: float) -> np.ndarray:
        return np.where(possible, power * np.where(possible, log_w, 0.0), -np.inf)

    if effective_size(log_w) >= wanted:
        return log_w, 1.0
    low, high = 0.0, 1.0
    for _ in range(25):
        power = 0.5 * (low + high)
        low, high = (power, high) if effective_size(powered(power)) >= wanted else (low, power)
    return powered(low), low


def _fitted(u: np.ndarray, log_w: np.ndarray, start: Mixture | None, rng: np.random.Generator) -> Mixture:
    """A mixture by a few steps of expectation and maximisation on resampled draws."""
    shares = np.exp(log_w - logsumexp(log_w))
    points = u[rng.choice(len(u), N_FITTED, p=shares)]
    dim = points.shape[1]
    spread = np.cov(points.T) + 1e-9 * np.eye(dim)
    if start is None:
        means = points[rng.choice(len(points), N_MODES, replace=False)]
        roots = np.repeat(np.linalg.cholesky(spread / 4)[None], N_MODES, axis=0)
        start = Mixture(np.full(N_MODES, 1 / N_MODES), means, roots)
    weights, means, roots = start.weights, start.means, start.roots
    floor = 1e-4 * spread + 1e-14 * np.trace(spread) * np.eye(dim)
    for _ in range(N_STEPS):
        distance = _distances(points, means, roots)
        log_r = _components(points, means, roots) + np.log(weights)
        r = np.exp(log_r - logsumexp(log_r, axis=1, keepdims=True))
        # Points far out count less for centre and scale, as maximum likelihood of a t law has it.
        pull = r * (DEGREES + dim) / (DEGREES + distance)
        weights = np.maximum(r.mean(axis=0), 1e-6)
        weights /= weights.sum()
        total = np.maximum(pull.sum(axis=0), 1e-12)
        means = (pull.T @ points) / total[:, None]
        apart = points[None] - means[:, None]
        scatter = np.matmul((pull.T[:, :, None] * apart).transpose(0, 2, 1), apart)
        n_own = np.maximum(r.sum(axis=0), 1e-12)[:, None, None]
        roots = np.linalg.cholesky(
            (scatter + 5 * floor) / (n_own + 5) + 1e-12 * np.eye(dim) * np.trace(spread) + 1e-3 * floor
        )
    return Mixture(weights, means, roots)

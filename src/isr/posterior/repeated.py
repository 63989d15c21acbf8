"""Several observations of the same x, where the model gives the posterior for one: their product, by weighted draws.

``p(x | y_1 … y_k) ∝ p(x)^(1-k) Π p(x | y_i)``. The model's errors add up over the factors, so many observations ask for
an accurate model.
"""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
from jaxtyping import Float
from scipy.special import logsumexp

from isr.bijections.flow import Flow
from isr.posterior.coordinates import Coordinates, coordinates_of
from isr.posterior.maximum import Density
from isr.posterior.references import Resampled, importance_resample

N_POOL = 4096
MAX_ROUNDS = 12
# The proposal is good enough once the effective size is this share of the pool.
ENOUGH = 0.5
# Weights are flattened until the effective size is this share, so that a fit never rests on a handful of draws.
LEAST = 0.1
# Share of draws that keep coming from the single posteriors, which bounds the weights in the tails.
DEFENSIVE = 0.2
N_MODES = 4


@dataclass(frozen=True)
class NormalMixture:
    """A mixture of normals over coordinates.

    Example:
        >>> mixture = NormalMixture(np.ones(1), np.zeros((1, 1)), np.ones((1, 1, 1)))
        >>> mixture.sample(3, np.random.default_rng(0)).shape, mixture.log_prob(np.zeros((1, 1))).round(3)
        ((3, 1), array([-0.919]))
    """

    shares: Float[np.ndarray, " m"]
    means: Float[np.ndarray, "m d"]
    covariances: Float[np.ndarray, "m d d"]

    def sample(self, n: int, rng: np.random.Generator) -> Float[np.ndarray, "n d"]:
        """Return ``n`` rows."""
        mode = rng.choice(len(self.shares), size=n, p=self.shares)
        factors = np.linalg.cholesky(self.covariances)
        return self.means[mode] + np.einsum(
            "nij,nj->ni", factors[mode], rng.normal(size=(n, self.means.shape[1]))
        )

    def log_prob(self, rows: Float[np.ndarray, "n d"]) -> Float[np.ndarray, " n"]:
        """Return the log-density of rows."""
        factors = np.linalg.cholesky(self.covariances)
        gaps = np.linalg.solve(factors, np.swapaxes(rows[None] - self.means[:, None], 1, 2))
        log_det = np.log(np.diagonal(factors, axis1=1, axis2=2)).sum(axis=1)
        constant = 0.5 * rows.shape[1] * np.log(2 * np.pi)
        each = -0.5 * np.sum(gaps**2, axis=1) - log_det[:, None] - constant
        return np.asarray(logsumexp(each + np.log(self.shares)[:, None], axis=0))


@dataclass(frozen=True)
class Product:
    """The posterior given several observations, with the proposal that its draws are weighted from.

    Args:
        flow: A conditional flow.
        y: Observations as rows.
        prior: The prior the flow was trained on.
        coordinates: Where ``modes`` live.
        modes: Adapted part of the proposal; ``None`` leaves the even mixture of the single posteriors.
        log_normaliser: Logarithm of the integral of ``p(x)^(1-k) Π p(x | y_i)``, as estimated from the last pool.
        effective_size: Of that pool of `N_POOL` draws.
    """

    flow: Flow
    y: Float[np.ndarray, "k d_y"]
    prior: Density
    coordinates: Coordinates
    modes: NormalMixture | None = None
    log_normaliser: float = 0.0
    effective_size: float = 0.0

    def log_prob(self, x: Float[np.ndarray, "n d_x"]) -> Float[np.ndarray, " n"]:
        """Return the log-density of rows, normalised by the estimated integral."""
        return self._log_target(x, self._single(x)) - self.log_normaliser

    def sample(self, n: int, seed: int) -> Resampled:
        """Return ``n`` draws from a weighted pool up to 32 times as large, with the pool's effective size."""
        wanted = min(4 * n * N_POOL / max(self.effective_size, 1.0), 32 * n)
        pool, log_weights = self.pool(max(N_POOL, int(wanted)), seed)
        return importance_resample(pool, log_weights, n, random_state=seed)

    def pool(self, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Return rows from the proposal and their log-weights."""
        rng = np.random.default_rng(seed)
        n_single = n if self.modes is None else max(1, round(DEFENSIVE * n))
        given = self.y[rng.integers(len(self.y), size=n_single)]
        x = self.flow.sample(jax.random.key(seed), n_single, given)
        if self.modes is not None:
            points = self.modes.sample(n - n_single, rng)
            x = np.concatenate([x, self.coordinates.back(points)])
        finite = np.isfinite(x).all(axis=1)
        log_weights = np.full(len(x), -np.inf)
        log_weights[finite] = self._log_weights(x[finite])
        return x, log_weights

    def _log_weights(self, x: np.ndarray) -> np.ndarray:
        single = self._single(x)
        proposal = logsumexp(single, axis=1) - np.log(len(self.y))
        if self.modes is not None:
            points, log_det = self.coordinates.of(x)
            adapted = self.modes.log_prob(np.nan_to_num(points, nan=1e9, posinf=1e9, neginf=-1e9)) + log_det
            proposal = np.logaddexp(
                np.log(DEFENSIVE) + proposal,
                np.log1p(-DEFENSIVE) + np.where(np.isnan(adapted), -np.inf, adapted),
            )
        target = self._log_target(x, single)
        return np.where(target > -np.inf, target - proposal, -np.inf)

    def _single(self, x: np.ndarray) -> np.ndarray:
        return np.stack([self.flow.log_prob(x, row[None]) for row in self.y], axis=1)

    def _log_target(self, x: np.ndarray, single: np.ndarray) -> np.ndarray:
        log_prior = np.asarray(self.prior.log_prob(x), dtype=float)
        if log_prior.shape != (len(x),):
            raise ValueError(
                f"prior.log_prob must return one number a row: {len(x)} rows gave shape {log_prior.shape}"
            )
        possible = np.isfinite(log_prior) & np.isfinite(single).all(axis=1)
        total = np.full(len(x), -np.inf)
        total[possible] = single[possible].sum(axis=1) + (1 - len(self.y)) * log_prior[possible]
        return total


def combine(flow: Flow, y: Float[np.ndarray, "k d_y"], prior: Density, *, random_state: int = 0) -> Product:
    """Return the posterior given several observations of the same x.

    Its proposal starts as the even mixture of the single posteriors. Each round weights a pool, flattens the weights
    until they rest on a tenth of it, and fits a mixture of normals to it in the latent of a middle observation; the
    round with the largest effective size is kept.

    Args:
        flow: A conditional flow.
        y: Observations as rows, two or more.
        prior: The prior the flow was trained on.
        random_state: Seed.
    """
    middle = np.argmin(np.linalg.norm((y - y.mean(axis=0)) / (y.std(axis=0) + 1e-300), axis=1))
    draws = flow.sample(jax.random.key(random_state), 256, y[middle : middle + 1])
    coordinates = coordinates_of(flow, y[middle : middle + 1], draws)
    found = list(_rounds(Product(flow, y, prior, coordinates), random_state))
    return max(found, key=lambda product: product.effective_size)


def _rounds(product: Product, seed: int) -> Iterator[Product]:
    for number in range(MAX_ROUNDS):
        pool, log_weights = product.pool(N_POOL, seed + number)
        if not np.any(log_weights > -np.inf):
            raise ValueError(
                "no draw has density under all observations at once: do they come from the same x, "
                "and does the prior cover what the model was trained on?"
            )
        size = effective_size(log_weights)
        normaliser = float(logsumexp(log_weights) - np.log(N_POOL))
        yield replace(product, log_normaliser=normaliser, effective_size=size)
        if size >= ENOUGH * N_POOL:
            return
        product = replace(
            product, modes=_fit(product.coordinates, pool, _flattened(log_weights), seed + number)
        )


def effective_size(log_weights: Float[np.ndarray, " n"]) -> float:
    """Return ``(Σ w)² / Σ w²``.

    Example:
        >>> round(effective_size(np.log(np.array([0.5, 0.5]))), 6), round(effective_size(np.array([0.0, -100.0])), 6)
        (2.0, 1.0)
    """
    weights = np.exp(log_weights - log_weights.max())
    return float(weights.sum() ** 2 / np.sum(weights**2))


def _flattened(log_weights: np.ndarray) -> np.ndarray:
    low, high = 0.0, 1.0
    wanted = min(LEAST * N_POOL, 0.5 * np.sum(log_weights > -np.inf))
    if effective_size(log_weights) >= wanted:
        return log_weights
    possible = np.where(log_weights > -np.inf, log_weights, 0.0)
    for _ in range(40):
        power = 0.5 * (low + high)
        flat = np.where(log_weights > -np.inf, power * possible, -np.inf)
        low, high = (power, high) if effective_size(flat) >= wanted else (low, power)
    return np.where(log_weights > -np.inf, low * possible, -np.inf)


def _fit(coordinates: Coordinates, pool: np.ndarray, log_weights: np.ndarray, seed: int) -> NormalMixture:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.mixture import GaussianMixture

    chosen = importance_resample(pool, log_weights, 2000, random_state=seed).samples
    points, _ = coordinates.of(chosen)
    points = points[np.isfinite(points).all(axis=1)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        floor = 1e-6 * float(points.var(axis=0).mean()) + 1e-12
        fitted: Any = GaussianMixture(N_MODES, reg_covar=floor, max_iter=50, random_state=seed).fit(points)
    return NormalMixture(fitted.weights_, fitted.means_, fitted.covariances_)

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
from isr.posterior.coordinates import Coordinates, bounds_of, standard_coordinates
from isr.posterior.priors import Density
from isr.posterior.references import Resampled, effective_size, importance_resample

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
class Product:
    """The posterior given several observations, with the proposal that its draws are weighted from.

    Args:
        flow: A conditional flow.
        y: Observations as rows.
        prior: The prior the flow was trained on.
        coordinates: Where ``modes`` live.
        modes: Mixture of normals fitted by scikit-learn, the adapted part of the proposal; without it the proposal is
            the even mixture of the single posteriors.
        log_normaliser: Logarithm of the integral of ``p(x)^(1-k) Π p(x | y_i)``, as estimated from the last pool.
        effective_size: Of that pool of `N_POOL` draws.
    """

    flow: Flow
    y: Float[np.ndarray, "k d_y"]
    prior: Density
    coordinates: Coordinates
    modes: Any = None
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
            points = self.modes.set_params(random_state=seed).sample(n - n_single)[0]
            x = np.concatenate([x, self.coordinates.back(rng.permutation(points))])
        finite = np.isfinite(x).all(axis=1)
        log_weights = np.full(len(x), -np.inf)
        log_weights[finite] = self._log_weights(x[finite])
        return x, log_weights

    def _log_weights(self, x: np.ndarray) -> np.ndarray:
        single = self._single(x)
        proposal = logsumexp(single, axis=1) - np.log(len(self.y))
        if self.modes is not None:
            points, log_det = self.coordinates.of(x)
            adapted = log_det + self.modes.score_samples(
                np.nan_to_num(points, nan=1e9, posinf=1e9, neginf=-1e9)
            )
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
                f"prior.log_prob must return one number per row: {len(x)} rows gave shape {log_prior.shape}"
            )
        possible = np.isfinite(log_prior) & np.isfinite(single).all(axis=1)
        total = np.full(len(x), -np.inf)
        total[possible] = single[possible].sum(axis=1) + (1 - len(self.y)) * log_prior[possible]
        return total


def combine(flow: Flow, y: Float[np.ndarray, "k d_y"], prior: Density, *, random_state: int = 0) -> Product:
    """Return the posterior given two or more observations of the same x, as rows ``y``.

    Its proposal starts as the even mixture of the single posteriors. Each round weights a pool, flattens the weights
    until they rest on a tenth of it, and fits a mixture of normals to it in the latent of a middle observation; the
    round with the largest effective size is kept.
    """
    middle = np.argmin(np.linalg.norm((y - y.mean(axis=0)) / (y.std(axis=0) + 1e-300), axis=1))
    coordinates = Coordinates(flow, y[middle : middle + 1])
    if flow.n_padding:
        draws = flow.sample(jax.random.key(random_state), 256, coordinates.y)
        coordinates = standard_coordinates(draws, bounds_of(flow))
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
        modes = _fit(product.coordinates, pool, _flattened(log_weights), seed + number)
        product = replace(product, modes=modes)


def _flattened(log_weights: np.ndarray) -> np.ndarray:
    """The weights to the largest power up to 1 that leaves them an effective size, found by bisection."""
    possible = log_weights > -np.inf
    wanted = min(LEAST * N_POOL, 0.5 * np.sum(possible))

    def powered(power: float) -> np.ndarray:
        return np.where(possible, power * np.where(possible, log_weights, 0.0), -np.inf)

    if effective_size(log_weights) >= wanted:
        return log_weights
    low, high = 0.0, 1.0
    for _ in range(40):
        power = 0.5 * (low + high)
        low, high = (power, high) if effective_size(powered(power)) >= wanted else (low, power)
    return powered(low)


def _fit(coordinates: Coordinates, pool: np.ndarray, log_weights: np.ndarray, seed: int) -> Any:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.mixture import GaussianMixture

    chosen = importance_resample(pool, log_weights, 2000, random_state=seed).samples
    points, _ = coordinates.of(chosen)
    points = points[np.isfinite(points).all(axis=1)]
    floor = 1e-6 * float(points.var(axis=0).mean()) + 1e-12
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return GaussianMixture(N_MODES, reg_covar=floor, max_iter=50, random_state=seed).fit(points)

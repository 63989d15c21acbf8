"""Rejection from the prior: a posterior without any approximation but time, to judge others by."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

RandomState = int | np.random.Generator | None


@dataclass(frozen=True)
class Rejection:
    """Accepted draws as rows, their simulated observations, and what they cost."""

    samples: Float[np.ndarray, "n dim"]
    simulated: Float[np.ndarray, "n dim_y"]
    n_simulations: int
    threshold: float


def rejection(
    sample_prior: Callable[[int, np.random.Generator], np.ndarray],
    simulator: Callable[[np.ndarray], np.ndarray],
    y_star: ArrayLike,
    n: int,
    *,
    threshold: float,
    batch: int = 100_000,
    max_simulations: int = 100_000_000,
    random_state: RandomState = None,
) -> Rejection:
    """Return ``n`` prior draws whose simulation lies within ``threshold`` of ``y_star`` (Euclidean distance).

    Args:
        sample_prior: ``sample_prior(n, generator)`` gives ``n`` rows of parameters.
        simulator: Rows of parameters to rows of observations.
        y_star: The observation.
        n: Draws to accept.
        threshold: Largest accepted distance; a smaller one is closer to the posterior and needs more simulations.
        batch: Simulations at a time.
        max_simulations: Give up after so many.
        random_state: Seed or generator.

    Example:
        >>> found = rejection(lambda n, rng: rng.normal(size=(n, 1)), lambda x: x, [1.0], 50, threshold=0.1)
        >>> bool(np.all(np.abs(found.samples - 1.0) < 0.1))
        True
    """
    if threshold <= 0:
        raise ValueError(f"threshold must be positive, got {threshold}")
    rng = np.random.default_rng(random_state)
    target = np.atleast_1d(np.asarray(y_star, dtype=float))
    samples, simulated, n_accepted, n_simulations = [], [], 0, 0
    while n_accepted < n:
        if n_simulations >= max_simulations:
            raise ValueError(
                f"only {n_accepted} of {n} draws accepted after {n_simulations} simulations; "
                f"raise threshold (now {threshold}) or max_simulations"
            )
        x = sample_prior(batch, rng)
        y = np.asarray(simulator(x), dtype=float).reshape(batch, -1)
        near = np.linalg.norm(y - target, axis=1) < threshold
        samples.append(x[near])
        simulated.append(y[near])
        n_accepted += int(near.sum())
        n_simulations += batch
    return Rejection(np.concatenate(samples)[:n], np.concatenate(simulated)[:n], n_simulations, threshold)

"""Posteriors by gradients: the best fit, and chains of the no-U-turn sampler that begin around it.

A log-likelihood here is a function of one row of parameters that returns its value (nats) and its gradient, such as
`tasks.array_likelihood` and `recordings.bartlett_likelihood` make; the prior is uniform in a box.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from isr.tables.extras import need

if TYPE_CHECKING:
    from arviz import InferenceData

ValueAndGradient = Callable[[np.ndarray], tuple[float, np.ndarray]]
Bounds = tuple[tuple[float, float], ...]


def best_fit(likelihood: ValueAndGradient, starts: Float[np.ndarray, "n d"], bounds: Bounds) -> np.ndarray:
    """Return the densest point of the posterior in the box (MAP), the best reached from several starts.

    Example:
        >>> parabola = lambda x: (-float(np.sum((x - 0.3) ** 2)), -2 * (x - 0.3))
        >>> best_fit(parabola, np.array([[0.9, 0.1]]), ((0.0, 1.0), (0.0, 1.0))).round(4)
        array([0.3, 0.3])
    """
    from scipy.optimize import minimize

    low, high = np.array(bounds).T

    def loss(unit: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = likelihood(low + unit * (high - low))
        return -value, -gradient * (high - low)

    unit = (np.atleast_2d(starts) - low) / (high - low)
    tries = [minimize(loss, u, jac=True, method="L-BFGS-B", bounds=[(0, 1)] * len(low)) for u in unit]
    return low + min(tries, key=lambda found: found.fun).x * (high - low)


@dataclass(frozen=True)
class Chains:
    """Draws of a posterior by gradients.

    Args:
        samples: Draws as rows, all chains one after the other.
        best: The best fit, around which they began.
        r_hat: The largest of the parameters; about 1 where the chains agree.
        effective_size: The smallest of the parameters.
        n_likelihoods: How many values with gradient were computed.
    """

    samples: Float[np.ndarray, "n d"]
    best: Float[np.ndarray, " d"]
    r_hat: float
    effective_size: float
    n_likelihoods: int


def gradient_posterior(
    likelihood: ValueAndGradient,
    starts: Float[np.ndarray, "n d"],
    bounds: Bounds,
    *,
    n_chains: int = 2,
    n_samples: int = 500,
    n_warmup: int = 200,
    random_state: int = 0,
) -> Chains:
    """Return chains of the posterior under a uniform prior, in coordinates in which it is round at the best fit.

    Args:
        likelihood: Value and gradient of the log-likelihood of one row.
        starts: Where to look for the best fit, such as the likeliest of some prior draws.
        bounds: Of the uniform prior.
        n_chains: Chains, begun at draws of the normal law around the best fit.
        n_samples: Draws kept from each.
        n_warmup: Steps of adaptation before.
        random_state: Seed.
    """
    import jax
    import jax.numpy as jnp

    low, high = np.array(bounds).T
    best = best_fit(likelihood, starts, bounds)
    axes = np.linalg.cholesky(_covariance(likelihood, best, low, high))
    calls = [0]

    def at(u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        x = best + axes @ np.asarray(u, dtype=float)
        calls[0] += 1
        if np.any((x <= low) | (x >= high)):
            return np.array(-np.inf), np.zeros(len(low))
        value, gradient = likelihood(x)
        return np.array(value), axes.T @ gradient

    shapes = jax.ShapeDtypeStruct((), jnp.float64), jax.ShapeDtypeStruct((len(low),), jnp.float64)

    @jax.custom_vjp
    def log_likelihood(u: jax.Array) -> jax.Array:
        return jax.pure_callback(at, shapes, u, vmap_method="sequential")[0]

    log_likelihood.defvjp(
        lambda u: jax.pure_callback(at, shapes, u, vmap_method="sequential"), lambda slope, g: (g * slope,)
    )
    with _doubles():
        rng = np.random.default_rng(random_state)
        begin = _inside(rng.normal(size=(50 * n_chains, len(low))), best, axes, low, high)[:n_chains]
        options = {"n_samples": n_samples, "n_warmup": n_warmup, "random_state": random_state}
        data = nuts(lambda _: 0.0, log_likelihood, begin, **options)
    draws = np.asarray(data.posterior["x"])
    summary = need("arviz").summary(data)
    rows = best + draws.reshape(-1, len(low)) @ axes.T
    return Chains(rows, best, float(summary["r_hat"].max()), float(summary["ess_bulk"].min()), calls[0])


@contextmanager
def _doubles() -> Iterator[None]:
    """Double precision in all threads: JAX calls back from threads that `jax.enable_x64` does not reach."""
    import jax

    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    try:
        yield
    finally:
        jax.config.update("jax_enable_x64", before)


def _covariance(
    likelihood: ValueAndGradient, best: np.ndarray, low: np.ndarray, high: np.ndarray
) -> np.ndarray:
    """Inverse of the curvature at the best fit, by differences of gradients; no wider than the box."""
    width, n = high - low, len(best)
    curvature = np.empty((n, n))
    for i, step in enumerate(1e-4 * np.diag(width)):
        sides = [np.clip(best + sign * step, low, high) for sign in (1, -1)]
        rise = likelihood(sides[0])[1] - likelihood(sides[1])[1]
        curvature[i] = -rise * width / ((sides[0] - sides[1])[i] / width[i])
    sizes, directions = np.linalg.eigh(0.5 * (curvature + curvature.T))
    return width[:, None] * (directions / np.maximum(sizes, 12.0)) @ directions.T * width


def _inside(
    u: np.ndarray, best: np.ndarray, axes: np.ndarray, low: np.ndarray, high: np.ndarray
) -> np.ndarray:
    x = best + u @ axes.T
    return u[np.all((x > low) & (x < high), axis=1)]


def nuts(
    log_prior: Callable[[Any], Any],
    log_likelihood: Callable[[Any], Any],
    initial: ArrayLike,
    *,
    n_samples: int = 1000,
    n_warmup: int = 1000,
    target_acceptance: float = 0.8,
    random_state: int = 0,
) -> InferenceData:
    """Return chains of the posterior by the no-U-turn sampler with window adaptation (BlackJAX), for ArviZ.

    The draws are called x; ``arviz.summary`` tells their R-hat and effective size. Chains do not pass between separate
    modes: start them spread over all modes, and expect a large R-hat there.

    Args:
        log_prior: Log prior of one parameter vector, in JAX; may be unnormalised.
        log_likelihood: Log likelihood of one parameter vector, in JAX.
        initial: A starting point for each chain, as rows; all must have a finite log posterior.
        n_samples: Draws kept from each chain.
        n_warmup: Adaptation steps of each chain.
        target_acceptance: Higher takes smaller steps, for curved posteriors.
        random_state: Seed.
    """
    import jax
    import jax.numpy as jnp

    blackjax, arviz = need("blackjax"), need("arviz")

    def log_density(x: Any) -> Any:
        return log_prior(x) + log_likelihood(x)

    def chain(key: Any, position: Any) -> tuple[Any, Any, Any]:
        warm_key, run_key = jax.random.split(key)
        warmup = blackjax.window_adaptation(
            blackjax.nuts, log_density, target_acceptance_rate=target_acceptance
        )
        (state, parameters), _ = warmup.run(warm_key, position, num_steps=n_warmup)
        kernel = blackjax.nuts(log_density, **parameters)

        def step(state: Any, key: Any) -> tuple[Any, Any]:
            state, info = kernel.step(key, state)
            return state, (state.position, state.logdensity, info.is_divergent)

        return jax.lax.scan(step, state, jax.random.split(run_key, n_samples))[1]

    start = jnp.atleast_2d(jnp.asarray(initial, dtype=float))
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        bad = ~np.isfinite(np.asarray(jax.vmap(log_density)(start)))
        if bad.any():
            raise ValueError(
                f"log posterior is not finite at the initial points of chains {np.flatnonzero(bad).tolist()}"
            )
        keys = jax.random.split(jax.random.key(random_state), len(start))
        samples, log_prob, divergent = map(np.asarray, jax.jit(jax.vmap(chain))(keys, start))
    return arviz.from_dict(
        posterior={"x": samples.astype(float)}, sample_stats={"lp": log_prob, "diverging": divergent}
    )

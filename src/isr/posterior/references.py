"""Reference posteriors to judge a model by: rejection and the no-U-turn sampler."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from isr.tables.extras import need

if TYPE_CHECKING:
    from arviz import InferenceData

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


def nuts(
    log_prior: Callable[[Any], Any],
    log_likelihood: Callable[[Any], Any],
    initial: ArrayLike,
    *,
    n_samples: int = 1000,
    n_warmup: int = 1000,
    target_acceptance: float = 0.8,
    random_state: int = 0,
) -> "InferenceData":
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

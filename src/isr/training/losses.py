"""Losses of a flow on standardised data: likelihood, the backward term, and L2 + MMD in both directions."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from isr.model.flow import Flow

Rows = Float[Array, "width batch"]
# Beyond so many standard deviations a sample drawn backwards counts as wild.
WILD = 4.0


def negative_log_likelihood(flow: Flow, x: Rows, y: Rows | None, key: PRNGKeyArray) -> Float[Array, " batch"]:
    """Return minus the log-density of every column of ``x``, given ``y`` where the flow reads one.

    Padding is filled with fresh normal numbers, so that the padded variable stays independent of x.
    """
    if flow.n_padding:
        x = jnp.concatenate([x, jax.random.normal(key, (flow.n_padding, x.shape[-1]), x.dtype)])
    log_prob = flow.joint_log_prob_one
    if y is None:
        return -jax.vmap(log_prob, in_axes=(-1, None), out_axes=-1)(x, None)
    return -jax.vmap(log_prob, in_axes=-1, out_axes=-1)(x, y)


def wildness(flow: Flow, y: Rows | None, n: int, key: PRNGKeyArray) -> Float[Array, ""]:
    """Return how far samples drawn backwards leave the data's range, logarithmically.

    A likelihood only runs forward on data and never sees what the inverse does to a fresh latent; this term
    does: the mean of ``log(1 + max(|x| - 4, 0)^2)`` over ``n`` draws.
    """
    dtype = y.dtype if y is not None else jnp.float32
    noise = jax.random.normal(key, (flow.bijection.dim, n), dtype)
    if y is None:
        x = jax.vmap(flow.draw_one, in_axes=(-1, None), out_axes=-1)(noise, None)
    else:
        x = jax.vmap(flow.draw_one, in_axes=-1, out_axes=-1)(noise, y[:, :n])
    return jnp.mean(jnp.sum(jnp.log1p(jnp.maximum(jnp.abs(x) - WILD, 0.0) ** 2), axis=0))


def make_objective(
    restore: Callable[[Float[Array, " n"]], Flow],
    *,
    backward: float = 0.0,
    jitter: tuple[float, ...] = (),
) -> Callable:
    """Return the likelihood objective of a flow as a function of its flat weights.

    Args:
        restore: Puts flat weights into the flow.
        backward: Weight of the backward term; 0 leaves it out.
        jitter: Standard deviation of the fresh noise added to each y at every step, in standardised units.
    """

    def objective(weights, batch, key):
        flow = restore(weights)
        k_noise, k_loss, k_back = jax.random.split(key, 3)
        x, y = batch["x"], batch.get("y")
        if y is not None and jitter:
            spread = jnp.asarray(np.asarray(jitter)[:, None], y.dtype)
            y = y + spread * jax.random.normal(k_noise, y.shape, y.dtype)
        values = negative_log_likelihood(flow, x, y, k_loss)
        loss = jnp.mean(values) if "weight" not in batch else jnp.sum(values * batch["weight"][0])
        if backward:
            loss = loss + backward * wildness(flow, y, max(1, x.shape[-1] // 4), k_back)
        return loss

    return objective

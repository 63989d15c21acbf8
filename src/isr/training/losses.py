"""Losses of a flow on standardised data: the likelihood and the backward term."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from isr.bijections.flow import Flow
from isr.bijections.parameters import Restore
from isr.training.loop import Data, Moment, Noise

Columns = Float[Array, "width batch"]
# Beyond so many standard deviations a sample drawn backwards counts as wild.
WILD = 4.0
# The backward term costs as much as the likelihood, and every so many steps is enough.
BACKWARD_EVERY = 4
# Training begins with noise of about this share of y's spread and narrows it as the steps shorten: with sharp noise
# from the start the narrow direction is right to the last digit before the rest has taken shape, and then no step is
# short enough.
WIDE = 0.03
# Residual variance, in units of y's, below which an observed output is not pushed further: a deterministic y would
# otherwise be fitted to the last digit at the cost of everything else.
LEAST_VARIANCE = 1e-8
# The share of the normal law in what a dense flow is trained as, and at least in the ensemble that it joins.
DEFENCE = 0.003


def profile_loss(flow: Flow, x: Columns, y: Columns) -> Float[Array, ""]:
    """Return the mean loss of a joint flow ``f(x) = [y, z]`` whose observation noise follows its residuals.

    The variance of each observed output is the batch's own mean squared residual, which is where the likelihood is
    largest: a poor fit starts with wide noise that narrows as the fit improves. Constants are left out.
    """
    latent, log_det = flow.latent_columns(x)
    n = y.shape[0]
    variance = jnp.mean(jnp.square(latent[:n] - y), axis=-1)
    rest = jnp.mean(0.5 * jnp.sum(jnp.square(latent[n:]), axis=0) - log_det)
    return 0.5 * jnp.sum(jnp.log(variance + LEAST_VARIANCE)) + rest


def wildness(flow: Flow, y: Columns | None, n: int, key: PRNGKeyArray) -> Float[Array, ""]:
    """Return how far samples drawn backwards leave the data's range, logarithmically.

    A likelihood only runs forward on data and never sees what the inverse does to a fresh latent; this term
    does: the mean of ``log(1 + max(|x| - 4, 0)^2)`` over ``n`` draws.
    """
    precision = jax.tree.leaves(flow)[0].dtype if y is None else y.dtype
    noise = jax.random.normal(key, (flow.bijection.dim, n), precision)
    x = flow.draw_columns(noise, None if y is None else y[:, :n])
    return jnp.mean(jnp.sum(jnp.log1p(jnp.maximum(jnp.abs(x) - WILD, 0.0) ** 2), axis=0))


def widened(noise: Noise, rate: Float[Array, ""] | float) -> Float[Array, "width 1"]:
    """Return the noise of each y as a column: its own, and on top `WIDE` at the highest rate, less at a lower one."""
    spread = jnp.asarray(noise.spread, jnp.float32)
    return jnp.hypot(spread, jnp.asarray(WIDE * rate / noise.highest_rate, jnp.float32))[:, None]


@dataclass(frozen=True)
class FlowObjective:
    """The mean loss of a batch as a function of a flow's flat weights; a ``backward`` term of weight 0 is left out."""

    restore: Restore[Flow]
    backward: float = 0.0

    def __call__(
        self, weights: Float[Array, " n"], batch: Data, key: PRNGKeyArray, moment: Moment
    ) -> Float[Array, ""]:
        flow = self._flow(weights)
        k_noise, k_loss, k_back = jax.random.split(key, 3)
        x, y = batch["x"], batch.get("y")
        if flow.n_padding:  # fresh numbers, so that the padded variable stays independent of x
            x = jnp.concatenate([x, jax.random.normal(k_loss, (flow.n_padding, x.shape[-1]), x.dtype)])
        if y is not None and moment.noise is not None:
            spread = widened(moment.noise, moment.rate)
            y = y + spread.astype(y.dtype) * jax.random.normal(k_noise, y.shape, y.dtype)
        if y is not None and flow.n_observed:
            value = profile_loss(flow, x, y)
        else:
            log_prob = flow.joint_log_prob_columns(x, y)
            if "reference" in batch:  # a mixture with a little of another law: no row counts without end
                log_prob = jnp.logaddexp(
                    log_prob + jnp.log1p(-DEFENCE), batch["reference"][0] + jnp.log(DEFENCE)
                )
            value = -jnp.mean(log_prob)
        if self.backward:
            value = value + self.backward * jax.lax.cond(
                moment.number % BACKWARD_EVERY == 0,
                lambda: wildness(flow, y, max(1, x.shape[-1] // 2), k_back),
                lambda: jnp.zeros((), value.dtype),
            )
        return value

    def _flow(self, weights: Float[Array, " n"]) -> Flow:
        if weights.dtype != jnp.float32:
            return self.restore(weights)
        # Kernels read weights as they stand in the vector; taken apart and joined, they compile three times as long.
        return Restore(self.restore.model.accelerated())(weights)

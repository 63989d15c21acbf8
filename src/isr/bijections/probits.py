"""Normal numbers of other laws: the logistic, Gumbel, Laplace and mixture of normal ones, exact in both tails.

Equations know these functions by name and keep them whole.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy import special
from jaxtyping import Array, Float


@jax.jit
def mixture_number(*parts: Float[Array, "..."]) -> Float[Array, "..."]:
    """Return the normal number with the probability ``sum_k r_k Phi(a_k)``, exact in both tails; ``parts`` are r, a."""
    shares, a = jnp.split(jnp.stack(jnp.broadcast_arrays(*parts)), 2)
    below, above = jnp.sum(shares * special.ndtr(a), axis=0), jnp.sum(shares * special.ndtr(-a), axis=0)
    return _probit(below, above)


@jax.jit
def mixture_quantile(u: Float[Array, "..."], *parts: Float[Array, "..."]) -> Float[Array, "..."]:
    """Return the x that a mixture of normal laws takes to u; ``parts`` are its shares, centres and scales."""
    u, *parts = jnp.broadcast_arrays(u, *parts)
    shares, centres, scales = jnp.split(jnp.stack(parts), 3)
    sign, places = jnp.where(u < 0, 1.0, -1.0).astype(centres.dtype), centres + scales * u[None]
    wanted = special.ndtr(sign * u)

    def halved(_: Any, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        middle = 0.5 * (ends[0] + ends[1])
        reached = jnp.sum(shares * special.ndtr(sign[None] * (middle[None] - centres) / scales), axis=0)
        is_right = sign * (reached - wanted) > 0  # the probability below (u < 0) or above the middle decides
        return jnp.where(is_right, ends[0], middle), jnp.where(is_right, middle, ends[1])

    start = jax.lax.stop_gradient((jnp.min(places, axis=0), jnp.max(places, axis=0)))
    ends = jax.lax.fori_loop(0, 64, lambda i, e: jax.lax.stop_gradient(halved(i, e)), start)
    x = jax.lax.stop_gradient(0.5 * (ends[0] + ends[1]))
    a = (x[None] - centres) / scales
    gap = mixture_number(*shares, *a) - u
    density = jnp.sum(shares * jnp.exp(-0.5 * a * a) / scales, axis=0)
    slope = jnp.maximum(density * jnp.exp(0.5 * u * u), jnp.finfo(a.dtype).tiny)
    # Adds zero; the derivative is that of the root.
    return x - (gap - jax.lax.stop_gradient(gap)) / jax.lax.stop_gradient(slope)


def _probit(below: Array, above: Array) -> Array:
    """Normal quantile of a probability that is given together with what it lacks to 1."""
    smaller = jnp.maximum(jnp.minimum(below, above), jnp.finfo(below.dtype).tiny)
    return jnp.where(below < above, 1.0, -1.0).astype(below.dtype) * special.ndtri(smaller)


@jax.jit
def number_of_logistic(w: Float[Array, "..."]) -> Float[Array, "..."]:
    """Return ``Phi^-1(sigmoid(w))``."""
    return _probit(jax.nn.sigmoid(w), jax.nn.sigmoid(-w))


@jax.jit
def number_of_gumbel(w: Float[Array, "..."]) -> Float[Array, "..."]:
    """Return ``Phi^-1(exp(-exp(-w)))``."""
    t = jnp.exp(-w)
    return _probit(jnp.exp(-t), -jnp.expm1(-t))


@jax.jit
def gumbel_of_number(u: Float[Array, "..."]) -> Float[Array, "..."]:
    """Return ``-log(-log(Phi(u)))``."""
    below = special.log_ndtr(jnp.minimum(u, 0.0))
    return -jnp.log(-jnp.where(u < 0, below, jnp.log1p(-special.ndtr(-jnp.maximum(u, 0.0)))))


@jax.jit
def number_of_laplace(w: Float[Array, "..."]) -> Float[Array, "..."]:
    """Return the normal number of a Laplace one: ``Phi^-1(exp(w) / 2)`` below 0, and its mirror image above."""
    half = 0.5 * jnp.exp(-jnp.abs(w))
    return jnp.sign(w) * -special.ndtri(jnp.maximum(half, jnp.finfo(half.dtype).tiny))

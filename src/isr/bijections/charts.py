"""Closed-form charts beyond affine couplings: polar coordinates and sinh-arcsinh shapes."""

from __future__ import annotations

import math

import equinox as eqx
import jax.numpy as jnp
from jax.scipy.special import ndtr
from jaxtyping import Array, Float

from isr.bijections.affine import LOG_SQRT_2PI, probit
from isr.bijections.bijection import AbstractBijection, Mapped, Vector


class Polar(AbstractBijection):
    """Maps two variables to the logarithm of their radius and the normal quantile of their angle.

    With ``r`` and ``theta`` the polar coordinates of ``(x_i - a, x_j - b)``: ``u_i = log(r)`` and
    ``u_j = Phi^-1(1/2 + theta / (2 pi))``, which makes a uniform angle exactly normal.

    Args:
        centre: The learned centre ``(a, b)``.
        pair: Which two variables.
        dim: Number of variables in all.
    """

    centre: Float[Array, "2"]
    pair: tuple[int, int] = eqx.field(static=True)
    dim: int = eqx.field(static=True)

    def __check_init__(self) -> None:
        i, j = self.pair
        if not (0 <= i < self.dim and 0 <= j < self.dim and i != j):
            raise ValueError(f"pair must name two different variables of {self.dim}, got {self.pair}")

    def forward_and_log_det(self, x: Vector, condition: Vector | None = None) -> Mapped:
        i, j = self.pair
        a, b = x[i] - self.centre[0], x[j] - self.centre[1]
        log_radius = 0.5 * jnp.log(a * a + b * b)
        u = probit(0.5 + jnp.arctan2(b, a) / (2 * math.pi))
        log_det = -2 * log_radius - math.log(2 * math.pi) + LOG_SQRT_2PI + 0.5 * u * u
        return x.at[i].set(log_radius).at[j].set(u), log_det

    def inverse_and_log_det(self, z: Vector, condition: Vector | None = None) -> Mapped:
        i, j = self.pair
        log_radius, u = jnp.clip(z[i], -80.0, 80.0), z[j]
        radius, angle = jnp.exp(log_radius), 2 * math.pi * (ndtr(u) - 0.5)
        log_det = 2 * log_radius + math.log(2 * math.pi) - LOG_SQRT_2PI - 0.5 * u * u
        a, b = radius * jnp.cos(angle), radius * jnp.sin(angle)
        return z.at[i].set(self.centre[0] + a).at[j].set(self.centre[1] + b), log_det


class SinhArcsinh(AbstractBijection):
    """Maps each variable to ``sinh(exp(log_tail) * asinh(x) - skew)``: tails and skewness in closed form.

    Args:
        log_tail: Positive lightens, negative fattens the tails that a normal latent gives x.
        skew: Positive pulls x's mass to the right.
    """

    log_tail: Float[Array, " dim"]
    skew: Float[Array, " dim"]

    @property
    def dim(self) -> int:
        """How many variables it maps."""
        return self.log_tail.shape[0]

    def forward_and_log_det(self, x: Vector, condition: Vector | None = None) -> Mapped:
        w = jnp.exp(self.log_tail) * jnp.arcsinh(x) - self.skew
        return jnp.sinh(w), jnp.sum(self.log_tail + _log_cosh(w) - 0.5 * jnp.log1p(x * x))

    def inverse_and_log_det(self, z: Vector, condition: Vector | None = None) -> Mapped:
        w = jnp.exp(-self.log_tail) * (jnp.arcsinh(z) + self.skew)
        return jnp.sinh(w), jnp.sum(_log_cosh(w) - self.log_tail - 0.5 * jnp.log1p(z * z))


def _log_cosh(w: Array) -> Array:
    return jnp.logaddexp(w, -w) - math.log(2)

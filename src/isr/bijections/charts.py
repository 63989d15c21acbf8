"""Closed-form charts beyond affine couplings: polar coordinates and sinh-arcsinh shapes."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Array, Float

from isr.bijections.affine import LOG_SQRT_2PI, Shift, Standardise, probit
from isr.bijections.bijection import AbstractBijection, Mapped, Vector
from isr.bijections.elementary import log_cosh, ndtr


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

    part: ClassVar[str] = "polar"

    def __check_init__(self) -> None:
        i, j = self.pair
        if not (0 <= i < self.dim and 0 <= j < self.dim and i != j):
            raise ValueError(f"pair must name two different variables of {self.dim}, got {self.pair}")

    def forward_and_log_det(self, x: Vector, condition: Vector | None = None) -> Mapped:
        i, j = self.pair
        a, b = checkpoint_name(x[i] - self.centre[0], "dx"), checkpoint_name(x[j] - self.centre[1], "dy")
        log_radius = checkpoint_name(0.5 * jnp.log(a * a + b * b), "rho")
        u = checkpoint_name(probit(0.5 + jnp.arctan2(b, a) / (2 * math.pi)), "angle")
        log_det = -2 * log_radius - math.log(2 * math.pi) + LOG_SQRT_2PI + 0.5 * u * u
        return x.at[i].set(log_radius).at[j].set(u), log_det

    def inverse_and_log_det(self, z: Vector, condition: Vector | None = None) -> Mapped:
        i, j = self.pair
        log_radius, u = checkpoint_name(jnp.clip(z[i], -80.0, 80.0), "rho"), checkpoint_name(z[j], "angle")
        radius, angle = jnp.exp(log_radius), checkpoint_name(2 * math.pi * (ndtr(u) - 0.5), "turn")
        log_det = 2 * log_radius + math.log(2 * math.pi) - LOG_SQRT_2PI - 0.5 * u * u
        a = checkpoint_name(self.centre[0] + radius * jnp.cos(angle), "px")
        b = checkpoint_name(self.centre[1] + radius * jnp.sin(angle), "py")
        return z.at[i].set(a).at[j].set(b), log_det

    def after(self, scale: Standardise) -> tuple[list[AbstractBijection], None]:
        """Return the same around a centre in raw units, where both variables have one scale."""
        pair = np.array(self.pair)
        shift, width = jnp.asarray(scale.shift), jnp.asarray(scale.scale)
        if np.ptp(np.array(scale.scale)[pair]):
            return [scale, self], None
        offset = jnp.zeros(self.dim).at[self.pair[0]].set(jnp.log(width[self.pair[0]]))
        return [replace(self, centre=shift[pair] + width[pair] * self.centre), Shift(offset)], None


class SinhArcsinh(AbstractBijection):
    """Maps each variable to ``sinh(exp(log_tail) * asinh(x) - skew)``: tails and skewness in closed form.

    Args:
        log_tail: Positive lightens, negative fattens the tails that a normal latent gives x.
        skew: Positive pulls x's mass to the right.
    """

    log_tail: Float[Array, " dim"]
    skew: Float[Array, " dim"]

    part: ClassVar[str] = "tails"

    @property
    def dim(self) -> int:
        """How many variables it maps."""
        return self.log_tail.shape[0]

    def forward_and_log_det(self, x: Vector, condition: Vector | None = None) -> Mapped:
        x = checkpoint_name(x, "a")
        w = checkpoint_name(jnp.exp(self.log_tail) * jnp.arcsinh(x) - self.skew, "w")
        return checkpoint_name(jnp.sinh(w), "q"), jnp.sum(
            self.log_tail + log_cosh(w) - 0.5 * jnp.log1p(x * x)
        )

    def inverse_and_log_det(self, z: Vector, condition: Vector | None = None) -> Mapped:
        z = checkpoint_name(z, "a")
        w = checkpoint_name(jnp.exp(-self.log_tail) * (jnp.arcsinh(z) + self.skew), "w")
        return checkpoint_name(jnp.sinh(w), "q"), jnp.sum(
            log_cosh(w) - self.log_tail - 0.5 * jnp.log1p(z * z)
        )

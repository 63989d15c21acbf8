"""Affine coupling: rescale and shift each half of the variables by functions of the other.

Direction, everywhere: *forward* takes data x to latent z, *inverse* brings it back. The clamp of the log-scale
and the guard of the subnetworks' inputs are part of the formula.
"""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from isr.model.bijection import AbstractBijection, Mapped, Vector
from isr.model.eql import EQL
from isr.model.formula import Formulas
from isr.model.mlp import MLP

Subnetwork = EQL | MLP | Formulas


class Coupling(AbstractBijection):
    """Maps ``(u1, u2)`` to ``(v1, o2)``, two affine couplings one after the other.

    ``v1 = u1 * exp(s1(u2)) + t1(u2)`` and ``o2 = u2 * exp(s2(v1)) + t2(v1)``, where every ``s`` is held inside
    ``±clamp`` by ``clamp * 2/pi * atan(s / clamp)`` and every input of a subnetwork inside ``±guard``.

    Args:
        first: Gives ``s1`` and ``t1``, stacked, from ``u2`` and the condition.
        second: Gives ``s2`` and ``t2``, stacked, from ``v1`` and the condition.
        split: How many leading variables form ``u1``.
        dim: Number of variables in all.
        clamp: Bound of the log-scale; ``None`` leaves it free.
        guard: Bound of the subnetworks' inputs; ``None`` leaves them free.
    """

    first: Subnetwork
    second: Subnetwork
    split: int = eqx.field(static=True)
    dim: int = eqx.field(static=True)
    clamp: float | None = eqx.field(static=True)
    guard: float | None = eqx.field(static=True)

    def __check_init__(self) -> None:
        if not 0 < self.split < self.dim:
            raise ValueError(
                f"split must lie strictly between 0 and dim={self.dim}, "
                f"got {self.split}; a coupling needs variables on both sides"
            )
        for name in ("clamp", "guard"):
            bound = getattr(self, name)
            if bound is not None and not bound > 0:
                raise ValueError(f"{name} must be a positive number or None, got {bound!r}")

    def forward_and_log_det(self, x: Vector, condition: Vector | None = None) -> Mapped:
        u1, u2 = jnp.split(x, [self.split])
        s1, t1 = self.scale_and_shift(self.first, u2, condition)
        v1 = u1 * jnp.exp(s1) + t1
        s2, t2 = self.scale_and_shift(self.second, v1, condition)
        o2 = u2 * jnp.exp(s2) + t2
        return jnp.concatenate([v1, o2]), jnp.sum(s1) + jnp.sum(s2)

    def inverse_and_log_det(self, z: Vector, condition: Vector | None = None) -> Mapped:
        v1, o2 = jnp.split(z, [self.split])
        s2, t2 = self.scale_and_shift(self.second, v1, condition)
        u2 = (o2 - t2) * jnp.exp(-s2)
        s1, t1 = self.scale_and_shift(self.first, u2, condition)
        u1 = (v1 - t1) * jnp.exp(-s1)
        return jnp.concatenate([u1, u2]), -jnp.sum(s1) - jnp.sum(s2)

    def scale_and_shift(
        self, subnetwork: Subnetwork, half: Vector, condition: Vector | None
    ) -> tuple[Float[Array, " half"], Float[Array, " half"]]:
        """Return the clamped log-scale and the shift that ``subnetwork`` gives."""
        inputs = half if condition is None else jnp.concatenate([half, condition])
        if self.guard is not None:
            inputs = jnp.clip(inputs, -self.guard, self.guard)
        s, t = subnetwork(inputs)
        if self.clamp is not None:
            s = self.clamp * (2 / np.pi) * jnp.arctan(s / self.clamp)
        return s, t

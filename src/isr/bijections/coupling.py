"""Affine coupling: rescale and shift each half of the variables by functions of the other.

Direction, everywhere: *forward* takes data x to latent z, *inverse* brings it back. The clamp of the log-scale
and the guard of the subnetworks' inputs are part of the formula.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from isr.bijections.affine import Linear
from isr.bijections.bijection import AbstractBijection, Columns, Mapped, MappedColumns, Vector
from isr.bijections.elementary import arctan
from isr.bijections.eql import EQL
from isr.bijections.formula import Formulas
from isr.bijections.mlp import MLP
from isr.bijections.permutation import Permutation
from isr.native.couplings import Block, native_forms

Model = TypeVar("Model")
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
        return self._forward(x, condition)

    def inverse_and_log_det(self, z: Vector, condition: Vector | None = None) -> Mapped:
        return self._inverse(z, condition)

    def ready(self) -> Coupling:
        """Return the same coupling with the layers of equation networks put together."""
        first, second = (n.ready() if isinstance(n, EQL) else n for n in (self.first, self.second))
        return replace(self, first=first, second=second)

    def forward_columns(self, x: Columns, condition: Array | None = None) -> MappedColumns:
        return self._forward(x, _a_column_each(condition, x.shape[-1]))

    def inverse_columns(self, z: Columns, condition: Array | None = None) -> MappedColumns:
        return self._inverse(z, _a_column_each(condition, z.shape[-1]))

    def _forward(self, x: Array, condition: Array | None) -> tuple[Array, Array]:
        u1, u2 = jnp.split(x, [self.split])
        s1, t1 = self.scale_and_shift(self.first, u2, condition)
        v1 = u1 * jnp.exp(s1) + t1
        s2, t2 = self.scale_and_shift(self.second, v1, condition)
        o2 = u2 * jnp.exp(s2) + t2
        return jnp.concatenate([v1, o2]), jnp.sum(s1, axis=0) + jnp.sum(s2, axis=0)

    def _inverse(self, z: Array, condition: Array | None) -> tuple[Array, Array]:
        v1, o2 = jnp.split(z, [self.split])
        s2, t2 = self.scale_and_shift(self.second, v1, condition)
        u2 = (o2 - t2) * jnp.exp(-s2)
        s1, t1 = self.scale_and_shift(self.first, u2, condition)
        u1 = (v1 - t1) * jnp.exp(-s1)
        return jnp.concatenate([u1, u2]), -jnp.sum(s1, axis=0) - jnp.sum(s2, axis=0)

    def scale_and_shift(
        self, subnetwork: Subnetwork, half: Array, condition: Array | None
    ) -> tuple[Float[Array, "half *n"], Float[Array, "half *n"]]:
        """Return the clamped log-scale and the shift that ``subnetwork`` gives, for one sample or a column each."""
        inputs = half if condition is None else jnp.concatenate([half, condition])
        if self.guard is not None:
            inputs = jnp.clip(inputs, -self.guard, self.guard)
        s, t = subnetwork.columns(inputs) if inputs.ndim == 2 else subnetwork(inputs)
        if self.clamp is not None:
            s = self.clamp * (2 / np.pi) * arctan(s / self.clamp)
        return s, t


def natively(model: Model) -> Model:
    """Return the same model, its couplings in the form that the native library runs in single precision where it can.

    In a row of steps, couplings go together with each other and with the permutations and matrices between them.
    Learned numbers are the same in the same order.
    """

    def changed(part: Any) -> Any:
        if isinstance(part, Coupling):
            return native_steps((part,))[0]
        return native_steps(part) if _holds_couplings(part) else part

    return jax.tree.map(
        changed, model, is_leaf=lambda part: isinstance(part, Coupling) or _holds_couplings(part)
    )


def _holds_couplings(part: Any) -> bool:
    return isinstance(part, tuple) and any(isinstance(step, Coupling) for step in part)


def native_steps(steps: Sequence[AbstractBijection]) -> tuple[AbstractBijection, ...]:
    """Return the steps of a chain, those that the native library can run in its form."""
    parts: list[Any] = []
    for step in steps:
        if isinstance(step, Coupling):
            before = parts.pop() if parts and isinstance(parts[-1], Permutation | Linear) else None
            parts.append(Block(step, before))
        else:
            parts.append(step)
    found: list[AbstractBijection] = []
    for are_blocks, group in groupby(parts, key=lambda part: isinstance(part, Block)):
        row = list(group)
        found += native_forms(row) if are_blocks else row
    return tuple(found)


def _a_column_each(condition: Array | None, n: int) -> Array | None:
    if condition is None or condition.ndim == 2:
        return condition
    return jnp.broadcast_to(condition[:, None], (len(condition), n))

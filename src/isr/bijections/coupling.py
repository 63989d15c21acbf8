"""Coupling: transform each half of the variables by functions of the other.

Direction, everywhere: *forward* takes data x to latent z, *inverse* brings it back. The transformer's clamp and the
guard of the subnetworks' inputs are part of the formula.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Array

from isr.bijections.bijection import AbstractBijection, Columns, Mapped, MappedColumns, Vector
from isr.bijections.eql import EQL
from isr.bijections.formula import Formulas
from isr.bijections.mlp import MLP
from isr.bijections.transformers import AbstractTransformer, Affine

Subnetwork = EQL | MLP | Formulas


class Coupling(AbstractBijection):
    """Maps ``(u1, u2)`` to ``(v1, o2)``, two couplings one after the other.

    ``v1 = T(u1; first(u2))`` and ``o2 = T(u2; second(v1))``, where ``T`` is the transformer and every input of a
    subnetwork is held inside ``±guard``. The affine one gives ``v1 = u1 * exp(s1(u2)) + t1(u2)``.

    Args:
        first: Gives the parameters of ``v1``, stacked, from ``u2`` and the condition.
        second: Gives those of ``o2``, from ``v1`` and the condition.
        split: How many leading variables form ``u1``.
        dim: Number of variables in all.
        transformer: What is done to each variable.
        guard: Bound of the subnetworks' inputs; ``None`` leaves them free.
    """

    first: Subnetwork
    second: Subnetwork
    split: int = eqx.field(static=True)
    dim: int = eqx.field(static=True)
    transformer: AbstractTransformer = Affine()
    guard: float | None = eqx.field(static=True, default=None)

    part: ClassVar[str] = "block"
    is_penalised: ClassVar[bool] = True

    def __check_init__(self) -> None:
        if not 0 < self.split < self.dim:
            raise ValueError(
                f"split must lie strictly between 0 and dim={self.dim}, "
                f"got {self.split}; a coupling needs variables on both sides"
            )
        if self.guard is not None and not self.guard > 0:
            raise ValueError(f"guard must be a positive number or None, got {self.guard!r}")

    def forward_and_log_det(self, x: Vector, condition: Vector | None = None) -> Mapped:
        return self._forward(x, condition)

    def inverse_and_log_det(self, z: Vector, condition: Vector | None = None) -> Mapped:
        return self._inverse(z, condition)

    @property
    def subnetworks(self) -> tuple[Subnetwork, Subnetwork]:
        """What gives the parameters of the first and of the second half."""
        return self.first, self.second

    def with_subnetworks(self, *networks: Subnetwork) -> Coupling:
        """Return the same coupling with two other networks."""
        return replace(self, first=networks[0], second=networks[1])

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
        u1, u2 = checkpoint_name(u1, "u1"), checkpoint_name(u2, "u2")
        v1, slope1 = self.transformer.forward(u1, *self.parameters(1, u2, condition))
        v1 = checkpoint_name(v1, "v1")
        o2, slope2 = self.transformer.forward(u2, *self.parameters(2, v1, condition))
        o2 = checkpoint_name(o2, "o2")
        return jnp.concatenate([v1, o2]), jnp.sum(slope1, axis=0) + jnp.sum(slope2, axis=0)

    def _inverse(self, z: Array, condition: Array | None) -> tuple[Array, Array]:
        v1, o2 = jnp.split(z, [self.split])
        v1, o2 = checkpoint_name(v1, "v1"), checkpoint_name(o2, "o2")
        u2, slope2 = self.transformer.inverse(o2, *self.parameters(2, v1, condition))
        u2 = checkpoint_name(u2, "u2")
        u1, slope1 = self.transformer.inverse(v1, *self.parameters(1, u2, condition))
        return jnp.concatenate([checkpoint_name(u1, "u1"), u2]), jnp.sum(slope1, axis=0) + jnp.sum(
            slope2, axis=0
        )

    def parameters(self, which: int, half: Array, condition: Array | None) -> tuple[Array, ...]:
        """Return the transformer's parameters for the first or the second half, for one sample or a column each."""
        network = self.first if which == 1 else self.second
        inputs = [checkpoint_name(self._guarded(half), f"g{3 - which}")]
        if condition is not None:
            with jax.named_scope("condition"):
                inputs.append(checkpoint_name(self._guarded(condition), "gc"))
        inputs = jnp.concatenate(inputs)
        raw = network.columns(inputs) if inputs.ndim == 2 else network(inputs)
        parameters = self.transformer.constrained(*raw)
        return tuple(
            checkpoint_name(p, f"{name}{which}")
            for p, name in zip(parameters, self.transformer.names, strict=True)
        )

    def _guarded(self, values: Array) -> Array:
        return values if self.guard is None else jnp.clip(values, -self.guard, self.guard)


def _a_column_each(condition: Array | None, n: int) -> Array | None:
    if condition is None or condition.ndim == 2:
        return condition
    return jnp.broadcast_to(condition[:, None], (len(condition), n))

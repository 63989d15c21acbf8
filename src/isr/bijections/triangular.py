"""Triangular: each variable given those before it, by a formula for its centre and one for its scale."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from isr.bijections.bijection import AbstractBijection, Mapped, Vector
from isr.bijections.formula import Formulas, evaluate


class Triangular(AbstractBijection):
    """Maps ``x_i`` to ``(x_i - t_i) / s_i``, where ``t_i`` and ``s_i`` are formulas of the variables before i.

    A scale may change its sign, and its sign means nothing.

    Args:
        laws: Formulas of all scales, then of all centres, of all variables.
        order: The order of the variables: a formula may read those that stand before its own.
    """

    laws: Formulas
    order: tuple[int, ...] = eqx.field(static=True)

    part: ClassVar[str] = "laws"

    def __check_init__(self) -> None:
        n = self.laws.n_inputs
        if sorted(self.order) != list(range(n)) or len(self.laws.trees) != 2 * n:
            raise ValueError(f"{n} variables need {2 * n} formulas and an order of all, got {self.order}")
        for place, i in enumerate(self.order):
            read = _reads(self.laws.trees[i]) | _reads(self.laws.trees[n + i])
            if not read <= set(self.order[:place]):
                raise ValueError(f"the law of variable {i} reads {sorted(read)}, some of them not before it")

    @property
    def dim(self) -> int:
        """How many variables it maps."""
        return self.laws.n_inputs

    @property
    def subnetworks(self) -> tuple[Formulas]:
        """Its formulas."""
        return (self.laws,)

    def with_subnetworks(self, *networks: Any) -> Triangular:
        """Return the same with other formulas."""
        return replace(self, laws=networks[0])

    def forward_and_log_det(self, x: Vector, condition: Vector | None = None) -> Mapped:
        scale, centre = self.laws(x)
        return (x - centre) / scale, -jnp.sum(jnp.log(jnp.abs(scale)))

    def inverse_and_log_det(self, z: Vector, condition: Vector | None = None) -> Mapped:
        x, log_det, n = list(z), jnp.zeros((), z.dtype), self.dim
        for i in self.order:
            scale, centre = (evaluate(self.laws.trees[k], x, self.laws.constants) for k in (i, n + i))
            x[i] = checkpoint_name(centre + scale * z[i], f"x_{i + 1}")
            log_det = log_det + jnp.log(jnp.abs(scale))
        return jnp.stack(x), log_det


def _reads(tree: Any) -> set[int]:
    if tree[0] == "input":
        return {tree[1]}
    return set().union(*(_reads(part) for part in tree[1:] if isinstance(part, tuple)))

"""Permutation: a fixed reordering of the variables between blocks."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from isr.bijections.bijection import AbstractBijection, Columns, Mapped, MappedColumns, Vector


class Permutation(AbstractBijection):
    """Maps ``x`` to ``x[order]``.

    Args:
        order: Which input stands at each place of the output.
    """

    order: tuple[int, ...] = eqx.field(static=True)

    def __check_init__(self) -> None:
        if sorted(self.order) != list(range(len(self.order))):
            raise ValueError(f"order must hold each of 0..{len(self.order) - 1} once, got {self.order}")

    @property
    def dim(self) -> int:
        """How many variables it maps."""
        return len(self.order)

    @property
    def back(self) -> tuple[int, ...]:
        """The order that undoes this one."""
        return tuple(int(i) for i in np.argsort(self.order))

    def forward_columns(self, x: Columns, condition: Array | None = None) -> MappedColumns:
        return _rows_in_order(x, self.order), jnp.zeros(x.shape[-1], x.dtype)

    def inverse_columns(self, z: Columns, condition: Array | None = None) -> MappedColumns:
        return _rows_in_order(z, self.back), jnp.zeros(z.shape[-1], z.dtype)

    def forward_and_log_det(self, x: Vector, condition: Vector | None = None) -> Mapped:
        return x[np.array(self.order)], jnp.zeros((), x.dtype)

    def inverse_and_log_det(self, z: Vector, condition: Vector | None = None) -> Mapped:
        return z[np.array(self.back)], jnp.zeros((), z.dtype)


# More rows than this take longer to compile one by one than an index.
MOST_CUTS = 8


def _rows_in_order(x: Columns, order: tuple[int, ...]) -> Columns:
    if len(order) > MOST_CUTS:
        return x[np.array(order)]
    # Cut and put together, the gradient is the same backwards; that of an index would be a scatter.
    rows = jnp.split(x, len(order))
    return jnp.concatenate([rows[i] for i in order])

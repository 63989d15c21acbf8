"""What every bijection offers: two directions, each with its log-determinant, for one sample."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

import equinox as eqx
import jax
from jaxtyping import Array, Float

Vector = Float[Array, " dim"]
Scalar = Float[Array, ""]
Mapped = tuple[Vector, Scalar]
Columns = Float[Array, "dim n"]
MappedColumns = tuple[Columns, Float[Array, " n"]]


class AbstractBijection(eqx.Module):
    """An invertible map of ``dim`` real variables, possibly given a condition.

    The log-determinant is that of the direction asked for, natural logarithm of its absolute value.
    """

    part: ClassVar[str] = ""
    """What equations call this part of a model; a chain numbers the blocks."""
    is_penalised: ClassVar[bool] = False
    """Whether sparsity may drive its learned numbers to zero."""

    if TYPE_CHECKING:  # a field in some bijections, a property in others; a declaration here would fix which

        @property
        def dim(self) -> int: ...

    @abstractmethod
    def forward_and_log_det(self, x: Vector, condition: Vector | None = None) -> Mapped:
        """Return the image of ``x`` and the log-determinant of the map there."""

    @abstractmethod
    def inverse_and_log_det(self, z: Vector, condition: Vector | None = None) -> Mapped:
        """Return the preimage of ``z`` and the log-determinant of the inverse there."""

    @property
    def subnetworks(self) -> tuple[Any, ...]:
        """The networks that give a coupling its parameters; other bijections have none."""
        return ()

    def with_subnetworks(self, *networks: Any) -> AbstractBijection:
        """Return the same map with other networks, as many as it has."""
        return self

    def after(self, scale: Any) -> tuple[list[AbstractBijection], Any]:
        """Return steps that do as a standardisation and this map, in raw units, and what is left to standardise."""
        return [scale, self], None

    def ready(self) -> AbstractBijection:
        """Return the same map with all worked out that does not depend on the sample."""
        return self

    def forward_columns(self, x: Columns, condition: Array | None = None) -> MappedColumns:
        """Return images and log-determinants of many samples, one a column; ``condition`` is one or a column each."""
        return jax.vmap(self.forward_and_log_det, in_axes=(-1, axis_of(condition)), out_axes=-1)(x, condition)

    def inverse_columns(self, z: Columns, condition: Array | None = None) -> MappedColumns:
        """Return preimages and log-determinants of many samples, one a column."""
        return jax.vmap(self.inverse_and_log_det, in_axes=(-1, axis_of(condition)), out_axes=-1)(z, condition)


def axis_of(condition: Array | None) -> int | None:
    """Return the axis that runs over samples; a vector is for all of them."""
    return None if condition is None or condition.ndim == 1 else -1

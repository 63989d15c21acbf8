"""What every bijection offers: two directions, each with its log-determinant, for one sample."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

import equinox as eqx
from jaxtyping import Array, Float

Vector = Float[Array, " dim"]
Scalar = Float[Array, ""]
Mapped = tuple[Vector, Scalar]


class AbstractBijection(eqx.Module):
    """An invertible map of ``dim`` real variables, possibly given a condition.

    The log-determinant is that of the direction asked for, natural logarithm of its absolute value.
    """

    if TYPE_CHECKING:  # a field in some bijections, a property in others; a declaration here would fix which

        @property
        def dim(self) -> int: ...

    @abstractmethod
    def forward_and_log_det(self, x: Vector, condition: Vector | None = None) -> Mapped:
        """Return the image of ``x`` and the log-determinant of the map there."""

    @abstractmethod
    def inverse_and_log_det(self, z: Vector, condition: Vector | None = None) -> Mapped:
        """Return the preimage of ``z`` and the log-determinant of the inverse there."""

"""Chain: bijections one after the other."""

from __future__ import annotations

from jax.numpy import zeros

from isr.model.bijection import AbstractBijection, Mapped, Vector


class Chain(AbstractBijection):
    """Applies ``bijections`` in order; the inverse applies their inverses from last to first.

    Args:
        bijections: At least one, all over the same number of variables.
    """

    bijections: tuple[AbstractBijection, ...]

    def __check_init__(self) -> None:
        dims = [b.dim for b in self.bijections]
        if not dims or len(set(dims)) > 1:
            raise ValueError(
                f"a chain needs bijections over the same number of variables, got dimensions {dims}"
            )

    @property
    def dim(self) -> int:
        return self.bijections[0].dim

    def forward_and_log_det(self, x: Vector, condition: Vector | None = None) -> Mapped:
        total = zeros((), x.dtype)
        for bijection in self.bijections:
            x, log_det = bijection.forward_and_log_det(x, condition)
            total = total + log_det
        return x, total

    def inverse_and_log_det(self, z: Vector, condition: Vector | None = None) -> Mapped:
        total = zeros((), z.dtype)
        for bijection in reversed(self.bijections):
            z, log_det = bijection.inverse_and_log_det(z, condition)
            total = total + log_det
        return z, total

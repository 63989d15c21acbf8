"""Chain: bijections one after the other."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
from jax.numpy import zeros
from jaxtyping import Array

from isr.bijections.bijection import AbstractBijection, Columns, Mapped, MappedColumns, Vector
from isr.bijections.repeats import runs

# Steps that come back in the same shape at least so often are compiled once and run in a loop.
LEAST_REPEATS = 3
LONGEST_PERIOD = 2
Group = tuple[AbstractBijection, ...]


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
        """How many variables it maps."""
        return self.bijections[0].dim

    def forward_and_log_det(self, x: Vector, condition: Vector | None = None) -> Mapped:
        total = zeros((), x.dtype)
        for part, bijection in self._parts():
            with jax.named_scope(part):
                x, log_det = bijection.forward_and_log_det(x, condition)
            total = total + log_det
        return x, total

    def inverse_and_log_det(self, z: Vector, condition: Vector | None = None) -> Mapped:
        total = zeros((), z.dtype)
        for part, bijection in reversed(self._parts()):
            with jax.named_scope(part):
                z, log_det = bijection.inverse_and_log_det(z, condition)
            total = total + log_det
        return z, total

    def _parts(self) -> list[tuple[str, AbstractBijection]]:
        """The bijections with what equations call them."""
        numbers = itertools.count(1)
        names = (
            f"block {next(numbers)}" if b.part == "block" else b.part or "mixing" for b in self.bijections
        )
        return list(zip(names, self.bijections, strict=True))

    def forward_columns(self, x: Columns, condition: Array | None = None) -> MappedColumns:
        return self._run(x, condition, "forward_columns", backwards=False)

    def inverse_columns(self, z: Columns, condition: Array | None = None) -> MappedColumns:
        return self._run(z, condition, "inverse_columns", backwards=True)

    def _run(self, x: Columns, condition: Array | None, method: str, *, backwards: bool) -> MappedColumns:
        def through(group: Group, mapped: MappedColumns) -> MappedColumns:
            x, total = mapped
            for step in reversed(group) if backwards else group:
                x, log_det = getattr(step, method)(x, condition)
                total = total + log_det
            return x, total

        mapped = (x, zeros(x.shape[-1], x.dtype))
        groups = repeats(self.bijections)
        for same in reversed(groups) if backwards else groups:
            if len(same) == 1:
                mapped = through(_ready(same[0]), mapped)
                continue
            stacked = _stacked(same)
            mapped, _ = jax.lax.scan(
                lambda carry, group: (through(group, carry), None), mapped, stacked, reverse=backwards
            )
        return mapped


def repeats(steps: Group) -> list[list[Group]]:
    """Return the steps in order as lists of groups, those of one list alike in all but their numbers."""
    return [
        [steps[start + i * period : start + (i + 1) * period] for i in range(times)]
        for start, period, times in runs(
            [_look(s) for s in steps], longest=LONGEST_PERIOD, least=LEAST_REPEATS
        )
    ]


def _stacked(groups: list[Group]) -> Group:
    """Return groups of one shape as one group of stacked arrays, made ready."""
    return jax.vmap(_ready)(jax.tree.map(lambda *leaves: jnp.stack(leaves), *groups))


def _ready(group: Group) -> Group:
    return tuple(step.ready() for step in group)


def _look(step: AbstractBijection) -> Any:
    leaves, structure = jax.tree.flatten(step)
    return structure, tuple((jnp.shape(leaf), jnp.result_type(leaf)) for leaf in leaves)

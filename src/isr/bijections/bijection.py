"""What every bijection offers, two directions each with its log-determinant, for one sample; and chains of them."""

from __future__ import annotations

import itertools
import math
from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.numpy import zeros
from jaxtyping import Array, Float

Vector = Float[Array, " dim"]
Scalar = Float[Array, ""]
Mapped = tuple[Vector, Scalar]
Columns = Float[Array, "dim n"]
MappedColumns = tuple[Columns, Float[Array, " n"]]


def told(what: str, value: Callable[[Any], Any]) -> Any:
    """Return a property with its docstring, in one line."""
    value.__doc__ = what
    return property(value)


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

    def forward_columns(self, x: Columns, condition: Array | None = None) -> MappedColumns:
        """Return images and log-determinants of many samples, one per column; ``condition`` is one or a column each."""
        return self._by_column(self.forward_and_log_det, x, condition)

    def inverse_columns(self, z: Columns, condition: Array | None = None) -> MappedColumns:
        """Return preimages and log-determinants of many samples, one per column."""
        return self._by_column(self.inverse_and_log_det, z, condition)

    def _by_column(self, one: Callable[..., Mapped], x: Columns, condition: Array | None) -> MappedColumns:
        axis = None if condition is None or condition.ndim == 1 else -1
        return jax.vmap(one, in_axes=(-1, axis), out_axes=-1)(x, condition)


# Steps that come back in the same shape at least so often are compiled once and run in a loop: six blocks with learned
# mixing compile in less time, and a step of training is faster where XLA does all the work.
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

    dim = told("How many variables it maps.", lambda self: self.bijections[0].dim)

    def forward_and_log_det(self, x: Vector, condition: Vector | None = None) -> Mapped:
        return self._one_by_one(x, condition, "forward_and_log_det", 1)

    def inverse_and_log_det(self, z: Vector, condition: Vector | None = None) -> Mapped:
        return self._one_by_one(z, condition, "inverse_and_log_det", -1)

    def _one_by_one(self, x: Vector, condition: Vector | None, method: str, order: int) -> Mapped:
        total, numbers = zeros((), x.dtype), itertools.count(1)
        steps = [
            (f"block {next(numbers)}" if step.part == "block" else step.part or "mixing", step)
            for step in self.bijections
        ]
        for part, step in steps[::order]:
            with jax.named_scope(part):  # what equations call it
                x, log_det = getattr(step, method)(x, condition)
            total = total + log_det
        return x, total

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
                mapped = through(same[0], mapped)
                continue
            stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *same)
            mapped, _ = jax.lax.scan(
                lambda carry, group: (through(group, carry), None), mapped, stacked, reverse=backwards
            )
        return mapped


def repeats(steps: Group) -> list[list[Group]]:
    """Return the steps in order as lists of groups, those of one list alike in all but their numbers."""

    def look(step: AbstractBijection) -> Any:
        leaves, structure = jax.tree.flatten(step)
        return structure, tuple((jnp.shape(leaf), jnp.result_type(leaf)) for leaf in leaves)

    looks, found, start = [look(step) for step in steps], [], 0
    while start < len(steps):
        best = 1, 1
        for period in range(1, LONGEST_PERIOD + 1):
            times, first = 1, looks[start : start + period]
            while looks[start + times * period : start + (times + 1) * period] == first:
                times += 1
            if times >= LEAST_REPEATS:
                best = max(best, (period, times), key=math.prod)
        period, times = best
        ends = range(start, start + period * times, period)
        found.append([steps[i : i + period] for i in ends])
        start += period * times
    return found

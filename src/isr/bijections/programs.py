"""Compiled programs for the models in use, shared by all models that differ in numbers alone.

Shifts, scales and bounds follow from the data, so every fit has its own; as parts of the program each would have it
compiled anew: a second flow of six blocks then needs 1.2 s for its first draw instead of 0.01. They become arrays.

A program belongs to a model's structure, and every fit brings new ones: kept for good, as JAX would, they fill the
memory of a process that fits all day. The programs used last are kept, older ones make room.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import lru_cache
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from isr.bijections.affine import Bounded, Ends, Standardise, close_bounds, inner_ends, open_bounds
from isr.bijections.bijection import AbstractBijection, Mapped, Vector

Model = TypeVar("Model")
Numbers = Float[Array | np.ndarray, " dim"]


def with_inputs(model: Model, precision: Any) -> Model:
    """Return the same model with shifts, scales and bounds as arrays.

    Example:
        >>> one, other = (with_inputs(Standardise((mean,), (0.5,)), np.float32) for mean in (2.0, 3.0))
        >>> jax.tree.structure(one) == jax.tree.structure(other)
        True
        >>> one.forward_and_log_det(jnp.ones(1, np.float32))[0].tolist()
        [-2.0]
    """

    def changed(part: Any) -> Any:
        if isinstance(part, Standardise):
            return _Rescale(*(np.asarray(v, precision) for v in (part.shift, part.scale)))
        if isinstance(part, Bounded):
            return _box(part, precision)
        return part

    return jax.tree.map(changed, model, is_leaf=lambda part: isinstance(part, Standardise | Bounded))


class _Rescale(AbstractBijection):
    """`Standardise` with its numbers as arrays."""

    shift: Numbers
    scale: Numbers

    @property
    def dim(self) -> int:
        return self.shift.shape[0]

    def forward_and_log_det(self, x: Vector, condition: Vector | None = None) -> Mapped:
        return (x - self.shift) / self.scale, -jnp.sum(jnp.log(self.scale))

    def inverse_and_log_det(self, z: Vector, condition: Vector | None = None) -> Mapped:
        return jnp.asarray(self.shift) + self.scale * z, jnp.sum(jnp.log(self.scale))


class _Box(AbstractBijection):
    """`Bounded` with its numbers as arrays, zero where an end is open."""

    has_low: tuple[bool, ...] = eqx.field(static=True)
    has_high: tuple[bool, ...] = eqx.field(static=True)
    low: Numbers
    high: Numbers
    width: Numbers
    inner: Float[Array | np.ndarray, "2 dim"]

    @property
    def dim(self) -> int:
        return len(self.has_low)

    def forward_and_log_det(self, x: Vector, condition: Vector | None = None) -> Mapped:
        return open_bounds(x, self._ends())

    def inverse_and_log_det(self, z: Vector, condition: Vector | None = None) -> Mapped:
        return close_bounds(z, self._ends(), list(self.inner.T))

    def _ends(self) -> list[Ends]:
        return [
            Ends(self.low[i] if has_low else None, self.high[i] if has_high else None, self.width[i])
            for i, (has_low, has_high) in enumerate(zip(self.has_low, self.has_high, strict=True))
        ]


def _box(bounded: Bounded, precision: Any) -> _Box:
    def numbers(values: Any) -> np.ndarray:
        return np.array([0.0 if v is None else v for v in values], precision)

    return _Box(
        tuple(v is not None for v in bounded.low), tuple(v is not None for v in bounded.high),
        numbers(bounded.low), numbers(bounded.high), numbers(ends.width for ends in bounded.ends()),
        np.array(inner_ends(bounded, precision), precision).T,
    )  # fmt: skip


# A program takes a megabyte or three.
MOST_PROGRAMS = 64


def compiled(function: Callable[..., Any], model: Any, *fixed: Hashable) -> Callable[..., Any]:
    """Return ``function(*fixed, ...)`` compiled for models of this structure, which it takes among its arguments.

    Example:
        >>> import jax.numpy as jnp
        >>> float(compiled(lambda power, model: model["a"] ** power, {"a": jnp.ones(())}, 2)({"a": jnp.asarray(3.0)}))
        9.0
    """
    return _program(function, jax.tree.structure(model), fixed)


@lru_cache(maxsize=MOST_PROGRAMS)
def _program(function: Callable[..., Any], structure: Any, fixed: tuple[Hashable, ...]) -> Callable[..., Any]:
    # Not Equinox's own jit, which would hold on to the program when this one has gone.
    def run(arrays: Any, rest: tuple[Any, tuple[Hashable, ...]]) -> Any:
        return function(*fixed, *eqx.combine(arrays, jax.tree.unflatten(*rest)))

    program = jax.jit(run, static_argnums=1)

    def call(*arguments: Any) -> Any:
        arrays, rest = eqx.partition(arguments, lambda leaf: isinstance(leaf, jax.Array | np.ndarray))
        leaves, tree = jax.tree.flatten(rest)
        return program(arrays, (tree, tuple(leaves)))

    return call

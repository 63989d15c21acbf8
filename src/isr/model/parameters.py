"""A model's learned numbers as one flat vector, and the masks that keep some of them at zero.

Outside of compiled code the work is done by NumPy: JAX would compile a program for every shape it meets.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

Model = TypeVar("Model")


def flatten(model: Model) -> tuple[Float[Array, " n"], Callable[[Array | np.ndarray], Model]]:
    """Return every learned number of ``model`` as one vector, and the function that puts a vector back.

    The function keeps the vector's precision, so a model can be trained in single and refitted in double.
    """
    restore = _Restore(model)
    return _joined(restore.leaves), restore


class _Restore(Generic[Model]):
    """Puts a vector back into a model; travels to another process as that model."""

    def __init__(self, model: Model) -> None:
        self.model = model
        arrays, self.rest = eqx.partition(model, eqx.is_inexact_array)
        self.leaves, self.tree = jax.tree.flatten(arrays)
        self.shapes = [leaf.shape for leaf in self.leaves]
        self.ends = np.cumsum([math.prod(shape) for shape in self.shapes])[:-1]

    def __call__(self, values: Array | np.ndarray) -> Model:
        traced = isinstance(values, Tracer)
        # A split's gradient is one concatenation; that of slices is a sum of as many padded vectors.
        pieces = jnp.split(values, self.ends) if traced else np.split(np.asarray(values), self.ends)
        new = [piece.reshape(shape) for piece, shape in zip(pieces, self.shapes, strict=False)]
        filled = jax.tree.unflatten(self.tree, new if traced else [jnp.asarray(n) for n in new])
        return eqx.combine(filled, self.rest)

    def __reduce__(self) -> tuple[Any, ...]:
        return _Restore, (self.model,)


def _joined(leaves: list[Array]) -> Float[Array, " n"]:
    if not leaves:
        return jnp.zeros(0)
    if any(isinstance(leaf, Tracer) for leaf in leaves):
        return jnp.concatenate([leaf.ravel() for leaf in leaves])
    return jnp.asarray(np.concatenate([np.asarray(leaf).ravel() for leaf in leaves]))


def cast(model: Model, dtype: jnp.dtype | type) -> Model:
    """Return ``model`` with its learned numbers in another precision."""

    def convert(leaf: Array) -> Array:
        if not eqx.is_inexact_array(leaf) or leaf.dtype == dtype:
            return leaf
        return leaf.astype(dtype) if isinstance(leaf, Tracer) else jnp.asarray(np.asarray(leaf), dtype)

    return jax.tree.map(convert, model)


def mask_of(model: object) -> Float[Array, " n"]:
    """Return 1 where a learned number is in use and 0 where it has been cut (is exactly zero)."""
    vector = np.asarray(flatten(model)[0])
    return jnp.asarray((vector != 0).astype(vector.dtype))


def n_constants(model: object) -> int:
    """Return how many learned numbers are in use (not exactly zero)."""
    return int(np.count_nonzero(np.asarray(flatten(model)[0])))

"""A model's learned numbers as one flat vector, and the masks that keep some of them at zero."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

Model = TypeVar("Model")


def flatten(model: Model) -> tuple[Float[Array, " n"], Callable[[Float[Array, " n"]], Model]]:
    """Return every learned number of ``model`` as one vector, and the function that puts a vector back.

    The function keeps the vector's precision, so a model can be trained in single and refitted in double.
    """
    arrays, rest = eqx.partition(model, eqx.is_inexact_array)
    vector, _ = ravel_pytree(arrays)
    leaves, tree = jax.tree.flatten(arrays)
    shapes = [leaf.shape for leaf in leaves]

    def restore(values: Float[Array, " n"]) -> Model:
        start, new = 0, []
        for shape in shapes:
            size = math.prod(shape)
            new.append(values[start : start + size].reshape(shape))
            start += size
        return eqx.combine(jax.tree.unflatten(tree, new), rest)

    return vector, restore


def cast(model: Model, dtype: jnp.dtype | type) -> Model:
    """Return ``model`` with its learned numbers in another precision."""
    return jax.tree.map(lambda leaf: leaf.astype(dtype) if eqx.is_inexact_array(leaf) else leaf, model)


def mask_of(model: Model) -> Float[Array, " n"]:
    """Return 1 where a learned number is in use and 0 where it has been cut (is exactly zero)."""
    vector, _ = flatten(model)
    return (vector != 0).astype(vector.dtype)


def n_constants(model: Model) -> int:
    """Return how many learned numbers are in use (not exactly zero)."""
    return int(jnp.sum(mask_of(model)))

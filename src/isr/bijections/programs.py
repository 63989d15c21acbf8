"""Compiled programs for the models in use.

A program belongs to a model's structure, and every fit brings new ones: kept for good, as JAX would, they fill the
memory of a process that fits all day. The programs used last are kept, older ones make room.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import lru_cache
from typing import Any

import equinox as eqx
import jax
import numpy as np

# A program takes a megabyte or three.
MOST_PROGRAMS = 64


def compiled(function: Callable[..., Any], model: Any, *fixed: Hashable) -> Callable[..., Any]:
    """Return ``function(*fixed, ...)`` compiled for models of this structure.

    Args:
        function: Takes the model among its arguments.
        model: Gives the structure.
        fixed: First arguments, part of the program.

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

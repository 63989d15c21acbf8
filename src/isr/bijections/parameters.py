"""Numbers of a model: given to JAX, drawn from seeds, and as one flat vector.

Outside of compiled code the work is done by NumPy: JAX would compile a program for every shape it meets.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, PRNGKeyArray


def on_device(values: Any, dtype: Any = None) -> Array:
    """Return a copy of ``values`` as an array of JAX, in the precision JAX works in.

    ``jnp.asarray`` would compile a program for every shape and type it meets and keep it: a fit brings dozens of new
    ones, a megabyte and some milliseconds each.
    """
    # A copy, because JAX reads NumPy's own memory where it can: what is changed there later would change here.
    return jax.device_put(np.array(values, dtype))


def all_on_device(arrays: Iterable[Any]) -> list[Array]:
    """Return what `on_device` does of each array, in half the time."""
    return jax.device_put([np.array(values) for values in arrays])


Seed = int | np.random.SeedSequence | PRNGKeyArray


def sequence_of(seed: Seed) -> np.random.SeedSequence:
    """Return the seed sequence that a number or a key of JAX stands for."""
    if isinstance(seed, np.random.SeedSequence):
        return seed
    if isinstance(seed, jax.Array):
        return np.random.SeedSequence(np.asarray(jax.random.key_data(seed)).ravel().tolist())
    return np.random.SeedSequence(seed)


def child(seed: Seed, *path: int) -> np.random.SeedSequence:
    """Return the seed at a place of the tree below ``seed``; other places have other random numbers."""
    root = sequence_of(seed)
    return np.random.SeedSequence(root.entropy, spawn_key=(*root.spawn_key, *path))


def children(seed: Seed, n: int) -> list[np.random.SeedSequence]:
    """Return the first ``n`` seeds below ``seed``."""
    return [child(seed, place) for place in range(n)]


def generator(seed: Seed) -> np.random.Generator:
    """Return NumPy's generator of this seed."""
    return np.random.default_rng(sequence_of(seed))


def jax_keys(seed: Seed, *shape: int) -> PRNGKeyArray:
    """Return independent keys of JAX, an array of this shape."""
    words = generator(seed).integers(2**32, size=(*shape, 2), dtype=np.uint32)
    return jax.random.wrap_key_data(on_device(words), impl="threefry2x32")


Model = TypeVar("Model")


def flatten(model: Model) -> tuple[Float[Array, " n"], Callable[[Array | np.ndarray], Model]]:
    """Return every learned number of ``model`` as one vector, and the function that puts a vector back.

    The function keeps the vector's precision, so a model can be trained in single and refitted in double.
    """
    restore = Restore(model)
    if any(isinstance(leaf, Tracer) for leaf in restore.leaves):
        return jnp.concatenate([leaf.ravel() for leaf in restore.leaves]), restore
    parts = [np.asarray(leaf).ravel() for leaf in restore.leaves] or [np.zeros(0)]
    return on_device(np.concatenate(parts)), restore


class Restore(Generic[Model]):
    """Puts a vector back into a model; travels to another process as that model."""

    def __init__(self, model: Model) -> None:
        self.model = model
        arrays, self.rest = eqx.partition(model, eqx.is_inexact_array)
        self.leaves, self.tree = jax.tree.flatten(arrays)
        self.shapes = [leaf.shape for leaf in self.leaves]

    def __call__(self, values: Array | np.ndarray) -> Model:
        if isinstance(values, Tracer):
            new = self._split(values, jnp.split)
        else:
            new = all_on_device(self._split(np.asarray(values), np.split))
        return eqx.combine(jax.tree.unflatten(self.tree, new), self.rest)

    def _split(self, values: Any, split: Callable[..., list[Any]]) -> list[Any]:
        if not self.shapes:
            return []
        # A split's gradient is one concatenation; that of slices is a sum of as many padded vectors.
        ends = np.cumsum([math.prod(shape) for shape in self.shapes])[:-1]
        return [part.reshape(shape) for part, shape in zip(split(values, ends), self.shapes, strict=True)]

    def __reduce__(self) -> tuple[Any, ...]:
        return Restore, (self.model,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Restore) and self._structure == other._structure

    def __hash__(self) -> int:
        return hash(self._structure)

    @property
    def _structure(self) -> tuple[Any, ...]:
        """All that the function depends on: not the numbers of the model it was made for."""
        leaves, tree = jax.tree.flatten(self.rest)
        return self.tree, tuple(self.shapes), tree, tuple(leaves)


def cast(model: Model, dtype: jnp.dtype | type) -> Model:
    """Return ``model`` with its learned numbers in another precision."""

    def convert(leaf: Array) -> Array:
        if not eqx.is_inexact_array(leaf) or leaf.dtype == dtype:
            return leaf
        return leaf.astype(dtype) if isinstance(leaf, Tracer) else on_device(leaf, dtype)

    return jax.tree.map(convert, model)


def n_constants(model: object) -> int:
    """Return how many learned numbers are in use (not exactly zero)."""
    return int(np.count_nonzero(np.asarray(flatten(model)[0])))

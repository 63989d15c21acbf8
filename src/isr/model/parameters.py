"""A model's learned numbers as one flat vector, and the masks that keep some of them at zero.

Outside of compiled code the work is done by NumPy: JAX would compile a program for every shape it meets.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

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
        self.runs = _runs([leaf.shape for leaf in self.leaves])

    def __call__(self, values: Array | np.ndarray) -> Model:
        if isinstance(values, Tracer):
            new = self._split(values, jnp.split)
        else:
            new = [jnp.asarray(leaf) for leaf in self._split(np.asarray(values), np.split)]
        return eqx.combine(jax.tree.unflatten(self.tree, new), self.rest)

    def _split(self, values: Any, split: Callable[..., list[Any]]) -> list[Any]:
        """Return the leaves, cut out run by run.

        A split's gradient is one concatenation; that of slices is a sum of as many padded vectors. Leaves of the same
        place in all repeats are cut out together, as the loop over blocks wants them: a hundred small cuts would take
        XLA seconds to compile.
        """
        leaves = []
        for run, part in zip(self.runs, split(values, _ends([r.size for r in self.runs])), strict=True):
            sizes = [math.prod(shape) for shape in run.shapes]
            columns = split(part.reshape(run.times, -1), _ends(sizes), axis=1)
            together = [c.reshape(run.times, *s) for c, s in zip(columns, run.shapes, strict=True)]
            apart = [[one.reshape(one.shape[1:]) for one in split(c, run.times)] for c in together]
            leaves += [leaf for repeat in zip(*apart, strict=True) for leaf in repeat]
        return leaves

    def __reduce__(self) -> tuple[Any, ...]:
        return _Restore, (self.model,)


class _Run(NamedTuple):
    """Shapes of leaves that come ``times`` times one after the other."""

    shapes: list[tuple[int, ...]]
    times: int

    @property
    def size(self) -> int:
        return self.times * sum(math.prod(shape) for shape in self.shapes)


def _runs(shapes: list[tuple[int, ...]]) -> list[_Run]:
    """Return shapes as runs, each as long as can be; a shape that does not come again is a run of its own."""
    found, start = [], 0
    while start < len(shapes):
        rest = shapes[start:]
        period, times = max(
            ((p, _times(rest, p)) for p in range(1, len(rest) // 2 + 1)),
            key=lambda pt: pt[0] * pt[1] * (pt[1] > 1), default=(1, 1),
        )  # fmt: skip
        if times == 1:
            period = 1
        found.append(_Run(rest[:period], times))
        start += period * times
    return found


def _times(shapes: list[tuple[int, ...]], period: int) -> int:
    times = 1
    while shapes[times * period : (times + 1) * period] == shapes[:period]:
        times += 1
    return times


def _ends(sizes: list[int]) -> np.ndarray:
    return np.cumsum(sizes)[:-1]


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

"""Compiled programs, shared by all models that differ in numbers alone; couplings as C kernels.

Shifts, scales and bounds follow from the data; as parts of a program each fit would have it compiled anew (1.2 s for a
second flow of six blocks, 0.01 as inputs). The programs used last are kept, older ones make room in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache
from itertools import groupby
from typing import Any, NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from isr.bijections.affine import Linear, Permutation
from isr.bijections.bijection import AbstractBijection, Chain, Columns, Mapped, MappedColumns, Vector, told
from isr.bijections.coupling import Affine, Coupling
from isr.bijections.networks import EQL, MLP
from isr.bijections.primitives import is_built_in
from isr.native import Blocks, Kernel, kernel


class Accelerated(AbstractBijection):
    """Couplings one after the other in single precision, with what stands in front of each, as one kernel over their
    learned numbers in order.
    """

    weights: Float[Array | np.ndarray, " n"]
    kernel: Kernel = eqx.field(static=True)
    dim = told("How many variables it maps.", lambda self: self.kernel.blocks.dim)

    def forward_and_log_det(self, x: Vector, condition: Vector | None = None) -> Mapped:
        z, log_det = self.forward_columns(x[:, None], condition)
        return z[:, 0], log_det[0]

    def inverse_and_log_det(self, z: Vector, condition: Vector | None = None) -> Mapped:
        x, log_det = self.inverse_columns(z[:, None], condition)
        return x[:, 0], log_det[0]

    def forward_columns(self, x: Columns, condition: Array | None = None) -> MappedColumns:
        return self.kernel.map("forward", jnp.asarray(self.weights), x, condition)

    def inverse_columns(self, z: Columns, condition: Array | None = None) -> MappedColumns:
        return self.kernel.map("inverse", jnp.asarray(self.weights), z, condition)


class _Block(NamedTuple):
    """A coupling with what stands in front of it, or a step that no kernel knows: its shape is None."""

    steps: tuple[AbstractBijection, ...]
    shape: Blocks | None = None
    order: tuple[int, ...] = ()


def accelerate(bijection: AbstractBijection) -> AbstractBijection:
    """Return the same map, for single precision, its couplings as C kernels where those can do it.

    Couplings that are alike go together with each other and with the permutations and matrices between them. Learned
    numbers are the same in the same order.
    """
    if isinstance(bijection, Chain):
        return Chain(accelerated_steps(bijection.bijections))
    return accelerated_steps((bijection,))[0]


def accelerated_steps(steps: Sequence[AbstractBijection]) -> tuple[AbstractBijection, ...]:
    """Return the steps of a chain as `accelerate` does."""
    found: list[AbstractBijection] = []
    for shape, group in groupby(_blocks(steps), key=lambda block: block.shape):
        alike = list(group)
        together = tuple(step for block in alike for step in block.steps)
        own = None if shape is None else kernel(shape._replace(orders=tuple(b.order for b in alike)))
        found += together if own is None else (Accelerated(_weights(together), own),)
    return tuple(found)


def _blocks(steps: Sequence[AbstractBijection]) -> list[_Block]:
    blocks: list[_Block] = []
    for step in steps:
        shape = _shape(step) if isinstance(step, Coupling) else None
        if shape is None:
            blocks.append(_Block((step,)))
            continue
        is_mixed = bool(blocks) and isinstance(blocks[-1].steps[-1], Permutation | Linear)
        before = blocks.pop().steps if is_mixed else (None,)
        order = before[0].order if isinstance(before[0], Permutation) else tuple(range(shape.dim))
        shape = shape._replace(with_matrix=isinstance(before[0], Linear))
        blocks.append(_Block((*before, step) if is_mixed else (step,), shape, order))
    return blocks


def _shape(coupling: Coupling) -> Blocks | None:
    """Return what a kernel must know of a coupling, with nothing in front of it yet."""
    first, second = coupling.first, coupling.second
    networks = [_network(n) for n in (first, second)]
    if not isinstance(coupling.transformer, Affine) or networks[0] is None or networks[0] != networks[1]:
        return None
    weights = [weight for n in (first, second) for weight in cast(EQL | MLP, n).weights]
    widest = max(max(weight.shape[1:]) for weight in weights)
    n_condition = first.n_inputs - (coupling.dim - coupling.split)
    return Blocks(
        coupling.dim, coupling.split, n_condition, widest, *networks[0], coupling.transformer.clamp or 0.0,
        coupling.guard or 0.0,
        with_matrix=False, orders=(),
    )  # fmt: skip


def _network(network: Any) -> tuple[int, bool, bool, tuple[tuple[str, int], ...]] | None:
    """Return hidden layers, whether with biases and skips, and units; None of what is no pair of such networks."""
    if not isinstance(network, EQL | MLP) or network.stack != 2 or len(network.weights) < 2:
        return None
    n_layers, with_bias = len(network.weights) - 1, network.biases is not None
    if isinstance(network, MLP):
        widths = {weight.shape[1] for weight in network.weights[:-1]}
        return (n_layers, with_bias, False, (("leaky_relu", widths.pop()),)) if len(widths) == 1 else None
    units = tuple((name, count) for name, count in network.library if name != "constant")
    return (n_layers, with_bias, network.skip, units) if all(is_built_in(name) for name, _ in units) else None


def _weights(steps: tuple[AbstractBijection, ...]) -> Any:
    leaves = [leaf.ravel() for leaf in jax.tree.leaves(steps)]
    is_traced = any(isinstance(leaf, Tracer) for leaf in leaves)
    return (jnp if is_traced else np).concatenate(leaves)


# A program takes a megabyte or three.
MOST_PROGRAMS = 32


def compiled(function: Callable[..., Any], model: Any, *fixed: Hashable) -> Callable[..., Any]:
    """Return ``function(*fixed, ...)`` compiled for models of this structure, which it takes among its arguments."""
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

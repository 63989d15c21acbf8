"""Blocks run by the native library: the same map as their steps, one call for all samples, one for its gradient."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from isr.bijections.affine import Linear
from isr.bijections.bijection import AbstractBijection, Columns, Mapped, MappedColumns, Vector
from isr.bijections.eql import EQL
from isr.bijections.mlp import MLP
from isr.bijections.permutation import Permutation
from isr.bijections.primitives import is_built_in
from isr.bijections.transformers import Affine
from isr.native.library import library_tag

# The order is that of the library.
KINDS = (
    "id", "square", "cube", "sin2pi", "sin", "cos", "exp", "log", "sqrt", "reciprocal", "sigmoid", "tanh", "product",
    "leaky_relu",
)  # fmt: skip
# Large products are faster in XLA's matrix library, which also shares them among cores.
WIDEST = 96


class Plan(NamedTuple):
    """What the library must know of blocks besides their weights.

    Attributes:
        tag: Which library.
        dim: Variables.
        split: Those of the first half.
        n_condition: Those of the condition.
        n_layers: Hidden layers.
        with_bias: Whether layers have biases.
        skip: Whether the last layer reads all.
        kinds: Kinds of units, with how many of each.
        clamp: Bound of the log-scale, 0 for none.
        guard: Bound of the inputs, 0 for none.
        with_matrix: Whether a matrix stands in front of each block.
        orders: The order of the variables in front of each block.
    """

    tag: str
    dim: int
    split: int
    n_condition: int
    n_layers: int
    with_bias: bool
    skip: bool
    kinds: tuple[tuple[int, int], ...]
    clamp: float
    guard: float
    with_matrix: bool
    orders: tuple[tuple[int, ...], ...]

    @property
    def numbers(self) -> np.ndarray:
        """What is whole about it, as the library reads it."""
        sizes = (self.dim, self.split, self.n_condition, self.n_layers, self.with_bias, self.skip)
        lists = (n for row in (*self.kinds, *self.orders) for n in row)
        return np.array([*sizes, len(self.orders), self.with_matrix, len(self.kinds), *lists], np.int32)


class NativeCoupling(AbstractBijection):
    """Couplings one after the other in single precision, with what stands in front of each, run by the native library.

    Args:
        weights: All weights and biases, block by block, network by network.
        plan: What they are.
    """

    weights: Float[Array | np.ndarray, " n"]
    plan: Plan = eqx.field(static=True)

    @property
    def dim(self) -> int:
        """How many variables it maps."""
        return self.plan.dim

    def forward_and_log_det(self, x: Vector, condition: Vector | None = None) -> Mapped:
        z, log_det = self.forward_columns(x[:, None], condition)
        return z[:, 0], log_det[0]

    def inverse_and_log_det(self, z: Vector, condition: Vector | None = None) -> Mapped:
        x, log_det = self.inverse_columns(z[:, None], condition)
        return x[:, 0], log_det[0]

    def forward_columns(self, x: Columns, condition: Array | None = None) -> MappedColumns:
        return self._map("forward", x, condition)

    def inverse_columns(self, z: Columns, condition: Array | None = None) -> MappedColumns:
        return self._map("inverse", z, condition)

    def _map(self, direction: str, x: Columns, condition: Array | None) -> MappedColumns:
        if condition is None:
            condition = jnp.zeros((0, 1), x.dtype)
        elif condition.ndim == 1:
            condition = condition[:, None]
        dim, n_condition = self.plan.dim, self.plan.n_condition
        fits = x.shape[0] == dim and condition.shape in {(n_condition, 1), (n_condition, x.shape[1])}
        if not fits or any(a.dtype != jnp.float32 for a in (self.weights, x, condition)):
            raise TypeError(
                f"a coupling of {dim} variables given {n_condition} takes as many rows in single precision, got "
                f"{x.dtype}{list(x.shape)} and {condition.dtype}{list(condition.shape)}"
            )
        return _mapped(direction, self.plan, jnp.asarray(self.weights), x, condition)


class Block(NamedTuple):
    """A coupling and what stands in front of it.

    Attributes:
        coupling: A `Coupling`.
        before: What puts the variables in another order, or multiplies them; None for nothing.
    """

    coupling: Any
    before: Permutation | Linear | None = None


def native_forms(blocks: Iterable[Block]) -> list[AbstractBijection]:
    """Return the same blocks for the native library, alike ones as one, and others as the steps they are made of.

    It runs on a processor, with networks of built-in primitives or leaky ReLUs that are not wide. Weights are the
    blocks' learned numbers in the same order.
    """
    forms: list[AbstractBijection] = []
    planned = [(_plan(block), block) for block in blocks]
    for shape, row in groupby(planned, key=lambda pair: pair[0] and pair[0]._replace(orders=())):
        plans, alike = zip(*row, strict=True)
        if shape is None:
            forms += [step for block in alike for step in (block.before, block.coupling) if step is not None]
        else:
            orders = tuple(order for plan in plans for order in plan.orders)
            forms.append(NativeCoupling(_weights(alike), shape._replace(orders=orders)))
    return forms


def _plan(block: Block) -> Plan | None:
    coupling, before = block
    shape = _shape(coupling.first) if isinstance(coupling.transformer, Affine) else None
    if shape is None or shape != _shape(coupling.second):
        return None
    tag = library_tag()
    if tag is None:
        return None
    n_condition = coupling.first.n_inputs - (coupling.dim - coupling.split)
    order = before.order if isinstance(before, Permutation) else tuple(range(coupling.dim))
    return Plan(
        tag, coupling.dim, coupling.split, n_condition, *shape,
        coupling.transformer.clamp or 0.0, coupling.guard or 0.0, isinstance(before, Linear), (order,),
    )  # fmt: skip


def _weights(blocks: Sequence[Block]) -> Any:
    leaves = [leaf.ravel() for block in blocks for leaf in jax.tree.leaves((block.before, block.coupling))]
    is_traced = any(isinstance(leaf, Tracer) for leaf in leaves)
    return (jnp if is_traced else np).concatenate(leaves)


def _shape(network: Any) -> tuple[int, bool, bool, tuple[tuple[int, int], ...]] | None:
    """Return hidden layers, whether with biases and skips, and units by kind, if the library can run the network."""
    if not isinstance(network, EQL | MLP) or network.stack != 2 or len(network.weights) < 2:
        return None
    if max(max(weight.shape[1:]) for weight in network.weights) > WIDEST:
        return None
    n_layers, with_bias = len(network.weights) - 1, network.biases is not None
    if isinstance(network, MLP):
        widths = {weight.shape[1] for weight in network.weights[:-1]}
        return (
            (n_layers, with_bias, False, ((KINDS.index("leaky_relu"), widths.pop()),))
            if len(widths) == 1
            else None
        )
    units = [(name, count) for name, count in network.library if name != "constant"]
    if not all(is_built_in(name) for name, _ in units):
        return None
    return n_layers, with_bias, network.skip, tuple((KINDS.index(name), count) for name, count in units)


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _mapped(direction: str, plan: Plan, weights: Array, x: Array, condition: Array) -> tuple[Array, Array]:
    return _call(direction, plan, _images(x), weights, x, condition)


def _images(x: Array) -> tuple[jax.ShapeDtypeStruct, jax.ShapeDtypeStruct]:
    return jax.ShapeDtypeStruct(x.shape, x.dtype), jax.ShapeDtypeStruct(x.shape[1:], x.dtype)


def _mapped_forward(direction: str, plan: Plan, weights: Array, x: Array, condition: Array):
    given = jax.ShapeDtypeStruct((len(plan.orders), *x.shape), x.dtype)
    z, log_det, kept = _call(direction, plan, (*_images(x), given), weights, x, condition)
    return (z, log_det), (weights, kept, condition)


def _mapped_backward(direction: str, plan: Plan, kept: tuple[Array, ...], outer: tuple[Array, Array]):
    weights, _, condition = kept
    shapes = tuple(jax.ShapeDtypeStruct(a.shape, a.dtype) for a in (weights, outer[0], condition))
    return _call(f"{direction}_back", plan, shapes, *kept, *outer)


_mapped.defvjp(_mapped_forward, _mapped_backward)


def _call(name: str, plan: Plan, shapes: tuple[jax.ShapeDtypeStruct, ...], *arrays: Any) -> Any:
    call = jax.ffi.ffi_call(f"isr_{name}_{plan.tag}", shapes, vmap_method="broadcast_all")
    return call(plan.numbers, np.array([plan.clamp, plan.guard], np.float32), *arrays)

"""Couplings run by the native library: the same map as `Coupling`, one call for all samples, one for its gradient."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from isr.model.bijection import AbstractBijection, Columns, Mapped, MappedColumns, Vector
from isr.model.eql import EQL
from isr.model.mlp import MLP
from isr.model.native import library_tag
from isr.model.primitives import is_built_in

# The order is that of the library.
KINDS = (
    "id", "square", "cube", "sin2pi", "sin", "cos", "exp", "log", "sqrt", "reciprocal", "sigmoid", "tanh", "product",
    "leaky_relu",
)  # fmt: skip
# Large products are faster in XLA's matrix library, which also shares them among cores.
WIDEST = 96


class Plan(NamedTuple):
    """What the library must know of a coupling besides its weights.

    Attributes:
        tag: Which library.
        numbers: Variables, those of the first half, those of the condition, hidden layers, whether with biases,
            whether the last layer reads all, how many kinds of units; then each kind and how many of it.
        clamp: Bound of the log-scale, 0 for none.
        guard: Bound of the inputs, 0 for none.
    """

    tag: str
    numbers: tuple[int, ...]
    clamp: float
    guard: float


class NativeCoupling(AbstractBijection):
    """A coupling in single precision that the native library runs.

    Args:
        weights: All weights and biases, network by network.
        plan: What they are.
    """

    weights: Float[Array | np.ndarray, " n"]
    plan: Plan = eqx.field(static=True)

    @property
    def dim(self) -> int:
        """How many variables it maps."""
        return self.plan.numbers[0]

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
        dim, _, n_condition, *_ = self.plan.numbers
        fits = x.shape[0] == dim and condition.shape in {(n_condition, 1), (n_condition, x.shape[1])}
        if not fits or any(a.dtype != jnp.float32 for a in (self.weights, x, condition)):
            raise TypeError(
                f"a coupling of {dim} variables given {n_condition} takes as many rows in single precision, got "
                f"{x.dtype}{list(x.shape)} and {condition.dtype}{list(condition.shape)}"
            )
        return _mapped(direction, self.plan, jnp.asarray(self.weights), x, condition)


def native_form(coupling: Any) -> NativeCoupling | None:
    """Return the same coupling for the native library, or None where that cannot run it.

    It runs on a processor, with networks of built-in primitives or leaky ReLUs that are not wide. Its weights are the
    coupling's learned numbers in the same order.

    Args:
        coupling: A `Coupling`.
    """
    first, second = coupling.first, coupling.second
    shape = _shape(first)
    if shape is None or shape != _shape(second):
        return None
    tag = library_tag()
    if tag is None:
        return None
    n_layers, with_bias, skip, kinds = shape
    n_condition = first.n_inputs - (coupling.dim - coupling.split)
    numbers = (coupling.dim, coupling.split, n_condition, n_layers, with_bias, skip, len(kinds))
    plan = Plan(
        tag, (*map(int, numbers), *(n for kind in kinds for n in kind)), coupling.clamp or 0.0, coupling.guard or 0.0
    )  # fmt: skip
    leaves = [leaf.ravel() for leaf in jax.tree.leaves(coupling)]
    is_traced = any(isinstance(leaf, Tracer) for leaf in leaves)
    return NativeCoupling((jnp if is_traced else np).concatenate(leaves), plan)


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
    shapes = (jax.ShapeDtypeStruct(x.shape, x.dtype), jax.ShapeDtypeStruct(x.shape[1:], x.dtype))
    return _call(direction, plan, shapes, weights, x, condition)


def _mapped_forward(direction: str, plan: Plan, weights: Array, x: Array, condition: Array):
    return _mapped(direction, plan, weights, x, condition), (weights, x, condition)


def _mapped_backward(direction: str, plan: Plan, kept: tuple[Array, ...], outer: tuple[Array, Array]):
    shapes = tuple(jax.ShapeDtypeStruct(a.shape, a.dtype) for a in kept)
    return _call(f"{direction}_back", plan, shapes, *kept, *outer)


_mapped.defvjp(_mapped_forward, _mapped_backward)


def _call(name: str, plan: Plan, shapes: tuple[jax.ShapeDtypeStruct, ...], *arrays: Any) -> Any:
    call = jax.ffi.ffi_call(f"isr_{name}_{plan.tag}", shapes, vmap_method="broadcast_all")
    bounds = np.array([plan.clamp, plan.guard], np.float32)
    return call(np.array(plan.numbers, np.int32), bounds, *arrays)

"""Blocks of couplings as one call for all samples, and one for its gradient."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from isr.native.library import library

Images = tuple[Float[Array, "dim n"], Float[Array, " n"]]
# Large products are faster in XLA's matrix library, which also shares them among cores.
WIDEST = 96


class Blocks(NamedTuple):
    """Couplings of both halves in a row, alike in all but their numbers and the order of variables in front of each.

    Attributes:
        dim: Variables.
        split: Those of the first half.
        n_condition: Those of the condition.
        widest: Most rows or columns of a matrix in their networks.
        n_layers: Hidden layers.
        with_bias: Whether layers have biases.
        skip: Whether the last layer reads all.
        units: Names of a hidden layer's units, with how many of each.
        clamp: Bound of the log-scale, 0 for none.
        guard: Bound of the inputs, 0 for none.
        with_matrix: Whether a matrix stands in front of each block.
        orders: The order of the variables in front of each block.
    """

    dim: int
    split: int
    n_condition: int
    widest: int
    n_layers: int
    with_bias: bool
    skip: bool
    units: tuple[tuple[str, int], ...]
    clamp: float
    guard: float
    with_matrix: bool
    orders: tuple[tuple[int, ...], ...]


def kernel(blocks: Blocks) -> Kernel | None:
    """Return the C kernel for these blocks, or None where there is no library or it lacks one of their units."""
    if blocks.widest > WIDEST:
        return None
    found = library()
    if not all(name in found.units for name, _ in blocks.units):
        return None
    kinds = tuple((found.units.index(name), count) for name, count in blocks.units)
    return Kernel(found.tag, blocks, kinds)


class Kernel(NamedTuple):
    """Both directions of blocks, each with its log-determinant and gradient.

    Weights are those of the blocks one after the other: the matrix, if any, then weights and biases of each network.
    """

    tag: str
    blocks: Blocks
    kinds: tuple[tuple[int, int], ...]

    def forward(self, weights: Array, x: Array, condition: Array | None) -> Images:
        """Return images and log-determinants of columns of x."""
        return self._map("forward", weights, x, condition)

    def inverse(self, weights: Array, z: Array, condition: Array | None) -> Images:
        """Return preimages and log-determinants of columns of z."""
        return self._map("inverse", weights, z, condition)

    @property
    def plan(self) -> np.ndarray:
        """Integer fields, in the order that ``read_plan`` in C has them."""
        b = self.blocks
        sizes = (b.dim, b.split, b.n_condition, b.n_layers, b.with_bias, b.skip, len(b.orders), b.with_matrix)
        pairs = (number for pair in (*self.kinds, *b.orders) for number in pair)
        return np.array([*sizes, len(self.kinds), *pairs], np.int32)

    def _map(self, direction: str, weights: Array, x: Array, condition: Array | None) -> Images:
        if condition is None:
            condition = jnp.zeros((0, 1), x.dtype)
        elif condition.ndim == 1:
            condition = condition[:, None]
        dim, n_condition = self.blocks.dim, self.blocks.n_condition
        fits = x.shape[0] == dim and condition.shape in {(n_condition, 1), (n_condition, x.shape[1])}
        if not fits or any(a.dtype != jnp.float32 for a in (weights, x, condition)):
            raise TypeError(
                f"a coupling of {dim} variables given {n_condition} takes as many rows in single precision, got "
                f"{x.dtype}{list(x.shape)} and {condition.dtype}{list(condition.shape)}"
            )
        return _mapped(direction, self, weights, x, condition)


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _mapped(direction: str, kernel: Kernel, weights: Array, x: Array, condition: Array) -> Images:
    return _call(direction, kernel, _images(x), weights, x, condition)


def _images(x: Array) -> tuple[jax.ShapeDtypeStruct, jax.ShapeDtypeStruct]:
    return jax.ShapeDtypeStruct(x.shape, x.dtype), jax.ShapeDtypeStruct(x.shape[1:], x.dtype)


def _mapped_forward(direction: str, kernel: Kernel, weights: Array, x: Array, condition: Array):
    given = jax.ShapeDtypeStruct((len(kernel.blocks.orders), *x.shape), x.dtype)
    z, log_det, kept = _call(direction, kernel, (*_images(x), given), weights, x, condition)
    return (z, log_det), (weights, kept, condition)


def _mapped_backward(direction: str, kernel: Kernel, kept: tuple[Array, ...], outer: Images):
    weights, _, condition = kept
    shapes = tuple(jax.ShapeDtypeStruct(a.shape, a.dtype) for a in (weights, outer[0], condition))
    return _call(f"{direction}_back", kernel, shapes, *kept, *outer)


_mapped.defvjp(_mapped_forward, _mapped_backward)


def _call(name: str, kernel: Kernel, shapes: tuple[jax.ShapeDtypeStruct, ...], *arrays: Any) -> Any:
    bounds = np.array([kernel.blocks.clamp, kernel.blocks.guard], np.float32)
    call = jax.ffi.ffi_call(f"isr_{name}_{kernel.tag}", shapes, vmap_method="broadcast_all")
    return call(kernel.plan, bounds, *arrays)

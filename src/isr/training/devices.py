"""Rows of a batch divided among devices: each computes its part of the loss, and XLA adds the gradients up.

Weights, moments and data lie on every device; only the work on a batch is divided. The devices may belong to several
processes (`jax.distributed`), each of which makes the same calls.
"""

from __future__ import annotations

from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Float

from isr.bijections.arrays import on_device

ROWS = "rows"
Tree = TypeVar("Tree")


def rows_mesh(n_devices: int | None, batch_size: int) -> Mesh | None:
    """Return the devices that batches of so many rows are divided among; None for one device alone.

    Args:
        n_devices: How many of JAX's devices.
        batch_size: Rows of a batch, which must divide evenly.
    """
    if n_devices is None:
        return None
    devices = jax.devices()
    if not 1 <= n_devices <= len(devices):
        raise ValueError(
            f"n_devices={n_devices}, but JAX has {len(devices)}; on a processor, set the environment variable "
            f"XLA_FLAGS=--xla_force_host_platform_device_count={n_devices} before JAX starts"
        )
    if batch_size % n_devices:
        raise ValueError(
            f"a batch of {batch_size} rows cannot be divided evenly among {n_devices} devices; "
            f"choose batch_size={-(-batch_size // n_devices) * n_devices}"
        )
    return Mesh(np.asarray(devices[:n_devices]), (ROWS,))


def everywhere(tree: Tree, mesh: Mesh | None) -> Tree:
    """Return arrays with a copy on each device of the mesh."""
    if mesh is None:
        return tree
    copies = NamedSharding(mesh, PartitionSpec())
    if jax.process_count() == 1:
        return jax.device_put(tree, copies)
    return jax.tree.map(lambda leaf: _in_all_processes(leaf, copies), tree)


def _in_all_processes(leaf: Any, copies: NamedSharding) -> Any:
    """A copy on the devices of every process; each of them has the same values."""
    if isinstance(leaf, jax.Array) and not leaf.is_fully_addressable:
        return leaf
    if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(_in_all_processes(jax.random.key_data(leaf), copies))
    values = np.asarray(leaf)
    return jax.make_array_from_callback(values.shape, copies, lambda index: values[index])


def here(tree: Tree, mesh: Mesh | None) -> Tree:
    """Return arrays that lie everywhere as ordinary arrays of this process."""
    return tree if mesh is None else jax.tree.map(on_device, tree)


def whole(tree: Tree, mesh: Mesh | None) -> Tree:
    """Return results, inside a compiled function, that every device of the mesh has in full."""
    return (
        tree if mesh is None else jax.lax.with_sharding_constraint(tree, NamedSharding(mesh, PartitionSpec()))
    )


def divided(
    batch: dict[str, Float[Array, "width n"]], mesh: Mesh | None
) -> dict[str, Float[Array, "width n"]]:
    """Return a batch, inside a compiled function, whose rows are divided among the devices of the mesh."""
    if mesh is None:
        return batch
    by_rows = NamedSharding(mesh, PartitionSpec(None, ROWS))
    return {name: jax.lax.with_sharding_constraint(values, by_rows) for name, values in batch.items()}

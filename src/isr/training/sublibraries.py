"""Sub-libraries: restarts that may use only some of the primitives and layers, so that they fail in different ways.

Where a sine can imitate a sigmoid, every restart with both settles for the sine; one without it must find the sigmoid.
Where a squared sigmoid nearly does, one with a single layer must find the plain one.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import numpy as np

from isr.model.eql import EQL, units
from isr.model.parameters import flatten

# These make the plain part of any equation and are never withheld.
PLAIN = ("id", "square", "product")


def sublibrary_masks(model: Any, n: int) -> np.ndarray:
    """Return one mask a restart over the model's flat weights.

    In turn: everything; a single layer with the plain part of the library, alone and with each other function; the
    same with all layers. One layer alone is only possible where the last one reads it by a skip.

    Args:
        model: Holds the equation-learner networks.
        n: How many restarts.
    """
    names = sorted({p.name for net in _networks(model) for p, _ in units(net.library)} - set(PLAIN))
    parts = [set(), *({name} for name in names)]
    skips = all(net.skip and len(net.weights) > 2 for net in _networks(model)) and bool(_networks(model))
    kinds = [(set(names), False), *((p, True) for p in parts if skips), *((p, False) for p in parts)]
    masks = [_mask(model, keep, shallow) for keep, shallow in kinds[:n]]
    return np.stack([masks[i % len(masks)] for i in range(n)]).astype(np.float32)


def _networks(model: Any) -> list[EQL]:
    return [n for n in jax.tree.leaves(model, is_leaf=_is_network) if _is_network(n)]


def _is_network(node: Any) -> bool:
    return isinstance(node, EQL)


def _mask(model: Any, keep: set[str], shallow: bool) -> np.ndarray:
    def ones(node: Any) -> Any:
        if _is_network(node):
            return _network_mask(node, keep, shallow)
        return np.ones(node.shape) if eqx.is_inexact_array(node) else node

    marked = jax.tree.map(ones, model, is_leaf=_is_network)
    arrays = jax.tree.map(lambda a: jax.numpy.asarray(a) if isinstance(a, np.ndarray) else a, marked)
    return np.asarray(flatten(arrays)[0])


def _network_mask(network: EQL, keep: set[str], shallow: bool) -> EQL:
    rows, columns = [], []
    for primitive, count in units(network.library):
        used = primitive.name in keep or primitive.name in PLAIN
        rows += [used] * (primitive.arity * count)
        columns += [used] * count
    hidden = len(network.weights) - 1
    weights, biases = [], []
    for layer, weight in enumerate(network.weights):
        mask = np.ones(weight.shape)
        if layer < hidden:
            mask *= np.array(rows)[None, :, None]
        if layer and not (network.skip and layer == hidden):
            mask *= np.array(columns)[None, None, :]
        elif layer:
            deep = [False] * len(columns) if shallow else columns
            mask *= np.array([True] * network.n_inputs + columns + deep * (hidden - 1))[None, None, :]
        weights.append(mask)
        used = np.array(rows, dtype=float)[None, :] if layer < hidden else 1.0
        biases.append(np.ones(weight.shape[:2]) * used)
    return EQL(
        tuple(weights), None if network.biases is None else tuple(biases), network.library, network.skip
    )

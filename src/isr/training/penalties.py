"""What makes models short: penalties that drive weights to zero, and restarts that may use only some of the functions.

Sub-libraries let restarts fail in different ways: where a
sine can imitate a sigmoid, every restart with both settles for the sine; one without it must find the sigmoid. Where a
squared sigmoid nearly does, one with a single layer must find the plain one. Where a sum of squares comes close to a
bell, one that can only take functions of polynomials must find the bell.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from isr.bijections.networks import EQL, units

Weights = Float[Array, " n"]


class AbstractPenalty(eqx.Module):
    """A sparsity penalty; ``strength`` multiplies ``value`` in the loss."""

    @abstractmethod
    def value(self, weights: Weights) -> Float[Array, ""]:
        """Return the penalty."""


class SmoothHalfNorm(AbstractPenalty):
    """Smoothed L0.5 (Kim et al. 2020): the sum of ``sqrt(s(w))``.

    ``s(w) = |w|`` from the width a on, else ``-w^4/(8 a^3) + 3 w^2/(4 a) + 3 a/8``, which has no cusp at zero.
    """

    width: float = eqx.field(static=True, default=0.05)

    def value(self, weights: Weights) -> Float[Array, ""]:
        a, size = self.width, jnp.abs(weights)
        near = -(weights**4) / (8 * a**3) + 3 * weights**2 / (4 * a) + 3 * a / 8
        return jnp.sum(jnp.sqrt(jnp.where(size >= a, size, near)) - math.sqrt(3 * a / 8))


class L1Norm(AbstractPenalty):
    """The sum of absolute weights."""

    def value(self, weights: Weights) -> Float[Array, ""]:
        return jnp.sum(jnp.abs(weights))


PENALTIES = {"l0.5": SmoothHalfNorm, "l1": L1Norm}


def parse_penalty(penalty: str | AbstractPenalty) -> AbstractPenalty:
    """Return the penalty called ``penalty``, or the object itself."""
    if isinstance(penalty, AbstractPenalty):
        return penalty
    if penalty not in PENALTIES:
        raise ValueError(f"unknown penalty {penalty!r}; known: {', '.join(PENALTIES)}, or an AbstractPenalty")
    return PENALTIES[penalty]()


# These make the plain part of any equation and are never withheld.
PLAIN = frozenset({"constant", "id", "square", "product"})

Functions = frozenset[str]
# Which hidden layers the output reads: all with the inputs, the first with the inputs, or the last alone.
Layers = Literal["all", "first", "outer"]


def sublibrary_masks(model: Any, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return one mask per restart over the model's flat weights, and the number of its sub-library.

    In turn: everything; of a flow, everything in a single layer; a single layer with the plain part of the library,
    alone and with each other function; each other function of what the plain part gives; all layers with the plain
    part, alone and with each other function. One layer alone, or the last alone, is only possible where the output
    reads all layers by a skip.
    """
    networks = [node for node in jax.tree.leaves(model, is_leaf=_is_network) if _is_network(node)]
    names = sorted({p.name for net in networks for p, _ in units(net.library)} - PLAIN)
    every, alone = frozenset(names), [frozenset[str](), *(frozenset([name]) for name in names)]
    kinds: list[tuple[Functions, Layers]] = [(every, "all")]
    if networks and all(net.skip and len(net.weights) > 2 for net in networks):
        kinds += [] if _is_network(model) else [(every, "first")]
        kinds += [*((part, "first") for part in alone), *((part, "outer") for part in alone[1:])]
    kinds = list(dict.fromkeys([*kinds, *((part, "all") for part in alone)]))
    groups = np.arange(n) % len(kinds)
    masks = [_mask(model, *kind) for kind in kinds[:n]]
    return np.stack([masks[group] for group in groups]).astype(np.float32), groups


def _is_network(node: Any) -> bool:
    return isinstance(node, EQL)


def _mask(model: Any, functions: Functions, layers: Layers) -> np.ndarray:
    def ones(node: Any) -> Any:
        if _is_network(node):
            return _network_mask(node, functions, layers)
        return np.ones(node.shape) if eqx.is_inexact_array(node) else node

    marked = jax.tree.map(ones, model, is_leaf=_is_network)
    return np.concatenate([leaf.ravel() for leaf in jax.tree.leaves(marked) if isinstance(leaf, np.ndarray)])


def _network_mask(network: EQL, functions: Functions, layers: Layers) -> EQL:
    """Ones where a weight may be used: hidden layer by hidden layer, each unit only with its function offered."""
    hidden, both = len(network.weights) - 1, PLAIN | functions
    offered = [both] * hidden if layers != "outer" else [PLAIN] * (hidden - 1) + [functions]
    last = {"all": range(hidden), "first": (0,), "outer": (hidden - 1,)}[
        layers
    ]  # layers that the output reads

    def known(layer: int, *, arguments: bool) -> np.ndarray:
        """For each unit of a hidden layer, or each of its arguments, whether its function is offered."""
        counts = [
            (p.name in offered[layer], n * (p.arity if arguments else 1)) for p, n in units(network.library)
        ]
        return np.concatenate([np.full(n, used) for used, n in counts])

    weights, biases = [], []
    for layer, weight in enumerate(network.weights):
        rows = known(layer, arguments=True) if layer < hidden else np.ones(weight.shape[1])
        columns = np.ones(weight.shape[2])
        if layer == hidden and network.skip:
            parts = [known(i, arguments=False) & (i in last) for i in range(hidden)]
            columns = np.concatenate([np.full(network.n_inputs, layers != "outer"), *parts])
        elif layer:
            columns = known(layer - 1, arguments=False)
        weights.append(np.broadcast_to(rows[:, None] * columns, weight.shape).astype(float))
        biases.append(np.broadcast_to(rows, weight.shape[:2]).astype(float))
    return EQL(tuple(weights), network.biases and tuple(biases), network.library, network.skip)

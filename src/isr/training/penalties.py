"""What makes models short: penalties that drive weights to zero, and restarts that may use only some of the functions.

A penalty gives one number for one flat vector of weights. Sub-libraries let restarts fail in different ways: where a
sine can imitate a sigmoid, every restart with both settles for the sine; one without it must find the sigmoid. Where a
squared sigmoid nearly does, one with a single layer must find the plain one. Where a sum of squares comes close to a
bell, one that can only take functions of polynomials must find the bell.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from isr.bijections.bijection import AbstractBijection
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
PLAIN = ("constant", "id", "square", "product")


# Which hidden layers the output reads: all with the inputs, the first with the inputs, or the last alone.
Layers = Literal["all", "first", "outer"]
# What a coupling may do: change both halves by turns, or only shift them, or change one of them alone.
Way = Literal["both", "shift", "second", "first"]


class Kind(NamedTuple):
    """What a restart may use."""

    functions: frozenset[str]
    layers: Layers
    way: Way = "both"


def sublibrary_masks(model: Any, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return one mask per restart over the model's flat weights, and the number of its sub-library.

    Networks, in turn: everything; a single layer with the plain part of the library, alone and with each other
    function; each other function of what the plain part gives; all layers with the plain part, alone and with each
    other function. One layer alone, or the last alone, is only possible where the output reads all layers by a skip.

    Flows begin with everything and with single layers, whose couplings may do all they can or only shift, and if
    there is but one, change the second half only or the first only: where effect can be taken for cause, or a scale
    for a shift, restarts that may do either all settle for the same wrong one.
    """
    networks = _networks(model)
    names = sorted({p.name for net in networks for p, _ in units(net.library)} - set(PLAIN))
    skips = bool(networks) and all(net.skip and len(net.weights) > 2 for net in networks)
    kinds = _kinds(names, skips=skips)
    couplings = [n for n in jax.tree.leaves(model, is_leaf=_is_coupling) if _is_coupling(n)]
    if couplings:
        simple: Layers = "first" if skips else "all"
        parts = [names, [], *([name] for name in names)]
        ways: list[Way] = ["shift", "second", "first", "both"] if len(couplings) == 1 else ["both", "shift"]
        if not all(c.transformer.shifts for c in couplings):
            ways.remove("shift")
        kinds[1:1] = [Kind(frozenset(part), simple, way) for part in parts for way in ways]
    kinds = list(dict.fromkeys(kinds))
    libraries = list(dict.fromkeys(kind[:2] for kind in kinds))
    taken = [kinds[i % len(kinds)] for i in range(n)]
    masks = {kind: _mask(model, kind) for kind in taken}
    return (
        np.stack([masks[kind] for kind in taken]).astype(np.float32),
        np.array([libraries.index(kind[:2]) for kind in taken]),
    )


def _kinds(names: list[str], *, skips: bool) -> list[Kind]:
    parts = [frozenset[str](), *(frozenset([name]) for name in names)]
    kinds = [Kind(frozenset(names), "all"), *(Kind(part, "all") for part in parts)]
    if skips:
        kinds[1:1] = [*(Kind(part, "first") for part in parts), *(Kind(part, "outer") for part in parts[1:])]
    return kinds


def _networks(model: Any) -> list[EQL]:
    return [n for n in jax.tree.leaves(model, is_leaf=_is_network) if _is_network(n)]


def _is_network(node: Any) -> bool:
    return isinstance(node, EQL)


def _is_coupling(node: Any) -> bool:
    return isinstance(node, AbstractBijection) and bool(node.subnetworks)


def _mask(model: Any, kind: Kind) -> np.ndarray:
    def ones(node: Any) -> Any:
        if _is_network(node):
            return _network_mask(node, kind.functions, kind.layers)
        return np.ones(node.shape) if eqx.is_inexact_array(node) else node

    marked = jax.tree.map(ones, model, is_leaf=_is_network)
    marked = jax.tree.map(lambda node: _restricted(node, kind.way), marked, is_leaf=_is_coupling)
    return np.concatenate([leaf.ravel() for leaf in jax.tree.leaves(marked) if isinstance(leaf, np.ndarray)])


def _restricted(node: Any, way: Way) -> Any:
    """Return the masks of a coupling whose networks, each a stack of parameters, do less than they could."""
    if not _is_coupling(node) or way == "both":
        return node
    names = node.transformer.names
    held = [i for i, name in enumerate(names) if way != "shift" or name not in node.transformer.shifts]
    halves = {"shift": ("first", "second"), "second": ("first",), "first": ("second",)}[way]
    return replace(node, **{half: _constant(getattr(node, half), held) for half in halves})


def _constant(mask: Any, members: list[int]) -> Any:
    """The mask with some members of the stack reduced to what they add last of all."""
    if not _is_network(mask):
        return mask

    def without(array: Any) -> Any:
        rest = np.array(array)
        rest[members] = 0
        return rest

    biases: Any = mask.biases and (*(without(b) for b in mask.biases[:-1]), mask.biases[-1])
    return EQL(tuple(without(w) for w in mask.weights), biases, mask.library, mask.skip)


def _network_mask(network: EQL, keep: frozenset[str], layers: Layers) -> EQL:
    """Ones where a weight may be used: hidden layer by hidden layer, each unit only with its function offered."""
    hidden = len(network.weights) - 1
    plain = frozenset(PLAIN)
    both = plain | keep
    offered = [both] * hidden if layers != "outer" else [plain] * (hidden - 1) + [keep]
    weights, biases = [], []
    for layer, weight in enumerate(network.weights):
        rows = _offered(network, offered[layer], rows=True) if layer < hidden else np.ones(weight.shape[1])
        columns = _read(network, layer, offered, layers) if layer else np.ones(weight.shape[2])
        weights.append(np.broadcast_to(rows[:, None] * columns, weight.shape).astype(float))
        biases.append(np.broadcast_to(rows, weight.shape[:2]).astype(float))
    return EQL(tuple(weights), network.biases and tuple(biases), network.library, network.skip)


def _read(network: EQL, layer: int, offered: list[frozenset[str]], layers: Layers) -> np.ndarray:
    """Which inputs of a layer after the first may be used."""
    hidden = len(network.weights) - 1
    columns = [_offered(network, names, rows=False) for names in offered]
    if not (network.skip and layer == hidden):
        return columns[layer - 1]
    used = [
        i == 0 if layers == "first" else i == hidden - 1 if layers == "outer" else True for i in range(hidden)
    ]
    inputs = np.full(network.n_inputs, layers != "outer")
    return np.concatenate([inputs, *(c & u for c, u in zip(columns, used, strict=True))])


def _offered(network: EQL, names: frozenset[str], *, rows: bool) -> np.ndarray:
    """For each row (argument of a unit) or each unit of a hidden layer, whether its function is among ``names``."""
    counts = [(p.name in names, count * (p.arity if rows else 1)) for p, count in units(network.library)]
    return np.concatenate([np.full(n, used) for used, n in counts])

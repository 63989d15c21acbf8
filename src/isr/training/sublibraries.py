"""Sub-libraries: restarts that may use only some of the primitives and layers, so that they fail in different ways.

Where a sine can imitate a sigmoid, every restart with both settles for the sine; one without it must find the sigmoid.
Where a squared sigmoid nearly does, one with a single layer must find the plain one. Where a sum of squares comes close
to a bell, one that can only take functions of polynomials must find the bell.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import equinox as eqx
import jax
import numpy as np

from isr.model.arrays import on_device
from isr.model.coupling import Coupling
from isr.model.eql import EQL, units
from isr.model.parameters import flatten

# These make the plain part of any equation and are never withheld.
PLAIN = ("constant", "id", "square", "product")


# Which hidden layers the output reads: all with the inputs, the first with the inputs, or the last alone.
Layers = Literal["all", "first", "outer"]
# Which half of a coupling the other one may change: either by turns, or one alone.
Halves = Literal["both", "second", "first"]


def sublibrary_masks(model: Any, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return one mask a restart over the model's flat weights, and the number of its sub-library.

    In turn: everything; a single layer with the plain part of the library, alone and with each other function; each
    other function of what the plain part gives; all layers with the plain part, alone and with each other function.
    One layer alone, or the last alone, is only possible where the output reads all layers by a skip.

    Couplings of a restart may change both halves by turns, or the second only, or the first only: where effect can
    be taken for cause, restarts that may do either all settle for the same wrong one.

    Args:
        model: Holds the equation-learner networks.
        n: How many restarts.
    """
    networks = _networks(model)
    names = sorted({p.name for net in networks for p, _ in units(net.library)} - set(PLAIN))
    parts = [set(), *({name} for name in names)]
    skips = bool(networks) and all(net.skip and len(net.weights) > 2 for net in networks)
    kinds: list[tuple[set[str], Layers]] = [(set(names), "all"), *((part, "all") for part in parts)]
    if skips:
        kinds[1:1] = [*((part, "first") for part in parts), *((part, "outer") for part in parts[1:])]
    halves: list[Halves] = ["both", "second", "first"] if _couplings(model) else ["both"]
    # Every kind meets every choice of halves, sooner or later.
    turns = [i + (i // len(kinds) if len(kinds) % len(halves) == 0 else 0) for i in range(n)]
    group = np.arange(n) % len(kinds)
    masks = [
        _mask(model, *kinds[k], halves[turn % len(halves)]) for k, turn in zip(group, turns, strict=True)
    ]
    return np.stack(masks).astype(np.float32), group


def _networks(model: Any) -> list[EQL]:
    return [n for n in jax.tree.leaves(model, is_leaf=_is_network) if _is_network(n)]


def _couplings(model: Any) -> list[Coupling]:
    return [n for n in jax.tree.leaves(model, is_leaf=_is_coupling) if _is_coupling(n)]


def _is_network(node: Any) -> bool:
    return isinstance(node, EQL)


def _is_coupling(node: Any) -> bool:
    return isinstance(node, Coupling)


def _mask(model: Any, keep: set[str], layers: Layers, halves: Halves) -> np.ndarray:
    def ones(node: Any) -> Any:
        if _is_coupling(node):
            pair = {
                half: jax.tree.map(ones, getattr(node, half), is_leaf=_is_network)
                for half in ("first", "second")
            }
            if halves != "both":
                other = "first" if halves == "second" else "second"
                pair[other] = _without_inputs(pair[other])
            return replace(node, **pair)
        if _is_network(node):
            return _network_mask(node, keep, layers)
        return np.ones(node.shape) if eqx.is_inexact_array(node) else node

    marked = jax.tree.map(ones, model, is_leaf=lambda node: _is_coupling(node) or _is_network(node))
    arrays = jax.tree.map(lambda a: on_device(a) if isinstance(a, np.ndarray) else a, marked)
    return np.asarray(flatten(arrays)[0])


def _without_inputs(mask: Any) -> Any:
    """The mask of a network that gives its last constants and reads nothing."""
    if not _is_network(mask):
        return mask
    biases = mask.biases and (*(np.zeros_like(b) for b in mask.biases[:-1]), mask.biases[-1])
    return EQL(tuple(np.zeros_like(w) for w in mask.weights), biases, mask.library, mask.skip)


def _network_mask(network: EQL, keep: set[str], layers: Layers) -> EQL:
    """Ones where a weight may be used: hidden layer by hidden layer, each unit only with its function offered."""
    hidden = len(network.weights) - 1
    plain: set[str] = set(PLAIN)
    both = plain | keep
    offered = [both] * hidden if layers != "outer" else [plain] * (hidden - 1) + [keep]
    weights, biases = [], []
    for layer, weight in enumerate(network.weights):
        mask, bias = np.ones(weight.shape), np.ones(weight.shape[:2])
        if layer < hidden:
            rows = _offered(network, offered[layer], rows=True)
            mask *= rows[None, :, None]
            bias *= rows[None, :]
        if layer:
            mask *= _read(network, layer, offered, layers)[None, None, :]
        weights.append(mask)
        biases.append(bias)
    return EQL(
        tuple(weights), None if network.biases is None else tuple(biases), network.library, network.skip
    )


def _read(network: EQL, layer: int, offered: list[set[str]], layers: Layers) -> np.ndarray:
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


def _offered(network: EQL, names: set[str], *, rows: bool) -> np.ndarray:
    """For each row (argument of a unit) or each unit of a hidden layer, whether its function is among ``names``."""
    counts = [(p.name in names, count * (p.arity if rows else 1)) for p, count in units(network.library)]
    return np.concatenate([np.full(n, used) for used, n in counts])

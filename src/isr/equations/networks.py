"""Subnetworks as expressions: only what a nonzero weight reaches is written.

A network whose outputs stay small is written out in full. Beyond `INLINE_LIMIT` operations, the hidden units that
are read more than once become named intermediates, so that a dense network grows with its weights, not with
their products.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import singledispatch

import numpy as np
import sympy

from isr.bijections import formula
from isr.bijections.coupling import Subnetwork
from isr.bijections.eql import EQL, units
from isr.bijections.formula import Formulas
from isr.bijections.mlp import MLP, NEGATIVE_SLOPE
from isr.equations.writer import Writer, folded, linear, number

INLINE_LIMIT = 60
"""An output is written without named hidden units when it takes at most this many operations."""


_POLYNOMIALS = ("id", "square", "cube", "product")


@dataclass(frozen=True)
class _Unit:
    """A hidden unit: the rows it reads and what it makes of them.

    In a large network the arguments of all but polynomials are named: SymPy looks long into the argument of a
    function for something to evaluate.
    """

    rows: tuple[int, ...]
    express: Callable[..., sympy.Expr]
    name_arguments: bool = False


@dataclass(frozen=True)
class _Network:
    """One member of a stack: weights and biases by layer, hidden units by layer, and what the last layer reads."""

    weights: list[np.ndarray]
    biases: list[np.ndarray]
    layers: list[list[_Unit]]
    skip: bool

    def columns(self, layer: int) -> list[tuple[int, int]]:
        """Return (level, index) of each column of a layer; level 0 holds the inputs."""
        sizes = [self.weights[0].shape[1], *(len(units) for units in self.layers)]
        levels = range(layer + 1) if self.skip and layer == len(self.layers) else [layer]
        return [(level, i) for level in levels for i in range(sizes[level])]


def express(
    network: Subnetwork, member: int, inputs: list[sympy.Expr], write: Writer, name: str, part: str
) -> list[sympy.Expr]:
    """Return the outputs of one member of a stack of networks as expressions of ``inputs``.

    Args:
        network: The stacked networks.
        member: Which of them.
        inputs: What it reads.
        write: Takes the hidden units that get a name.
        name: Leads the names of hidden units.
        part: Which part of the model the network belongs to.
    """
    if isinstance(network, Formulas):
        constants = [number(c) for c in np.asarray(network.constants, np.float64)]
        trees = network.trees[member * network.n_outputs : (member + 1) * network.n_outputs]
        return [folded(formula.express(tree, inputs, constants)) for tree in trees]
    plain = _read(network, member)
    outputs = range(plain.weights[-1].shape[0])
    small = max(_sizes(plain), default=0) <= INLINE_LIMIT
    uses = None if small else _uses(plain)
    known: dict[tuple[int, int], sympy.Expr] = {(0, i): value for i, value in enumerate(inputs)}

    def row(layer: int, index: int) -> sympy.Expr:
        columns = plain.columns(layer)
        weights = plain.weights[layer][index]
        used = [(number(weights[k]), unit(*columns[k])) for k in np.flatnonzero(weights)]
        return folded(linear(used, number(plain.biases[layer][index])))

    def unit(level: int, index: int) -> sympy.Expr:
        if (level, index) not in known:
            spec = plain.layers[level - 1][index]
            label = f"{name}_h{level}_{index + 1}"
            arguments = [row(level - 1, r) for r in spec.rows]
            if spec.name_arguments and not small:
                arguments = write.name_all(arguments, f"{label}_in", part=part, role="hidden")
            value = folded(spec.express(*arguments))
            if uses is not None and uses[level][index] > 1:
                value = write.name(value, label, part=part, role="hidden")
            known[level, index] = value
        return known[level, index]

    return [row(len(plain.layers), index) for index in outputs]


@singledispatch
def _read(network, member: int) -> _Network:
    raise TypeError(f"no symbolic twin is known for a subnetwork of type {type(network).__name__}")


@_read.register
def _(network: EQL, member: int) -> _Network:
    layer, start = [], 0
    for primitive, count in units(network.library):
        layer += [
            _Unit(
                tuple(start + k + j * count for j in range(primitive.arity)),
                primitive.express,
                name_arguments=primitive.name not in _POLYNOMIALS,
            )
            for k in range(count)
        ]
        start += primitive.arity * count
    weights = [np.asarray(w, np.float64)[member] for w in network.weights]
    if network.biases is None:
        biases = [np.zeros(len(w)) for w in weights]
    else:
        biases = [np.asarray(b, np.float64)[member] for b in network.biases]
    return _Network(weights, biases, [layer] * (len(weights) - 1), network.skip)


@_read.register
def _(network: MLP, member: int) -> _Network:
    weights = [np.asarray(w, np.float64)[member] for w in network.weights]
    biases = [np.asarray(b, np.float64)[member] for b in network.biases]
    layers = [[_Unit((i,), _leaky_relu, True) for i in range(len(w))] for w in weights[:-1]]
    return _Network(weights, biases, layers, skip=False)


def _leaky_relu(g: sympy.Expr) -> sympy.Expr:
    # Neither is always the larger, so SymPy need not look for it; on a symbol that takes long.
    return sympy.Max(g, sympy.Float(NEGATIVE_SLOPE) * g, evaluate=not g.is_Symbol)


def _sizes(network: _Network) -> list[float]:
    """How many operations each output would take, written out in full."""
    sizes = {(0, i): 0.0 for i in range(network.weights[0].shape[1])}
    for layer in range(len(network.weights)):
        columns = network.columns(layer)
        rows = [
            sum(sizes[columns[k]] + 2 for k in np.flatnonzero(weights)) for weights in network.weights[layer]
        ]
        if layer == len(network.layers):
            return rows
        for i, unit in enumerate(network.layers[layer]):
            own = sum(rows[r] for r in unit.rows)
            sizes[layer + 1, i] = own + 1 if own else 0.0
    return []


def _uses(network: _Network) -> list[np.ndarray]:
    """How often each unit is read by what the outputs need, by level."""
    sizes = [network.weights[0].shape[1], *(len(layer) for layer in network.layers)]
    uses = [np.zeros(n, int) for n in sizes]
    needed = set(range(len(network.weights[-1])))
    for layer in reversed(range(len(network.weights))):
        columns = network.columns(layer)
        for r in needed:
            for k in np.flatnonzero(network.weights[layer][r]):
                level, i = columns[k]
                uses[level][i] += 1
        if layer:
            needed = {r for i in np.flatnonzero(uses[layer]) for r in network.layers[layer - 1][i].rows}
    return uses

"""Opening: a trained flow in standardised units becomes formulas in the user's own units.

Standardisation is folded into the formulas, the clamp of the log-scales and the guard of the inputs are dropped.
What comes out equals the trained flow near the data, and is where the refit of the constants starts.
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import numpy as np
import sympy

from isr.bijections.affine import Shift, Standardise
from isr.bijections.bijection import AbstractBijection, Chain
from isr.bijections.coupling import AbstractTransformer, Coupling, Subnetwork
from isr.bijections.flow import Flow
from isr.bijections.formula import Formulas
from isr.bijections.parameters import on_device
from isr.formulas.canonical import (
    Expression,
    build_formulas,
    functions_in,
    input_symbols,
    network_expressions,
    shortest,
)


def open_flow(flow: Flow) -> Flow:
    """Return ``flow`` (its steps: an optional Standardise first, then learned steps) as formulas.

    Only unconditional flows are opened to raw units; a condition stays standardised.
    """
    steps = list(flow.steps)
    scale = steps[0] if isinstance(steps[0], Standardise) else None
    steps = steps[1:] if scale is not None else steps
    opened: list[AbstractBijection] = []
    for step in steps:
        if step.subnetworks:
            found, scale = _open_coupling(cast(Coupling, step), scale), None
        else:
            found, scale = ([step], None) if scale is None else step.after(scale)
        opened += found
    return replace(flow, bijection=Chain(tuple(opened)))


def functions_of(flow: Flow) -> frozenset[str]:
    """Return the names of the functions, other than polynomials, that the couplings of a flow use."""
    return functions_in([e for step in flow.steps for n in step.subnetworks for e in network_expressions(n)])


def _open_coupling(step: Coupling, scale: Standardise | None) -> list[AbstractBijection]:
    """The coupling as formulas, in raw units where its transformer can take the scale in."""
    split, rest = step.split, step.dim - step.split
    transformer, first = _unclamped(step.transformer, network_expressions(step.first), split)
    _, second = _unclamped(step.transformer, network_expressions(step.second), rest)
    offset, before = np.zeros(step.dim), []
    if scale is not None:
        units = list(zip(scale.shift, scale.scale, strict=True))
        folded = [transformer.from_raw_units(*u, *p) for u, p in zip(units, [*first, *second], strict=True)]
        known = [f for f in folded if f is not None]
        if len(known) < len(folded):
            before = [scale]
        else:
            offset = np.array([f[1] for f in known])
            parameters = [list(f[0]) for f in known]
            first, second = parameters[:split], parameters[split:]
            first = _reading_raw_units(first, step, units[split:], offset[split:])
    shape = {"split": split, "dim": step.dim, "transformer": transformer, "guard": None}
    coupling = Coupling(first=_network(first, step.first), second=_network(second, step.second), **shape)
    return [*before, *([Shift(on_device(offset))] if offset.any() else []), coupling]


Parameters = list[list[Expression]]
"""The transformer's parameters of each variable of a half."""


def _unclamped(
    transformer: AbstractTransformer, outputs: list[Expression], n: int
) -> tuple[AbstractTransformer, Parameters]:
    """A transformer without clamps, and its parameters by variable, of outputs that stand parameter by parameter."""
    opened = [transformer.unclamped(*outputs[i::n]) for i in range(n)]
    return opened[0][0], [list(parameters) for _, parameters in opened]


def _reading_raw_units(parameters: Parameters, step: Coupling, units: list, offset: np.ndarray) -> Parameters:
    """Formulas of u2 that read x2 instead: u2 = (x2 - shift) / scale, of which a shift may have been taken already."""
    reads = input_symbols(step.first.n_inputs)
    swap = {}
    for symbol, (shift, width), taken in zip(reads, units, offset, strict=False):
        left = shift - taken
        swap[symbol] = (symbol - sympy.Float(left) if left else symbol) / sympy.Float(width)
    return [[e.xreplace(swap) for e in row] for row in parameters]


def _network(parameters: Parameters, like: Subnetwork) -> Formulas:
    outputs = [shortest(e) for parameter in zip(*parameters, strict=True) for e in parameter]
    return build_formulas(outputs, like.n_inputs, stack=like.stack)


def tidy(flow: Flow) -> Flow:
    """Return ``flow`` with constants that are exactly zero taken out of its formulas, and what they held up."""
    return replace(flow, bijection=Chain(tuple(t for step in flow.steps for t in _tidy_step(step))))


def _tidy_step(step: AbstractBijection) -> list[AbstractBijection]:
    if isinstance(step, Shift) and not np.any(np.asarray(step.offset)):
        return []
    if not all(isinstance(network, Formulas) for network in step.subnetworks):
        return [step]
    outputs = ([shortest(e) for e in network_expressions(n)] for n in step.subnetworks)
    networks = zip(outputs, step.subnetworks, strict=True)
    return [step.with_subnetworks(*(build_formulas(e, n.n_inputs, stack=n.stack) for e, n in networks))]

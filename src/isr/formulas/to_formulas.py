"""Opening: a trained flow in standardised units becomes formulas in the user's own units.

Standardisation is folded into the formulas, the clamp of the log-scales and the guard of the inputs are dropped.
What comes out equals the trained flow near the data, and is where the refit of the constants starts.
"""

from __future__ import annotations

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import sympy

from isr.bijections.affine import Linear, Shift, Standardise
from isr.bijections.arrays import on_device
from isr.bijections.bijection import AbstractBijection
from isr.bijections.chain import Chain
from isr.bijections.charts import Polar
from isr.bijections.coupling import Coupling, Subnetwork
from isr.bijections.flow import Flow
from isr.bijections.formula import Formulas
from isr.bijections.permutation import Permutation
from isr.bijections.split import Split
from isr.bijections.transformers import AbstractTransformer
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
        if isinstance(step, Coupling):
            opened += _open_coupling(step, scale)
            scale = None
        elif isinstance(step, Split) and scale is not None:
            opened.append(_raw_split(step, scale))
            scale = _without_variable(scale, step.variable)
        elif scale is not None:
            opened += _fold_into(step, scale)
            scale = None
        else:
            opened.append(step)
    return Flow(Chain(tuple(opened)), flow.condition_map, flow.noise, flow.n_padding)


def _raw_split(step: Split, scale: Standardise) -> Split:
    shift, width = scale.shift[step.variable], scale.scale[step.variable]
    return Split(
        balance=step.balance,
        centres=shift + width * step.centres,
        log_widths=step.log_widths + float(np.log(width)),
        cut=shift + width * step.cut,
        variable=step.variable,
        dim=step.dim,
    )


def _without_variable(scale: Standardise, variable: int) -> Standardise:
    shift, width = list(scale.shift), list(scale.scale)
    shift[variable], width[variable] = 0.0, 1.0
    return Standardise(tuple(shift), tuple(width))


def _fold_into(step: AbstractBijection, scale: Standardise) -> list[AbstractBijection]:
    shift, width = jnp.asarray(scale.shift), jnp.asarray(scale.scale)
    if isinstance(step, Linear):
        return [Shift(shift), Linear(step.matrix / width[None, :])]
    if isinstance(step, Permutation):
        return [scale, step]
    if isinstance(step, Polar) and np.ptp(np.array(scale.scale)[list(step.pair)]) == 0:
        pair = np.array(step.pair)
        centre = shift[pair] + width[pair] * step.centre
        offset = jnp.zeros(step.dim).at[step.pair[0]].set(jnp.log(width[pair[0]]))
        return [Polar(centre=centre, pair=step.pair, dim=step.dim), Shift(offset)]
    return [scale, step]


def functions_of(flow: Flow) -> frozenset[str]:
    """Return the names of the functions, other than polynomials, that the couplings of a flow use."""
    couplings = [step for step in flow.steps if isinstance(step, Coupling)]
    networks = [n for step in couplings for n in (step.first, step.second)]
    return functions_in([e for n in networks for e in network_expressions(n)])


def _open_coupling(step: Coupling, scale: Standardise | None) -> list[AbstractBijection]:
    """The coupling as formulas, in raw units where its transformer can take the scale in."""
    split, rest = step.split, step.dim - step.split
    transformer, first = _unclamped(step.transformer, network_expressions(step.first), split)
    _, second = _unclamped(step.transformer, network_expressions(step.second), rest)
    offset, before = np.zeros(step.dim), []
    if scale is not None:
        units = list(zip(scale.shift, scale.scale, strict=True))
        folded = [transformer.from_raw_units(*u, *p) for u, p in zip(units, [*first, *second], strict=True)]
        if any(f is None for f in folded):
            before = [scale]
        else:
            offset = np.array([f[1] for f in folded])
            parameters = [list(f[0]) for f in folded]
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
    return Flow(
        Chain(tuple(t for step in flow.steps for t in _tidy_step(step))),
        flow.condition_map, flow.noise, flow.n_padding,
    )  # fmt: skip


def _tidy_step(step: AbstractBijection) -> list[AbstractBijection]:
    if isinstance(step, Shift) and not np.any(np.asarray(step.offset)):
        return []
    if not (isinstance(step, Coupling) and isinstance(step.first, Formulas)):
        return [step]
    first, second = (
        build_formulas([shortest(e) for e in network_expressions(n)], n.n_inputs, stack=n.stack)
        for n in (step.first, step.second)
    )
    return [replace(step, first=first, second=second)]

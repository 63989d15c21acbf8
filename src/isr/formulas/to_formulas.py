"""Opening: a trained flow in standardised units becomes formulas in the user's own units.

Standardisation is folded into the formulas, the clamp of the log-scales and the guard of the inputs are dropped.
What comes out equals the trained flow near the data, and is where the refit of the constants starts.
"""

from __future__ import annotations

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
from isr.bijections.mlp import MLP
from isr.bijections.permutation import Permutation
from isr.bijections.split import Split
from isr.formulas.canonical import (
    Expression,
    build_formulas,
    expressions_of,
    formulas_of,
    functions_in,
    input_symbols,
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


def network_expressions(network: Subnetwork) -> list[Expression]:
    """Return a subnetwork's outputs as expressions with float constants."""
    if isinstance(network, MLP):
        raise TypeError("a leaky-ReLU network has no formulas; use subnet='eql'")
    return expressions_of(network) if isinstance(network, Formulas) else formulas_of(network)


def functions_of(flow: Flow) -> frozenset[str]:
    """Return the names of the functions, other than polynomials, that the couplings of a flow use."""
    couplings = [step for step in flow.steps if isinstance(step, Coupling)]
    networks = [n for step in couplings for n in (step.first, step.second)]
    return functions_in([e for n in networks for e in network_expressions(n)])


def _open_coupling(step: Coupling, scale: Standardise | None) -> list[AbstractBijection]:
    first, second = network_expressions(step.first), network_expressions(step.second)
    split, rest = step.split, step.dim - step.split
    s1, t1, s2, t2 = first[:split], first[split:], second[:rest], second[rest:]
    s1, s2 = [_unclamped(s, step.clamp) for s in s1], [_unclamped(s, step.clamp) for s in s2]
    offset = np.zeros(step.dim)
    if scale is not None:
        for s, t, start in ((s1, t1, 0), (s2, t2, split)):
            for i in range(len(s)):
                m, width = scale.shift[start + i], scale.scale[start + i]
                s[i] = s[i] - sympy.Float(np.log(width))
                if s[i].is_number:  # the shift joins the formula's own constant
                    t[i] = t[i] - sympy.Float(m) * sympy.exp(s[i]).evalf(17)
                else:
                    offset[start + i] = m
        reads = input_symbols(step.first.n_inputs)
        for i in range(rest):  # u2 = (x2 - m2) / width, of which the shift may have been taken already
            left = scale.shift[split + i] - offset[split + i]
            raw = (reads[i] - sympy.Float(left)) / sympy.Float(scale.scale[split + i])
            swap = {reads[i]: raw if left else reads[i] / sympy.Float(scale.scale[split + i])}
            s1, t1 = [e.xreplace(swap) for e in s1], [e.xreplace(swap) for e in t1]
    coupling = Coupling(
        first=build_formulas([shortest(e) for e in (*s1, *t1)], step.first.n_inputs, stack=2),
        second=build_formulas([shortest(e) for e in (*s2, *t2)], step.second.n_inputs, stack=2),
        split=split,
        dim=step.dim,
        clamp=None,
        guard=None,
    )
    return [Shift(on_device(offset)), coupling] if offset.any() else [coupling]


def _unclamped(s: Expression, clamp: float | None) -> Expression:
    if clamp is None:
        return s
    if s.is_number:
        return sympy.Float(clamp * 2 / np.pi * np.arctan(float(s) / clamp))
    # Near zero the clamp is the factor 2/pi; the refit of the constants mends what is left.
    return sympy.Float(2 / np.pi) * s


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
    networks = [
        build_formulas([shortest(e) for e in network_expressions(n)], n.n_inputs, stack=n.stack)
        for n in (step.first, step.second)
    ]
    return [
        Coupling(
            first=networks[0],
            second=networks[1],
            split=step.split,
            dim=step.dim,
            clamp=step.clamp,
            guard=step.guard,
        )
    ]

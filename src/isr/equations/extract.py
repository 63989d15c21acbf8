"""Extraction: a flow as two programs of equations, forward and inverse, that mean the same numbers."""

from __future__ import annotations

from collections.abc import Iterator

import equinox as eqx
import jax
import numpy as np
import sympy

from isr.bijections.affine import Bounded, Inverted
from isr.bijections.bijection import AbstractBijection
from isr.bijections.chain import Chain
from isr.bijections.condition import ConditionMap
from isr.bijections.coupling import Coupling
from isr.bijections.flow import Flow
from isr.equations import chart_twins as _registered  # noqa: F401  (gives the charts their twins)
from isr.equations import twins
from isr.equations.naming import Names
from isr.equations.networks import express
from isr.equations.program import Program, without_dead_code
from isr.equations.twins import Block, Context
from isr.equations.writer import Writer, folded, held, scaled


def forward_program(flow: Flow, names: Names, *, padding_is_zero: bool = True) -> tuple[Program, list[Block]]:
    """Return x to latent as equations, and the blocks they go through.

    Args:
        flow: The model.
        names: The symbols to write it in.
        padding_is_zero: Write the padding of a single variable as 0; else it is an input of its own.
    """
    context = _context(flow, names)
    padding = [sympy.S.Zero] * flow.n_padding if padding_is_zero else list(names.padding)
    outputs, log_det = twins.forward(flow.bijection, [*names.x, *padding], context)
    program = Program(
        inputs=names.x if padding_is_zero else (*names.x, *names.padding),
        conditions=names.y if flow.condition_map is not None else (),
        assignments=tuple(context.write.assignments),
        outputs=tuple(outputs),
        log_det=log_det,
        output_symbols=_latent(flow, names),
        labels=names.labels,
    )
    return without_dead_code(program), context.blocks


def inverse_program(flow: Flow, names: Names) -> Program:
    """Return latent to x as equations."""
    context = _context(flow, names)
    outputs, log_det = twins.inverse(flow.bijection, list(_latent(flow, names)), context)
    program = Program(
        inputs=_latent(flow, names),
        conditions=names.y if flow.condition_map is not None else (),
        assignments=tuple(context.write.assignments),
        outputs=tuple(outputs[: flow.dim]),
        log_det=log_det,
        bounds=_bounds(flow.bijection)[: flow.dim],
        output_symbols=names.x,
        labels=names.labels,
    )
    return without_dead_code(program)


def _latent(flow: Flow, names: Names) -> tuple[sympy.Symbol, ...]:
    return (*names.y[: flow.n_observed], *names.z)


def _context(flow: Flow, names: Names) -> Context:
    if not all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(eqx.filter(flow, eqx.is_inexact_array))):
        raise ValueError("the model holds weights that are not finite, so it has no equations; train it anew")
    write = Writer(names.taken)
    numbers = {id(c): index + 1 for index, c in enumerate(_couplings(flow.bijection))}
    features = [] if flow.condition_map is None else _features(flow.condition_map, names, write)
    return Context(write, features, numbers)


def _couplings(bijection: AbstractBijection) -> Iterator[Coupling]:
    if isinstance(bijection, Coupling):
        yield bijection
    elif isinstance(bijection, Chain):
        for part in bijection.bijections:
            yield from _couplings(part)
    elif isinstance(bijection, Inverted):
        yield from _couplings(bijection.bijection)


def _features(condition_map: ConditionMap, names: Names, write: Writer) -> list[sympy.Expr]:
    part = "condition"
    fixed = condition_map.standardise
    values = [
        folded(scaled(y, shift, scale, write, part))
        for y, shift, scale in zip(names.y, fixed.shift, fixed.scale, strict=True)
    ]
    values = write.name_all(values, "c", part=part, role="standardised")
    if condition_map.network is None:
        return values
    guard = condition_map.guard
    if guard is not None:
        guarded = [held(value, -guard, guard) for value in values]
        values = write.name_all(guarded, "gc", part=part, role="guard")
    features = express(condition_map.network, 0, values, write, "f", part)
    return write.name_all(features, "f", part=part, role="feature")


def _bounds(bijection: AbstractBijection) -> tuple[tuple[float | None, float | None], ...]:
    """The limits of x, known when the chart of a box comes first."""
    if isinstance(bijection, Chain):
        return _bounds(bijection.bijections[0])
    if isinstance(bijection, Bounded):
        return tuple(zip(bijection.low, bijection.high, strict=True))
    return ()

"""Trained flows as points of a front: in the user's units, with their losses and what their equations cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import jax.numpy as jnp
import numpy as np

from isr.bijections.affine import Bounded, Inverted, Standardise
from isr.bijections.bijection import AbstractBijection, Chain
from isr.bijections.coupling import ConditionMap
from isr.bijections.flow import Flow
from isr.bijections.parameters import cast, n_constants
from isr.estimators import pipeline
from isr.estimators.pipeline import MAX_CONSTANTS, Arrays
from isr.estimators.rows import Rows
from isr.formulas.front import Point
from isr.formulas.refit import flow_row_loss

# What a weight in use adds to the complexity of a network written out with scales, guards and clamps, roughly.
ROUGH_COST = 8
# Rows that constants are refitted on: more would cost time and tell little.
MAX_REFIT_ROWS = 100_000


def network_point(network: Flow, rows: Rows, dtype: type = np.float64) -> Point:
    """Return a trained network as a point of the front; what its equations cost is estimated."""
    train, held_out = first_rows(rows.standard(rows.train)), rows.standard(rows.held_out)
    # All at once: rows of two lengths would be two programs.
    some = {name: np.concatenate([values, held_out[name]], axis=1) for name, values in train.items()}
    fast = network.accelerated() if dtype is np.float32 else network
    losses = pipeline.row_losses(fast, flow_row_loss, some, dtype) + rows.width
    of_train, held = np.split(losses, [train["x"].shape[1]])
    n = n_constants(network)
    nats = float(np.mean(of_train)), float(np.mean(held))
    return Point(in_units(network, rows), ROUGH_COST * n, n, *nats, held, is_network=True)


def first_rows(arrays: Arrays) -> Arrays:
    """Return arrays of as many rows as constants are refitted on."""
    return {name: values[:, :MAX_REFIT_ROWS] for name, values in arrays.items()}


def in_units(network: Flow, rows: Rows) -> Flow:
    """Return a trained network with standardisation around it: it takes and gives the user's units."""
    core = cast(network, jnp.float64)
    flow = with_steps(core, (_padded(rows.scale, rows.n_padding), *core.steps))
    if rows.y_scale is None:
        return flow
    if core.noise:
        back = Inverted(_padded(rows.y_scale, core.bijection.dim - rows.n_observed))
        noise = tuple(s * width for s, width in zip(core.noise, rows.y_scale.scale, strict=True))
        return replace(with_steps(flow, (*flow.steps, back)), noise=noise)
    condition = core.condition_map
    return replace(flow, condition_map=ConditionMap(rows.y_scale, condition.network, condition.guard))


def _padded(scale: Standardise, n: int) -> Standardise:
    return Standardise(scale.shift + (0.0,) * n, scale.scale + (1.0,) * n)


def with_steps(flow: Flow, steps: Sequence[AbstractBijection]) -> Flow:
    return replace(flow, bijection=Chain(tuple(steps)))


def finished(point: Point, rows: Rows) -> Point:
    """Return a point whose model maps x itself, its losses in nats of that."""
    return replace(
        point,
        model=_in_bounds(point.model, rows),
        train_nats=point.train_nats - float(np.mean(rows.train.log_det)),
        held_out_nats=point.held_out_nats - float(np.mean(rows.held_out.log_det)),
        held_out_rows=point.held_out_rows - rows.held_out.log_det,
    )


def weighed(point: Point, rows: Rows) -> Point:
    """Return a point with the cost of its equations, unless they are too long to be written out."""
    if point.n_constants > 3 * MAX_CONSTANTS:
        return point
    return replace(point, complexity=complexity_of(point.model, rows))


def complexity_of(flow: Flow, rows: Rows) -> int:
    from isr.equations import extract

    return extract(_in_bounds(flow, rows)).complexity


def _in_bounds(flow: Flow, rows: Rows) -> Flow:
    """Return the flow of x itself from that of x opened from its bounds."""
    if rows.bounds is None:
        return flow
    free = (None,) * flow.n_padding
    return with_steps(flow, (Bounded(rows.bounds.low + free, rows.bounds.high + free), *flow.steps))

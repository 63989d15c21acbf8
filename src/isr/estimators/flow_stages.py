"""What the fit of a flow does with trained networks: points of a front, pruned, opened into formulas, polished.

Here flows map x *opened from its bounds*; the chart of the bounds is put in front of them when the fit is done. What
writes formulas loads SymPy, and is imported where it is used: a dense fit never asks for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from isr.bijections.affine import Bounded, Inverted, Standardise
from isr.bijections.bijection import AbstractBijection
from isr.bijections.chain import Chain
from isr.bijections.condition import ConditionMap
from isr.bijections.flow import Flow
from isr.bijections.parameters import cast, n_constants
from isr.estimators.pipeline import (
    MAX_CONSTANTS,
    Arrays,
    Criterion,
    Pruned,
    Refined,
    Trained,
    prune,
    refine,
    row_losses,
)
from isr.estimators.rows import Rows
from isr.estimators.safety import is_tame
from isr.formulas.front import Point, pareto
from isr.formulas.refit import flow_row_loss
from isr.training.monitor import Monitor

# What a weight in use adds to the complexity of a network written out with scales, guards and clamps, roughly.
ROUGH_COST = 8
# How many networks are pruned and opened.
N_REFINED = 3
# Rows that constants are refitted on: more would cost time and tell little.
MAX_REFIT_ROWS = 100_000


def with_steps(flow: Flow, steps: Sequence[AbstractBijection]) -> Flow:
    """Return a flow of other steps."""
    return Flow(Chain(tuple(steps)), flow.condition_map, flow.noise, flow.n_padding)


def in_bounds(flow: Flow, rows: Rows) -> Flow:
    """Return the flow of x itself from that of x opened from its bounds."""
    if rows.bounds is None:
        return flow
    free = (None,) * flow.n_padding
    return with_steps(flow, (Bounded(rows.bounds.low + free, rows.bounds.high + free), *flow.steps))


def in_units(network: Flow, rows: Rows) -> Flow:
    """Return a trained network with standardisation around it: it takes and gives the user's units."""
    core = cast(network, jnp.float64)
    flow = with_steps(core, (_padded(rows.scale, rows.n_padding), *core.steps))
    if rows.y_scale is None:
        return flow
    if core.noise:
        back = Inverted(_padded(rows.y_scale, core.bijection.dim - rows.n_observed))
        noise = tuple(s * width for s, width in zip(core.noise, rows.y_scale.scale, strict=True))
        flow = replace(with_steps(flow, (*flow.steps, back)), noise=noise)
    if core.condition_map is not None:
        condition = ConditionMap(rows.y_scale, core.condition_map.network, core.condition_map.guard)
        flow = replace(flow, condition_map=condition)
    return flow


def _padded(scale: Standardise, n: int) -> Standardise:
    return Standardise(scale.shift + (0.0,) * n, scale.scale + (1.0,) * n)


def network_point(network: Flow, rows: Rows, dtype: type = np.float64) -> Point:
    """Return a trained network as a point of the front; what its equations cost is estimated."""
    train, held_out = _first(rows.standard(rows.train)), rows.standard(rows.held_out)
    # All at once: rows of two lengths would be two programs.
    some = {name: np.concatenate([values, held_out[name]], axis=1) for name, values in train.items()}
    fast = network.accelerated() if dtype is np.float32 else network
    losses = row_losses(fast, flow_row_loss, some, dtype) + rows.width
    train_losses, held = np.split(losses, [train["x"].shape[1]])
    n = n_constants(network)
    return Point(
        in_units(network, rows), ROUGH_COST * n, n, float(np.mean(train_losses)), float(np.mean(held)), held,
        is_network=True,
    )  # fmt: skip


def _first(arrays: Arrays) -> Arrays:
    return {name: values[:, :MAX_REFIT_ROWS] for name, values in arrays.items()}


def weighed_front(front: Sequence[Point], rows: Rows) -> list[Point]:
    """Return the front with the complexity of every network that is not too long to be written out."""

    def weighed(point: Point) -> Point:
        is_rough = point.is_network and point.n_constants <= 3 * MAX_CONSTANTS
        return replace(point, complexity=complexity_of(point.model, rows)) if is_rough else point

    return pareto([weighed(point) for point in front])


def complexity_of(flow: Flow, rows: Rows) -> int:
    """Return the cost of a flow's equations."""
    from isr.equations import extract

    return extract(in_bounds(flow, rows)).complexity


def prune_flows(trained: Trained, points: Sequence[Point], rows: Rows, monitor: Monitor) -> Pruned:
    """Return the most promising networks, one for each set of functions in use, without the weights not missed."""
    from isr.formulas.to_formulas import functions_of

    n = len(rows.train)
    scores = [n * p.train_nats + 0.5 * np.log(n) * p.n_constants for p in points]
    promising: dict[frozenset[str], Flow] = {}
    for i in np.argsort(scores, kind="stable"):
        if points[i].n_constants <= MAX_CONSTANTS and len(promising) < N_REFINED:
            promising.setdefault(functions_of(trained.networks[i]), trained.networks[i])
    return prune(promising.values(), flow_row_loss, rows.standard(rows.train), monitor)


def refine_flows(pruned: Pruned, rows: Rows, monitor: Monitor) -> Refined:
    """Return the models made of formulas that the networks, opened, lead to."""
    from isr.formulas.to_formulas import open_flow

    opened = [open_flow(in_units(network, rows)) for network in pruned.networks]
    return refine(distinct(opened), criterion_of(rows), monitor)


def distinct(models: Sequence[Flow]) -> list[Flow]:
    """Return models without repeats of the same structure."""
    kept: dict[str, Flow] = {}
    for model in models:
        kept.setdefault(repr(jax.tree.structure(model)), model)
    return list(kept.values())


def criterion_of(rows: Rows) -> Criterion:
    """Return what flows made of formulas are fitted to and judged by."""
    from isr.formulas.to_formulas import tidy

    return Criterion(
        flow_row_loss, _first(rows.raw(rows.train)), rows.raw(rows.held_out),
        complexity=lambda flow: complexity_of(flow, rows), tidy=tidy, acceptable=lambda flow: is_tame(flow, rows),
    )  # fmt: skip


def finished(point: Point, rows: Rows) -> Point:
    """Return a point whose model maps x itself, its losses in nats of that."""
    return replace(
        point,
        model=in_bounds(point.model, rows),
        train_nats=point.train_nats - float(np.mean(rows.train.log_det)),
        held_out_nats=point.held_out_nats - float(np.mean(rows.held_out.log_det)),
        held_out_rows=point.held_out_rows - rows.held_out.log_det,
    )

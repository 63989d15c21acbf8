"""What becomes of trained members: points of a front, as networks and as formulas refined from them.

What writes formulas loads SymPy, and is imported where it is used: a dense fit never asks for it.
"""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from isr.bijections.affine import Bounded, Inverted, Standardise
from isr.bijections.chain import Chain
from isr.bijections.condition import ConditionMap
from isr.bijections.coupling import Coupling
from isr.bijections.flow import Flow
from isr.bijections.formula import Formulas
from isr.bijections.parameters import cast, flatten
from isr.estimators.refine import MAX_CONSTANTS, Polished, eliminate_all, polish, refine, row_losses
from isr.estimators.rows import Rows
from isr.formulas.front import Point, pareto
from isr.formulas.refit import flow_row_loss
from isr.training.monitor import Monitor

# What a weight in use adds to the complexity of a network written out with scales, guards and clamps, roughly.
ROUGH_COST = 8
# How many members of a population are opened and refined.
N_REFINED = 3
# In standard deviations: a latent of a row only a little outside of the data beyond this is an explosion.
FARTHEST = 200.0
# Rows that constants are refitted on: more would cost time and tell little.
MAX_REFIT_ROWS = 100_000


def _closed(member: Flow, rows: Rows) -> Flow:
    """Return a trained core with standardisation and bounds in front: guarded, clamped, in the user's units."""
    core = cast(member, jnp.float64)
    steps = (*_bound_steps(rows, member.n_padding), _padded(rows.scale, member.n_padding), *core.steps)
    condition, noise = core.condition_map, core.noise
    if condition is not None and rows.y_scale is not None:
        condition = ConditionMap(rows.y_scale, condition.network, condition.guard)
    if noise and rows.y_scale is not None:
        steps = (*steps, Inverted(_padded(rows.y_scale, core.bijection.dim - rows.n_observed)))
        noise = tuple(s * width for s, width in zip(noise, rows.y_scale.scale, strict=True))
    return Flow(Chain(steps), condition, noise, member.n_padding)


def _padded(scale: Standardise, n: int) -> Standardise:
    return Standardise(scale.shift + (0.0,) * n, scale.scale + (1.0,) * n)


def _bound_steps(rows: Rows, n_padding: int) -> tuple:
    if rows.bounds is None:
        return ()
    return (Bounded(rows.bounds.low + (None,) * n_padding, rows.bounds.high + (None,) * n_padding),)


def closed_point(member: Flow, rows: Rows, dtype: type = np.float64) -> Point:
    """Return a trained core as a point of the front, its losses in nats of x itself."""
    train, held_out = (
        rows.standard(held_out=is_held, n_padding=member.n_padding) for is_held in (False, True)
    )
    # All at once: rows of two lengths would be two programs.
    some = {k: np.concatenate([v[:, :MAX_REFIT_ROWS], held_out[k]], axis=1) for k, v in train.items()}
    losses = row_losses(member, flow_row_loss, some, dtype) + rows.width
    train_rows, held = np.split(losses, [losses.shape[0] - held_out["x"].shape[1]])
    theta = np.asarray(flatten(member)[0])
    count = int(np.count_nonzero(theta))
    return Point(
        _closed(member, rows), ROUGH_COST * count, count, float(np.mean(train_rows)), float(np.mean(held)), held, theta,
        np.flatnonzero(theta),
    )  # fmt: skip


def weighed(front: list[Point]) -> list[Point]:
    """Return the front with the complexity of every network written out; so far it was a rough estimate."""
    weighed = [
        replace(p, complexity=complexity_of(p.model))
        if _is_closed(p.model) and p.n_constants <= 3 * MAX_CONSTANTS
        else p
        for p in front
    ]
    return pareto(weighed)


def complexity_of(flow: Flow) -> int:
    """Return the cost of a flow's equations."""
    from isr.equations import extract

    return extract(flow).complexity


def in_nats_of_x(point: Point, rows: Rows) -> Point:
    """Return a point whose losses, so far those of x opened from its bounds, are those of x itself."""
    return replace(
        point,
        train_nats=point.train_nats - float(np.mean(rows.log_det_train)),
        held_out_nats=point.held_out_nats - float(np.mean(rows.log_det_held_out)),
        held_out_rows=point.held_out_rows - rows.log_det_held_out,
    )


def _is_closed(flow: Flow) -> bool:
    return any(isinstance(step, Coupling) and not isinstance(step.first, Formulas) for step in flow.steps)


def _for_refit(rows: Rows, n_padding: int) -> dict[str, np.ndarray]:
    return {k: v[:, :MAX_REFIT_ROWS] for k, v in rows.raw(n_padding=n_padding).items()}


def without_bounds(flow: Flow, rows: Rows) -> Flow:
    """Return a flow of the front over x opened from its bounds."""
    steps = flow.steps[1:] if rows.bounds is not None else flow.steps
    return Flow(Chain(tuple(steps)), flow.condition_map, flow.noise, flow.n_padding)


def refined_points(members: list[Flow], closed: list[Point], rows: Rows, monitor: Monitor) -> list[Point]:
    """Return points from the most promising members: weights eliminated, opened into formulas, eliminated again."""
    from isr.formulas.to_formulas import functions_of, open_flow, tidy

    n, n_padding = len(rows.train), members[0].n_padding
    scores = [n * p.train_nats + 0.5 * np.log(n) * p.n_constants for p in closed]
    promising: dict[frozenset[str], Flow] = {}  # one for each set of functions in use
    for i in np.argsort(scores, kind="stable"):
        if closed[i].n_constants <= MAX_CONSTANTS and len(promising) < N_REFINED:
            promising.setdefault(functions_of(members[i]), members[i])
    networks = eliminate_all(
        promising.values(), flow_row_loss, rows.standard(n_padding=n_padding), monitor=monitor
    )
    points = [closed_point(m, rows) for m in networks]
    opened = [open_flow(without_bounds(p.model, rows)) for p in points]
    refined = refine(
        _distinct_formulas(opened),
        flow_row_loss,
        _for_refit(rows, n_padding),
        rows.raw(held_out=True, n_padding=n_padding),
        complexity=complexity_of,
        acceptable=lambda flow: is_tame(flow, rows),
        tidy=tidy,
        monitor=monitor,
    )
    return [*points, *(replace(p, model=_with_bounds(p.model, rows)) for p in refined)]


def _distinct_formulas(flows: list[Flow]) -> list[Flow]:
    kept, seen = [], set()
    for flow in flows:
        mark = repr(jax.tree.structure(flow))
        if mark not in seen:
            seen.add(mark)
            kept.append(flow)
    return kept


def _with_bounds(flow: Flow, rows: Rows) -> Flow:
    steps = (*_bound_steps(rows, flow.n_padding), *flow.steps)
    return Flow(Chain(steps), flow.condition_map, flow.noise, flow.n_padding)


def is_tame(flow: Flow, rows: Rows) -> bool:
    """Return whether samples are finite and lie where data lie, so that the formulas need no guard.

    Latents out to six standard deviations must come back finite, and of ordinary draws all but one in a
    thousand must lie within ten standard deviations of the data, or, for heavy tails, within twice their range.
    Forward, rows a tenth further out than the data must not be thrown to latents beyond any reason.
    """
    rng, x, n = np.random.default_rng(0), rows.raw_train, 4096
    size = (n, flow.bijection.dim)
    noise = np.concatenate([rng.normal(size=size), rng.uniform(-6, 6, size=size)])
    y = None if rows.raw_y_train is None else rows.raw_y_train[rng.integers(len(x), size=2 * n)]
    drawn = flow.draw(noise, y)
    if not np.all(np.isfinite(drawn)):
        return False
    reach = np.maximum(10 * x.std(axis=0), 2 * np.ptp(x, axis=0)) + 1e-12
    wild = np.abs(drawn[:n] - x.mean(axis=0)) > reach
    if np.mean(wild.any(axis=1)) >= 1e-3:
        return False
    some = rng.integers(len(x), size=n)
    further = x.mean(axis=0) + 1.1 * (x[some] - x.mean(axis=0))
    density = flow.log_prob(further, None if rows.raw_y_train is None else rows.raw_y_train[some])
    return bool(np.all(density > -0.5 * FARTHEST**2))


def polished_point(
    point: Point, rows: Rows, snapping: bool, monitor: Monitor, *, sparse: bool = True
) -> Polished:
    """Return the chosen point with its constants settled; a network, or what polishing would spoil, as it is."""
    as_it_is = Polished(point, np.full(len(point.theta), np.nan), {})
    if not sparse or _is_closed(point.model) or monitor.should_stop():
        return as_it_is
    from isr.formulas.to_formulas import tidy

    n_padding = point.model.n_padding
    polished = polish(
        replace(point, model=without_bounds(point.model, rows)), flow_row_loss,
        _for_refit(rows, n_padding), rows.raw(held_out=True, n_padding=n_padding),
        snapping=snapping, tidy=tidy, complexity=lambda flow: complexity_of(_with_bounds(flow, rows)),
    )  # fmt: skip
    if not is_tame(polished.point.model, rows):
        return as_it_is
    return replace(polished, point=replace(polished.point, model=_with_bounds(polished.point.model, rows)))

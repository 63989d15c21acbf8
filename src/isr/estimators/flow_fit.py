"""The fit of a flow, told in order: chart and scale the data, train a population, prune, refit, choose."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from isr.data.splits import split_rows
from isr.estimators.refine import MAX_CONSTANTS, Polished, eliminate_all, polish, refine, row_losses
from isr.expressions import extract
from isr.model.affine import Bounded, Standardise, standardise
from isr.model.build import Architecture, build_flow
from isr.model.chain import Chain
from isr.model.coupling import Coupling
from isr.model.flow import Flow
from isr.model.formula import Formulas
from isr.model.parameters import cast, flatten, n_constants
from isr.pruning.front import Point, choose, pareto
from isr.pruning.opening import functions_of, open_flow, tidy
from isr.pruning.refit import flow_row_loss
from isr.training.cache import keep_compiled_programs
from isr.training.losses import make_objective
from isr.training.monitor import Monitor
from isr.training.population import Population, Schedule, train
from isr.training.sublibraries import sublibrary_masks

# What a weight in use adds to the complexity of a network written out with scales, guards and clamps, roughly.
ROUGH_COST = 8
# How many members of a population are opened and refined.
N_REFINED = 3
# Share of the rows held out, and at most how many.
HELD_OUT, MAX_HELD_OUT = 0.2, 20_000


@dataclass(frozen=True)
class FlowFit:
    """What a fit leaves.

    Args:
        front: Points from simple to complex.
        chosen: Which one is used.
        flow: The chosen flow, polished.
        errors: Standard error of each learned number of ``flow``, NaN where it is not fitted.
        labels: Learned numbers that were snapped to simple values, by index.
        population: The trained members.
        n_train: Training rows.
        charts: Names of the charts in use.
    """

    front: list[Point]
    chosen: int
    flow: Flow
    errors: np.ndarray
    labels: dict[int, str]
    population: Population
    n_train: int
    charts: tuple[str, ...]


@dataclass(frozen=True)
class Rows:
    """Charted rows, split: what the core of a flow is trained on."""

    bounds: Bounded | None
    scale: Standardise
    train: np.ndarray
    held_out: np.ndarray
    raw_train: np.ndarray
    raw_held_out: np.ndarray


def prepare(x: np.ndarray, bounds: Bounded | None, *, seed: int, isotropic: bool) -> Rows:
    """Return x opened from its bounds, split and standardised."""
    charted = x
    if bounds is not None:
        with jax.enable_x64(True):
            charted = np.asarray(jax.vmap(lambda row: bounds.forward_and_log_det(row)[0])(jnp.asarray(x)))
        if not np.all(np.isfinite(charted)):
            column = int(np.flatnonzero(~np.isfinite(charted).all(axis=0))[0])
            raise ValueError(
                f"column {column} of x has values exactly on its bound, where only one side is bounded; "
                "move the bound a little outwards or drop these rows"
            )
    held = int(np.clip(round(HELD_OUT * len(x)), 1, MAX_HELD_OUT)) if len(x) > 1 else 0
    split = split_rows(len(x), held_out=held, random_state=seed)
    scale = standardise(charted[split.train])
    if isotropic:
        width = float(np.sqrt(np.mean(np.square(scale.scale))))
        scale = Standardise(scale.shift, (width,) * scale.dim)
    standard = (charted - np.asarray(scale.shift)) / np.asarray(scale.scale)
    return Rows(
        bounds,
        scale,
        standard[split.train],
        standard[split.held_out],
        charted[split.train],
        charted[split.held_out],
    )


def fit_flow(
    x: np.ndarray,
    *,
    bounds: Bounded | None,
    architectures: list[Architecture],
    schedule: Schedule,
    n_restarts: int,
    rule: str,
    snapping: bool,
    seed: int,
    monitor: Monitor,
    path: Path | None = None,
) -> FlowFit:
    """Fit a flow to rows of x; among several architectures the one with the best warm start is trained.

    Args:
        x: Rows.
        bounds: Chart of the prior box.
        architectures: Shapes to choose from.
        schedule: How the population is trained.
        n_restarts: Members of the population before the ladder of penalties multiplies them.
        rule: How a point of the front is chosen.
        snapping: Whether constants may be set to simple values.
        seed: Of everything drawn.
        monitor: Progress, deadline and interruption.
        path: Where checkpoints go.
    """
    keep_compiled_programs()
    with jax.enable_x64(True):  # training itself runs in single precision, by the dtype of its arrays
        return _fit_flow(x, bounds, architectures, schedule, n_restarts, rule, snapping, seed, monitor, path)


def _fit_flow(x, bounds, architectures, schedule, n_restarts, rule, snapping, seed, monitor, path) -> FlowFit:
    shape = _best_shape(x, bounds, architectures, schedule, seed, monitor)
    rows = prepare(x, bounds, seed=seed, isotropic="polar" in shape.charts)
    population, restore = _train(rows, shape, schedule, n_restarts, seed, monitor, path)
    members = _distinct(
        [restore(jnp.asarray(w, jnp.float32)) for w in population.weights if np.all(np.isfinite(w))]
    )
    points = [_closed_point(m, rows) for m in members]
    if shape.subnet == "eql":
        points += _refined(members, points, rows, monitor)
    front = _weighed(pareto([p for p in points if np.isfinite(p.held_out_nats)]))
    chosen = choose(front, rule, n_rows=len(rows.train))
    polished = _polished(front[chosen], rows, snapping)
    front[chosen] = polished.point
    return FlowFit(
        front, chosen, polished.point.model, polished.errors, polished.labels, population, len(rows.train),
        shape.charts,
    )  # fmt: skip


def _train(rows, shape, schedule, n_restarts, seed, monitor, path):
    keys = jax.random.split(jax.random.key(seed), n_restarts + 1)
    dim = rows.train.shape[1]
    flows = [build_flow(k, dim, architecture=shape, rows=rows.train) for k in keys[1:]]
    # The permutations are part of the structure and must be the same for all members.
    flows = [_with_structure_of(flows[0], f) for f in flows]
    weights = np.stack([np.asarray(flatten(f)[0], dtype=np.float32) for f in flows])
    _, restore = flatten(flows[0])
    data, held_out = {"x": rows.train.T}, {"x": rows.held_out.T}
    objective = make_objective(restore)
    population = train(
        objective, weights, data, held_out, schedule, keys[0],
        monitor=monitor, path=path, penalised=penalised(flows[0]),
        masks=sublibrary_masks(flows[0], n_restarts),
    )  # fmt: skip
    return population, restore


def _with_structure_of(first: Any, other: Any) -> Any:
    _, restore = flatten(first)
    return restore(flatten(other)[0])


def penalised(flow: Flow) -> np.ndarray:
    """Return 1 for the weights of subnetworks and 0 for those of charts and mixing, which sparsity would break."""
    marks = jax.tree.map(
        lambda step: jax.tree.map(
            lambda leaf: (
                np.full(leaf.shape, float(isinstance(step, Coupling))) if eqx.is_inexact_array(leaf) else leaf
            ),
            step,
        ),
        flow.steps,
        is_leaf=lambda node: isinstance(node, eqx.Module),
    )
    rest = jax.tree.map(
        lambda leaf: np.ones(leaf.shape) if eqx.is_inexact_array(leaf) else leaf, flow.condition_map
    )
    leaves = [leaf for leaf in jax.tree.leaves((marks, rest)) if isinstance(leaf, np.ndarray)]
    return np.concatenate([leaf.ravel() for leaf in leaves]) if leaves else np.zeros(0)


def _best_shape(x, bounds, architectures, schedule, seed, monitor) -> Architecture:
    """Return the shape whose short warm start describes held-out rows best, in nats of x itself."""
    if len(architectures) == 1:
        return architectures[0]
    warm = schedule.phases[0]._replace(name="charts", n_epochs=max(1, schedule.phases[0].n_epochs // 4))
    short = replace(schedule, phases=(warm, *(p._replace(n_epochs=0) for p in schedule.phases[1:])))
    scores = []
    for shape in architectures:
        rows = prepare(x, bounds, seed=seed, isotropic="polar" in shape.charts)
        if "split" in shape.charts and not _splits(shape, rows):
            scores.append(np.inf)
            continue
        population, _ = _train(rows, shape, short, 2, seed, monitor, None)
        scores.append(float(np.min(population.held_out)) + float(np.sum(np.log(rows.scale.scale))))
    return architectures[int(np.argmin(scores))]


def _splits(shape: Architecture, rows: Rows) -> bool:
    from isr.model.build import chart_steps

    return bool(chart_steps(shape.charts, rows.train))


def _distinct(members: list[Flow]) -> list[Flow]:
    """Return members without repeats: same constants in use and nearly the same values."""
    seen, kept = set(), []
    for member in members:
        vector = np.asarray(flatten(member)[0], dtype=float)
        mark = (tuple(np.flatnonzero(vector)), tuple(np.round(vector[vector != 0], 1)))
        if mark not in seen:
            seen.add(mark)
            kept.append(member)
    return kept


def _closed(member: Flow, rows: Rows) -> Flow:
    """Return a trained core with standardisation and bounds in front: guarded, clamped, in the user's units."""
    front = [rows.scale] if not member.n_padding else [_padded_scale(rows.scale)]
    steps = (*_bound_steps(rows, member.n_padding), *front, *cast(member, jnp.float64).steps)
    return Flow(Chain(steps), member.condition_map, member.noise, member.n_padding)


def _bound_steps(rows: Rows, n_padding: int) -> tuple:
    if rows.bounds is None:
        return ()
    return (Bounded(rows.bounds.low + (None,) * n_padding, rows.bounds.high + (None,) * n_padding),)


def _padded_scale(scale: Standardise) -> Standardise:
    return Standardise((*scale.shift, 0.0), (*scale.scale, 1.0))


def _closed_point(member: Flow, rows: Rows) -> Point:
    """Return a trained core as a point of the front, its losses in nats of x itself."""
    width = float(np.sum(np.log(rows.scale.scale)))
    train_rows = row_losses(member, flow_row_loss, _arrays(rows.train, member.n_padding)) + width
    held = row_losses(member, flow_row_loss, _arrays(rows.held_out, member.n_padding)) + width
    theta = np.asarray(flatten(member)[0])
    count = n_constants(member)
    return Point(
        _closed(member, rows), ROUGH_COST * count, count, float(np.mean(train_rows)), float(np.mean(held)), held, theta,
        np.flatnonzero(theta),
    )  # fmt: skip


def _weighed(front: list[Point]) -> list[Point]:
    """Return the front with the complexity of every network written out; so far it was a rough estimate."""
    weighed = [
        replace(p, complexity=extract(p.model).complexity)
        if _is_closed(p.model) and p.n_constants <= 3 * MAX_CONSTANTS
        else p
        for p in front
    ]
    return pareto(weighed)


def _is_closed(flow: Flow) -> bool:
    return any(isinstance(step, Coupling) and not isinstance(step.first, Formulas) for step in flow.steps)


def _arrays(charted: np.ndarray, n_padding: int) -> dict[str, np.ndarray]:
    x = charted.T
    if n_padding:
        x = np.concatenate([x, np.random.default_rng(0).normal(size=(n_padding, x.shape[1]))])
    return {"x": x}


def _without_bounds(flow: Flow, rows: Rows) -> Flow:
    steps = flow.steps[1:] if rows.bounds is not None else flow.steps
    return Flow(Chain(tuple(steps)), flow.condition_map, flow.noise, flow.n_padding)


def _refined(members: list[Flow], closed: list[Point], rows: Rows, monitor: Monitor) -> list[Point]:
    """Return points from the most promising members: weights eliminated, opened into formulas, eliminated again."""
    n, n_padding = len(rows.train), members[0].n_padding
    scores = [n * p.train_nats + 0.5 * np.log(n) * p.n_constants for p in closed]
    promising: dict[frozenset[str], Flow] = {}  # one for each set of functions in use
    for i in np.argsort(scores, kind="stable"):
        if closed[i].n_constants <= MAX_CONSTANTS and len(promising) < N_REFINED:
            promising.setdefault(functions_of(members[i]), members[i])
    networks = eliminate_all(
        promising.values(), flow_row_loss, _arrays(rows.train, n_padding), monitor=monitor
    )
    points = [_closed_point(m, rows) for m in networks]
    opened = [open_flow(_without_bounds(p.model, rows)) for p in points]
    refined = refine(
        _distinct_formulas(opened),
        flow_row_loss,
        _arrays(rows.raw_train, n_padding),
        _arrays(rows.raw_held_out, n_padding),
        complexity=lambda flow: extract(flow).complexity,
        acceptable=lambda flow: is_tame(flow, rows.raw_train),
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


def is_tame(flow: Flow, charted: np.ndarray) -> bool:
    """Return whether samples are finite and lie where data lie, so that the formulas need no guard.

    Latents out to six standard deviations must come back finite, and of ordinary draws all but one in a
    thousand must lie within ten standard deviations of the data.
    """
    rng = np.random.default_rng(0)
    ordinary, far = (
        rng.normal(size=(4096, flow.bijection.dim)),
        rng.uniform(-6, 6, size=(4096, flow.bijection.dim)),
    )
    x, log_det = flow.inverse(np.concatenate([ordinary, far]))
    if not (np.all(np.isfinite(x)) and np.all(np.isfinite(log_det))):
        return False
    wild = np.abs(x[:4096] - charted.mean(axis=0)) > 10 * charted.std(axis=0) + 1e-12
    return bool(np.mean(wild.any(axis=1)) < 1e-3)


def _polished(point: Point, rows: Rows, snapping: bool) -> Polished:
    """Return the chosen point with its constants settled; a network, or what polishing would spoil, as it is."""
    as_it_is = Polished(point, np.full(len(point.theta), np.nan), {})
    if _is_closed(point.model):
        return as_it_is
    n_padding = point.model.n_padding
    polished = polish(
        replace(point, model=_without_bounds(point.model, rows)), flow_row_loss,
        _arrays(rows.raw_train, n_padding), _arrays(rows.raw_held_out, n_padding),
        snapping=snapping, tidy=tidy, complexity=lambda flow: extract(_with_bounds(flow, rows)).complexity,
    )  # fmt: skip
    if not is_tame(polished.point.model, rows.raw_train):
        return as_it_is
    return replace(polished, point=replace(polished.point, model=_with_bounds(polished.point.model, rows)))

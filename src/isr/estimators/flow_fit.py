"""The fit of a flow, told in order: chart and scale the data, train, prune, refine, choose, polish.

Until it is finished, a flow maps x *opened from its bounds*; then the chart of the bounds is put in front of it. What
writes formulas loads SymPy, and is imported where it is used: a dense fit never asks for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from isr.bijections.affine import Bounded, Inverted, Standardise
from isr.bijections.bijection import AbstractBijection, Chain
from isr.bijections.build import Architecture, build_flow, chart_steps
from isr.bijections.coupling import ConditionMap
from isr.bijections.flow import Flow
from isr.bijections.parameters import Restore, cast, n_constants
from isr.bijections.programs import compiled
from isr.estimators import pipeline
from isr.estimators.pipeline import MAX_CONSTANTS, Arrays, Criterion, Fitted, Polished, Pruned, Trained
from isr.estimators.rows import Pairs, Rows, StandardBlocks, Stream, prepare
from isr.estimators.settings import Plan
from isr.estimators.status import (
    WILD,
    DivergedError,
    beaten_by_normal,
    is_beaten,
    is_tame,
    judged,
    normal_law,
    normal_steps,
    not_beaten,
    not_wild,
    with_normal,
)
from isr.formulas.front import Point, choose, pareto
from isr.formulas.refit import flow_row_loss
from isr.training.loop import Noise
from isr.training.losses import LEAST_VARIANCE, FlowObjective
from isr.training.monitor import Monitor
from isr.training.population import Population
from isr.training.workers import keep_compiled_programs

# Of `max_time`, where formulas are to be made of what was trained: they need time of their own. A network that was
# stopped can still be written out, one that was not refined cannot be read.
TRAINING_SHARE = 0.7
# What a weight in use adds to the complexity of a network written out with scales, guards and clamps, roughly.
ROUGH_COST = 8
# How many networks are pruned and opened.
N_REFINED = 3
# Closed forms that are refitted, and how many times shorter training is where one of them explains all there is.
N_CLOSED, SHORTER = 3, 10
# Nats per row by which a closed form may be worse than the best to be refitted too.
WORSE = 0.05
# Rows that constants are refitted on: more would cost time and tell little.
MAX_REFIT_ROWS = 100_000


@dataclass(frozen=True)
class FlowTask:
    """What a flow is fitted to, and what kind of flow.

    Args:
        pairs: Rows of x, and of y where there are any.
        architectures: Shapes to choose from; the one with the best warm start is trained.
        joint: Whether y, where there is one, is an output (ISR) rather than a condition (cISR).
        stream: Where training reads its rows, if there are more than memory holds.
        closed: Whether closed forms compete that need no training (densities only).
        edges: Whether these may take sharp ends of rows for bounds.
    """

    pairs: Pairs
    architectures: tuple[Architecture, ...]
    joint: bool = False
    stream: Stream | None = None
    closed: bool = False
    edges: bool = True


def fit_flow(task: FlowTask, plan: Plan) -> Fitted:
    """Fit a flow."""
    keep_compiled_programs()
    with jax.enable_x64(True):  # training itself runs in single precision, by the dtype of its arrays
        return _fit_flow(task, plan)


def _fit_flow(task: FlowTask, plan: Plan) -> Fitted:
    shape, monitor = _best_shape(task, plan), plan.monitor
    rows = prepare(task.pairs, seed=plan.seed, isotropic="polar" in shape.charts)
    has_formulas = plan.is_sparse and shape.subnet == "eql"
    wanted = task.closed and has_formulas and not monitor.should_stop()
    closed = _closed_points(rows, task.edges, monitor) if wanted else []
    normal = None if task.joint else replace(network_point(normal_law(rows), rows), is_network=False)
    simple = [*closed[:1], *([] if normal is None or not wanted else [normal])]
    nothing_left = any(_is_explained(point.model, rows) for point in simple)
    plan = _shortened(plan) if nothing_left else plan
    trained = train_networks_of(
        rows, shape, task, replace(plan, monitor=monitor.until(TRAINING_SHARE)) if has_formulas else plan
    )
    # Formulas are compared with their networks to the last digit; networks alone are judged as they were trained.
    precision = np.float64 if plan.is_sparse else np.float32
    points = closed + [network_point(network, rows, precision) for network in trained.networks]
    if has_formulas and not nothing_left and len(points) > len(closed) and not monitor.should_stop():
        networks = _promising(trained, points[len(closed) :], len(rows.train))
        pruned = pipeline.prune(networks, flow_row_loss, rows.standard(rows.train), monitor)
        points += [network_point(network, rows) for network in pruned.networks]
        points += pipeline.refine(_opened(pruned, rows), _criterion(rows, monitor), monitor).points
    if not any(np.isfinite(p.held_out_nats) for p in points):
        raise DivergedError
    if normal is not None and plan.is_sparse:
        normal = _weighed(normal, rows)
    front = pareto([*points, *([] if normal is None else [normal])])
    front = pareto([_weighed(point, rows) if point.is_network else point for point in front])
    safe = not_wild(front, rows, normal)
    front = safe or front
    # Who asks for every weight wants accuracy; a price on constants would take the normal law instead.
    fair, rule = not_beaten(front, normal), plan.training.selection if plan.is_sparse else "accuracy"
    chosen = fair[choose([front[i] for i in fair], rule, n_rows=len(rows.train))]
    polished = Polished.as_it_is(front[chosen])
    if plan.is_sparse and not front[chosen].is_network and not monitor.should_stop():
        point = front[chosen]
        is_known = point is normal or any(point is other for other in closed)
        criterion = _criterion(rows.together() if is_known else rows, monitor)
        polished = pipeline.polish(point, criterion, snapping=plan.training.snap)
        if is_known:  # held-out rows have helped to settle its constants, so they judge it no more
            figures = {n: getattr(point, n) for n in ("train_nats", "held_out_nats", "held_out_rows")}
            polished = polished._replace(point=replace(polished.point, **figures))
    front[chosen] = polished.point
    best = min(points, key=lambda p: p.held_out_nats if np.isfinite(p.held_out_nats) else np.inf)
    misfit = None if safe else WILD
    if normal is not None and safe and not nothing_left and is_beaten(best, normal):
        misfit = beaten_by_normal(finished(normal, rows), finished(best, rows))
    return Fitted(
        [finished(point, rows) for point in front], chosen, polished.errors, polished.labels, trained.population,
        len(rows.train), shape.charts, misfit, judged(front[chosen].model, rows.held_out.x, rows.held_out.y),
    )  # fmt: skip


def _closed_points(rows: Rows, edges: bool, monitor: Monitor) -> list[Point]:
    """Return the best closed forms as points, their constants refitted together; the best by price first.

    Of that one there are shorter versions too, as of every network.
    """
    from isr.estimators.closed_forms import closed_forms

    criterion, points, stop = _criterion(rows, monitor), [], monitor.should_stop
    monitor.begin("closed forms", N_CLOSED)
    forms = closed_forms(rows.train.x, dim=rows.dim + rows.n_padding, edges=edges, should_stop=stop)
    good = [form for form in forms[:N_CLOSED] if form.price < forms[0].price + WORSE * len(rows.train)]
    for form in {form.kind: form for form in reversed(good)}.values():
        fit = criterion.fit(Flow(Chain(form.steps), n_padding=rows.n_padding))
        theta = fit.start
        if not form.is_settled and not stop():
            theta, _ = fit.converge(theta, np.flatnonzero(theta), fast=True)
        points.insert(0, criterion.point(fit.restore(theta), fit.loss(theta)))
        if form is forms[0] and form.is_short and not stop():
            points += pipeline.refine([points[0].model], criterion, monitor).points
    return [point for point in points if np.isfinite(point.held_out_nats)]


def _is_explained(flow: Flow, rows: Rows) -> bool:
    from isr.estimators.closed_forms import is_explained

    return is_explained(flow.forward(rows.held_out.x)[0][:, : rows.dim])


def _shortened(plan: Plan) -> Plan:
    """Return a plan that takes a look at what training finds, for where hardly anything is left to find."""
    phases = tuple(p._replace(n_epochs=-(-p.n_epochs // SHORTER)) for p in plan.schedule.phases)
    return replace(plan, schedule=replace(plan.schedule, phases=phases))


def _best_shape(task: FlowTask, plan: Plan) -> Architecture:
    """Return the shape whose short warm start describes held-out rows best, in nats of x itself."""
    shapes = task.architectures
    if len(shapes) == 1:
        return shapes[0]
    first, *others = plan.schedule.phases
    warm = first._replace(name="charts", n_epochs=max(1, first.n_epochs // 4))
    trial = replace(
        plan,
        training=replace(plan.training, n_restarts=2, checkpoint=None),
        schedule=replace(plan.schedule, phases=(warm, *(p._replace(n_epochs=0) for p in others))),
    )
    charts_differ = len({shape.charts for shape in shapes}) > 1
    scores = []
    for shape in shapes:
        rows = prepare(task.pairs, seed=plan.seed, isotropic="polar" in shape.charts)
        steps = chart_steps(shape.charts, rows.fresh(rows.train)["x"].T)
        if "split" in shape.charts and not steps:
            scores.append(np.inf)
            continue
        width = rows.width
        if charts_differ:
            # Charts are judged as they start, by a flow of networks: it suits any of them, and all share one program.
            rows, width = _charted(task.pairs, rows, steps, plan.seed)
            shape = replace(shape, subnet="mlp", charts=())
        population, _ = _population(rows, shape, replace(task, stream=None), trial)
        scores.append(float(np.min(population.held_out)) + width)
    return shapes[int(np.argmin(scores))]


def _charted(pairs: Pairs, rows: Rows, steps: Sequence[AbstractBijection], seed: int) -> tuple[Rows, float]:
    """Return rows with x as charts show it, and what charts and standardisation add to a loss in nats."""
    chain = Chain(tuple(steps)) if steps else None
    chart = partial(compiled(_chart, chain), chain) if chain else lambda x: (x, np.zeros(len(x)))
    seen = replace(pairs, x=np.asarray(chart(rows.standardised(pairs.x, None)["x"].T)[0]), bounds=None)
    charted = prepare(seen, seed=seed)
    log_det = chart(rows.fresh(rows.held_out)["x"].T)[1]
    return charted, rows.width + charted.width - float(np.mean(log_det))


def _chart(chain: Chain, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    return jax.vmap(chain.forward_and_log_det)(x)


def train_networks_of(
    rows: Rows, shape: Architecture, task: FlowTask, plan: Plan, *, first: int = 0
) -> Trained:
    """Return the networks that differ in the constants in use or nearly all of their values.

    Restarts are counted from ``first``, so that those of several calls differ.
    """
    population, restore = _population(rows, shape, task, plan, first)
    distinct: dict[Any, np.ndarray] = {}
    for w in population.weights[np.isfinite(population.held_out)]:
        distinct.setdefault((tuple(np.flatnonzero(w)), tuple(np.round(w[w != 0], 1))), w)
    return Trained([_settled(restore(w.astype(np.float32)), rows) for w in distinct.values()], population)


def _population(
    rows: Rows, shape: Architecture, task: FlowTask, plan: Plan, number: int = 0
) -> tuple[Population, Restore[Flow]]:
    y: dict[str, Any] = {"condition_dim": rows.n_observed}
    if task.joint:
        y = {"noise": (1.0,) * rows.n_observed}
    peaks = (phase.peak for phase in plan.schedule.phases if phase.n_epochs)
    noise = Noise(np.array(rows.jitter), max(peaks, default=np.inf)) if any(rows.jitter) else None
    fresh, loss, backward = rows.fresh(rows.train), plan.training.loss, float(plan.training.backward or 0)
    is_sparse = plan.is_sparse and shape.subnet == "eql"
    first = () if is_sparse or task.joint or shape.charts or shape.n_features else normal_steps(rows)
    train, held_out = fresh, rows.fresh(rows.held_out)
    if plan.training.ensemble and first and not rows.n_padding and task.stream is None:
        train, held_out = with_normal(rows, train, rows.train), with_normal(rows, held_out, rows.held_out)

    def build(key: Any) -> Flow:
        flow = build_flow(key, rows.dim, architecture=shape, rows=fresh["x"].T, **y)
        return _with_steps(flow, (*first, *flow.steps))

    return pipeline.train_networks(
        plan,
        build,
        lambda restore: FlowObjective(restore, backward, loss),
        train if task.stream is None else StandardBlocks(task.stream, rows),
        held_out,
        noise=noise,
        first=number,
        penalised=partial(_penalised, n_first=len(first)),
        about=repr((shape, task.joint, loss, backward, rows.jitter)),
    )


def _penalised(flow: Flow, n_first: int) -> np.ndarray:
    """Return 1 for the weights of subnetworks and 0 for those of charts, mixing and the ``n_first`` steps."""
    counts = [step.is_penalised and i >= n_first for i, step in enumerate(flow.steps)]
    parts = [*zip(flow.steps, counts, strict=True), (flow.condition_map, True)]
    counted = [
        np.full(leaf.size, float(counts))
        for part, counts in parts
        for leaf in jax.tree.leaves(eqx.filter(part, eqx.is_inexact_array))
    ]
    return np.concatenate([np.zeros(0), *counted])


def _settled(network: Flow, rows: Rows) -> Flow:
    """Return a joint flow with the noise of its outputs set to their held-out residuals; any other as it is."""
    if not network.n_observed:
        return network
    arrays = rows.standard(rows.held_out)
    latent = compiled(_latents, network)(cast(network, jnp.float64), np.asarray(arrays["x"]))
    residual = np.asarray(latent)[: network.n_observed] - arrays["y"]
    noise = np.sqrt(np.maximum(np.mean(residual**2, axis=1), LEAST_VARIANCE))
    return replace(network, noise=tuple(np.where(np.isfinite(noise), noise, 1.0).tolist()))


def _latents(flow: Flow, x: jax.Array) -> jax.Array:
    return flow.latent_columns(x)[0]


def network_point(network: Flow, rows: Rows, dtype: type = np.float64) -> Point:
    """Return a trained network as a point of the front; what its equations cost is estimated."""
    train, held_out = _first(rows.standard(rows.train)), rows.standard(rows.held_out)
    # All at once: rows of two lengths would be two programs.
    some = {name: np.concatenate([values, held_out[name]], axis=1) for name, values in train.items()}
    fast = network.accelerated() if dtype is np.float32 else network
    losses = pipeline.row_losses(fast, flow_row_loss, some, dtype) + rows.width
    of_train, held = np.split(losses, [train["x"].shape[1]])
    n = n_constants(network)
    nats = float(np.mean(of_train)), float(np.mean(held))
    return Point(_in_units(network, rows), ROUGH_COST * n, n, *nats, held, is_network=True)


def _first(arrays: Arrays) -> Arrays:
    return {name: values[:, :MAX_REFIT_ROWS] for name, values in arrays.items()}


def _in_units(network: Flow, rows: Rows) -> Flow:
    """Return a trained network with standardisation around it: it takes and gives the user's units."""
    core = cast(network, jnp.float64)
    flow = _with_steps(core, (_padded(rows.scale, rows.n_padding), *core.steps))
    if rows.y_scale is None:
        return flow
    if core.noise:
        back = Inverted(_padded(rows.y_scale, core.bijection.dim - rows.n_observed))
        noise = tuple(s * width for s, width in zip(core.noise, rows.y_scale.scale, strict=True))
        return replace(_with_steps(flow, (*flow.steps, back)), noise=noise)
    condition = core.condition_map
    return replace(flow, condition_map=ConditionMap(rows.y_scale, condition.network, condition.guard))


def _padded(scale: Standardise, n: int) -> Standardise:
    return Standardise(scale.shift + (0.0,) * n, scale.scale + (1.0,) * n)


def _with_steps(flow: Flow, steps: Sequence[AbstractBijection]) -> Flow:
    return replace(flow, bijection=Chain(tuple(steps)))


def _promising(trained: Trained, points: Sequence[Point], n_rows: int) -> list[Flow]:
    """Return the best networks of few enough constants, one for each set of functions in use."""
    from isr.formulas.to_formulas import functions_of

    scores = [n_rows * p.train_nats + 0.5 * np.log(n_rows) * p.n_constants for p in points]
    found: dict[frozenset[str], Flow] = {}
    for i in np.argsort(scores, kind="stable"):
        if points[i].n_constants <= MAX_CONSTANTS and len(found) < N_REFINED:
            found.setdefault(functions_of(trained.networks[i]), trained.networks[i])
    return list(found.values())


def _opened(pruned: Pruned, rows: Rows) -> list[Flow]:
    """Return networks as models made of formulas, no two of the same structure."""
    from isr.formulas.to_formulas import open_flow

    found: dict[str, Flow] = {}
    for network in pruned.networks:
        model = open_flow(_in_units(network, rows))
        found.setdefault(repr(jax.tree.structure(model)), model)
    return list(found.values())


def _criterion(rows: Rows, monitor: Monitor) -> Criterion:
    """Return what flows made of formulas are fitted to and judged by."""
    from isr.formulas.to_formulas import tidy

    return Criterion(
        flow_row_loss, _first(rows.raw(rows.train)), rows.raw(rows.held_out),
        complexity=lambda flow: _complexity(flow, rows), tidy=tidy, acceptable=lambda flow: is_tame(flow, rows),
        should_stop=monitor.should_stop,
    )  # fmt: skip


def _weighed(point: Point, rows: Rows) -> Point:
    """Return a point with the cost of its equations, unless they are too long to be written out."""
    if point.n_constants > 3 * MAX_CONSTANTS:
        return point
    return replace(point, complexity=_complexity(point.model, rows))


def _complexity(flow: Flow, rows: Rows) -> int:
    from isr.equations import extract

    return extract(_in_bounds(flow, rows)).complexity


def _in_bounds(flow: Flow, rows: Rows) -> Flow:
    """Return the flow of x itself from that of x opened from its bounds."""
    if rows.bounds is None:
        return flow
    free = (None,) * flow.n_padding
    return _with_steps(flow, (Bounded(rows.bounds.low + free, rows.bounds.high + free), *flow.steps))


def finished(point: Point, rows: Rows) -> Point:
    """Return a point whose model maps x itself, its losses in nats of that."""
    return replace(
        point,
        model=_in_bounds(point.model, rows),
        train_nats=point.train_nats - float(np.mean(rows.train.log_det)),
        held_out_nats=point.held_out_nats - float(np.mean(rows.held_out.log_det)),
        held_out_rows=point.held_out_rows - rows.held_out.log_det,
    )

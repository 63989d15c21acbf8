"""The fit of a flow, told in order: chart and scale the data, train, prune, refine, choose, polish.

Until it is finished, a flow maps x *opened from its bounds*; then the chart of the bounds is put in front of it. What
writes formulas loads SymPy, and is imported where it is used: a dense fit never asks for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from isr.bijections.bijection import Chain
from isr.bijections.build import build_flow
from isr.bijections.flow import Flow
from isr.bijections.parameters import cast
from isr.estimators import pipeline
from isr.estimators.normal_law import (
    defended,
    is_beaten,
    is_tame,
    mixed,
    normal_law,
    normal_steps,
    not_beaten,
    not_wild,
    wide_law,
    with_normal,
)
from isr.estimators.pipeline import MAX_CONSTANTS, Criterion, Fitted
from isr.estimators.rows import (
    MAX_REFIT_ROWS,
    FlowTask,
    Rows,
    complexity_of,
    finished,
    network_point,
    prepare,
    raw_flow,
    weighed,
    with_steps,
)
from isr.estimators.settings import Plan
from isr.estimators.status import WILD, DivergedError, beaten_by_normal, judged
from isr.formulas.front import Point, choose, pareto
from isr.formulas.refit import flow_row_loss
from isr.training.loop import Noise
from isr.training.losses import LEAST_VARIANCE, FlowObjective
from isr.training.monitor import Monitor
from isr.training.population import Population, joined

# Of `max_time`, where formulas are to be made of what was trained: they need time of their own. A network that was
# stopped can still be written out, one that was not refined cannot be read.
TRAINING_SHARE = 0.7
# How many networks are pruned and opened.
N_REFINED = 3
# Closed forms that are refitted, and how many times shorter training is where one of them explains all there is.
N_CLOSED, SHORTER = 3, 10
# Nats per row by which a closed form may be worse than the best to be refitted too.
WORSE = 0.05
# Flows of an ensemble.
N_MEMBERS = 5
# Shares of the usual decay of weights that the first fold chooses from.
DECAYS = (1.0, 0.3, 0.1)
# Rows that tell whether a model is exact; held-out ones, but where it has fewer constants per training row.
N_JUDGED, FEW_CONSTANTS = 10_000, 0.05


def fit_flow(task: FlowTask, plan: Plan) -> Fitted:
    """Fit a flow."""
    shape, monitor = task.architecture, plan.monitor
    rows = prepare(task, seed=plan.seed)
    has_formulas = plan.is_sparse and shape.subnet == "eql"
    normal = None if task.joint else replace(network_point(normal_law(rows), rows), is_network=False)
    closed, nothing_left = [], False
    if task.closed and has_formulas and not monitor.should_stop():
        closed, nothing_left = _closed_points(rows, task.edges, normal, monitor)
    if nothing_left:  # training takes a look at what it finds
        phases = tuple(p._replace(n_epochs=-(-p.n_epochs // SHORTER)) for p in plan.schedule.phases)
        plan = replace(plan, schedule=replace(plan.schedule, phases=phases))
    training = replace(plan, monitor=monitor.until(TRAINING_SHARE)) if has_formulas else plan
    trained, population = train_networks_of(rows, task, training)
    # Formulas are compared with their networks to the last digit; networks alone are judged as they were trained.
    precision = np.float64 if plan.is_sparse else np.float32
    networks = [network_point(network, rows, precision) for network in trained]
    points = [*closed, *networks]
    if has_formulas and not nothing_left and networks and not monitor.should_stop():
        points += _short_points(trained, networks, rows, monitor)
    if not any(np.isfinite(p.held_out_nats) for p in points):
        raise DivergedError
    if normal is not None and plan.is_sparse:
        normal = weighed(normal, rows)
    front = pareto([*points, *([] if normal is None else [normal])])
    if not monitor.should_stop():  # to write networks out takes seconds
        front = pareto([weighed(point, rows) if point.is_network else point for point in front])
    safe = not_wild(front, rows, normal)
    front = safe or front
    # Who asks for every weight wants accuracy; a price on constants would take the normal law instead.
    fair, rule = not_beaten(front, normal), plan.training.selection if plan.is_sparse else "accuracy"
    chosen = fair[choose([front[i] for i in fair], rule, n_rows=len(rows.train))]
    if plan.is_sparse and not front[chosen].is_network and not monitor.should_stop():
        is_known = any(front[chosen] is point for point in (normal, *closed))
        front[chosen] = _polished(front[chosen], rows, plan, is_known=is_known)
    misfit = None if safe else WILD
    best = min(points, key=lambda p: p.held_out_nats if np.isfinite(p.held_out_nats) else np.inf)
    if normal is not None and safe and not nothing_left and is_beaten(best, normal):
        misfit = beaten_by_normal(finished(normal, rows), finished(best, rows))
    final = [finished(point, rows) for point in front]
    if has_formulas and rows.n_observed and not task.joint:
        # Fresh rows may lie where nothing was learned, and a network has no bounds there.
        is_open = [p.is_network and np.isfinite(p.held_out_nats) for p in final]
        wide = finished(network_point(wide_law(rows), rows), rows) if any(is_open) else None
        final = [defended(p, wide) if o else p for p, o in zip(final, is_open, strict=True)]
    is_short = front[chosen].n_constants < FEW_CONSTANTS * len(rows.train)
    seen = rows.together().train if is_short else rows.held_out
    return Fitted(
        final, chosen, population, len(rows.train), shape.charts, misfit,
        judged(front[chosen].model, seen.x[:N_JUDGED], seen.y if seen.y is None else seen.y[:N_JUDGED]),
    )  # fmt: skip


def _short_points(
    trained: Sequence[Flow], networks: Sequence[Point], rows: Rows, monitor: Monitor
) -> list[Point]:
    """Return the most promising networks without the weights they do not miss, and the formulas made of them.

    The best networks of few enough constants are taken, one for each set of functions in use.
    """
    from isr.formulas.to_formulas import functions_of, open_flow

    n = len(rows.train)
    scores = [n * p.train_nats + 0.5 * np.log(n) * p.n_constants for p in networks]
    promising: dict[frozenset[str], Flow] = {}
    for i in np.argsort(scores, kind="stable"):
        if networks[i].n_constants <= MAX_CONSTANTS and len(promising) < N_REFINED:
            promising.setdefault(functions_of(trained[i]), trained[i])
    train = rows.standard(rows.train)
    pruned = pipeline.prune(list(promising.values()), flow_row_loss, train, monitor)
    opened: dict[str, Flow] = {}  # no two of the same structure
    for network in pruned:
        model = open_flow(raw_flow(network, rows))
        opened.setdefault(repr(jax.tree.structure(model)), model)
    refined = pipeline.refine(list(opened.values()), _criterion(rows, monitor))
    return [*(network_point(network, rows) for network in pruned), *refined]


def _polished(point: Point, rows: Rows, plan: Plan, *, is_known: bool) -> Point:
    """Return a formula with its constants settled, by held-out rows too where they did not choose its form."""
    criterion = _criterion(rows.together() if is_known else rows, plan.monitor)
    polished = pipeline.polish(point, criterion, snapping=plan.training.snap)
    if not is_known:
        return polished
    # Held-out rows have helped to settle its constants, so they judge it no more.
    figures = {name: getattr(point, name) for name in ("train_nats", "held_out_nats", "held_out_rows")}
    return replace(polished, **figures)


def _closed_points(
    rows: Rows, edges: bool, normal: Point | None, monitor: Monitor
) -> tuple[list[Point], bool]:
    """Return the best closed forms as points, their constants refitted together; the best by price first.

    Of that one there are shorter versions too, as of every network. And whether it or the normal law explains all.
    """
    from isr.estimators.closed_forms import closed_forms, is_explained

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
        if form is forms[0] and form.is_short and not form.is_settled and not stop():
            points += pipeline.refine([points[0].model], criterion)
    points = [point for point in points if np.isfinite(point.held_out_nats)]
    known = [*points[:1], *([] if normal is None else [normal])]
    latents = (point.model.forward(rows.held_out.x)[0][:, : rows.dim] for point in known)
    return points, any(map(is_explained, latents))


def train_networks_of(
    rows: Rows, task: FlowTask, plan: Plan, *, first: int = 0
) -> tuple[list[Flow], Population]:
    """Return the networks that differ in the constants in use or nearly all of their values, and all of them.

    Restarts are counted from ``first``, so that those of several calls differ. A dense flow begins as the normal law.
    """
    shape, backward = task.architecture, float(plan.training.backward or 0)
    y: dict[str, Any] = {"condition_dim": rows.n_observed}
    if task.joint:
        y = {"noise": (1.0,) * rows.n_observed}
    peaks = (phase.peak for phase in plan.schedule.phases if phase.n_epochs)
    noise = Noise(np.array(rows.jitter), max(peaks, default=np.inf)) if any(rows.jitter) else None
    is_sparse = plan.is_sparse and shape.subnet == "eql"
    law = () if is_sparse or task.joint or shape.charts or shape.n_features else normal_steps(rows)
    train, held_out = rows.fresh(rows.train), rows.fresh(rows.held_out)
    some = train["x"].T
    if plan.training.ensemble and law and not rows.n_padding:
        train, held_out = with_normal(rows, train, rows.train), with_normal(rows, held_out, rows.held_out)

    def build(key: Any) -> Flow:
        flow = build_flow(key, rows.dim, architecture=shape, rows=some, **y)
        return with_steps(flow, (*law, *flow.steps))

    def penalised(flow: Flow) -> np.ndarray:
        """1 for the weights of subnetworks and 0 for those of charts, mixing and the normal law."""
        counts = [step.is_penalised and i >= len(law) for i, step in enumerate(flow.steps)]
        counted = [np.zeros(0)]
        for part, is_counted in [*zip(flow.steps, counts, strict=True), (flow.condition_map, True)]:
            leaves = jax.tree.leaves(eqx.filter(part, eqx.is_inexact_array))
            counted += [np.full(leaf.size, float(is_counted)) for leaf in leaves]
        return np.concatenate(counted)

    population, restore = pipeline.train_networks(
        plan, build, lambda restore: FlowObjective(restore, backward), train, held_out, noise=noise, first=first,
        penalised=penalised, about=repr((shape, task.joint, backward, rows.jitter)),
    )  # fmt: skip
    distinct: dict[Any, np.ndarray] = {}
    for w in population.weights[np.isfinite(population.held_out)]:
        distinct.setdefault((tuple(np.flatnonzero(w)), tuple(np.round(w[w != 0], 1))), w)
    return [_settled(restore(w.astype(np.float32)), rows) for w in distinct.values()], population


def _settled(network: Flow, rows: Rows) -> Flow:
    """Return a joint flow with the noise of its outputs set to their held-out residuals; any other as it is."""
    if not network.n_observed:
        return network
    arrays = rows.standard(rows.held_out)
    latent = replace(cast(network, jnp.float64), n_padding=0).forward(arrays["x"].T)[0]
    residual = latent[:, : network.n_observed] - arrays["y"].T
    noise = np.sqrt(np.maximum(np.mean(residual**2, axis=0), LEAST_VARIANCE))
    return replace(network, noise=tuple(np.where(np.isfinite(noise), noise, 1.0).tolist()))


def _criterion(rows: Rows, monitor: Monitor) -> Criterion:
    """Return what flows made of formulas are fitted to and judged by."""
    from isr.formulas.to_formulas import tidy

    train = {name: values[:, :MAX_REFIT_ROWS] for name, values in rows.raw(rows.train).items()}
    return Criterion(
        flow_row_loss, train, rows.raw(rows.held_out),
        complexity=lambda flow: complexity_of(flow, rows), tidy=tidy, acceptable=lambda flow: is_tame(flow, rows),
        monitor=monitor,
    )  # fmt: skip


def fit_ensemble(task: FlowTask, plan: Plan) -> Fitted:
    """Fit a flow to each of several folds, `Training.n_restarts` of them, and mix them with a little of the normal law.

    Every row is held out of one fold, so that none is wasted and each tells how good a flow is that has not seen it.
    The normal law is wide where data lie: with it no row is absurd, and it takes over where it describes rows better.
    """
    if task.joint:
        raise ValueError(
            "an ensemble mixes densities: it is for ConditionalISR and SymbolicFlow, not for ISR"
        )
    if plan.is_sparse and task.architecture.subnet == "eql":
        raise ValueError(
            "members of an ensemble keep every weight; write isr.Training(ensemble=True, penalty=None)"
        )
    n, plans = plan.training.n_restarts or N_MEMBERS, []
    for share in DECAYS:
        phases = tuple(phase._replace(decay=share * phase.decay) for phase in plan.schedule.phases)
        training = replace(plan.training, n_restarts=1, checkpoint=None)
        plans.append(replace(plan, training=training, schedule=replace(plan.schedule, phases=phases)))
    members, normals, wide, populations, n_train = [], [], [], [], 0
    for k in range(n):
        if members and plan.monitor.should_stop():
            break
        rows = prepare(task, seed=plan.seed, fold=(k, n))
        time_left = plan.monitor.until((k + 1) / n)
        tried = [(train_networks_of(rows, task, replace(p, monitor=time_left), first=k), p) for p in plans]
        (networks, population), best = min(tried, key=lambda found: np.min(found[0][1].held_out))
        plans = [best]  # the first fold tells how fast weights decay
        populations.append(population)
        if networks:
            n_train = len(rows.train)
            members.append(finished(network_point(networks[0], rows, np.float32), rows, is_network=False))
            normals.append(finished(network_point(normal_law(rows), rows), rows, is_network=False))
            if rows.n_observed:
                wide.append(finished(network_point(wide_law(rows), rows), rows, is_network=False))
    if not members or not any(np.isfinite(p.held_out_nats) for p in members):
        raise DivergedError
    *simpler, mixture = mixed(members, normals, wide)
    front = [*pareto([point for point in simpler if point.held_out_nats > mixture.held_out_nats]), mixture]
    x, y = task.x[:N_JUDGED], None if task.y is None else task.y[:N_JUDGED]
    noisy = None if y is None else y + task.noise * np.random.default_rng(0).normal(size=y.shape)
    return Fitted(
        front, len(front) - 1, joined(populations), n_train,
        task.architecture.charts, judged=judged(mixture.model, x, noisy),
    )  # fmt: skip

"""The fit of a flow, told in order: chart and scale the data, train, prune, refine, choose, polish."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from isr.bijections.bijection import AbstractBijection
from isr.bijections.build import Architecture, build_flow, chart_steps
from isr.bijections.chain import Chain
from isr.bijections.flow import Flow
from isr.bijections.parameters import Restore, cast
from isr.bijections.programs import compiled
from isr.estimators.flow_stages import (
    criterion_of,
    finished,
    network_point,
    prune_flows,
    refine_flows,
    weighed_front,
)
from isr.estimators.normal_law import beaten_by, better_than, normal_point
from isr.estimators.pipeline import Fitted, Polished, Trained, polish, train_networks
from isr.estimators.rows import Pairs, Rows, prepare
from isr.estimators.safety import not_wild
from isr.estimators.settings import Plan
from isr.estimators.status import DivergedError
from isr.estimators.streams import StandardBlocks, Stream
from isr.formulas.front import choose, pareto
from isr.training.cache import keep_compiled_programs
from isr.training.loop import Noise
from isr.training.losses import LEAST_VARIANCE, FlowObjective
from isr.training.population import Population

# Of `max_time`, where formulas are to be made of what was trained: they need time of their own. A network that was
# stopped can still be written out, one that was not refined cannot be read.
TRAINING_SHARE = 0.7


@dataclass(frozen=True)
class FlowTask:
    """What a flow is fitted to, and what kind of flow.

    Args:
        pairs: Rows of x, and of y where there are any.
        architectures: Shapes to choose from; the one with the best warm start is trained.
        joint: Whether y, where there is one, is an output (ISR) rather than a condition (cISR).
        stream: Where training reads its rows, if there are more than memory holds.
    """

    pairs: Pairs
    architectures: tuple[Architecture, ...]
    joint: bool = False
    stream: Stream | None = None


def fit_flow(task: FlowTask, plan: Plan) -> Fitted:
    """Fit a flow."""
    keep_compiled_programs()
    with jax.enable_x64(True):  # training itself runs in single precision, by the dtype of its arrays
        return _fit_flow(task, plan)


def _fit_flow(task: FlowTask, plan: Plan) -> Fitted:
    shape, monitor = _best_shape(task, plan), plan.monitor
    rows = prepare(task.pairs, seed=plan.seed, isotropic="polar" in shape.charts)
    has_formulas = plan.is_sparse and shape.subnet == "eql"
    trained = _train(
        rows, shape, task, replace(plan, monitor=monitor.until(TRAINING_SHARE)) if has_formulas else plan
    )
    # Formulas are compared with their networks to the last digit; networks alone are judged as they were trained.
    precision = np.float64 if plan.is_sparse else np.float32
    points = [network_point(network, rows, precision) for network in trained.networks]
    if has_formulas and points and not monitor.should_stop():
        pruned = prune_flows(trained, points, rows, monitor)
        points += [network_point(network, rows) for network in pruned.networks]
        points += refine_flows(pruned, rows, monitor).points
    if not any(np.isfinite(p.held_out_nats) for p in points):
        raise DivergedError
    normal = normal_point(rows, joint=task.joint, weigh=plan.is_sparse)
    front = weighed_front(pareto([*points, *([] if normal is None else [normal])]), rows)
    safe = not_wild(front, rows, normal)
    front = safe or front
    fair = better_than(front, normal)
    # Who asks for every weight wants accuracy; a price on constants would take the normal law instead.
    rule = plan.training.selection if plan.is_sparse else "accuracy"
    chosen = fair[choose([front[i] for i in fair], rule, n_rows=len(rows.train))]
    polished = Polished.as_it_is(front[chosen])
    if plan.is_sparse and not front[chosen].is_network and not monitor.should_stop():
        polished = polish(front[chosen], criterion_of(rows), snapping=plan.training.snap)
    front[chosen] = polished.point
    return Fitted(
        [finished(point, rows) for point in front], chosen, polished.errors, polished.labels, trained.population,
        len(rows.train), shape.charts, is_wild=not safe,
        beaten=beaten_by(normal and finished(normal, rows), [finished(point, rows) for point in points]),
    )  # fmt: skip


def _train(rows: Rows, shape: Architecture, task: FlowTask, plan: Plan) -> Trained:
    population, restore = _population(rows, shape, task, plan)
    alive = population.weights[np.isfinite(population.held_out)]
    networks = [_settled(restore(weights.astype(np.float32)), rows) for weights in _distinct(alive)]
    return Trained(networks, population)


def _population(
    rows: Rows, shape: Architecture, task: FlowTask, plan: Plan
) -> tuple[Population, Restore[Flow]]:
    y: dict[str, Any] = {"condition_dim": rows.n_observed}
    if task.joint:
        y = {"noise": (1.0,) * rows.n_observed}
    peaks = (phase.peak for phase in plan.schedule.phases if phase.n_epochs)
    noise = Noise(np.array(rows.jitter), max(peaks, default=np.inf)) if any(rows.jitter) else None
    fresh, loss, backward = rows.fresh(rows.train), plan.training.loss, float(plan.training.backward or 0)
    return train_networks(
        plan,
        lambda key: build_flow(key, rows.dim, architecture=shape, rows=fresh["x"].T, **y),
        lambda restore: FlowObjective(restore, backward, loss),
        fresh if task.stream is None else StandardBlocks(task.stream, rows),
        rows.fresh(rows.held_out),
        noise=noise,
        penalised=penalised,
        about=repr((shape, task.joint, loss, backward, rows.jitter)),
    )


def penalised(flow: Flow) -> np.ndarray:
    """Return 1 for the weights of subnetworks and 0 for those of charts and mixing, which sparsity would break."""
    parts = [*((step, step.is_penalised) for step in flow.steps), (flow.condition_map, True)]
    return np.concatenate(
        [
            np.full(leaf.size, float(counts))
            for part, counts in parts
            for leaf in jax.tree.leaves(eqx.filter(part, eqx.is_inexact_array))
        ]
        or [np.zeros(0)]
    )


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


def _distinct(weights: np.ndarray) -> list[np.ndarray]:
    """Return members without repeats: same constants in use and nearly the same values."""
    kept: dict[Any, np.ndarray] = {}
    for vector in weights:
        kept.setdefault((tuple(np.flatnonzero(vector)), tuple(np.round(vector[vector != 0], 1))), vector)
    return list(kept.values())


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

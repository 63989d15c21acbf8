"""The fit of a flow, told in order: chart and scale the data, train, prune, refine, choose, polish."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from isr.bijections.bijection import AbstractBijection
from isr.bijections.build import Architecture, build_flow, chart_steps
from isr.bijections.chain import Chain
from isr.bijections.coupling import Coupling
from isr.bijections.flow import Flow
from isr.bijections.parameters import cast, flatten
from isr.bijections.programs import compiled
from isr.bijections.seeds import children
from isr.estimators.flow_stages import (
    criterion_of,
    finished,
    network_point,
    prune_flows,
    refine_flows,
    weighed,
)
from isr.estimators.normal_law import beaten_by, better_than, normal_point
from isr.estimators.pipeline import Fitted, Polished, Trained, polish
from isr.estimators.rows import Pairs, Rows, prepare
from isr.estimators.safety import not_wild
from isr.estimators.settings import Training
from isr.estimators.status import DivergedError
from isr.estimators.streams import StandardBlocks, Stream
from isr.formulas.front import choose, pareto
from isr.training.cache import keep_compiled_programs
from isr.training.loop import Noise
from isr.training.losses import LEAST_VARIANCE, FlowObjective
from isr.training.monitor import Monitor
from isr.training.population import Population, Restarts, Schedule, Task
from isr.training.sublibraries import sublibrary_masks
from isr.training.workers import train_shared

# Of `max_time`, where formulas are to be made of what was trained: they need time of their own. A network that was
# stopped can still be written out, one that was not refined cannot be read.
TRAINING_SHARE = 0.7


@dataclass(frozen=True)
class Settings:
    """How a flow is fitted.

    Args:
        architectures: Shapes to choose from; the one with the best warm start is trained.
        training: The user's options, complete.
        schedule: How the population is trained.
        seed: Of everything drawn.
        joint: Whether y, where there is one, is an output (ISR) rather than a condition (cISR).
        stream: Where training reads its rows, if there are more than memory holds.
    """

    architectures: tuple[Architecture, ...]
    training: Training
    schedule: Schedule
    seed: int
    joint: bool = False
    stream: Stream | None = None

    @property
    def sparse(self) -> bool:
        """Whether what is short is preferred."""
        return self.training.penalty is not None


def fit_flow(pairs: Pairs, settings: Settings, monitor: Monitor) -> Fitted:
    """Fit a flow to rows of x, and of y where there are any."""
    keep_compiled_programs()
    with jax.enable_x64(True):  # training itself runs in single precision, by the dtype of its arrays
        return _fit_flow(pairs, settings, monitor)


def _fit_flow(pairs: Pairs, settings: Settings, monitor: Monitor) -> Fitted:
    shape = _best_shape(pairs, settings, monitor)
    rows = prepare(pairs, seed=settings.seed, isotropic="polar" in shape.charts)
    sparse, has_formulas = settings.sparse, settings.sparse and shape.subnet == "eql"
    trained = _train(rows, shape, settings, monitor.until(TRAINING_SHARE) if has_formulas else monitor)
    # Formulas are compared with their networks to the last digit; networks alone are judged as they were trained.
    precision = np.float64 if sparse else np.float32
    points = [network_point(network, rows, precision) for network in trained.networks]
    if has_formulas and points and not monitor.should_stop():
        pruned = prune_flows(trained, points, rows, monitor)
        points += [network_point(network, rows) for network in pruned.networks]
        points += refine_flows(pruned, rows, monitor).points
    if not any(np.isfinite(p.held_out_nats) for p in points):
        raise DivergedError
    normal = normal_point(rows, joint=settings.joint, weigh=sparse)
    front = weighed(pareto([*points, *([] if normal is None else [normal])]), rows)
    safe = not_wild(front, rows, normal)
    front = safe or front
    fair = better_than(front, normal)
    # Who asks for every weight wants accuracy; a price on constants would take the normal law instead.
    rule = settings.training.selection if sparse else "accuracy"
    chosen = fair[choose([front[i] for i in fair], rule, n_rows=len(rows.train))]
    polished = Polished.as_it_is(front[chosen])
    if sparse and not front[chosen].is_network and not monitor.should_stop():
        polished = polish(front[chosen], criterion_of(rows), snapping=settings.training.snap)
    front[chosen] = polished.point
    return Fitted(
        [finished(point, rows) for point in front], chosen, polished.errors, polished.labels, trained.population,
        len(rows.train), shape.charts, is_wild=not safe,
        beaten=beaten_by(normal, points),
    )  # fmt: skip


def _train(rows: Rows, shape: Architecture, settings: Settings, monitor: Monitor) -> Trained:
    population, restore = _population(rows, shape, settings, monitor)
    alive = population.weights[np.isfinite(population.held_out)]
    networks = [_settled(restore(weights.astype(np.float32)), rows) for weights in _distinct(alive)]
    return Trained(networks, population)


def _population(
    rows: Rows, shape: Architecture, settings: Settings, monitor: Monitor
) -> tuple[Population, Callable[[Any], Flow]]:
    training = settings.training
    assert training.n_restarts is not None
    assert training.backward is not None
    keys = children(settings.seed, training.n_restarts + 1)
    x = rows.fresh(rows.train)["x"].T
    y: dict[str, Any] = {"condition_dim": rows.n_observed}
    if settings.joint:
        y = {"noise": (1.0,) * rows.n_observed}
    flows = [build_flow(k, rows.dim, architecture=shape, rows=x, **y) for k in keys[1:]]
    # The permutations are part of the structure: those of the first serve all members, which are told by weights alone.
    weights = np.stack([np.asarray(flatten(f)[0], dtype=np.float32) for f in flows])
    _, restore = flatten(flows[0])
    peaks = (phase.peak for phase in settings.schedule.phases if phase.n_epochs)
    noise = Noise(np.array(rows.jitter), max(peaks, default=np.inf)) if any(rows.jitter) else None
    data = rows.fresh(rows.train) if settings.stream is None else StandardBlocks(settings.stream, rows)
    masks, groups = sublibrary_masks(flows[0], training.n_restarts) if settings.sparse else (None, None)
    task = Task(
        FlowObjective(restore, training.backward, training.loss), data, rows.fresh(rows.held_out), noise,
        penalised(flows[0]),
        about=repr((shape, settings.joint, training.loss, float(training.backward), rows.jitter)),
    )  # fmt: skip
    population = train_shared(
        task, Restarts(weights, masks, groups), settings.schedule, keys[0], n_jobs=training.n_jobs, monitor=monitor,
        path=None if training.checkpoint is None else Path(training.checkpoint),
    )  # fmt: skip
    return population, restore


def penalised(flow: Flow) -> np.ndarray:
    """Return 1 for the weights of subnetworks and 0 for those of charts and mixing, which sparsity would break."""
    parts = [(step, isinstance(step, Coupling)) for step in flow.steps] + [(flow.condition_map, True)]
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


def _best_shape(pairs: Pairs, settings: Settings, monitor: Monitor) -> Architecture:
    """Return the shape whose short warm start describes held-out rows best, in nats of x itself."""
    shapes = settings.architectures
    if len(shapes) == 1:
        return shapes[0]
    first, *others = settings.schedule.phases
    warm = first._replace(name="charts", n_epochs=max(1, first.n_epochs // 4))
    trial = replace(
        settings,
        training=replace(settings.training, n_restarts=2, checkpoint=None),
        schedule=replace(settings.schedule, phases=(warm, *(p._replace(n_epochs=0) for p in others))),
        stream=None,
    )
    charts_differ = len({shape.charts for shape in shapes}) > 1
    scores = []
    for shape in shapes:
        rows = prepare(pairs, seed=settings.seed, isotropic="polar" in shape.charts)
        steps = chart_steps(shape.charts, rows.fresh(rows.train)["x"].T)
        if "split" in shape.charts and not steps:
            scores.append(np.inf)
            continue
        width = rows.width
        if charts_differ:
            # Charts are judged as they start, by a flow of networks: it suits any of them, and all share one program.
            rows, width = _charted(pairs, rows, steps, settings.seed)
            shape = replace(shape, subnet="mlp", charts=())
        population, _ = _population(rows, shape, trial, monitor)
        scores.append(float(np.min(population.held_out)) + width)
    return shapes[int(np.argmin(scores))]


def _charted(pairs: Pairs, rows: Rows, steps: Sequence[AbstractBijection], seed: int) -> tuple[Rows, float]:
    """Return rows with x as charts show it, and what charts and standardisation add to a loss in nats."""
    chain = Chain(tuple(steps))
    chart = partial(compiled(_chart, chain), chain) if steps else lambda x: (x, np.zeros(len(x)))
    seen = replace(pairs, x=np.asarray(chart(rows.standardised(pairs.x, None)["x"].T)[0]), bounds=None)
    charted = prepare(seen, seed=seed)
    log_det = chart(rows.fresh(rows.held_out)["x"].T)[1]
    return charted, rows.width + charted.width - float(np.mean(log_det))


def _chart(chain: Chain, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    return jax.vmap(chain.forward_and_log_det)(x)

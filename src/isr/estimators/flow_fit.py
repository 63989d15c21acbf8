"""The fit of a flow, told in order: chart and scale the data, train a population, prune, refit, choose."""

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
from isr.bijections.keys import key_of, split_words, words_of, wrapped
from isr.bijections.parameters import cast, flatten
from isr.bijections.programs import compiled
from isr.estimators.baselines import better_than, normal_point, not_wild
from isr.estimators.flow_points import closed_point, in_nats_of_x, polished_point, refined_points, weighed
from isr.estimators.rows import Pairs, Rows, prepare
from isr.estimators.settings import Training
from isr.estimators.status import DivergedError
from isr.estimators.streams import StandardBlocks, Stream
from isr.formulas.front import Point, choose, pareto
from isr.training.cache import keep_compiled_programs
from isr.training.loop import Noise
from isr.training.losses import LEAST_VARIANCE, FlowObjective
from isr.training.monitor import Monitor
from isr.training.population import Population, Schedule
from isr.training.sublibraries import sublibrary_masks
from isr.training.workers import train_shared

# Of `max_time`, where formulas are to be made of what was trained.
TRAINING_SHARE = 0.7


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
        is_wild: Whether every point gives absurd draws or densities somewhere near the data.
    """

    front: list[Point]
    chosen: int
    flow: Flow
    errors: np.ndarray
    labels: dict[int, str]
    population: Population
    n_train: int
    charts: tuple[str, ...]
    is_wild: bool = False


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
        """Whether the trained networks are pruned into formulas."""
        return self.training.penalty is not None


def fit_flow(pairs: Pairs, settings: Settings, monitor: Monitor) -> FlowFit:
    """Fit a flow to rows of x, and of y where there are any, and return its front and the chosen flow."""
    keep_compiled_programs()
    with jax.enable_x64(True):  # training itself runs in single precision, by the dtype of its arrays
        return _fit_flow(pairs, settings, monitor)


def _fit_flow(pairs: Pairs, settings: Settings, monitor: Monitor) -> FlowFit:
    shape = _best_shape(pairs, settings, monitor)
    rows = prepare(pairs, seed=settings.seed, isotropic="polar" in shape.charts)
    # Formulas need time of their own: a network that was stopped can still be written out, an unrefined one not read.
    training = monitor.until(TRAINING_SHARE) if settings.sparse and shape.subnet == "eql" else monitor
    population, restore = _train(rows, shape, settings, training)
    members = [
        _settled(restore(w.astype(np.float32)), rows)
        for w in _distinct(population.weights[np.isfinite(population.held_out)])
    ]
    # Formulas are compared with their networks to the last digit; networks alone are judged as they were trained.
    points = [closed_point(m, rows, np.float64 if settings.sparse else np.float32) for m in members]
    if settings.sparse and shape.subnet == "eql" and members and not monitor.should_stop():
        points += refined_points(members, points, rows, monitor)
    if not any(np.isfinite(p.held_out_nats) for p in points):
        raise DivergedError
    normal = normal_point(rows, joint=settings.joint, weigh=settings.sparse)
    points += [] if normal is None else [normal]
    front = weighed(pareto(points))
    safe = not_wild(front, rows, normal)
    front = safe or front
    fair = better_than(front, normal)
    # Who asks for every weight wants accuracy; a price on constants would take the normal law instead.
    rule = settings.training.selection if settings.sparse else "accuracy"
    chosen = fair[choose([front[i] for i in fair], rule, n_rows=len(rows.train))]
    polished = polished_point(front[chosen], rows, settings.training.snap, monitor, sparse=settings.sparse)
    front[chosen] = polished.point
    front = [in_nats_of_x(p, rows) for p in front]
    return FlowFit(
        front, chosen, front[chosen].model, polished.errors, polished.labels, population, len(rows.train),
        shape.charts, is_wild=not safe,
    )  # fmt: skip


def _train(
    rows: Rows, shape: Architecture, settings: Settings, monitor: Monitor
) -> tuple[Population, Callable[[Any], Flow]]:
    training = settings.training
    assert training.n_restarts is not None
    assert training.backward is not None
    keys = split_words(words_of(key_of(settings.seed)), training.n_restarts + 1)
    y: dict[str, Any] = {"condition_dim": rows.n_observed}
    if settings.joint:
        y = {"noise": (1.0,) * rows.n_observed}
    flows = [build_flow(k, rows.dim, architecture=shape, rows=rows.train, **y) for k in keys[1:]]
    # The permutations are part of the structure: those of the first serve all members, which are told by weights alone.
    weights = np.stack([np.asarray(flatten(f)[0], dtype=np.float32) for f in flows])
    _, restore = flatten(flows[0])
    peaks = (phase.peak for phase in settings.schedule.phases if phase.n_epochs)
    noise = Noise(np.array(rows.jitter), max(peaks, default=np.inf)) if any(rows.jitter) else None
    data = rows.fresh() if settings.stream is None else StandardBlocks(settings.stream, rows)
    masks, groups = sublibrary_masks(flows[0], training.n_restarts) if settings.sparse else (None, None)
    population = train_shared(
        FlowObjective(restore, training.backward, training.loss), weights, data, rows.fresh(held_out=True),
        settings.schedule, wrapped(keys[0]), noise=noise, n_jobs=training.n_jobs, monitor=monitor,
        path=None if training.checkpoint is None else Path(training.checkpoint), penalised=penalised(flows[0]),
        masks=masks, groups=groups,
        about=repr((shape, settings.joint, training.loss, float(training.backward), rows.jitter)),
    )  # fmt: skip
    return population, restore


def _settled(member: Flow, rows: Rows) -> Flow:
    """Return a joint flow with the noise of its outputs set to their held-out residuals; any other as it is."""
    if not member.n_observed:
        return member
    arrays = rows.standard(held_out=True, n_padding=member.n_padding)
    latent = compiled(_latents, member)(cast(member, jnp.float64), np.asarray(arrays["x"]))
    residual = np.asarray(latent)[: member.n_observed] - arrays["y"]
    noise = np.sqrt(np.maximum(np.mean(residual**2, axis=1), LEAST_VARIANCE))
    noise = np.where(np.isfinite(noise), noise, 1.0)
    return Flow(member.bijection, None, tuple(float(s) for s in noise), member.n_padding)


def _latents(flow: Flow, x: jax.Array) -> jax.Array:
    return flow.latent_columns(x)[0]


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


def _best_shape(pairs: Pairs, settings: Settings, monitor: Monitor) -> Architecture:
    """Return the shape whose short warm start describes held-out rows best, in nats of x itself."""
    if len(settings.architectures) == 1:
        return settings.architectures[0]
    phases = settings.schedule.phases
    warm = phases[0]._replace(name="charts", n_epochs=max(1, phases[0].n_epochs // 4))
    short = replace(settings.schedule, phases=(warm, *(p._replace(n_epochs=0) for p in phases[1:])))
    few = replace(settings.training, n_restarts=2, checkpoint=None)
    trial = replace(settings, training=few, schedule=short, stream=None)
    scores = []
    charts_differ = len({shape.charts for shape in settings.architectures}) > 1
    for shape in settings.architectures:
        rows = prepare(pairs, seed=settings.seed, isotropic="polar" in shape.charts)
        steps = chart_steps(shape.charts, rows.train)
        if "split" in shape.charts and not steps:
            scores.append(np.inf)
            continue
        width = rows.width
        if charts_differ:
            # Charts are judged as they start, by a flow of networks: it suits any of them, and all share one program.
            rows, width = _charted(pairs, rows, steps, settings.seed)
            shape = replace(shape, subnet="mlp", charts=())
        population, _ = _train(rows, shape, trial, monitor)
        scores.append(float(np.min(population.held_out)) + width)
    return settings.architectures[int(np.argmin(scores))]


def _charted(pairs: Pairs, rows: Rows, steps: Sequence[AbstractBijection], seed: int) -> tuple[Rows, float]:
    """Return rows with x as charts show it, and what charts and standardisation add to a loss in nats."""
    chart = _unchanged
    if steps:
        chain = Chain(tuple(steps))
        chart = partial(compiled(_chart, chain), chain)
    seen = replace(pairs, x=np.asarray(chart(rows.standardised(pairs.x, None)["x"].T)[0]), bounds=None)
    charted = prepare(seen, seed=seed, isotropic=False)
    return charted, rows.width + charted.width - float(np.mean(chart(rows.held_out)[1]))


def _chart(chain: Chain, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    return jax.vmap(chain.forward_and_log_det)(x)


def _unchanged(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return x, np.zeros(len(x))


def _distinct(weights: np.ndarray) -> list[np.ndarray]:
    """Return members without repeats: same constants in use and nearly the same values."""
    seen, kept = set(), []
    for vector in weights:
        mark = (tuple(np.flatnonzero(vector)), tuple(np.round(vector[vector != 0], 1)))
        if mark not in seen:
            seen.add(mark)
            kept.append(vector)
    return kept

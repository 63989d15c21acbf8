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

from isr.estimators.refine import MAX_CONSTANTS, Polished, eliminate_all, polish, refine, row_losses
from isr.estimators.rows import Pairs, Rows, prepare
from isr.estimators.status import DivergedError
from isr.estimators.streams import StandardBlocks, Stream
from isr.expressions import extract
from isr.model.affine import Bounded, Inverted, Standardise
from isr.model.bijection import AbstractBijection
from isr.model.build import Architecture, build_flow, chart_steps
from isr.model.chain import Chain
from isr.model.condition import ConditionMap
from isr.model.coupling import Coupling
from isr.model.flow import Flow
from isr.model.formula import Formulas
from isr.model.parameters import cast, flatten, n_constants
from isr.model.programs import compiled
from isr.pruning.front import Point, choose, pareto
from isr.pruning.opening import functions_of, open_flow, tidy
from isr.pruning.refit import flow_row_loss
from isr.training.cache import keep_compiled_programs
from isr.training.loop import Noise
from isr.training.losses import LEAST_VARIANCE, FlowObjective
from isr.training.monitor import Monitor
from isr.training.population import Population, Schedule
from isr.training.shares import train_shared
from isr.training.sublibraries import sublibrary_masks

# What a weight in use adds to the complexity of a network written out with scales, guards and clamps, roughly.
ROUGH_COST = 8
# How many members of a population are opened and refined.
N_REFINED = 3
# In standard deviations: a latent of a row only a little outside of the data beyond this is an explosion.
FARTHEST = 200.0
# Rows that constants are refitted on: more would cost time and tell little.
MAX_REFIT_ROWS = 100_000


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
class Settings:
    """How a flow is fitted.

    Args:
        architectures: Shapes to choose from; the one with the best warm start is trained.
        schedule: How the population is trained.
        n_restarts: Members of the population before the ladder of penalties multiplies them.
        rule: How a point of the front is chosen.
        snapping: Whether constants may be set to simple values.
        seed: Of everything drawn.
        path: Where checkpoints go.
        sparse: Whether the trained networks are pruned into formulas.
        joint: Whether y, where there is one, is an output (ISR) rather than a condition (cISR).
        loss: What training minimises.
        backward: Weight of the term that keeps samples drawn backwards where data lie.
        n_jobs: Workers among which restarts are shared out.
        n_devices: Devices among which the rows of a batch are divided.
        stream: Where training reads its rows, if there are more than memory holds.
    """

    architectures: tuple[Architecture, ...]
    schedule: Schedule
    n_restarts: int
    rule: str
    snapping: bool
    seed: int
    path: Path | None = None
    sparse: bool = True
    joint: bool = False
    loss: str = "likelihood"
    backward: float = 0.0
    n_jobs: int | None = None
    n_devices: int | None = None
    stream: Stream | None = None


def fit_flow(pairs: Pairs, settings: Settings, monitor: Monitor) -> FlowFit:
    """Fit a flow to rows of x, and of y where there are any, and return its front and the chosen flow."""
    keep_compiled_programs()
    with jax.enable_x64(True):  # training itself runs in single precision, by the dtype of its arrays
        return _fit_flow(pairs, settings, monitor)


def _fit_flow(pairs: Pairs, settings: Settings, monitor: Monitor) -> FlowFit:
    shape = _best_shape(pairs, settings, monitor)
    rows = prepare(pairs, seed=settings.seed, isotropic="polar" in shape.charts)
    population, restore = _train(rows, shape, settings, monitor)
    members = [
        _settled(restore(w.astype(np.float32)), rows)
        for w in _distinct(population.weights[np.isfinite(population.held_out)])
    ]
    # Formulas are compared with their networks to the last digit; networks alone are judged as they were trained.
    points = [_closed_point(m, rows, np.float64 if settings.sparse else np.float32) for m in members]
    if settings.sparse and shape.subnet == "eql" and members:
        points += _refined(members, points, rows, monitor)
    front = _weighed(pareto([p for p in points if np.isfinite(p.held_out_nats)]))
    if not front:
        raise DivergedError
    chosen = choose(front, settings.rule, n_rows=len(rows.train))
    polished = _polished(front[chosen], rows, settings.snapping)
    front[chosen] = polished.point
    front = [_in_nats_of_x(p, rows) for p in front]
    return FlowFit(
        front, chosen, front[chosen].model, polished.errors, polished.labels, population, len(rows.train),
        shape.charts,
    )  # fmt: skip


def _train(
    rows: Rows, shape: Architecture, settings: Settings, monitor: Monitor
) -> tuple[Population, Callable[[Any], Flow]]:
    keys = jax.random.split(jax.random.key(settings.seed), settings.n_restarts + 1)
    y: dict[str, Any] = {"condition_dim": rows.n_observed}
    if settings.joint:
        y = {"noise": (1.0,) * rows.n_observed}
    flows = [build_flow(k, rows.dim, architecture=shape, rows=rows.train, **y) for k in keys[1:]]
    # The permutations are part of the structure and must be the same for all members.
    flows = [_with_structure_of(flows[0], f) for f in flows]
    weights = np.stack([np.asarray(flatten(f)[0], dtype=np.float32) for f in flows])
    _, restore = flatten(flows[0])
    peaks = (phase.peak for phase in settings.schedule.phases if phase.n_epochs)
    noise = Noise(np.array(rows.jitter), max(peaks, default=np.inf)) if any(rows.jitter) else None
    data = rows.fresh() if settings.stream is None else StandardBlocks(settings.stream, rows)
    masks, groups = sublibrary_masks(flows[0], settings.n_restarts) if settings.sparse else (None, None)
    population = train_shared(
        FlowObjective(restore, settings.backward, settings.loss), weights, data, rows.fresh(held_out=True),
        settings.schedule, keys[0], noise=noise, n_jobs=settings.n_jobs, n_devices=settings.n_devices,
        monitor=monitor, path=settings.path, penalised=penalised(flows[0]),
        masks=masks, groups=groups,
        about=repr((shape, settings.joint, settings.loss, settings.backward, rows.jitter)),
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


def _best_shape(pairs: Pairs, settings: Settings, monitor: Monitor) -> Architecture:
    """Return the shape whose short warm start describes held-out rows best, in nats of x itself."""
    if len(settings.architectures) == 1:
        return settings.architectures[0]
    phases = settings.schedule.phases
    warm = phases[0]._replace(name="charts", n_epochs=max(1, phases[0].n_epochs // 4))
    short = replace(settings.schedule, phases=(warm, *(p._replace(n_epochs=0) for p in phases[1:])))
    trial = replace(settings, schedule=short, n_restarts=2, path=None, stream=None)
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


def _closed_point(member: Flow, rows: Rows, dtype: type = np.float64) -> Point:
    """Return a trained core as a point of the front, its losses in nats of x itself."""
    train, held_out = (
        rows.standard(held_out=is_held, n_padding=member.n_padding) for is_held in (False, True)
    )
    # All at once: rows of two lengths would be two programs.
    some = {k: np.concatenate([v[:, :MAX_REFIT_ROWS], held_out[k]], axis=1) for k, v in train.items()}
    losses = row_losses(member, flow_row_loss, some, dtype) + rows.width
    train_rows, held = np.split(losses, [losses.shape[0] - held_out["x"].shape[1]])
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


def _in_nats_of_x(point: Point, rows: Rows) -> Point:
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
        promising.values(), flow_row_loss, rows.standard(n_padding=n_padding), monitor=monitor
    )
    points = [_closed_point(m, rows) for m in networks]
    opened = [open_flow(_without_bounds(p.model, rows)) for p in points]
    refined = refine(
        _distinct_formulas(opened),
        flow_row_loss,
        _for_refit(rows, n_padding),
        rows.raw(held_out=True, n_padding=n_padding),
        complexity=lambda flow: extract(flow).complexity,
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


def _polished(point: Point, rows: Rows, snapping: bool) -> Polished:
    """Return the chosen point with its constants settled; a network, or what polishing would spoil, as it is."""
    as_it_is = Polished(point, np.full(len(point.theta), np.nan), {})
    if _is_closed(point.model):
        return as_it_is
    n_padding = point.model.n_padding
    polished = polish(
        replace(point, model=_without_bounds(point.model, rows)), flow_row_loss,
        _for_refit(rows, n_padding), rows.raw(held_out=True, n_padding=n_padding),
        snapping=snapping, tidy=tidy, complexity=lambda flow: extract(_with_bounds(flow, rows)).complexity,
    )  # fmt: skip
    if not is_tame(polished.point.model, rows):
        return as_it_is
    return replace(polished, point=replace(polished.point, model=_with_bounds(polished.point.model, rows)))

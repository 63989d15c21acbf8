"""The fit of an ensemble: one flow to each of several folds, and with them a little of the normal law.

Every row is held out of one fold, so that none is wasted and each tells how good a flow is that has not seen it. The
normal law is wide where data lie: with it no row is absurd, and it takes over where it describes rows better.
"""

from __future__ import annotations

from dataclasses import replace

import jax
import numpy as np
from scipy.special import logsumexp

from isr.bijections.ensemble import Ensemble
from isr.estimators.flow_fit import FlowTask, finished, network_point, train_networks_of
from isr.estimators.pipeline import Fitted, Polished
from isr.estimators.rows import Pairs, Rows, prepare
from isr.estimators.settings import Plan
from isr.estimators.status import DivergedError, judged, normal_law
from isr.formulas.front import Point, pareto
from isr.training.losses import DEFENCE
from isr.training.workers import joined, keep_compiled_programs

N_MEMBERS = 5
N_STEPS = 200
# Rows that tell whether the mixture is calibrated.
N_JUDGED = 5000


def fit_ensemble(task: FlowTask, plan: Plan) -> Fitted:
    """Fit an ensemble; `Training.n_restarts` says how many flows."""
    if task.joint:
        raise ValueError(
            "an ensemble mixes densities: it is for ConditionalISR and SymbolicFlow, not for ISR"
        )
    if plan.is_sparse and task.architectures[0].subnet == "eql":
        raise ValueError(
            "members of an ensemble keep every weight; write isr.Training(ensemble=True, penalty=None)"
        )
    keep_compiled_programs()
    with jax.enable_x64(True):
        return _fit_ensemble(task, plan)


def _fit_ensemble(task: FlowTask, plan: Plan) -> Fitted:
    shape, n = task.architectures[0], plan.training.n_restarts or N_MEMBERS
    one = replace(plan, training=replace(plan.training, n_restarts=1, checkpoint=None))
    members, normals, populations, n_train = [], [], [], 0
    for k in range(n):
        if members and plan.monitor.should_stop():
            break
        rows = prepare(task.pairs, seed=plan.seed, fold=(k, n))
        trained = train_networks_of(
            rows, shape, task, replace(one, monitor=plan.monitor.until((k + 1) / n)), first=k
        )
        populations.append(trained.population)
        if trained.networks:
            n_train = len(rows.train)
            members.append(_finished(network_point(trained.networks[0], rows, np.float32), rows))
            normals.append(_finished(network_point(normal_law(rows), rows), rows))
    if not members or not any(np.isfinite(p.held_out_nats) for p in members):
        raise DivergedError
    *simpler, mixture = _mixed(members, normals)
    front = [*pareto([point for point in simpler if point.held_out_nats > mixture.held_out_nats]), mixture]
    chosen = len(front) - 1
    settled = Polished.as_it_is(front[chosen])
    return Fitted(
        front, chosen, settled.errors, settled.labels, joined(populations), n_train, shape.charts,
        judged=judged(mixture.model, *_some(task.pairs)),
    )  # fmt: skip


def _finished(point: Point, rows: Rows) -> Point:
    return replace(finished(point, rows), is_network=False)


def _some(pairs: Pairs) -> tuple[np.ndarray, np.ndarray | None]:
    """Return some rows of x itself, and y beside them with noise."""
    x, y = pairs.x[:N_JUDGED], None if pairs.y is None else pairs.y[:N_JUDGED]
    return x, None if y is None else y + pairs.noise * np.random.default_rng(0).normal(size=y.shape)


def _mixed(members: list[Point], normals: list[Point]) -> tuple[Point, Point, Point]:
    """Return the normal law, the best member and the mixture of all, judged by the rows that each fold held out."""
    good = [k for k, point in enumerate(members) if np.isfinite(point.held_out_nats)]
    order = sorted(good, key=lambda k: members[k].held_out_nats - normals[k].held_out_nats)
    trained = np.concatenate([members[k].held_out_rows for k in good])
    normal = np.concatenate([normals[k].held_out_rows for k in good])
    share = _share_of_normal(trained, normal)
    shares = np.array([*[(1 - share) / len(good)] * len(good), share])
    rows = -logsumexp([-trained, -normal], axis=0, b=np.array([[1 - share], [share]]))
    best, law = members[order[0]], normals[order[0]]
    parts = [*(members[k] for k in order), law]
    mixture = Point(
        Ensemble.of(tuple(part.model for part in parts), shares), sum(part.complexity for part in parts),
        sum(part.n_constants for part in parts), float(np.mean([members[k].train_nats for k in good])),
        float(np.mean(rows)), rows,
    )  # fmt: skip
    return (
        replace(law, held_out_nats=float(np.mean(normal)), held_out_rows=normal),
        replace(best, held_out_nats=float(np.mean(trained)), held_out_rows=trained),
        mixture,
    )


def _share_of_normal(trained: np.ndarray, normal: np.ndarray) -> float:
    """Return the share that makes held-out rows likeliest, by expectation and maximisation."""
    share = 0.1
    odds = np.clip(trained - normal, -700, 700)
    for _ in range(N_STEPS):
        share = float(np.mean(share / (share + (1 - share) * np.exp(-odds))))
        share = min(max(share, DEFENCE), 0.999)
    return share

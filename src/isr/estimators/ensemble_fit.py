"""The fit of an ensemble: one flow to each of several folds, and with them a little of the normal law.

Every row is held out of one fold, so that none is wasted and each tells how good a flow is that has not seen it. The
normal law is wide where data lie: with it no row is absurd, and it takes over where it describes rows better.
"""

from __future__ import annotations

from dataclasses import replace

import jax
import numpy as np

from isr.estimators.flow_fit import FlowTask, train_networks_of
from isr.estimators.normal_law import mixed, normal_law, wide_law
from isr.estimators.pipeline import Fitted, Polished
from isr.estimators.rows import Pairs, Rows, finished, network_point, prepare
from isr.estimators.settings import Plan
from isr.estimators.status import DivergedError, judged
from isr.formulas.front import Point, pareto
from isr.training.loop import keep_compiled_programs
from isr.training.population import joined

N_MEMBERS = 5
# Shares of the usual decay of weights that the first fold chooses from.
DECAYS = (1.0, 0.3, 0.1)
# Rows that tell whether the mixture is calibrated.
N_JUDGED = 5000


def fit_ensemble(task: FlowTask, plan: Plan) -> Fitted:
    """Fit an ensemble; `Training.n_restarts` says how many flows."""
    if task.joint:
        raise ValueError(
            "an ensemble mixes densities: it is for ConditionalISR and SymbolicFlow, not for ISR"
        )
    if plan.is_sparse and task.architecture.subnet == "eql":
        raise ValueError(
            "members of an ensemble keep every weight; write isr.Training(ensemble=True, penalty=None)"
        )
    keep_compiled_programs()
    with jax.enable_x64(True):
        return _fit_ensemble(task, plan)


def _fit_ensemble(task: FlowTask, plan: Plan) -> Fitted:
    n = plan.training.n_restarts or N_MEMBERS
    one = replace(plan, training=replace(plan.training, n_restarts=1, checkpoint=None))
    plans = [_with_decay(one, share) for share in DECAYS]
    members, normals, wide, populations, n_train = [], [], [], [], 0
    for k in range(n):
        if members and plan.monitor.should_stop():
            break
        rows = prepare(task.pairs, seed=plan.seed, fold=(k, n))
        time_left = plan.monitor.until((k + 1) / n)
        tried = [(train_networks_of(rows, task, replace(p, monitor=time_left), first=k), p) for p in plans]
        (networks, population), best = min(tried, key=lambda found: np.min(found[0][1].held_out))
        plans = [best]  # the first fold tells how fast weights decay
        populations.append(population)
        if networks:
            n_train = len(rows.train)
            members.append(_finished(network_point(networks[0], rows, np.float32), rows))
            normals.append(_finished(network_point(normal_law(rows), rows), rows))
            if rows.n_observed:
                wide.append(_finished(network_point(wide_law(rows), rows), rows))
    if not members or not any(np.isfinite(p.held_out_nats) for p in members):
        raise DivergedError
    *simpler, mixture = mixed(members, normals, wide)
    front = [*pareto([point for point in simpler if point.held_out_nats > mixture.held_out_nats]), mixture]
    chosen = len(front) - 1
    settled = Polished.as_it_is(front[chosen])
    return Fitted(
        front, chosen, settled.errors, settled.labels, joined(populations), n_train, task.architecture.charts,
        judged=judged(mixture.model, *_some(task.pairs)),
    )  # fmt: skip


def _with_decay(plan: Plan, share: float) -> Plan:
    phases = tuple(phase._replace(decay=share * phase.decay) for phase in plan.schedule.phases)
    return replace(plan, schedule=replace(plan.schedule, phases=phases))


def _finished(point: Point, rows: Rows) -> Point:
    return replace(finished(point, rows), is_network=False)


def _some(pairs: Pairs) -> tuple[np.ndarray, np.ndarray | None]:
    """Return some rows of x itself, and y beside them with noise."""
    x, y = pairs.x[:N_JUDGED], None if pairs.y is None else pairs.y[:N_JUDGED]
    return x, None if y is None else y + pairs.noise * np.random.default_rng(0).normal(size=y.shape)

"""The stages that all fits share: train, prune, refine, polish; and what a fit leaves.

A *network* is a model as it was trained. It is *opened* into a model made of formulas, whose constants are then
refitted, eliminated and snapped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from isr.bijections.parameters import Restore, cast, children, flatten, n_constants
from isr.bijections.programs import compiled
from isr.estimators.settings import Plan
from isr.estimators.status import Status
from isr.formulas.front import Point
from isr.formulas.refit import Constants, Fit, RowLoss, eliminate, fix_gauge, snap
from isr.training.loop import Noise
from isr.training.monitor import Monitor
from isr.training.penalties import sublibrary_masks
from isr.training.population import Population, Restarts, Task, train

# Formulas with more constants than this are neither short nor cheap to refine.
MAX_CONSTANTS = 100
# Of `max_time`: restarts that are not built by then are left out.
BUILD_SHARE = 0.05
# Newton steps with all rows that end the refit of the chosen model; those before take the curvature of fewer.
LAST_STEPS = 6
# Rows that decide which weights of a network can go; what is left is judged by all rows later.
ELIMINATION_ROWS = 4096

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Fitted:
    """What a fit leaves: points from simple to complex, and which of them is used."""

    front: list[Point]
    chosen: int
    population: Population
    n_train: int
    charts: tuple[str, ...] = ()
    misfit: Status | None = None  # what is wrong with every model that was trained
    judged: tuple[np.ndarray, np.ndarray] | None = None  # latents of rows, and y beside them


@dataclass(frozen=True)
class Criterion:
    """What models made of formulas are fitted to and judged by."""

    row_loss: RowLoss
    train: Arrays
    held_out: Arrays
    complexity: Callable[[Any], int]  # of a model's equations
    tidy: Callable[[Any], Any]  # takes constants that are zero out of a model
    acceptable: Callable[[Any], bool]  # whether a model is safe to use, such as finite when run backwards
    monitor: Monitor  # which ends a refit with the best constants so far
    nats: Callable[[float], float] = float  # turns a mean loss into nats per row

    def fit(self, model: Any) -> Fit:
        """Return the loss as a function of a model's constants."""
        return Fit(model, self.row_loss, self.train, self.nats, self.monitor.should_stop)

    def point(self, model: Any, train_loss: float) -> Point:
        """Return a model, tidied, as a point of the front."""
        # Judged before it is tidied: in a structure that is compiled already.
        rows = row_losses(model, self.row_loss, self.held_out)
        weights = self.held_out["weight"][0] if "weight" in self.held_out else None
        mean = float(np.average(rows, weights=weights))
        model = self.tidy(model)
        held_out = self.nats(mean) if np.isfinite(mean) else np.inf
        return Point(model, self.complexity(model), n_constants(model), self.nats(train_loss), held_out, rows)


def train_networks(
    plan: Plan,
    build: Callable[[Any], Any],
    objective: Callable[[Restore[Any]], Any],
    data: Arrays,
    held_out: Arrays,
    *,
    about: str,
    noise: Noise | None = None,
    first: int = 0,
    penalised: Callable[[Any], np.ndarray | None] = lambda network: None,
) -> tuple[Population, Restore[Any]]:
    """Return a trained population, and the function that makes a network of a member's weights; see `Task`.

    Restarts are counted from ``first``; all have the structure of number 0.
    """
    training, wanted = plan.training, int(plan.training.n_restarts or 1)
    own, *seeds = children(plan.seed, first + wanted + 1)
    networks: list[Any] = []
    for seed in seeds[first:]:
        if networks and plan.monitor.has_used(BUILD_SHARE):
            break
        networks.append(build(seed))
    n = len(networks)
    # Permutations are part of the structure: those of the first serve all members, which are told by weights alone.
    weights = np.stack([np.asarray(flatten(network)[0], np.float32) for network in networks])
    restore = Restore(build(seeds[0]) if first else networks[0])
    restarts = Restarts(weights, *(sublibrary_masks(networks[0], n) if plan.is_sparse else (None, None)))
    task = Task(objective(restore), data, held_out, noise, penalised(networks[0]), about)
    path = None if training.checkpoint is None else Path(training.checkpoint)
    population = train(task, restarts, plan.schedule, own, monitor=plan.monitor, path=path)
    if n < wanted and not population.stopped:
        reason = f"max_time of {training.max_time:g} s left time for {n} of {wanted} restarts"
        population = replace(population, stopped=reason)
    return population, restore


def prune(
    networks: Sequence[Any],
    row_loss: RowLoss,
    data: Arrays,
    monitor: Monitor,
    nats: Callable[[float], float] = float,
) -> list[Any]:
    """Return each network without the weights that it does not miss; those of one structure share a program."""
    kept: list[Any] = []
    some = {name: values[..., :ELIMINATION_ROWS] for name, values in data.items()}
    for network in _while_time(networks, monitor, "eliminate", kept):
        fit = Fit(network, row_loss, some, nats, monitor.should_stop)
        path = eliminate(fit, fit.start, singly=False)
        kept.append(fit.restore(path[-1].theta))
    return kept


def refine(candidates: Sequence[Any], criterion: Criterion) -> list[Point]:
    """Return the acceptable models of every candidate's path of elimination."""
    points: list[Point] = []
    for candidate in _while_time(candidates, criterion.monitor, "refine", points):
        fit = criterion.fit(candidate)
        for cut in eliminate(fit, fit.start):
            # Cut constants are zeros in one and the same structure here, so that nothing is compiled again.
            model = fit.restore(cut.theta)
            if np.isfinite(cut.loss) and criterion.acceptable(model):
                points.append(criterion.point(model, cut.loss))
    return points


def _while_time(items: Sequence[Any], monitor: Monitor, stage: str, found: list[Any]) -> Iterator[Any]:
    """Give items one after the other, until the fit should stop and something was found."""
    monitor.begin(stage, len(items))
    for item in items:
        if monitor.should_stop() and found:
            break
        yield item
        monitor.advance(f"{len(found)} models")


def polish(point: Point, criterion: Criterion, *, snapping: bool) -> Point:
    """Return a model made of formulas with its constants refitted, freed of redundancy and snapped."""
    fit = criterion.fit(point.model)
    theta, _ = fit.converge(fit.start, np.flatnonzero(fit.start), fast=True)
    theta, _ = fit.converge(theta, np.flatnonzero(theta), max_iterations=LAST_STEPS)
    theta, free = fix_gauge(fit, theta, np.flatnonzero(theta))
    result = snap(fit, theta, free) if snapping else Constants(theta, fit.loss(theta), free, {})
    held = np.setdiff1d(np.flatnonzero(result.theta), result.free)
    label_of = {float(result.theta[i]): result.labels.get(i) for i in held}
    polished = criterion.point(fit.restore(result.theta), result.loss)
    if not criterion.acceptable(polished.model):
        return point
    final = criterion.fit(polished.model)
    free = np.array([i for i, v in enumerate(final.start) if v != 0 and v not in label_of], dtype=int)
    labels = {i: label for i, v in enumerate(final.start) if (label := label_of.get(v)) is not None}
    return replace(polished, errors=final.standard_errors(final.start, free), labels=labels)


def row_losses(model: Any, row_loss: RowLoss, data: Arrays, dtype: type = np.float64) -> np.ndarray:
    """Return the loss of every row, in double precision unless told."""
    with jax.enable_x64(True):
        arrays = {name: np.asarray(v, dtype) for name, v in data.items() if name != "weight"}
        model = cast(model, dtype)
        return np.asarray(compiled(_row_losses, model, row_loss)(model, arrays), np.float64)


def _row_losses(row_loss: RowLoss, model: Any, arrays: dict[str, jax.Array]) -> jax.Array:
    return row_loss(model, arrays)

"""Refine: from a trained population to a front of models: opened into formulas, refitted, eliminated, snapped."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from isr.bijections.parameters import cast, flatten
from isr.bijections.programs import compiled
from isr.formulas.eliminate import eliminate
from isr.formulas.front import Point
from isr.formulas.refit import Fit, RowLoss
from isr.formulas.snap import Snapped, fix_gauge, snap
from isr.training.monitor import Monitor

# Formulas with more constants than this are neither short nor cheap to refine.
MAX_CONSTANTS = 100
# Rows that decide which weights of a network can go; what is left is judged by all rows later.
ELIMINATION_ROWS = 4096


def eliminate_all(
    models: Iterable[Any],
    row_loss: RowLoss,
    data: dict[str, np.ndarray],
    *,
    monitor: Monitor,
    nats: Callable[[float], float] = float,
) -> list[Any]:
    """Return each model without the weights that it does not miss.

    Models of one structure share one compiled program.
    """
    kept = []
    models = list(models)
    some = {name: values[..., :ELIMINATION_ROWS] for name, values in data.items()}
    monitor.begin("eliminate", len(models))
    for model in models:
        if monitor.should_stop() and kept:
            break
        fit = Fit(model, row_loss, some, nats)
        kept.append(
            fit.restore(eliminate(fit, fit.start, singly=False, should_stop=monitor.should_stop)[-1].theta)
        )
        monitor.advance()
    return kept


def refine(
    candidates: Iterable[Any],
    row_loss: RowLoss,
    data: dict[str, np.ndarray],
    held_out: dict[str, np.ndarray],
    *,
    complexity: Callable[[Any], int],
    acceptable: Callable[[Any], bool],
    tidy: Callable[[Any], Any],
    monitor: Monitor,
    nats: Callable[[float], float] = float,
) -> list[Point]:
    """Return points of the front from every candidate's path of elimination.

    Args:
        candidates: Models made of formulas.
        row_loss: Loss of every row.
        data: Training arrays, rows along the last axis.
        held_out: Held-out arrays.
        complexity: Cost of a model's equations.
        acceptable: Whether a model is safe to use, such as finite when run backwards.
        tidy: Takes constants that are zero out of a model.
        monitor: Ends the refinement when time is up.
        nats: Turns a mean loss into nats a row.
    """
    points: list[Point] = []
    candidates = list(candidates)
    monitor.begin("refine", len(candidates))
    for candidate in candidates:
        if monitor.should_stop() and points:
            break
        points += _path_points(
            candidate, row_loss, data, held_out, complexity, acceptable, tidy, nats, monitor.should_stop
        )
        monitor.advance(f"{len(points)} models")
    return points


def _path_points(
    candidate, row_loss, data, held_out, complexity, acceptable, tidy, nats, should_stop
) -> list[Point]:
    fit = Fit(candidate, row_loss, data, nats)
    points = []
    for cut in eliminate(fit, fit.start, should_stop=should_stop):
        # Cut constants are zeros in one and the same structure here, so that nothing is compiled again.
        model = fit.restore(cut.theta)
        if not (np.isfinite(cut.loss) and acceptable(model)):
            continue
        rows = row_losses(model, row_loss, held_out)
        # What tidying folds together (a function of constants alone) is one constant, not several.
        mean, model = mean_loss(rows, held_out), tidy(model)
        theta = np.asarray(flatten(model)[0])
        held_out_nats = nats(mean) if np.isfinite(mean) else np.inf
        points.append(
            Point(
                model, complexity(model), int(np.count_nonzero(theta)), fit.nats(cut.loss), held_out_nats, rows,
                theta, np.flatnonzero(theta),
            )
        )  # fmt: skip
    return points


def row_losses(
    model: Any, row_loss: RowLoss, data: dict[str, np.ndarray], dtype: type = np.float64
) -> np.ndarray:
    """Return the loss of every row, worked out in double precision unless told."""
    with jax.enable_x64(True):
        arrays = {name: np.asarray(v, dtype) for name, v in data.items() if name != "weight"}
        model = cast(model, dtype)
        return np.asarray(compiled(_row_losses, model, row_loss)(model, arrays), np.float64)


def mean_loss(rows: np.ndarray, data: dict[str, np.ndarray]) -> float:
    """Return the mean of the rows' losses, weighted where the data have weights."""
    return float(np.average(rows, weights=data["weight"][0] if "weight" in data else None))


def _row_losses(row_loss: RowLoss, model: Any, arrays: dict[str, jax.Array]) -> jax.Array:
    return row_loss(model, arrays)


@dataclass(frozen=True)
class Polished:
    """The chosen model with its constants settled.

    Args:
        point: The point of the front, with model and figures brought up to date.
        errors: Standard error of each of the model's constants, NaN where it is fixed.
        labels: Constants set to simple values, by index.
    """

    point: Point
    errors: np.ndarray
    labels: dict[int, str]


def polish(
    point: Point,
    row_loss: RowLoss,
    data: dict[str, np.ndarray],
    held_out: dict[str, np.ndarray],
    *,
    snapping: bool,
    tidy: Callable[[Any], Any],
    complexity: Callable[[Any], int],
    nats: Callable[[float], float] = float,
) -> Polished:
    """Return a model with its constants refitted, freed of redundancy and snapped, with their standard errors.

    Args:
        point: Holds a model made of formulas, tidied.
        row_loss: Loss of every row.
        data: Training arrays.
        held_out: Held-out arrays.
        snapping: Whether constants may be set to simple values.
        tidy: Takes constants that are zero out of a model.
        complexity: Cost of a model's equations.
        nats: Turns a mean loss into nats a row.
    """
    fit = Fit(point.model, row_loss, data, nats)
    theta, _ = fit.converge(fit.start, np.flatnonzero(fit.start))
    theta, free = fix_gauge(fit, theta, np.flatnonzero(theta))
    result = snap(fit, theta, free) if snapping else Snapped(theta, fit.loss(theta), free, {})
    held = sorted(set(np.flatnonzero(result.theta).tolist()) - set(result.free.tolist()))
    names = {int(i): label for i, label in result.labels.items()}
    fixed = {float(result.theta[i]): names.get(i) for i in held}
    model = tidy(fit.restore(result.theta))
    final = Fit(model, row_loss, data, nats)
    free = np.array([i for i, v in enumerate(final.start) if v != 0 and v not in fixed], dtype=int)
    labels = {i: label for i, v in enumerate(final.start) if (label := fixed.get(v)) is not None}
    rows = row_losses(model, row_loss, held_out)
    new = Point(
        model, complexity(model), int(np.count_nonzero(final.start)), fit.nats(final.loss(final.start)),
        nats(mean_loss(rows, held_out)), rows, final.start, free,
    )  # fmt: skip
    return Polished(new, final.standard_errors(final.start, free), labels)

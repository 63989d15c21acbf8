"""The fit of an equation-learner regressor, told in order: scale, train a population, open, prune, refit, choose."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import sympy
from jaxtyping import Array, Float

from isr.bijections.affine import Standardise, standardise
from isr.bijections.eql import EQL, build_eql
from isr.bijections.formula import Formulas, complexity
from isr.bijections.keys import key_of, split_words, words_of, wrapped
from isr.bijections.parameters import flatten, n_constants
from isr.estimators.factors import Factor, find_factor
from isr.estimators.refine import MAX_CONSTANTS, eliminate_all, polish, refine
from isr.estimators.settings import Training
from isr.estimators.status import DivergedError
from isr.formulas.canonical import (
    build_formulas,
    expressions_of,
    formulas_of,
    functions_in,
    input_symbols,
    shortest,
    with_small_phases,
)
from isr.formulas.front import Point, choose, pareto
from isr.tables.splits import split_rows
from isr.training.cache import keep_compiled_programs
from isr.training.monitor import Monitor
from isr.training.population import Population, Schedule
from isr.training.sublibraries import sublibrary_masks
from isr.training.workers import train_shared

N_REFINED = 5
HELD_OUT = 0.2
# A residual variance below this share of y's is rounding, not misfit.
FLOOR = 1e-24
COARSE_FLOOR = 1e-8
# Means of more standard deviations than this take too long to learn.
MOST_OFFSET = 10.0


@dataclass(frozen=True)
class RegressionFit:
    """What a fit leaves; the fields are those of `FlowFit`."""

    front: list[Point]
    chosen: int
    formulas: Formulas
    errors: np.ndarray
    labels: dict[int, str]
    population: Population
    n_train: int


def fit_regression(
    x: np.ndarray,
    y: np.ndarray,
    weight: np.ndarray | None,
    *,
    library,
    n_layers: int,
    training: Training,
    schedule: Schedule,
    seed: int,
    monitor: Monitor,
) -> RegressionFit:
    """Fit formulas for every column of y to rows of x, by least squares.

    Args:
        x: Rows of inputs.
        y: Rows of outputs.
        weight: Of each row.
        library: Primitives of a layer.
        n_layers: Hidden layers.
        training: The user's options, complete.
        schedule: How the population is trained.
        seed: Of everything drawn.
        monitor: Progress, deadline and interruption.
    """
    keep_compiled_programs()
    with jax.enable_x64(True):
        held = int(np.clip(round(HELD_OUT * len(x)), 1, 20_000))
        split = split_rows(len(x), held_out=held, random_state=seed)
        x_scale, y_scale = standardise(x[split.train]), standardise(y[split.train])
        data, held_out = _arrays(x, y, weight, y_scale, split)
        factors = [find_factor(x, column, library, among=split.train) for column in y.T]
        rest_scale, rest_data, rest_held_out = y_scale, data, held_out
        if any(any(factor.powers) for factor in factors):
            rest = y / np.stack([factor.values(x) for factor in factors], axis=1)
            rest_scale = _scale_of_rest(rest[split.train])
            rest_data, rest_held_out = _arrays(x, rest, weight, rest_scale, split)
        members, population = _train(
            rest_data, rest_held_out, x_scale, library, n_layers, training, schedule, seed, monitor
        )  # fmt: skip

        def nats(loss: float) -> float:
            return 0.5 * float(np.log(loss + FLOOR))

        def coarse(loss: float) -> float:  # a network is not expected to be exact to the last digit
            return 0.5 * float(np.log(loss + COARSE_FLOOR))

        networks = eliminate_all(
            _promising(members, population),
            row_loss,
            _scaled(rest_data, x_scale),
            monitor=monitor,
            nats=coarse,
        )
        ratios = np.asarray(rest_scale.scale) / np.asarray(y_scale.scale)
        points = refine(
            [_multiplied(f, factors, ratios) for f in _open_all(networks, x_scale)], row_loss, data, held_out,
            complexity=_complexity, acceptable=_is_finite(data), tidy=tidy, monitor=monitor, nats=nats,
        )  # fmt: skip
        front = pareto(points)
        if not front:
            raise DivergedError
        chosen = choose(front, training.selection, n_rows=len(split.train))
        front = [replace(p, model=_in_units(p.model, y_scale)) for p in front]
        polished = polish(
            front[chosen], row_loss, _in_y_units(data, y_scale), _in_y_units(held_out, y_scale),
            snapping=training.snap, tidy=tidy, complexity=_complexity, nats=nats,
        )  # fmt: skip
        front[chosen] = polished.point
        return RegressionFit(
            front,
            chosen,
            polished.point.model,
            polished.errors,
            polished.labels,
            population,
            len(split.train),
        )


def row_loss(formulas: Formulas | EQL, data: dict[str, Float[Array, "width n"]]) -> Float[Array, " n"]:
    """Return the squared error of every row, summed over the outputs, in units of y's variance."""
    residual = formulas.columns(data["x"])[0] - data["y"]
    if "scale" in data:
        residual = residual / data["scale"]
    return jnp.sum(residual**2, axis=0)


def _in_y_units(arrays: dict[str, np.ndarray], y_scale: Standardise) -> dict[str, np.ndarray]:
    """Return arrays with y in its own units and the scale by which its errors are weighed beside it."""
    scale = np.broadcast_to(np.asarray(y_scale.scale)[:, None], arrays["y"].shape)
    return {**arrays, "y": arrays["y"] * scale, "scale": scale}


def _arrays(x, y, weight, y_scale, split) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return rows to train on and rows held out."""
    # Only the scale of y is taken out: formulas keep their constants, up to that factor.
    arrays = {"x": x.T, "y": (y / np.asarray(y_scale.scale)).T}
    if weight is not None:
        arrays["weight"] = (weight / np.mean(weight))[None, :]
    train, held_out = ({k: v[:, i] for k, v in arrays.items()} for i in (split.train, split.held_out))
    return train, held_out


def _train(data, held_out, x_scale, library, n_layers, training, schedule, seed, monitor):
    assert training.n_restarts is not None
    keys = split_words(words_of(key_of(seed)), training.n_restarts + 1)
    n_inputs, n_outputs = len(data["x"]), len(data["y"])
    networks = [
        build_eql(k, n_inputs, n_outputs, n_layers=n_layers, library=library, skip=True, last_scale=0.3)
        for k in keys[1:]
    ]
    _, restore = flatten(networks[0])
    weights = np.stack([np.asarray(flatten(n)[0], np.float32) for n in networks])
    masks, groups = sublibrary_masks(networks[0], training.n_restarts)
    population = train_shared(
        _Objective(restore),
        weights,
        _scaled(data, x_scale),
        _scaled(held_out, x_scale),
        schedule,
        wrapped(keys[0]),
        n_jobs=training.n_jobs,
        monitor=monitor,
        path=None if training.checkpoint is None else Path(training.checkpoint),
        masks=masks,
        groups=groups,
        about=repr((library, n_layers)),
    )
    return [
        restore(np.asarray(w, np.float64)) for w in population.weights if np.all(np.isfinite(w))
    ], population


@dataclass(frozen=True)
class _Objective:
    """The mean loss of a batch, weighted where the rows are."""

    restore: Callable[[Any], EQL]

    def __call__(self, weights: Any, batch: Any, key: Any, moment: Any) -> Any:
        losses = row_loss(self.restore(weights), batch)
        return jnp.mean(losses * batch["weight"][0] if "weight" in batch else losses)


def _scaled(arrays: dict[str, np.ndarray], x_scale: Standardise) -> dict[str, np.ndarray]:
    shift, scale = np.asarray(x_scale.shift)[:, None], np.asarray(x_scale.scale)[:, None]
    return {**arrays, "x": (arrays["x"] - shift) / scale}


def _promising(members: list[EQL], population: Population) -> list[EQL]:
    """Return the members that a few constants take far, one for each set of functions in use."""
    worth = [
        float(np.log(loss + 1e-6)) + 0.1 * n_constants(m)
        for m, loss in zip(members, population.held_out, strict=False)
    ]
    kept: dict[frozenset[str], EQL] = {}
    for i in np.argsort(worth, kind="stable"):
        network = _thinned(members[i])
        kept.setdefault(functions_in(formulas_of(network)), network)
        if len(kept) == N_REFINED:
            break
    return list(kept.values())


def _open_all(networks: list[EQL], x_scale: Standardise) -> list[Formulas]:
    """Return networks as formulas in x's own units, no two of the same structure."""
    opened = {formulas.trees: formulas for formulas in (_open(n, x_scale) for n in networks)}
    return list(opened.values())


def _scale_of_rest(rest: np.ndarray) -> Standardise:
    """Return a scale at which what factors leave, often all but a constant, is of the order of ten at most."""
    scale = standardise(rest)
    least = np.abs(np.mean(rest, axis=0)) / MOST_OFFSET
    sd = np.std(rest, axis=0)
    return replace(scale, scale=tuple(np.where(sd > least, scale.scale, least).tolist()))


def _multiplied(formulas: Formulas, factors: Sequence[Factor], ratios: np.ndarray) -> Formulas:
    """Return formulas for y itself from formulas for what its factors leave of it."""
    if not any(any(factor.powers) for factor in factors):
        return formulas
    inputs = input_symbols(formulas.n_inputs)
    products = [
        shortest(sympy.Float(ratio) * e * factor.expression(inputs))
        for ratio, factor, e in zip(ratios, factors, expressions_of(formulas), strict=True)
    ]
    return build_formulas(products, formulas.n_inputs, stack=1)


def _thinned(network: EQL) -> EQL:
    """Return the network with at most so many weights in use as can be refined: the largest."""
    vector, restore = flatten(network)
    size = np.abs(np.asarray(vector))
    if np.count_nonzero(size) <= MAX_CONSTANTS:
        return network
    least = np.sort(size)[-MAX_CONSTANTS]
    return restore(jnp.where(size >= least, vector, 0.0))


def _open(network: EQL, x_scale: Standardise) -> Formulas:
    symbols = input_symbols(network.n_inputs)
    raw = [
        (s - sympy.Float(m)) / sympy.Float(w) if m else s / sympy.Float(w)
        for s, m, w in zip(symbols, x_scale.shift, x_scale.scale, strict=True)
    ]
    return build_formulas([shortest(e) for e in formulas_of(network, raw)], network.n_inputs, stack=1)


def tidy(formulas: Formulas) -> Formulas:
    """Return formulas with constants that are exactly zero taken out, and what they held up."""
    found = [shortest(with_small_phases(e)) for e in expressions_of(formulas)]
    return build_formulas(found, formulas.n_inputs, stack=1)


def _in_units(formulas: Formulas, y_scale: Standardise) -> Formulas:
    scaled = [
        shortest(sympy.Float(w) * e) for w, e in zip(y_scale.scale, expressions_of(formulas), strict=True)
    ]
    return build_formulas(scaled, formulas.n_inputs, stack=1)


def _complexity(formulas: Formulas) -> int:
    return sum(complexity(tree) for tree in formulas.trees)


def _is_finite(data):
    def finite(formulas: Formulas) -> bool:
        return bool(
            np.all(
                np.isfinite(
                    np.asarray(row_loss(formulas, {k: jnp.asarray(v[:, :512]) for k, v in data.items()}))
                )
            )
        )

    return finite

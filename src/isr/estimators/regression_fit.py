"""The fit of an equation-learner regressor, told in order: scale, train, prune, refine, choose, polish."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import sympy
from jaxtyping import Array, Float

from isr.bijections.affine import Standardise, standardise
from isr.bijections.formula import Formulas
from isr.bijections.networks import EQL, build_eql
from isr.bijections.parameters import flatten, n_constants
from isr.equations import extract
from isr.estimators import pipeline
from isr.estimators.formula_regressor import Rows
from isr.estimators.pipeline import MAX_CONSTANTS, Arrays, Criterion, Fitted, Pruned, Trained
from isr.estimators.rows import n_held_out
from isr.estimators.settings import Plan
from isr.estimators.status import DivergedError
from isr.formulas import to_formulas
from isr.formulas.front import choose, pareto
from isr.formulas.to_formulas import input_symbols, network_expressions, without_idle_guards
from isr.tables.tables import split_rows
from isr.training.workers import keep_compiled_programs

N_REFINED = 5
# A residual variance below this share of y's is rounding, not misfit; a network is not expected to be that exact.
FLOOR = 1e-24
COARSE_FLOOR = 1e-8

Library = Mapping[str, int] | Sequence[str]


def fit_regression(samples: Rows, library: Library, n_layers: int, plan: Plan) -> Fitted:
    """Fit formulas for every column of y to rows of x, by least squares."""
    keep_compiled_programs()
    with jax.enable_x64(True):
        split = split_rows(len(samples.x), held_out=n_held_out(len(samples.x)), random_state=plan.seed)
        x_scale, y_scale = standardise(samples.x[split.train]), standardise(samples.y[split.train])
        train, held_out = (
            _scaled(_arrays(samples.some(rows), y_scale, samples.weight), x_scale) for rows in split
        )
        trained = _train(train, held_out, library, n_layers, plan)
        pruned = pipeline.prune(_promising(trained), row_loss, train, plan.monitor, nats=_nats(COARSE_FLOOR))
        opened = _open(pruned, x_scale)
        criterion = _criterion(*(_arrays(samples.some(rows), y_scale, samples.weight) for rows in split))
        refined = pipeline.refine(opened, criterion, plan.monitor)
        front = pareto(refined.points)
        if not front:
            raise DivergedError
        chosen = choose(front, plan.training.selection, n_rows=len(split.train))
        front = [replace(p, model=_in_units(p.model, y_scale)) for p in front]
        polished = pipeline.polish(
            front[chosen], _in_y_units(criterion, y_scale), snapping=plan.training.snap
        )
        front[chosen] = polished.point
        front = [replace(p, model=without_idle_guards(p.model, samples.x)) for p in front]
        return Fitted(front, chosen, polished.errors, polished.labels, trained.population, len(split.train))


def _arrays(rows: Rows, y_scale: Standardise, weight: np.ndarray | None) -> Arrays:
    """Rows, batch last, y in its own spread: formulas keep their constants, up to that factor."""
    arrays = {"x": rows.x.T, "y": (rows.y / np.asarray(y_scale.scale)).T}
    if rows.weight is not None and weight is not None:
        arrays["weight"] = (rows.weight / np.mean(weight))[None, :]
    return arrays


def row_loss(formulas: Formulas | EQL, data: dict[str, Float[Array, "width n"]]) -> Float[Array, " n"]:
    """Return the squared error of every row, summed over the outputs, in units of y's variance."""
    residual = formulas.columns(data["x"])[0] - data["y"]
    if "scale" in data:
        residual = residual / data["scale"]
    return jnp.sum(residual**2, axis=0)


def tidy(formulas: Formulas) -> Formulas:
    """Return formulas with constants that are exactly zero taken out, and what they held up."""
    return _rewritten(formulas, [to_formulas.with_small_phases(e) for e in network_expressions(formulas)])


def _rewritten(formulas: Formulas | EQL, expressions: Sequence[to_formulas.Expression]) -> Formulas:
    return to_formulas.build_formulas(
        [to_formulas.shortest(e) for e in expressions], formulas.n_inputs, stack=1
    )


def _nats(floor: float) -> Callable[[float], float]:
    return lambda loss: 0.5 * float(np.log(loss + floor))


def _criterion(train: Arrays, held_out: Arrays) -> Criterion:
    def is_finite(formulas: Formulas) -> bool:
        losses = row_loss(formulas, {k: jnp.asarray(v[:, :512]) for k, v in train.items()})
        return bool(np.all(np.isfinite(np.asarray(losses))))

    def cost(formulas: Formulas) -> int:
        return extract(formulas).complexity

    return Criterion(row_loss, train, held_out, cost, tidy, is_finite, _nats(FLOOR))


def _in_y_units(criterion: Criterion, y_scale: Standardise) -> Criterion:
    """Return the criterion of formulas for y in its own units, its errors still weighed by its spread."""

    def changed(arrays: Arrays) -> Arrays:
        scale = np.broadcast_to(np.asarray(y_scale.scale)[:, None], arrays["y"].shape)
        return {**arrays, "y": arrays["y"] * scale, "scale": scale}

    return replace(criterion, train=changed(criterion.train), held_out=changed(criterion.held_out))


def _in_units(formulas: Formulas, y_scale: Standardise) -> Formulas:
    expressions = zip(y_scale.scale, network_expressions(formulas), strict=True)
    return _rewritten(formulas, [sympy.Float(width) * e for width, e in expressions])


def _scaled(arrays: Arrays, x_scale: Standardise) -> Arrays:
    shift, scale = np.asarray(x_scale.shift)[:, None], np.asarray(x_scale.scale)[:, None]
    return {**arrays, "x": (arrays["x"] - shift) / scale}


def _train(data: Arrays, held_out: Arrays, library: Library, n_layers: int, plan: Plan) -> Trained:
    shape: dict[str, Any] = {"n_layers": n_layers, "library": library, "skip": True, "last_scale": 0.3}
    population, restore = pipeline.train_networks(
        plan, lambda key: build_eql(key, len(data["x"]), len(data["y"]), **shape), _Objective, data, held_out,
        about=repr((library, n_layers)),
    )  # fmt: skip
    finite = [w for w in population.weights if np.all(np.isfinite(w))]
    return Trained([restore(np.asarray(w, np.float64)) for w in finite], population)


@dataclass(frozen=True)
class _Objective:
    """The mean loss of a batch, weighted where the rows are."""

    restore: Callable[[Any], EQL]

    def __call__(self, weights: Any, batch: Any, key: Any, moment: Any) -> Any:
        losses = row_loss(self.restore(weights), batch)
        return jnp.mean(losses * batch["weight"][0] if "weight" in batch else losses)


def _promising(trained: Trained) -> list[EQL]:
    """Return the networks that a few constants take far, one for each set of functions in use."""
    pairs = zip(trained.networks, trained.population.held_out, strict=False)
    worth = [float(np.log(loss + 1e-6)) + 0.1 * n_constants(network) for network, loss in pairs]
    kept: dict[frozenset[str], EQL] = {}
    for i in np.argsort(worth, kind="stable"):
        network = _thinned(trained.networks[i])
        kept.setdefault(to_formulas.functions_in(network_expressions(network)), network)
        if len(kept) == N_REFINED:
            break
    return list(kept.values())


def _thinned(network: EQL) -> EQL:
    """Return the network with at most so many weights in use as can be refined: the largest."""
    vector, restore = flatten(network)
    size = np.abs(np.asarray(vector))
    if np.count_nonzero(size) <= MAX_CONSTANTS:
        return network
    least = np.sort(size)[-MAX_CONSTANTS]
    return restore(jnp.where(size >= least, vector, 0.0))


def _open(pruned: Pruned, x_scale: Standardise) -> list[Formulas]:
    """Return networks as formulas in x's own units, no two of the same structure."""
    scales = zip(input_symbols(x_scale.dim), x_scale.shift, x_scale.scale, strict=True)
    raw = {s: (s - sympy.Float(m) if m else s) / sympy.Float(w) for s, m, w in scales}
    opened = (_rewritten(n, [e.xreplace(raw) for e in network_expressions(n)]) for n in pruned.networks)
    return list({formulas.trees: formulas for formulas in opened}.values())

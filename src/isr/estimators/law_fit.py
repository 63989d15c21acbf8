"""The fit of a `LawRegressor`: a search for each output, a front they share, and the formulas that a file holds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import sympy

from isr.bijections.formula import Formulas, Tree
from isr.bijections.parameters import on_device
from isr.equations import extract
from isr.estimators.formula_regressor import Rows
from isr.formulas.front import Point
from isr.search import Candidate, Found, find_laws
from isr.search.candidates import fitted, with_errors
from isr.search.evaluate import opened, symbol
from isr.search.rows import REFIT_ROWS, Data
from isr.search.surrogate import lack_of_fit

# A held-out variance below this share of y's is rounding, not misfit.
FLOOR = 1e-24
# What is left depends on x, by a test at this level, and is more than rounding: the law is not all there is.
REFUTED, LEAST_LEFT = 1e-4, 1e-6


@dataclass(frozen=True)
class Laws:
    """Laws of all outputs, from simple to complex; the constant and the linear laws are the first two."""

    front: list[Point]
    candidates: list[list[Candidate]]  # the laws of each output for each point
    chosen: int
    seconds: float  # that the search took

    def errors(self, point: int) -> np.ndarray:
        """Return the standard error of each constant of a point's formulas."""
        return np.array([e for c in self.candidates[point] for e in c.standard_errors])


def fit_laws(
    train: Rows,
    held_out: Rows,
    *,
    library: str | Iterable[str],
    units: Sequence[Mapping[str, str] | None],
    max_time: float,
    seed: int,
    say: Callable[[str], None] | None,
) -> Laws:
    """Search a law for each column of y, each with the forms that the others found as hints."""
    began, names = time.monotonic(), [f"x{j + 1}" for j in range(train.x.shape[1])]
    n, found, hints = train.y.shape[1], [], []
    for i in range(n):
        left = max_time - (time.monotonic() - began)
        told = None if say is None else (lambda what, i=i: say(f"output {i + 1}: {what}" if n > 1 else what))
        found.append(
            find_laws(
                train.x, train.y[:, i], names, weight=train.weight, library=library, units=units[i],
                max_time=max(left / (n - i), 0.1), random_state=seed, say=told, hints=hints,
            )
        )  # fmt: skip
        hints.append(found[-1].best.expression)
    ladders = [_ladder(f, held_out, i, names) for i, f in enumerate(found)]
    down = max(place for _, place in ladders)
    up = max(len(steps) - place for steps, place in ladders)
    combined = [[f.constant for f in found], [f.linear for f in found]]
    for level in range(-down, up):
        combined.append([s[int(np.clip(place + level, 0, len(s) - 1))] for s, place in ladders])
    kept = list({tuple(map(id, laws)): laws for laws in combined}.values())
    best = [id(steps[place]) for steps, place in ladders]
    chosen = next(i for i, laws in enumerate(kept) if [id(law) for law in laws] == best)
    points = [_point(laws, train, held_out, names) for laws in kept]
    return Laws(points, kept, chosen, time.monotonic() - began)


def _ladder(found: Found, held_out: Rows, output: int, names: list[str]) -> tuple[list[Candidate], int]:
    """Laws of which each more complex one leaves less, and the place of the one to use."""
    losses = {id(c): _loss(c, held_out, output, names) for c in found.candidates}
    fine = [c for c in found.candidates if losses[id(c)] <= losses[id(found.linear)] or c is found.constant]
    best = fine[0] if fine else found.linear
    steps: list[Candidate] = []
    for c in sorted(found.candidates, key=lambda c: (c.complexity, c.residual_sd)):
        if c is best or not steps or c.residual_sd < 0.98 * steps[-1].residual_sd:
            steps.append(c)
    return steps, next(i for i, c in enumerate(steps) if c is best)


def _gaps(candidate: Candidate, rows: Rows, output: int, names: Sequence[str]) -> np.ndarray:
    law = opened(candidate.expression, [symbol(n) for n in names])
    return rows.y[:, output] - law.values(list(rows.x.T))


def _loss(candidate: Candidate, rows: Rows, output: int, names: Sequence[str]) -> float:
    gaps = _gaps(candidate, rows, output, names)
    w = np.ones(len(gaps)) if rows.weight is None else rows.weight
    with np.errstate(all="ignore"):
        loss = float(np.average(gaps**2, weights=w)) if len(gaps) and w.sum() > 0 else 0.0
    return loss if np.isfinite(loss) else np.inf


def _point(laws: Sequence[Candidate], train: Rows, held_out: Rows, names: list[str]) -> Point:
    formulas = as_formulas([c.expression for c in laws], names)
    variances = [np.var(y) or 1.0 for y in train.y.T]

    def nats(rows: Rows) -> float:
        losses = [_loss(c, rows, i, names) / variances[i] for i, c in enumerate(laws)]
        return sum(0.5 * float(np.log(loss + FLOOR)) for loss in losses)

    squares = sum(_gaps(c, held_out, i, names) ** 2 / variances[i] for i, c in enumerate(laws))
    cost, size = extract(formulas).complexity, len(formulas.constants)
    return Point(formulas, cost, size, nats(train), nats(held_out), np.asarray(squares))


def refitted(laws: Laws, rows: Rows) -> Laws:
    """Return the same laws with constants fitted to all rows, those that are not used to as many as it takes."""
    names = tuple(f"x{j + 1}" for j in range(rows.x.shape[1]))
    data = [Data.of(names, rows.x, column, rows.weight) for column in rows.y.T]
    some = [d.some(REFIT_ROWS, 0) for d in data]

    def again(number: int, point: list[Candidate]) -> list[Candidate]:
        return [
            with_errors(d, fitted(d, candidate.expression) or candidate)
            for d, candidate in zip(data if number == laws.chosen else some, point, strict=True)
        ]

    every = [again(*pair) for pair in enumerate(laws.candidates)]
    models = [as_formulas([c.expression for c in point], names) for point in every]
    front = [replace(p, model=model) for p, model in zip(laws.front, models, strict=True)]
    return replace(laws, front=front, candidates=every)


def left_over(laws: Laws, rows: Rows) -> list[tuple[int, float]]:
    """Return the outputs whose law leaves something that depends on x, with the share of the spread that it leaves."""
    names, found = [f"x{j + 1}" for j in range(rows.x.shape[1])], []
    index = np.linspace(0, len(rows.x) - 1, min(len(rows.x), 2000)).astype(int)
    some = rows.some(index)
    root = np.ones(len(index)) if some.weight is None else np.sqrt(some.weight / some.weight.mean())
    for i, candidate in enumerate(laws.candidates[laws.chosen]):
        gaps, y = _gaps(candidate, some, i, names), some.y[:, i]
        share = float(np.sqrt(np.mean(gaps**2)) / (np.std(y) or 1.0))
        if share > LEAST_LEFT and len(index) >= 30 and lack_of_fit(some.x, gaps, root) < REFUTED:
            found.append((i, share))
    return found


# Formulas that files hold ------------------------------------------------------------------------------------


def as_formulas(expressions: Sequence[sympy.Expr], names: Sequence[str]) -> Formulas:
    """Return expressions as formulas, their decimal numbers as constants in order of appearance.

    Example:
        >>> x = symbol("x1")
        >>> as_formulas([2.5 * sympy.sqrt(x) + 1], ["x1"]).trees[0][0]
        'add'
    """
    places = {symbol(name): j for j, name in enumerate(names)}
    constants: list[float] = []
    trees = tuple(_tree(sympy.sympify(e, strict=True), places, constants) for e in expressions)
    return Formulas(on_device(np.array(constants, dtype=np.float64).reshape(-1)), trees, 1, len(names))


def _tree(e: Any, places: Mapping[Any, int], constants: list[float]) -> Tree:
    if e in places:
        return ("input", places[e])
    if e.is_Float:
        constants.append(float(e))
        return ("constant", len(constants) - 1)
    if e.is_Integer and abs(e) < 2**53:
        return ("number", int(e))
    if e.is_number and not e.has(sympy.Float):
        return ("number", float(e))
    if e.is_Add or e.is_Mul:
        return ("add" if e.is_Add else "mul", *(_tree(a, places, constants) for a in e.args))
    if e.is_Pow:
        base = _tree(e.base, places, constants)
        if e.exp.is_Integer:
            return ("pow", base, int(e.exp))
        if e.exp == sympy.S.Half:
            return ("plain", "sqrt", base)
        if e.exp.is_number:
            return ("plain", "power", base, ("number", float(e.exp)))
        return ("plain", "exp", ("mul", _tree(e.exp, places, constants), ("plain", "log", base)))
    return ("plain", type(e).__name__, _tree(e.args[0], places, constants))

"""Simplification: fewer digits, fewer terms, within a stated error.

Every step is tried on rows and kept only if all outputs and the log-determinant still agree with the original ones.
The error is relative: the change of a value over its size or, where that is larger, the spread of its column; for
the log-determinant over one nat at least.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import sympy
from jaxtyping import Float

from isr.equations.evaluate import compile_numpy, evaluate
from isr.equations.program import Program, replaced, without_dead_code
from isr.equations.text import number_text
from isr.equations.written import folded, number

# Beyond this many constants, one number of digits serves all: trying each would take minutes.
MOST_CONSTANTS_ONE_BY_ONE = 200
# SymPy's own simplification is worth its time on so many expressions of this size.
MOST_REWRITTEN = 60
LARGEST_REWRITTEN = 30


def simplify(
    program: Program,
    budget: float = 1e-3,
    rows: Float[np.ndarray, "n inputs"] | None = None,
    y: Float[np.ndarray, "n conditions"] | None = None,
    *,
    collapse_guards: bool = False,
) -> tuple[Program, float]:
    """Return a shorter program and the error it makes, at most ``budget`` on the rows.

    Args:
        program: One direction of a model.
        budget: Largest relative change allowed.
        rows: Inputs to judge by; 1,000 normal draws when left out.
        y: Conditions to judge by, likewise.
        collapse_guards: Whether limits (Min, Max) that never act on the rows may go. Off the rows values then differ.

    Example:
        >>> x, z = sympy.symbols("x z", real=True)
        >>> program = Program((x,), (), (), (0.50003 * x + 1e-7 * x**2,), sympy.log(0.50003), output_symbols=(z,))
        >>> shorter, error = simplify(program, 1e-3)
        >>> shorter.outputs[0]
        0.5*x
        >>> error < 1e-3
        True
    """
    if not 0 < budget < 1:
        raise ValueError(f"the budget is a relative error between 0 and 1, got {budget!r}")
    judge = _Judge(program, rows, y)
    best = judge.better(program, _without_idle_guards(program, judge), budget) if collapse_guards else program
    best = judge.better(best, _shorter_constants(best, judge, budget), budget)
    if len(best.assignments) <= MOST_REWRITTEN:
        for rewrite in (sympy.expand, sympy.simplify):
            best = judge.better(best, _rewritten(best, rewrite), budget)
    return best, judge.error(best)


class _Judge:
    """Compares programs with the values that must be kept on some rows."""

    def __init__(self, program: Program, rows: Any, y: Any) -> None:
        rng = np.random.default_rng(0)
        self.rows = np.asarray(
            rng.normal(size=(1000, len(program.inputs))) if rows is None else rows, np.float64
        )
        drawn = rng.normal(size=(len(self.rows), len(program.conditions))) if y is None else y
        self.y = drawn if program.conditions else None
        self.expected = np.column_stack(evaluate(program, self.rows, self.y))
        if not np.all(np.isfinite(self.expected)):
            raise ValueError("the equations are not finite on these rows; give rows like the data")
        spread = np.maximum(np.std(self.expected, axis=0), np.finfo(float).tiny)
        spread[-1] = max(spread[-1], 1.0)
        self.scale = np.maximum(np.abs(self.expected), spread)

    def error(self, program: Program, **compiled: Any) -> float:
        """The largest relative error on the rows."""
        found = np.column_stack(evaluate(program, self.rows, self.y, **compiled))
        with np.errstate(all="ignore"):
            error = np.max(np.abs(found - self.expected) / self.scale)
        return float(error) if np.isfinite(error) else float("inf")

    def better(self, old: Program, new: Program, budget: float) -> Program:
        """Return ``new`` if its values still agree, else ``old``."""
        return new if new is not old and self.error(new) <= budget else old


def _shorter_constants(program: Program, judge: _Judge, budget: float) -> Program:
    """Each constant with the fewest digits, none at all where its term may go."""
    numbers = sorted(set().union(*(e.atoms(sympy.Float) for e in program.expressions)))
    if not numbers:
        return program
    # A symbol in place of every number with a fraction, as a further input; equal numbers share one.
    symbols = tuple(sympy.Dummy(f"c{i}", real=True) for i in range(len(numbers)))
    opened = _replaced(program, dict(zip(numbers, symbols, strict=True)))
    opened = replace(opened, inputs=(*program.inputs, *symbols))
    function, values = compile_numpy(opened), [float(n) for n in numbers]

    def fits(trial: list[float], limit: float) -> bool:
        return judge.error(opened, function=function, parameters=trial) <= limit

    def closed(chosen: list[float]) -> Program:
        table = {s: number(v) for s, v in zip(symbols, chosen, strict=True)}
        return _tidied(replace(_replaced(opened, table), inputs=program.inputs))

    if len(symbols) > MOST_CONSTANTS_ONE_BY_ONE:
        trials = ([float(number_text(v, digits)) for v in values] for digits in range(1, 16))
        return next((closed(trial) for trial in trials if fits(trial, budget)), program)
    current = list(values)
    # Small ones first: they are the likeliest to go. Each may use up its share of the budget and what others left.
    for step, index in enumerate(sorted(range(len(values)), key=lambda i: abs(values[i]))):
        limit = budget * (step + 1) / len(values)
        for candidate in (0.0, *(float(number_text(values[index], digits)) for digits in range(1, 16))):
            trial = [*current[:index], candidate, *current[index + 1 :]]
            if fits(trial, limit):
                current = trial
                break
    return closed(current)


def _replaced(program: Program, table: dict) -> Program:
    return program.with_expressions(tuple(replaced(e, table) for e in program.expressions))


def _tidied(program: Program) -> Program:
    """Return a program whose constant and copied intermediates are put where they are read."""
    known: dict[sympy.Basic, sympy.Expr] = {}
    kept = []
    for assignment in program.assignments:
        value = folded(replaced(assignment.value, known))
        if value.is_number or value.is_Symbol:
            known[assignment.target] = value
        else:
            kept.append((assignment, value))
    shorter = replace(
        program,
        assignments=tuple(replace(a, value=value) for a, value in kept),
        outputs=tuple(folded(replaced(e, known)) for e in program.outputs),
        log_det=replaced(program.log_det, known),
    )
    return without_dead_code(shorter)


def _without_idle_guards(program: Program, judge: _Judge) -> Program:
    """The program without limits that no row reaches."""
    found = {e for value in program.expressions for e in value.atoms(sympy.Min, sympy.Max)}
    # Each limit with what it holds and the number it holds it below or above.
    limits: dict[Any, Any] = {
        e: tuple(sorted(e.args, key=lambda a: a.is_number))
        for e in sorted(found, key=str)
        if len(e.args) == 2 and sum(bool(a.is_number) for a in e.args) == 1
    }
    if not limits:
        return program
    held = replace(program, outputs=tuple(v for v, _ in limits.values()), bounds=(), log_det=sympy.S.Zero)
    reached, _ = evaluate(held, judge.rows, judge.y)
    idle = {
        limit
        for (limit, (_, end)), column in zip(limits.items(), reached.T, strict=True)
        if np.all(column < float(end) if isinstance(limit, sympy.Min) else column > float(end))
    }

    def stripped(e: Any) -> Any:
        if e in idle:
            return stripped(limits[e][0])
        return e.func(*map(stripped, e.args)) if e.has(sympy.Min, sympy.Max) else e

    return _tidied(program.with_expressions(tuple(map(stripped, program.expressions))))


def _rewritten(program: Program, rewrite: Callable) -> Program:
    """The program with each small expression rewritten where that makes it shorter."""

    def shorter(e: sympy.Expr) -> sympy.Expr:
        size = e.count_ops()
        if not 1 < size <= LARGEST_REWRITTEN or e.has(sympy.Piecewise):
            return e
        new = rewrite(e)
        return new if new.count_ops() < size else e

    values = program.expressions
    new = tuple(shorter(e) for e in values)
    return program if new == values else _tidied(program.with_expressions(new))

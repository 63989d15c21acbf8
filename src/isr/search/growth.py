"""Growth: sines of whole combinations of columns, changes of parts of what was found, and terms for what it leaves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import numpy as np
import sympy

from isr.search import sums
from isr.search.atoms import Table
from isr.search.candidates import Candidate, Pool
from isr.search.evaluate import opened
from isr.search.problem import Problem

LARGEST_WEIGHT, LARGEST_SUM, MOST_SINES = 2, 4, 400
N_GROWN, N_ROUNDS, LARGEST_CHANGED = 3, 4, 45
# What is added starts at this share of what it is added to.
START = 0.1


def sines(problem: Problem, limit: sums.Limit) -> Iterator[sympy.Expr]:
    """Yield sums of columns and of sines and cosines of sums of columns with whole weights."""
    if problem.k < 2:
        return
    table = Table()
    for j, column in enumerate(problem.columns.T):
        table.add(column, lambda j=j: problem.symbols[j])
    for weights in _weights(problem.k):
        angle = problem.columns @ np.array(weights)
        for name, values in (("sin", np.sin(angle)), ("cos", np.cos(angle))):
            if name in problem.functions:
                table.add(values, lambda w=weights, n=name: _called(n, w, problem.symbols))
    yield from sums._chosen(problem, table, 6, lambda: sums.NEAR * limit())


def _called(name: str, weights: tuple[int, ...], symbols: tuple[sympy.Symbol, ...]) -> sympy.Expr:
    return getattr(sympy, name)(sympy.Add(*(w * s for w, s in zip(weights, symbols, strict=True))))


def _weights(k: int) -> list[tuple[int, ...]]:
    """Weights up to a common sign, small ones first."""
    span = range(-LARGEST_WEIGHT, LARGEST_WEIGHT + 1) if k <= 6 else range(-1, 2)
    if k > 8:
        return []
    every = [
        w for w in product(span, repeat=k)
        if 0 < sum(map(abs, w)) <= LARGEST_SUM and next(v for v in w if v) > 0
    ]  # fmt: skip
    return sorted(every, key=lambda w: sum(map(abs, w)))[:MOST_SINES]


def grow(pool: Pool, problem: Problem, limit: sums.Limit) -> Iterator[sympy.Expr]:
    """Yield changes of the best laws, and these with one more term for what they leave, as long as that helps."""
    grown: set[sympy.Expr] = set()
    for _ in range(N_ROUNDS):
        before = pool.best
        for candidate in pool.ranked(N_GROWN):
            if candidate.expression not in grown and candidate.complexity <= LARGEST_CHANGED:
                grown.add(candidate.expression)
                yield from changed(candidate.expression, problem)
        for candidate in pool.ranked(N_GROWN):
            for term in _terms(problem, candidate, limit):
                yield candidate.expression + problem.lifted(term)
        if pool.best is before:
            return


def changed(law: sympy.Expr, problem: Problem) -> Iterator[sympy.Expr]:
    """Yield a law with one of its parts changed: a power, a function, a variable, or a part left out or added to.

    Example:
        >>> x, y = problem_symbols = sympy.symbols("x y", real=True)
        >>> problem = Problem(np.ones((2, 2)), problem_symbols, np.ones(2), np.ones(2), lambda e: e, frozenset({"exp"}))
        >>> some = set(changed(2.5 * sympy.sin(x), problem))
        >>> {2.5 * sympy.exp(x), 2.5 * sympy.sin(y), 2.5 * sympy.sin(x * y), 2.5 * sympy.sin(x) * y} <= some
        True
    """
    yield from _changed_here(law, problem)
    for i, part in enumerate(law.args):
        if not part.is_number:
            for other in changed(part, problem):
                yield law.func(*law.args[:i], other, *law.args[i + 1 :])


def _changed_here(part: sympy.Expr, problem: Problem) -> Iterator[sympy.Expr]:
    if part.is_Pow and part.exp.is_Rational:
        half = sympy.Rational(1, 2)
        yield from (part.base ** (part.exp + step) for step in (1, -1, half, -half))
        yield part.base**-part.exp
    if part.is_Function:
        yield part.args[0]
        yield from (f(part.args[0]) for n, f in _HEADS.items() if n in problem.functions and f != part.func)
    if part.is_Add or part.is_Mul:
        yield from (part.func(*part.args[:i], *part.args[i + 1 :]) for i in range(len(part.args)))
    values = np.abs(opened(part, problem.meaning).values(list(problem.columns.T)))
    middle = float(np.median(values)) or 1.0
    if np.isfinite(middle) and not part.is_Add:
        yield part + sympy.Float(START * middle)
    if part.is_Add and not any(a.is_number for a in part.args):
        yield part + sympy.Float(START * middle)
    for j, variable in enumerate(problem.meaning):
        if part.is_Symbol and variable != part:
            yield variable
        if part.is_Symbol or part.is_Add:
            yield part + sympy.Float(START * middle / problem.size[j]) * variable
        if not part.is_Add:
            yield from (part * variable, part / variable)


_HEADS = {n: getattr(sympy, n) for n in ("sin", "cos", "exp", "log", "tanh", "atan", "sinh", "cosh", "sqrt")}


def _terms(problem: Problem, candidate: Candidate, limit: sums.Limit) -> Iterator[sympy.Expr]:
    values = opened(candidate.expression, problem.meaning).values(list(problem.columns.T))
    rest = replace(problem, target=problem.target - values)
    yield from sums.with_plain_functions(rest, limit, n_terms=1)
    yield from sums.with_functions(rest, limit, n_factors=3, n_terms=1)

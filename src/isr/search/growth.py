"""Growth: sines of whole combinations of columns, and terms added to what was found, from what it leaves."""

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
N_GROWN, N_ROUNDS = 3, 4


def sines(problem: Problem, limit: sums.Limit) -> Iterator[sympy.Expr]:
    """Yield sums of columns and of sines and cosines of sums of columns with whole weights."""
    table = Table([], [])
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
    """Yield the best laws with one more term, chosen for what they leave, as long as that helps."""
    for _ in range(N_ROUNDS):
        before = pool.best
        for candidate in pool.ranked(N_GROWN):
            for term in _terms(problem, candidate, limit):
                yield candidate.expression + problem.lifted(term)
        if pool.best is before:
            return


def _terms(problem: Problem, candidate: Candidate, limit: sums.Limit) -> Iterator[sympy.Expr]:
    values = opened(candidate.expression, problem.meaning).values(list(problem.columns.T))
    rest = replace(problem, target=problem.target - values)
    yield from sums.with_plain_functions(rest, limit, n_terms=1)
    yield from sums.with_functions(rest, limit, n_factors=3, n_terms=1)

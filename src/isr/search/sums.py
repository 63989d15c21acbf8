"""Sums: a few monomials, functions of monomials, and products of both, chosen from one wide table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import sympy

from isr.search.atoms import ADDED, Table, atoms
from isr.search.monomials import exponents, values_of, written
from isr.search.problem import Problem
from isr.search.selection import select

SCREENING_ROWS = 400
Limit = Callable[[], float]
"""Tells what the best law leaves, and raises an error once time is up: ask it after each second of work."""
# How much more than the best a law may leave before it is refitted: a little, or much where numbers stand inside.
NEAR, FAR = 2.0, 8.0
MOST_PRODUCTS = 12_000
# Of each size so many subsets are fitted to all rows, and the best of them offered, and those as good up to chance,
# some however much they leave: numbers inside are not fitted yet.
KEPT, OFFERED, ALWAYS, BY_CHANCE = 12, 4, 2, 1.01


def linear(problem: Problem) -> sympy.Expr:
    """Return the linear law of the target in the columns."""
    table = np.concatenate([problem.columns.T, np.ones((1, len(problem.target)))])
    *slopes, constant = least_squares(table, problem.target, problem.root)[0]
    return sympy.Add(
        *(sympy.Float(c) * s for c, s in zip(slopes, problem.symbols, strict=True)), sympy.Float(constant)
    )


def least_squares(table: np.ndarray, target: np.ndarray, root: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the coefficients of rows of a table, and what they leave of the target."""
    size = np.sqrt(np.sum((table * root) ** 2, axis=1)) + 1e-300
    solution = np.linalg.lstsq((table * root / size[:, None]).T, target * root, rcond=1e-13)[0] / size
    return solution, target - solution @ table


def polynomials(problem: Problem, limit: Limit, *, n_terms: int = 5) -> Iterator[sympy.Expr]:
    """Yield sums of monomials with whole, negative and half powers that leave no more than ``limit`` says."""
    yield from _chosen(problem, _monomials(problem, 600), n_terms, lambda: NEAR * limit())


def with_plain_functions(problem: Problem, limit: Limit, *, n_terms: int = 4) -> Iterator[sympy.Expr]:
    """Yield sums of monomials and functions of simple monomials, no number inside, times a monomial."""
    table = _monomials(problem, 150)
    n = len(table.values)
    table.extend(atoms(problem, ADDED, min(10 * problem.k, 40), numbers="one"))
    table.multiply(range(n), range(n, len(table.values)), MOST_PRODUCTS)
    yield from _chosen(problem, table, n_terms, lambda: NEAR * limit())


def with_functions(
    problem: Problem, limit: Limit, *, n_arguments: int = 20, n_factors: int = 6, n_terms: int = 3
) -> Iterator[sympy.Expr]:
    """Yield the same with a coarse grid of numbers inside the functions, and products of two functions."""
    table = _monomials(problem, 60)
    n = len(table.values)
    table.extend(atoms(problem, ADDED, n_arguments))
    called = range(n, len(table.values))
    limit()
    table.extend(atoms(problem, ADDED, problem.k, numbers="natural"))
    own = range(called.stop, min(len(table.values), called.stop + 80))
    for i in own:
        table.multiply([i], range(i, own.stop), len(own))
    table.multiply(range(min(n_factors, n)), called, MOST_PRODUCTS)
    yield from _chosen(problem, table, n_terms, lambda: FAR * limit())


def _monomials(problem: Problem, most: int) -> Table:
    table, powers = Table(), exponents(problem, most + 1)[1:]
    for e, values in zip(powers, values_of(problem, powers), strict=True):
        table.add(values, partial(written, problem.symbols, e))
    return table


def _chosen(problem: Problem, table: Table, n_terms: int, limit: Limit) -> Iterator[sympy.Expr]:
    if not table.values:
        return
    n = len(problem.target)
    rows = np.linspace(0, n - 1, min(n, SCREENING_ROWS)).astype(int)
    values = table.array(rows)
    one = np.ones((1, n))
    for fixed in (one, None):
        limit()
        by_size: dict[int, list[tuple[float, tuple[int, ...], np.ndarray]]] = {}
        for chosen in select(
            values, problem.target[rows], problem.root[rows],
            fixed=None if fixed is None else fixed[:, rows], n_terms=n_terms, keep=KEPT,
        ):  # fmt: skip
            own = np.array([table.whole(i) for i in chosen.rows])
            own = own if fixed is None else np.concatenate([own, fixed])
            solution, gaps = least_squares(own, problem.target, problem.root)
            by_size.setdefault(len(chosen.rows), []).append((problem.error(gaps), chosen.rows, solution))
        for subsets in by_size.values():
            least = min(error for error, _, _ in subsets)
            for rank, (error, members, solution) in enumerate(sorted(subsets, key=lambda s: s[0])):
                if rank < ALWAYS or error <= (BY_CHANCE * least if rank >= OFFERED else limit()):
                    terms = [*(table.written(i) for i in members), sympy.Integer(1)]
                    yield sympy.Add(
                        *(sympy.Float(float(c)) * t for c, t in zip(solution, terms, strict=False))
                    )

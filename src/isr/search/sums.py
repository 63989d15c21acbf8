"""Sums: a few monomials, functions of monomials, and products of both, chosen from one wide table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import sympy

from isr.search.atoms import ADDED, Table, atoms
from isr.search.monomials import exponents, values_of, written
from isr.search.problem import Problem
from isr.search.selection import MOST_PAIRED, select

SCREENING_ROWS = 400
Limit = Callable[[], float]
"""Tells what the best law leaves."""
# How much more than the best a law may leave before it is refitted: a little, or much where numbers stand inside.
NEAR, FAR = 2.0, 8.0


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


def polynomials(problem: Problem, limit: Limit, *, most: int = 600, n_terms: int = 5) -> Iterator[sympy.Expr]:
    """Yield sums of monomials with whole, negative and half powers that leave no more than ``limit`` says."""
    powers = exponents(problem, most + 1)[1:]
    table = Table([], [])
    for e, values in zip(powers, values_of(problem, powers), strict=True):
        table.add(values, partial(written, problem.symbols, e))
    yield from _chosen(problem, table, n_terms, lambda: NEAR * limit())


def with_plain_functions(
    problem: Problem, limit: Limit, *, most: int = MOST_PAIRED, n_terms: int = 4
) -> Iterator[sympy.Expr]:
    """Yield sums of monomials and functions of simple monomials, no number inside, times a simple monomial."""
    powers = exponents(problem, 40)[1:]
    plain = values_of(problem, powers)
    table = Table([], [])
    for e, values in zip(powers, plain, strict=True):
        table.add(values, partial(written, problem.symbols, e))
    own = atoms(problem, ADDED, problem.k * (problem.k + 1) // 2 + 4, numbers="one")
    table.extend(own)
    for e, factor in zip(powers, plain, strict=True):
        for values, write in zip(own.values, own.writers, strict=True):
            if len(table.values) < most:
                table.add(factor * values, lambda w=write, e=e: written(problem.symbols, e) * w())
    yield from _chosen(problem, table, n_terms, lambda: NEAR * limit())


def with_functions(
    problem: Problem,
    limit: Limit,
    *,
    n_arguments: int = 20,
    n_factors: int = 6,
    most: int = 9000,
    n_terms: int = 3,
) -> Iterator[sympy.Expr]:
    """Yield the same with a coarse grid of numbers inside the functions, and products of two functions."""
    powers = exponents(problem, 60)[1:]
    plain = values_of(problem, powers)
    table = Table([], [])
    for e, values in zip(powers, plain, strict=True):
        table.add(values, partial(written, problem.symbols, e))
    own, called = atoms(problem, ADDED, problem.k, numbers="natural"), atoms(problem, ADDED, n_arguments)
    table.extend(called)
    for i, (a, write) in enumerate(zip(own.values[:80], own.writers, strict=False)):
        for b, other in zip(own.values[i:80], own.writers[i:], strict=False):
            table.add(a * b, lambda w=write, o=other: w() * o())
    for e, factor in zip(powers[:n_factors], plain[:n_factors], strict=True):
        for values, write in zip(called.values, called.writers, strict=True):
            if len(table.values) < most:
                table.add(factor * values, lambda w=write, e=e: written(problem.symbols, e) * w())
    yield from _chosen(problem, table, n_terms, lambda: FAR * limit())


def _chosen(problem: Problem, table: Table, n_terms: int, limit: Limit) -> Iterator[sympy.Expr]:
    if not table.values:
        return
    values, n = table.array(), len(problem.target)
    rows = np.linspace(0, n - 1, min(n, SCREENING_ROWS)).astype(int)
    one = np.ones((1, n))
    for fixed in (None, one[:, rows]):
        for chosen in select(
            values[:, rows], problem.target[rows], problem.root[rows], fixed=fixed, n_terms=n_terms
        ):
            own = values[list(chosen.rows)]
            if fixed is not None:
                own = np.concatenate([own, one])
            solution, gaps = least_squares(own, problem.target, problem.root)
            if problem.error(gaps) > limit():
                continue
            terms = [
                *(table.writers[i]() for i in chosen.rows),
                *([] if fixed is None else [sympy.Integer(1)]),
            ]
            yield sympy.Add(*(sympy.Float(float(c)) * t for c, t in zip(solution, terms, strict=True)))

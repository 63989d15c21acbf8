"""Sums: a few monomials, functions of monomials, and products of both, chosen from one wide table."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import sympy

from isr.search.atoms import ADDED, Table, atoms
from isr.search.monomials import exponents, values_of, written
from isr.search.problem import Problem
from isr.search.selection import select

SCREENING_ROWS = 400


def linear(problem: Problem) -> sympy.Expr:
    """Return the linear law of the target in the columns."""
    table = np.concatenate([problem.columns.T, np.ones((1, len(problem.target)))])
    return combined(table, [*problem.symbols, sympy.Integer(1)], problem.target, problem.root)


def combined(table: np.ndarray, terms: list[sympy.Expr], target: np.ndarray, root: np.ndarray) -> sympy.Expr:
    """Return the sum of terms with the coefficients of least squares."""
    size = np.sqrt(np.sum((table * root) ** 2, axis=1)) + 1e-300
    solution = np.linalg.lstsq((table * root / size[:, None]).T, target * root, rcond=1e-13)[0] / size
    return sympy.Add(*(sympy.Float(float(c)) * t for c, t in zip(solution, terms, strict=True)))


def polynomials(problem: Problem, *, most: int = 600, n_terms: int = 5) -> Iterator[tuple[float, sympy.Expr]]:
    """Yield sums of monomials with whole, negative and half powers, each with the share that it leaves."""
    powers = exponents(problem, most + 1)[1:]
    table = Table([], [])
    for e, values in zip(powers, values_of(problem, powers), strict=True):
        table.add(values, partial(written, problem.symbols, e))
    yield from _chosen(problem, table, n_terms)


def with_functions(
    problem: Problem, *, n_arguments: int = 24, n_factors: int = 6, most: int = 12_000, n_terms: int = 3
) -> Iterator[tuple[float, sympy.Expr]]:
    """Yield sums of monomials and functions of monomials, times a simple monomial or another function."""
    powers = exponents(problem, 60)[1:]
    plain = values_of(problem, powers)
    table = Table([], [])
    for e, values in zip(powers, plain, strict=True):
        table.add(values, partial(written, problem.symbols, e))
    called = atoms(problem, ADDED, n_arguments)
    for values, write in zip(called.values, called.writers, strict=True):
        table.add(values, write)
        if len(table.values) > most:
            break
    for e, factor in zip(powers[:n_factors], plain[:n_factors], strict=True):
        meaning = written(problem.symbols, e)
        for values, write in zip(called.values, called.writers, strict=True):
            if len(table.values) > most:
                break
            table.add(factor * values, lambda w=write, m=meaning: m * w())
    own = atoms(problem, ADDED[:5], problem.k, natural=True)
    for i, (a, write) in enumerate(zip(own.values, own.writers, strict=True)):
        for b, other in zip(own.values[i:], own.writers[i:], strict=True):
            table.add(a * b, lambda w=write, o=other: w() * o())
    yield from _chosen(problem, table, n_terms)


def _chosen(problem: Problem, table: Table, n_terms: int) -> Iterator[tuple[float, sympy.Expr]]:
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
            terms = [table.writers[i]() for i in chosen.rows]
            if fixed is not None:
                own, terms = np.concatenate([own, one]), [*terms, sympy.Integer(1)]
            yield chosen.share, combined(own, terms, problem.target, problem.root)

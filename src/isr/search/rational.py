"""Rational functions: ``t Q = P`` is linear in the coefficients of both polynomials."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations_with_replacement

import numpy as np
import sympy

from isr.search.monomials import values_of, written
from isr.search.problem import Problem
from isr.search.selection import select
from isr.search.sums import Limit, least_squares

# A column that others explain this well (all of size 1) belongs to a relation; smaller coefficients are rounding.
DEPENDENT, IDLE = 1e-11, 1e-7
DEGREE = {1: 7, 2: 5, 3: 3, 4: 3}
MOST_COLUMNS, MOST_LEADS = 160, 10
# A relation of more terms imitates another function.
MOST_TERMS = 12


def _monomials(k: int, degree: int) -> np.ndarray:
    rows = [
        tuple(members.count(j) for j in range(k))
        for total in range(degree + 1)
        for members in combinations_with_replacement(range(k), total)
    ]
    return np.array(rows, dtype=float)


def exact(problem: Problem, limit: Limit) -> Iterator[sympy.Expr]:
    """Yield the ratio of polynomials of lowest degree that meets the target, where there is one without noise."""
    powers = _monomials(problem.k, DEGREE.get(problem.k, 2))[: MOST_COLUMNS // 2]
    part = problem.some(max(6 * len(powers), 200))
    plain = values_of(part, powers)
    columns = np.concatenate([np.stack([m, m * part.target]) for m in plain])
    # By the largest first, whose square may overflow.
    columns = columns / (np.max(np.abs(columns), axis=1, keepdims=True) + 1e-300)
    columns = columns / (np.sqrt(np.mean(columns**2, axis=1, keepdims=True)) + 1e-300)
    index = [i for i in range(len(columns)) if i + 8 < len(part.target)]
    while len(index) > 1:
        r = np.linalg.qr(columns[index].T, mode="r") / np.sqrt(len(part.target))
        weak = np.flatnonzero(np.abs(np.diag(r)) < DEPENDENT)
        if not len(weak):
            return
        i = int(weak[0])
        relation = np.append(np.linalg.lstsq(r[:i, :i], -r[:i, i], rcond=None)[0], 1.0)
        used = [index[j] for j in np.flatnonzero(np.abs(relation) > IDLE * np.abs(relation).max())]
        if len(used) > MOST_TERMS:
            return
        if any(u % 2 for u in used):
            yield from _ratio(problem, part, powers, used)
            return
        index.pop(i)


def exact_in_functions(problem: Problem, limit: Limit) -> Iterator[sympy.Expr]:
    """Yield such a ratio with a function in place of one of the columns."""
    for name in ("cos", "sin", "exp", "sqrt", "log"):
        for j in range(problem.k) if name in problem.functions else ():
            columns = problem.columns.copy()
            with np.errstate(all="ignore"):
                columns[:, j] = getattr(np, name)(columns[:, j])
            if np.all(np.isfinite(columns[:, j])) and np.ptp(columns[:, j]) > 0:
                own = problem.symbols[j]
                for law in exact(replace(problem, columns=columns), limit):
                    yield law.xreplace({own: getattr(sympy, name)(own)})


def _ratio(problem: Problem, part: Problem, powers: np.ndarray, used: list[int]) -> Iterator[sympy.Expr]:
    """Yield P/Q whose terms are ``used``: even numbers stand for those of P, odd ones for those of Q."""
    plain = values_of(part, powers[[u // 2 for u in used]])
    columns = plain * np.where(np.array([u % 2 for u in used])[:, None], -part.target, 1.0)
    size = np.sqrt(np.mean(columns**2, axis=1)) + 1e-300
    relation = np.linalg.svd((columns / size[:, None] * part.root).T, full_matrices=False)[2][-1] / size
    yield from _quotient(problem, powers, used, relation)


def _quotient(
    problem: Problem, powers: np.ndarray, used: list[int], relation: np.ndarray
) -> Iterator[sympy.Expr]:
    largest = max((abs(c) for c, u in zip(relation, used, strict=True) if u % 2), default=0.0)
    if not largest:
        return
    lead = next(c for c, u in zip(relation, used, strict=True) if u % 2 and abs(c) == largest)
    top, bottom = sympy.Integer(0), sympy.Integer(0)
    for c, u in zip(relation / lead, used, strict=True):
        monomial = written(problem.symbols, powers[u // 2])
        number = sympy.Integer(1) if c == 1 else sympy.Float(float(c))
        if u % 2:
            bottom = bottom + number * monomial
        else:
            top = top + number * monomial
    yield top / bottom


def roots(problem: Problem, limit: Limit, *, n_terms: int = 6) -> Iterator[sympy.Expr]:
    """Yield roots of ``t² + B t + C = 0``, B linear and C quadratic: linear in their coefficients, maybe in few."""
    powers = _monomials(problem.k, 2)
    if 2 * len(powers) > MOST_COLUMNS:
        return
    part = problem.some(500)
    plain, t = values_of(part, powers), part.target
    table = np.concatenate([plain[: problem.k + 1] * t, plain])
    root = part.root / (np.abs(t) + np.median(np.abs(t)))
    forms = [written(problem.symbols, e) for e in powers]
    for chosen in [
        tuple(range(len(table))),
        *(c.rows for c in select(table.copy(), -(t**2), root, n_terms=n_terms)),
    ]:
        own = table[list(chosen)]
        solution = least_squares(own, -(t**2), root)[0]
        size = np.abs(solution) * np.sqrt(np.mean(own**2, axis=1))
        linear, rest = sympy.Integer(0), sympy.Integer(0)
        for i, c, s in zip(chosen, solution, size, strict=True):
            if s > IDLE * size.max() and i <= problem.k:
                linear = linear + sympy.Float(float(c)) * forms[i]
            elif s > IDLE * size.max():
                rest = rest + sympy.Float(float(c)) * forms[i - problem.k - 1]
        inside = sympy.expand(linear**2 / 4 - rest)
        yield from (-linear / 2 + sign * sympy.sqrt(inside) for sign in (1, -1))


def sparse(problem: Problem, limit: Limit, *, n_terms: int = 5) -> Iterator[sympy.Expr]:
    """Yield ratios of polynomials with few terms; errors of the target are taken for none, so a refit must follow."""
    powers = _monomials(problem.k, 3 if problem.k < 4 else 2)[: MOST_COLUMNS // 2]
    part = problem.some(500)
    plain = values_of(part, powers)
    columns = np.empty((2 * len(powers), len(part.target)))
    columns[0::2], columns[1::2] = plain, -part.target * plain
    degrees = powers.sum(axis=1)
    for lead in (0, *(2 * np.flatnonzero(degrees < 3)[:MOST_LEADS] + 1)):  # 1 in P, or this term of Q, is 1
        limit()
        with np.errstate(all="ignore"):
            root = part.root * (np.abs(part.target) if lead == 0 else 1 / np.abs(plain[lead // 2]))
        if not np.all(np.isfinite(root)):
            continue
        table = np.delete(columns, lead, axis=0)
        for chosen in select(table, -columns[lead], root, n_terms=n_terms, keep=3, beam=8):
            rows = [r if r < lead else r + 1 for r in chosen.rows]
            if not any(r % 2 for r in rows):
                continue  # a polynomial
            own = columns[rows]
            size = np.sqrt(np.sum((own * root) ** 2, axis=1)) + 1e-300
            solution = (
                np.linalg.lstsq((own * root / size[:, None]).T, -columns[lead] * root, rcond=1e-12)[0] / size
            )
            yield from _quotient(problem, powers, [lead, *rows], np.append(1.0, solution))

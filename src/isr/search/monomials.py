"""Monomials: products of powers of columns, listed from simple to complex."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import sympy

from isr.search.problem import Problem

# What a power costs: simple ones come first.
COST = {0: 0.0, 1: 1.0, 2: 1.5, -1: 1.5, -2: 2.0, 3: 2.5, 0.5: 2.0, -0.5: 2.5, 4: 3.0, -3: 3.0, 1.5: 3.0}
DEAREST = 8.0


def exponents(problem: Problem, most: int) -> np.ndarray:
    """Return at most ``most`` rows of exponents, the simplest first, that are defined for the columns."""
    allowed = tuple(
        tuple(
            p
            for p in COST
            if (p >= 0 or problem.whole[j]) and (p == int(p) or problem.columns[:, j].min() >= 0)
        )
        for j in range(problem.k)
    )
    return _listed(allowed, most)


@lru_cache(maxsize=64)
def _listed(allowed: tuple[tuple[float, ...], ...], most: int) -> np.ndarray:
    rows: list[tuple[float, tuple[float, ...]]] = [(0.0, ())]
    for powers in allowed:
        rows = [(c + COST[p], (*e, p)) for c, e in rows for p in powers if c + COST[p] <= DEAREST]
        if len(rows) > 20 * most:  # those that are far from simple will not be among the first
            rows = sorted(rows, key=lambda r: r[0])[: 20 * most]
    rows.sort(key=lambda r: (r[0] + 0.1 * sum(p != 0 for p in r[1]), [-abs(p) for p in r[1]]))
    return np.array([e for _, e in rows[:most]], dtype=float).reshape(-1, len(allowed))


def values_of(problem: Problem, powers: np.ndarray) -> np.ndarray:
    """Return the values of monomials, one per row, each divided by nothing."""
    with np.errstate(all="ignore"):
        zero = problem.columns == 0
        logs = np.log(np.abs(np.where(zero, 1.0, problem.columns))) @ powers.T
        found = np.exp(logs).T
        negative = problem.columns < 0
        if negative.any():
            odd = np.abs(powers % 2) == 1
            found = found * np.where((odd.astype(float) @ negative.T.astype(float)) % 2 == 1, -1.0, 1.0)
        if zero.any():
            found = np.where((powers > 0).astype(float) @ zero.T.astype(float) > 0, 0.0, found)
    return found


def rational(power: float, denominators: tuple[int, ...] = (1, 2, 3)) -> sympy.Rational:
    """Return the nearest fraction with a small denominator."""
    options = [sympy.Rational(round(power * d), d) for d in denominators]
    return min(options, key=lambda r: abs(float(r) - power) + 1e-6 * r.q)


def written(meaning: tuple[sympy.Expr, ...], powers: np.ndarray) -> sympy.Expr:
    """Return a monomial of columns as an expression in x."""
    return sympy.Mul(
        *(m ** rational(float(p), (1, 2, 3, 4, 6)) for m, p in zip(meaning, powers, strict=True) if p)
    )

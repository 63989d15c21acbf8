"""Sparse sums fitted to rows: polynomials, and sums of waves or of absolute values, chosen one term after another."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations_with_replacement, product
from typing import Any, NamedTuple

import numpy as np
import sympy
from jaxtyping import Float

from isr.search.formula import Formula, symbol

MOST_TERMS, MOST_MONOMIALS = 12, 400
# A term must lower the deviance by this many times log(number of monomials), besides log(rows).
CAUTION = 2.0
# Of the spread of what is fitted; a smaller residual is rounding.
ROUNDING, GRAM_ROUNDING = 1e-9, 1e-14


class Fit(NamedTuple):
    """A formula fitted to rows, and how many terms it has."""

    formula: Formula
    n_terms: int


def fit_polynomial(
    x: Float[np.ndarray, "n d"],
    y: Float[np.ndarray, " n"],
    names: Sequence[str],
    *,
    degree: int = 3,
    weight: Float[np.ndarray, " n"] | None = None,
) -> Fit:
    """Return the sparse polynomial that BIC chooses, constant included.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> x = rng.uniform(-1, 1, size=(500, 2))
        >>> fit_polynomial(x, 1 + 2 * x[:, 0] * x[:, 1], ["a", "b"]).formula
        2*a*b + 1
    """
    powers = _powers(x.shape[1], degree)
    scale = np.maximum(np.abs(x).max(axis=0), 1e-300)
    columns = np.stack([np.prod((x / scale) ** p, axis=1) for p in powers], axis=1)
    terms = [sympy.Mul(*(symbol(n) ** int(p) for n, p in zip(names, power, strict=True))) for power in powers]
    return _sparse_sum(columns, terms, np.prod(scale**powers, axis=1), y, weight)


WAVES, KINKS = {sympy.sin: np.sin, sympy.cos: np.cos}, {sympy.Abs: np.abs}


def fit_functions(
    x: Float[np.ndarray, "n d"],
    y: Float[np.ndarray, " n"],
    names: Sequence[str],
    functions: Mapping[Any, Callable[[np.ndarray], np.ndarray]],
    *,
    weight: Float[np.ndarray, " n"] | None = None,
) -> Fit | None:
    """Return the sparse sum of variables and functions of their whole sums that BIC chooses; None of many.

    Example:
        >>> x = np.random.default_rng(0).normal(size=(500, 2))
        >>> fit_functions(x, 2 * x[:, 0] + 3 * np.sin(x[:, 0] + x[:, 1]), ["a", "b"], WAVES).formula
        2*a + 3*sin(a + b)
        >>> fit_functions(x, np.abs(x[:, 0] - x[:, 1]), ["a", "b"], KINKS).formula
        Abs(a - b)
    """
    sums = [w for w in product((0, 1, -1, 2, -2), repeat=x.shape[1]) if _is_plain(w)]
    if not 0 < len(sums) <= MOST_MONOMIALS // 2:
        return None
    inner = x @ np.array(sums, float).T
    columns = np.column_stack([np.ones(len(x)), x, *(function(inner) for function in functions.values())])
    symbols = [symbol(name) for name in names]
    shown = [sympy.Add(*(n * s for n, s in zip(w, symbols, strict=True))) for w in sums]
    terms = [sympy.Integer(1), *symbols, *(function(s) for function in functions for s in shown)]
    return _sparse_sum(columns, terms, np.ones(len(terms)), y, weight)


def _is_plain(w: tuple[int, ...]) -> bool:
    """Whether a sum starts with a plus and has twos only alone."""
    first = next((n for n in w if n), 0)
    return first > 0 and (max(map(abs, w)) < 2 or sum(map(abs, w)) == 2)


def _powers(d: int, degree: int) -> np.ndarray:
    found = [[0] * d]
    for total in range(1, degree + 1):
        level = list(combinations_with_replacement(range(d), total))
        if len(found) + len(level) > MOST_MONOMIALS:
            break
        found += [[members.count(j) for j in range(d)] for members in level]
    return np.array(found)


def _sparse_sum(
    columns: np.ndarray, terms: Sequence[sympy.Expr], sizes: np.ndarray, y: np.ndarray, weight: np.ndarray | None
) -> Fit:  # fmt: skip
    """The sparse sum of columns, each a term over its size."""
    root = np.ones(len(y)) if weight is None else np.sqrt(weight / weight.mean())
    a, b = columns * root[:, None], y * root
    chosen = _selected(a, b)
    solution = np.linalg.lstsq(a[:, chosen], b, rcond=None)[0]
    summands = (sympy.Float(float(c / sizes[k])) * terms[k] for k, c in zip(chosen, solution, strict=True))
    return Fit(Formula(sympy.Add(*summands)), len(chosen))


def _selected(a: np.ndarray, b: np.ndarray) -> list[int]:
    """Columns added while BIC gains, then taken out while it gains."""
    (n, k), total = a.shape, float(b @ b)
    price = np.log(n) + CAUTION * np.log(k)
    unit = a / (np.sqrt(np.sum(a * a, axis=0)) + 1e-300)
    gram, right = unit.T @ unit, unit.T @ b

    def deviance(chosen: list[int]) -> float:
        own = gram[np.ix_(chosen, chosen)] + 1e-14 * np.eye(len(chosen))
        left = total - right[chosen] @ np.linalg.solve(own, right[chosen])
        return n * float(np.log(max(left, GRAM_ROUNDING * total, 1e-300) / n))

    chosen: list[int] = []
    current, left = deviance([]), b
    while len(chosen) < MOST_TERMS and left @ left > ROUNDING**2 * total:
        ranked = np.argsort(-np.abs(left @ unit))[:8]
        tried = [(deviance([*chosen, int(j)]), int(j)) for j in ranked if j not in chosen]
        if not tried or min(tried)[0] > current - price:
            break
        current, best = min(tried)
        chosen.append(best)
        left = b - a[:, chosen] @ np.linalg.lstsq(a[:, chosen], b, rcond=None)[0]
    while chosen:
        least, worst = min((deviance([c for c in chosen if c != j]), j) for j in chosen)
        if least > current + price:
            break
        current = least
        chosen.remove(worst)
    return sorted(chosen)

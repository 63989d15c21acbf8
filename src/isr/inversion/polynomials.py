"""The smallest libraries: sparse polynomials and waves, chosen one term after the other by BIC."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement, product

import numpy as np
import sympy
from jaxtyping import Float

from isr.search.formula import Formula, symbol

MOST_TERMS = 12
# Monomials tried, at most.
MOST_MONOMIALS = 400
# A term must lower the deviance by this many times log(number of monomials), besides log(rows).
CAUTION = 2.0
# Of the spread of what is fitted; a smaller residual is rounding.
EXACT = 1e-9


@dataclass(frozen=True, eq=False)
class Fit:
    """A formula fitted to rows.

    Args:
        formula: What was found.
        residual: Rows minus the formula.
        n_terms: How many terms it has.
    """

    formula: Formula
    residual: Float[np.ndarray, " n"]
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
    columns = np.stack([np.prod((x / scale) ** np.array(p), axis=1) for p in powers], axis=1)
    names_of = [sympy.Mul(*(symbol(n) ** p for n, p in zip(names, power, strict=True))) for power in powers]
    sizes = np.array([np.prod(scale ** np.array(power)) for power in powers])
    return _sum(columns, names_of, sizes, y, weight)


def fit_waves(
    x: Float[np.ndarray, "n d"],
    y: Float[np.ndarray, " n"],
    names: Sequence[str],
    *,
    weight: Float[np.ndarray, " n"] | None = None,
) -> Fit | None:
    """Return the sparse sum of variables, sines and cosines of their whole sums that BIC chooses; None of many.

    Example:
        >>> x = np.random.default_rng(0).normal(size=(500, 2))
        >>> fit_waves(x, 2 * x[:, 0] + 3 * np.sin(x[:, 0] + x[:, 1]), ["a", "b"]).formula
        2*a + 3*sin(a + b)
    """
    sums = [w for w in product((0, 1, -1, 2, -2), repeat=x.shape[1]) if _is_plain(w)]
    if not 0 < len(sums) <= MOST_MONOMIALS // 2:
        return None
    angles = x @ np.array(sums, float).T
    columns = np.column_stack([np.ones(len(x)), x, np.sin(angles), np.cos(angles)])
    symbols = [symbol(name) for name in names]
    inner = [sympy.Add(*(n * s for n, s in zip(w, symbols, strict=True))) for w in sums]
    names_of = [sympy.Integer(1), *symbols, *map(sympy.sin, inner), *map(sympy.cos, inner)]
    return _sum(columns, names_of, np.ones(len(names_of)), y, weight)


def _is_plain(w: tuple[int, ...]) -> bool:
    """Whether a sum starts with a plus and has twos only alone."""
    first = next((n for n in w if n), 0)
    return first > 0 and (max(map(abs, w)) < 2 or sum(map(abs, w)) == 2)


def _sum(
    columns: np.ndarray,
    terms: Sequence[sympy.Expr],
    sizes: np.ndarray,
    y: np.ndarray,
    weight: np.ndarray | None,
) -> Fit:
    """The sparse sum of columns, each a term over its size."""
    root = np.ones(len(y)) if weight is None else np.sqrt(weight / weight.mean())
    a, b = columns * root[:, None], y * root
    chosen = _selected(a, b)
    solution = np.linalg.lstsq(a[:, chosen], b, rcond=None)[0] if chosen else np.zeros(0)
    constants = [sympy.Float(float(c / sizes[k])) for k, c in zip(chosen, solution, strict=True)]
    expression = sympy.Add(*(c * terms[k] for c, k in zip(constants, chosen, strict=True)))
    return Fit(Formula(expression), y - columns[:, chosen] @ solution, len(chosen))


def _powers(d: int, degree: int) -> list[tuple[int, ...]]:
    found = [tuple([0] * d)]
    for total in range(1, degree + 1):
        level = list(combinations_with_replacement(range(d), total))
        if len(found) + len(level) > MOST_MONOMIALS:
            break
        found += [tuple(members.count(j) for j in range(d)) for members in level]
    return found


def _selected(a: np.ndarray, b: np.ndarray) -> list[int]:
    """Columns added while BIC gains, then taken out while it gains."""
    n, k = a.shape
    price = np.log(n) + CAUTION * np.log(k)
    total = float(b @ b)
    chosen: list[int] = []
    rest, deviance = b, n * np.log(max(total, 1e-300) / n)
    norms = np.sqrt(np.sum(a * a, axis=0)) + 1e-300
    while len(chosen) < MOST_TERMS and rest @ rest > EXACT**2 * total:
        ranked = np.argsort(-np.abs(rest @ a) / norms)
        tried = [(_deviance(a, b, [*chosen, int(j)]), int(j)) for j in ranked[:8] if j not in chosen]
        if not tried or min(tried)[0] > deviance - price:
            break
        deviance, best = min(tried)
        chosen.append(best)
        rest = _rest(a, b, chosen)
    while chosen:
        tried = [(_deviance(a, b, [c for c in chosen if c != j]), j) for j in chosen]
        if min(tried)[0] > deviance + price:
            break
        deviance, worst = min(tried)
        chosen.remove(worst)
    return sorted(chosen)


def _rest(a: np.ndarray, b: np.ndarray, chosen: list[int]) -> np.ndarray:
    return b - a[:, chosen] @ np.linalg.lstsq(a[:, chosen], b, rcond=None)[0] if chosen else b


def _deviance(a: np.ndarray, b: np.ndarray, chosen: list[int]) -> float:
    rest = _rest(a, b, chosen)
    return len(b) * float(np.log(max(rest @ rest, (EXACT * 1e-3) ** 2 * (b @ b), 1e-300) / len(b)))

"""Sparse sums fitted to rows: polynomials, also broken ones, and sums of waves or of absolute values, term by term."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations_with_replacement, product
from typing import Any, NamedTuple

import numpy as np
import sympy
from jaxtyping import Float

from isr.search.formula import Formula, compiled, symbol

MOST_TERMS, MOST_MONOMIALS = 12, 400
# A term must lower the deviance by this many times log(number of monomials), besides log(rows).
CAUTION = 2.0
# Of the spread of what is fitted; a smaller residual is rounding.
ROUNDING, GRAM_ROUNDING = 1e-9, 1e-14


# Of up to so many variables squares are broken too; each side of a cut has so many rows more than numbers, twice.
MOST_SQUARED, LEAST_SIDE = 3, 8
# Places of a variable where a bend is tried.
N_BENDS = 200


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
    return _sparse_sum(*_monomials(x, names, degree), y, weight)


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


def fit_sum(
    x: Float[np.ndarray, "n d"],
    y: Float[np.ndarray, " n"],
    names: Sequence[str],
    known: Sequence[Formula],
    *,
    weight: Float[np.ndarray, " n"] | None = None,
) -> Fit:
    """Return the sparse sum of known formulas and variables that BIC chooses."""
    terms = list(dict.fromkeys([sympy.Integer(1), *map(symbol, names), *(f.expression for f in known)]))
    values = [np.broadcast_to(np.asarray(v, float), len(x)) for v in compiled(terms, names)(x)]
    return _sparse_sum(np.column_stack(values), terms, np.ones(len(terms)), y, weight)


def fit_broken(
    x: Float[np.ndarray, "n d"],
    y: Float[np.ndarray, " n"],
    names: Sequence[str],
    *,
    weight: Float[np.ndarray, " n"] | None = None,
) -> list[Fit]:
    """Return sparse polynomials that jump at one place of a variable, or that bend there; none of too few rows.

    Example:
        >>> x = np.random.default_rng(0).uniform(0, 2, size=(2000, 1))
        >>> fit_broken(x, x[:, 0] + 2.0 * (x[:, 0] > 1.1), ["a"])[0].formula
        a + sign(a - 1.1) + 1
        >>> ramps = [str(fit.formula) for fit in fit_broken(x, 2 * np.maximum(x[:, 0] - 1.1, 0.0), ["a"])]
        >>> "Abs(a - 1.10" in ramps[1], "Max(0, a - 1.10" in ramps[2]
        (True, True)
    """
    columns, terms, sizes = _monomials(x, names, 2 if x.shape[1] <= MOST_SQUARED else 1)
    found = list[Fit]()
    root = np.ones(len(y)) if weight is None else np.sqrt(weight / weight.mean())
    for place, side, broken in SIDES:
        places = [place(columns * root[:, None], y * root, x[:, j], root) for j in range(x.shape[1])]
        left, at, j = min((*one, j) for j, one in enumerate(places))
        if not np.isfinite(left):
            continue
        own, shown = side(x[:, j] - at), broken(symbol(names[j]) - sympy.Float(at))
        also = columns * own[:, None] if broken is sympy.sign else own[:, None]
        extra = [shown * term for term in (terms if broken is sympy.sign else [1])]
        every = np.concatenate([sizes, sizes if broken is sympy.sign else [1.0]])
        found.append(
            _sparse_sum(np.hstack([columns, also]), [*terms, *extra], every, y, weight, all_first=True)
        )
    return found


def _bend(a: np.ndarray, b: np.ndarray, along: np.ndarray, root: np.ndarray) -> tuple[float, float]:
    """The least squares that sums of columns and a bend along a variable leave, and where that is."""
    places = np.unique(np.quantile(along, np.linspace(0.03, 0.97, N_BENDS)))
    q = np.linalg.qr(a)[0]
    bends = np.abs(along[:, None] - places) * root[:, None]
    bends, left = bends - q @ (q.T @ bends), b - q @ (q.T @ b)
    size = np.sum(bends**2, axis=0)
    gain = np.where(
        size > 1e-9 * len(b) * np.var(along), (left @ bends) ** 2 / np.maximum(size, 1e-300), -np.inf
    )
    best = int(np.argmax(gain))
    return float(left @ left - gain[best]), float(places[best])


def _cut(a: np.ndarray, b: np.ndarray, along: np.ndarray, root: np.ndarray) -> tuple[float, float]:
    """The least squares that sums of columns leave on both sides of a cut along a variable, and where that is."""
    order, k = np.argsort(along, kind="stable"), a.shape[1]
    a, b, along = a[order], b[order], along[order]
    least = 2 * k + LEAST_SIDE
    places = np.flatnonzero(np.diff(along) > 0) + 1
    places = places[(places >= least) & (places <= len(b) - least)]
    if not len(places):
        return np.inf, 0.0
    gram, right = np.cumsum(a[:, :, None] * a[:, None, :], axis=0), np.cumsum(a * b[:, None], axis=0)
    ridge = 1e-10 * np.trace(gram[-1]) / k * np.eye(k)
    explained = np.zeros(len(places))
    for g, r in (
        (gram[places - 1], right[places - 1]),
        (gram[-1] - gram[places - 1], right[-1] - right[places - 1]),
    ):
        explained += np.einsum("nk,nk->n", r, np.linalg.solve(g + ridge, r[:, :, None])[:, :, 0])
    best = int(np.argmax(explained))
    low, high = along[places[best] - 1], along[places[best]]
    return float(b @ b - explained[best]), float(0.5 * (low + high))


# Where to cut or bend, and what is added there: a step, a bend, and what is nothing on one side of it.
SIDES: tuple[tuple[Any, Any, Any], ...] = (
    (_cut, np.sign, sympy.sign),
    (_bend, np.abs, sympy.Abs),
    (_bend, lambda gap: np.maximum(gap, 0), lambda gap: sympy.Max(gap, 0)),
    (_bend, lambda gap: np.minimum(gap, 0), lambda gap: sympy.Min(gap, 0)),
)


def _is_plain(w: tuple[int, ...]) -> bool:
    """Whether a sum starts with a plus and has twos only alone."""
    first = next((n for n in w if n), 0)
    return first > 0 and (max(map(abs, w)) < 2 or sum(map(abs, w)) == 2)


def _monomials(
    x: np.ndarray, names: Sequence[str], degree: int
) -> tuple[np.ndarray, list[sympy.Expr], np.ndarray]:
    """Monomials of variables in units of their largest value, as columns, as terms, and how large each is."""
    powers = [(0,) * x.shape[1]]
    for total in range(1, degree + 1):
        level = list(combinations_with_replacement(range(x.shape[1]), total))
        if len(powers) + len(level) > MOST_MONOMIALS:
            break
        powers += [tuple(members.count(j) for j in range(x.shape[1])) for members in level]
    scale = np.maximum(np.abs(x).max(axis=0), 1e-300)
    columns = np.stack([np.prod((x / scale) ** np.array(p), axis=1) for p in powers], axis=1)
    terms = [sympy.Mul(*(symbol(n) ** p for n, p in zip(names, power, strict=True))) for power in powers]
    return columns, terms, np.prod(scale ** np.array(powers), axis=1)


def _sparse_sum(
    columns: np.ndarray, terms: Sequence[sympy.Expr], sizes: np.ndarray, y: np.ndarray, weight: np.ndarray | None,
    *, all_first: bool = False,
) -> Fit:  # fmt: skip
    """The sparse sum of columns, each a term over its size; columns are taken out of all, or first added to none."""
    root = np.ones(len(y)) if weight is None else np.sqrt(weight / weight.mean())
    a, b = columns * root[:, None], y * root
    chosen = _selected(a, b, list(range(len(terms))) if all_first else [])
    solution = np.linalg.lstsq(a[:, chosen], b, rcond=None)[0]
    summands = (sympy.Float(float(c / sizes[k])) * terms[k] for k, c in zip(chosen, solution, strict=True))
    return Fit(Formula(sympy.Add(*summands)), len(chosen))


def _selected(a: np.ndarray, b: np.ndarray, chosen: list[int]) -> list[int]:
    """Columns added while BIC gains, unless there are some, then taken out while it gains."""
    (n, k), total = a.shape, float(b @ b)
    price = np.log(n) + CAUTION * np.log(k)
    unit = a / (np.sqrt(np.sum(a * a, axis=0)) + 1e-300)
    gram, right = unit.T @ unit, unit.T @ b

    def deviance(chosen: list[int]) -> float:
        own = gram[np.ix_(chosen, chosen)] + 1e-14 * np.eye(len(chosen))
        left = total - right[chosen] @ np.linalg.solve(own, right[chosen])
        return n * float(np.log(max(left, GRAM_ROUNDING * total, 1e-300) / n))

    current, left, is_full = deviance(chosen), b, bool(chosen)
    while not is_full and len(chosen) < MOST_TERMS and left @ left > ROUNDING**2 * total:
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

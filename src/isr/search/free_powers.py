"""Sums of products of powers whose exponents are fitted, from many starts side by side; coefficients are eliminated."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import sympy

from isr.search.monomials import rational, written
from isr.search.problem import Problem
from isr.search.sums import NEAR, Limit

# Starts without functions of columns, and as many more with one where columns may stand inside of sines and cosines.
N_STARTS, N_CALLED, N_STEPS, N_ROWS = 48, 96, 60, 240
STARTS = (-2.0, -1.0, 0.0, 0.0, 0.0, 1.0, 2.0)
# Sizes of the sums: number of products, and whether a constant is added.
SIZES = ((1, True), (2, False), (2, True), (3, False))
OFFERED = 3
# Starts that come within this factor of the best are looked at; exponents this near to a fraction
# may be one, and are none beyond the last.
WITHIN, NEAR_FRACTION, NO_FRACTION = 1.5, 0.12, 0.02
LARGEST_EXPONENT = 6.0
_FUNCTIONS = {"cos": (np.cos, sympy.cos), "sin": (np.sin, sympy.sin)}


def free_powers(problem: Problem, limit: Limit) -> Iterator[sympy.Expr]:
    """Yield sums of products of powers, each maybe times sines and cosines of columns.

    Example:
        >>> x = np.random.default_rng(0).uniform(1, 2, size=(200, 3))
        >>> a, b, c = meaning = sympy.symbols("a b c", real=True)
        >>> y = x[:, 0] ** 3 / x[:, 1] ** 4 - 2 * x[:, 2] ** 1.5 * x[:, 1]
        >>> problem = Problem(x, meaning, y, np.ones(200), lambda e: e, frozenset())
        >>> law = problem.lifted(next(iter(free_powers(problem, lambda: 1e-3))))
        >>> [round(float(law.coeff(term)), 6) for term in (a**3 / b**4, b * c ** sympy.Rational(3, 2))]
        [1.0, -2.0]
    """
    part = problem.some(N_ROWS)
    one_sign = (part.columns > 0).all(axis=0) | (part.columns < 0).all(axis=0)
    powers = np.flatnonzero(one_sign & (np.ptp(np.log(np.abs(part.columns) + 1e-300), axis=0) > 0))
    if not len(powers) or len(part.target) < 40:
        return
    logs = np.log(np.abs(part.columns[:, powers])).T
    rng = np.random.default_rng(0)
    for n_terms, has_constant in SIZES:
        limit()
        factors, called, free = _factors(part, powers, n_terms, rng)
        exponent = rng.choice(STARTS, free.shape) * free
        exponent, weight, error = _fitted(part, logs, factors, exponent, free, has_constant)
        seen: set[frozenset[sympy.Expr]] = set()
        for s in np.argsort(error):
            near = error[s] <= WITHIN * np.min(error) and problem.unit * error[s] <= NEAR * limit()
            if not near or len(seen) >= OFFERED:
                break
            for terms in _written(problem, powers, exponent[s], called[s]):
                if frozenset(terms) not in seen:
                    seen.add(frozenset(terms))
                    weighted = zip(weight[s], [*terms, sympy.Integer(1)], strict=False)
                    yield sympy.Add(*(sympy.Float(float(c)) * t for c, t in weighted))


def _factors(
    part: Problem, powers: np.ndarray, n_terms: int, rng: np.random.Generator
) -> tuple[np.ndarray, list[list[sympy.Expr]], np.ndarray]:
    """What the terms of each start are multiplied by: functions of columns, drawn; and which powers are free."""
    options = [f for n, f in _FUNCTIONS.items() if n in part.functions]
    turning = np.flatnonzero((np.ptp(part.columns, axis=0) > 1) & (np.abs(part.columns).max(axis=0) < 20))
    turning = turning if options else turning[:0]
    others = [j for j in range(part.k) if j not in powers]
    n_starts = N_STARTS + (N_CALLED if len(turning) else 0)
    values = np.ones((n_starts, n_terms, len(part.target)))
    called = [[sympy.Integer(1)] * n_terms for _ in range(n_starts)]
    free = np.ones((n_starts, n_terms, len(powers)))
    for s in range(n_starts):
        # A column has the same function in all terms of a start; which terms have it is drawn.
        within = {int(rng.choice(turning))} if s >= N_STARTS else set()
        for j in sorted({*others, *within}):
            array, write = options[rng.integers(len(options))] if j in within else (np.asarray, lambda e: e)
            for t in np.flatnonzero(rng.integers(0, 2, n_terms)):
                values[s, t] *= array(part.columns[:, j])
                called[s][t] *= write(part.symbols[j])
            if j in powers:
                free[s, :, list(powers).index(j)] = 0.0
    return values, called, free


def _fitted(
    part: Problem,
    logs: np.ndarray,
    factors: np.ndarray,
    exponent: np.ndarray,
    free: np.ndarray,
    has_constant: bool,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Exponents, coefficients of the terms, and errors of each start after Levenberg-Marquardt steps."""
    n_starts, n_terms, k = exponent.shape
    middle = logs.mean(axis=1, keepdims=True)
    state = _State.at(part, logs - middle, factors, exponent, has_constant)
    damping = np.full(n_starts, 1e-2)
    for _ in range(N_STEPS):
        slopes = state.slopes.reshape(n_starts, n_terms * k, -1)
        normal = slopes @ slopes.transpose(0, 2, 1)
        right = np.einsum("spn,sn->sp", slopes, state.gaps)
        size = np.einsum("spp->sp", normal)
        ridge = damping[:, None] * (size + 1e-6 * size.max(axis=1, keepdims=True)) + 1e-300
        step = np.linalg.solve(normal + ridge[:, :, None] * np.eye(n_terms * k), right[:, :, None])[:, :, 0]
        step = np.clip(step, -1, 1).reshape(exponent.shape) * free
        trial = np.clip(state.exponent + step, -LARGEST_EXPONENT, LARGEST_EXPONENT)
        new = _State.at(part, logs - middle, factors, trial, has_constant)
        better = new.error < state.error
        damping = np.clip(np.where(better, damping * 0.3, damping * 4), 1e-9, 1e6)
        if not better.any() and damping.min() > 1e5:
            break
        state = state.where(better, new)
    shift = np.exp(-(state.exponent @ middle)[:, :, 0])
    weight = state.weight.copy()
    weight[:, :n_terms] *= shift
    return state.exponent, weight, state.error


class _State:
    """Sums at exponents: their coefficients, gaps, and slopes of the gaps by the exponents."""

    def __init__(self, *parts: np.ndarray) -> None:
        self.exponent, self.weight, self.gaps, self.slopes, self.error = self.parts = parts

    @classmethod
    def at(
        cls, part: Problem, logs: np.ndarray, factors: np.ndarray, exponent: np.ndarray, has_constant: bool
    ) -> _State:
        terms = factors * np.exp(np.clip(exponent @ logs, -60, 60)) * part.root
        table = terms
        if has_constant:
            one = np.broadcast_to(part.root, (len(terms), 1, len(part.root)))
            table = np.concatenate([terms, one], axis=1)
        size = np.sqrt(np.einsum("stn,stn->st", table, table)) + 1e-300
        q, r = np.linalg.qr((table / size[:, :, None]).transpose(0, 2, 1))
        r = r + 1e-12 * np.eye(r.shape[1])
        goal = part.target * part.root
        inner = np.einsum("snt,n->st", q, goal)
        weight = np.linalg.solve(r, inner[:, :, None])[:, :, 0] / size
        gaps = goal - np.einsum("snt,st->sn", q, inner)
        slopes = (weight[:, : terms.shape[1], None] * terms)[:, :, None, :] * logs
        flat = slopes.reshape(len(terms), -1, len(goal))
        flat = flat - (flat @ q) @ q.transpose(0, 2, 1)
        error = np.sqrt(np.mean(gaps**2, axis=1))
        error = np.where(np.isfinite(error) & np.isfinite(weight).all(axis=1), error, np.inf)
        return cls(exponent, weight, gaps, flat.reshape(slopes.shape), error)

    def where(self, better: np.ndarray, other: _State) -> _State:
        """Take the other's starts where they are better."""
        return _State(*(
            np.where(better.reshape(-1, *[1] * (own.ndim - 1)), new, own)
            for own, new in zip(self.parts, other.parts, strict=True)
        ))  # fmt: skip


def _written(
    problem: Problem, powers: np.ndarray, exponent: np.ndarray, called: list[sympy.Expr]
) -> Iterator[list[sympy.Expr]]:
    """The products with fractions for exponents, and as they are where those are not near."""
    near = np.array([[float(rational(float(p), (1, 2, 3, 4))) for p in row] for row in exponent])
    off = np.abs(near - exponent)
    negative = problem.columns[0] < 0
    symbols = tuple(sympy.Abs(problem.symbols[j]) if negative[j] else problem.symbols[j] for j in powers)
    if off.max() < NEAR_FRACTION:
        yield [written(symbols, row) * factor for row, factor in zip(near, called, strict=True)]
    if off.max() > NO_FRACTION:
        yield [
            sympy.Mul(factor, *(s ** _fraction(p) for s, p in zip(symbols, row, strict=True)))
            for row, factor in zip(exponent, called, strict=True)
        ]


def _fraction(power: float) -> sympy.Expr:
    near = rational(power, (1, 2, 3, 4))
    return near if abs(float(near) - power) < NO_FRACTION else sympy.Float(power)

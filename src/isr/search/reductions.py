"""Reductions read from a surrogate: idle columns, power factors, differences, and what is left by a change of scale.

Each is kept only where a surrogate in fewer columns is no worse than that in all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, product

import numpy as np
import sympy

from isr.search.candidates import price
from isr.search.monomials import rational
from isr.search.problem import USELESS, Problem
from isr.search.surrogate import Surrogate, best_surrogate

# A reduced surrogate may be worse by this factor, less where errors are a larger share of the target than that.
WORSE, NOISY = 1.3, 3e-3
# Pairs of columns that slopes speak for, up to what share of these, are tried.
MOST_PAIRS, FARTHEST = 14, 0.6
# Of a column's size: a smaller constant is none.
LEAST_OFFSET = 0.01
ROWS = 700
# How far an exponent may be from a fraction, and of how small a share of the slopes a direction counts as idle.
NEAR = 0.12


def chain(problem: Problem, deepest: int) -> Iterator[tuple[str, Problem]]:
    """Yield a problem in fewer columns with what was found, then one of that problem, as long as there is one."""
    for _ in range(deepest):
        found = _reduced(problem)
        if found is None:
            return
        problem = found[1]
        yield found


def _reduced(problem: Problem) -> tuple[str, Problem] | None:
    """The reduction that a surrogate speaks for."""
    part = problem.some(ROWS)
    if problem.k < 1 or len(part.target) < 30:
        return None
    best = best_surrogate(part.columns, part.target, part.root)
    size = float(np.sqrt(np.mean((part.target * part.root) ** 2)))
    if best.error > USELESS * size:
        return None
    is_noisy = best.error > NOISY * size
    # Under noise nearly all of the error is noise, of which a bogus reduction hides behind a small share.
    worse = 1 + (WORSE - 1) / 30 if is_noisy else WORSE
    limit = (worse * best.error + 1e-9 * size) * problem.unit
    fine: list[tuple[float, str, Problem]] = []
    for proposal in (_idle, _factors, _summands, _translations, _scales, _pairs, _offsets):
        for found in proposal(problem, part, best):
            if is_noisy and not all(map(_is_simple, found.meaning)):
                continue
            error = _error(found)
            if error <= limit:
                fine.append((error, proposal.__name__[1:], found))
        if fine and not is_noisy:  # in the fewest columns
            return min(((what, p) for e, what, p in sorted(fine, key=lambda f: f[0])), key=lambda f: f[1].k)
    n = len(part.target)
    costs = [n * np.log(error) + sum(price(m, n) for m in p.meaning) for error, _, p in fine]
    return fine[int(np.argmin(costs))][1:] if fine else None


def _is_simple(meaning: sympy.Expr) -> bool:
    """Whether a column has no weights and powers but those that people write."""
    powers = [p.exp for p in meaning.atoms(sympy.Pow)]
    return not meaning.has(sympy.Float) and all(p.is_Rational and abs(p) <= 2 and p.q <= 2 for p in powers)


def _error(reduced: Problem) -> float:
    """The error of a reduced problem's surrogate in units of the original target."""
    small = reduced.some(ROWS)
    if not len(small.target) or not np.all(np.isfinite(small.target)):
        return np.inf
    if small.k == 0:
        middle = np.average(small.target, weights=small.root**2)
        return float(np.sqrt(np.mean(((small.target - middle) * small.root) ** 2))) * reduced.unit
    return best_surrogate(small.columns, small.target, small.root).error * reduced.unit


def _kept(problem: Problem, keep: list[int]) -> Problem:
    return replace(problem, columns=problem.columns[:, keep], meaning=tuple(problem.meaning[j] for j in keep))


def _idle(problem: Problem, part: Problem, found: Surrogate) -> Iterator[Problem]:
    """The problem without the columns on which nothing depends."""
    assert found.slopes is not None
    strength = np.sqrt(
        np.mean((found.slopes * np.std(part.columns, axis=0) * part.root[:, None]) ** 2, axis=0)
    )
    order = np.argsort(strength)
    for n in range(problem.k, 0, -1):
        idle = order[:n]
        if strength[idle[-1]] < 5 * found.error or strength[idle[-1]] < 1e-6 * strength.max():
            yield _kept(problem, [j for j in range(problem.k) if j not in idle])


def _factors(problem: Problem, part: Problem, found: Surrogate) -> Iterator[Problem]:
    """The target over powers of single columns, which the rest does not depend on."""
    assert found.slopes is not None
    powers = np.zeros(problem.k)
    for j in np.flatnonzero(problem.whole):
        slope, value = found.slopes[:, j] * part.columns[:, j] * part.root, found.values * part.root
        p = float(slope @ value / (value @ value))
        rest = np.sqrt(np.mean((slope - p * value) ** 2) / np.mean(value**2))
        if abs(p) > 0.2 and rest < 0.35 * abs(p):
            powers[j] = float(rational(p, (1, 2) if problem.columns[:, j].min() > 0 else (1,)))
    used = np.flatnonzero(powers)
    subsets = [used, *([np.delete(used, i) for i in range(len(used))] if len(used) > 1 else []),
               *([used[i : i + 1] for i in range(len(used))] if len(used) > 2 else [])]  # fmt: skip
    for some in subsets:
        if len(some):
            chosen = np.zeros(problem.k)
            chosen[some] = powers[some]
            yield _divided(problem, chosen, [j for j in range(problem.k) if j not in some])


def _summands(problem: Problem, part: Problem, found: Surrogate) -> Iterator[Problem]:
    """The target less a multiple of a column on which the rest does not depend."""
    assert found.slopes is not None
    w = part.root**2 / np.sum(part.root**2)
    for j in range(problem.k):
        slope = float(w @ found.slopes[:, j])
        rest = np.sqrt(w @ (found.slopes[:, j] - slope) ** 2)
        if rest < 0.35 * abs(slope):
            factor = _near(slope)
            term, back = factor * problem.meaning[j], problem.undo
            yield replace(
                _kept(problem, [m for m in range(problem.k) if m != j]),
                target=problem.target - float(factor) * problem.columns[:, j],
                undo=lambda e, term=term, back=back: back(term + e),
            )


def _divided(problem: Problem, powers: np.ndarray, keep: list[int]) -> Problem:
    """The problem of the target over a monomial, in some of the columns."""
    with np.errstate(all="ignore"):
        factor = np.prod(
            np.where(powers == np.round(powers), problem.columns, np.abs(problem.columns)) ** powers, axis=1
        )
    form = sympy.Mul(*(m ** rational(p) for m, p in zip(problem.meaning, powers, strict=True) if p))
    root = problem.root * np.abs(factor)
    unit = float(np.sqrt(np.mean(root**2) / np.mean(problem.root**2)))
    back = problem.undo
    return replace(
        _kept(problem, keep), target=problem.target / factor, root=root / unit, unit=problem.unit * unit,
        undo=lambda e: back(form * e),
    )  # fmt: skip


def _translations(problem: Problem, part: Problem, found: Surrogate) -> Iterator[Problem]:
    """The problem in weighted sums and differences of columns."""
    assert found.slopes is not None
    if problem.k < 2:
        return
    slopes = found.slopes * part.root[:, None]
    for rank in range(1, problem.k):
        basis = _reduced_rows(_row_space(slopes * problem.size, rank) / problem.size)
        if basis is None:
            continue
        rows = [[_near(c) for c in row] for row in basis]
        columns = np.stack([problem.columns @ np.array([float(c) for c in row]) for row in rows], axis=1)
        meaning = tuple(
            sympy.Add(*(c * m for c, m in zip(row, problem.meaning, strict=True) if c != 0)) for row in rows
        )
        yield replace(problem, columns=columns, meaning=meaning)


def _scales(problem: Problem, part: Problem, found: Surrogate) -> Iterator[Problem]:
    """The problem in products of powers of columns, for the target over such a product."""
    assert found.slopes is not None
    active = np.flatnonzero(problem.whole)
    if len(active) < 2 or len(active) < problem.k:
        return
    rates = np.concatenate([found.slopes * part.columns, found.values[:, None]], axis=1) * part.root[:, None]
    for rank in range(1, problem.k + 1):
        space = _row_space(rates, rank)
        basis = _reduced_rows(space, first=problem.k)
        if basis is None:
            continue
        exponents = [[rational(float(c)) for c in row[:-1]] for row in basis]
        off = max(abs(float(r) - c) for row, own in zip(exponents, basis, strict=True)
                  for r, c in zip(row, own[:-1], strict=True))  # fmt: skip
        if off > NEAR:
            continue
        prefactor = np.array([float(r) for r in exponents[0]])
        reduced = _divided(problem, prefactor, [])
        invariants = [np.array([float(r) for r in row]) for row in exponents[1:]]
        invariants = [_upright(e) for e in invariants]
        columns = [np.prod(np.abs(problem.columns) ** e, axis=1) * _signs(problem, e) for e in invariants]
        meaning = tuple(
            sympy.Mul(*(m ** rational(p) for m, p in zip(problem.meaning, e, strict=True)))
            for e in invariants
        )
        stacked = np.stack(columns, axis=1) if columns else np.empty((len(problem.target), 0))
        yield replace(reduced, columns=stacked, meaning=meaning)


def _pairs(problem: Problem, part: Problem, found: Surrogate) -> Iterator[Problem]:
    """The problem with the sum, difference, product or ratio of two columns in place of them."""
    assert found.slopes is not None
    value, slopes = found.values * part.root, found.slopes * part.root[:, None]
    tried: list[tuple[float, Problem]] = []
    for i, j in combinations(range(problem.k), 2):
        others = [m for m in range(problem.k) if m not in (i, j)]
        (u, v), (one, two) = problem.columns[:, [i, j]].T, (problem.meaning[i], problem.meaning[j])
        for sign in (1, -1):
            a, b = slopes[:, i], -sign * slopes[:, j]
            tried.append(
                (_share(a + b, a, b), _joined(_kept(problem, others), u + sign * v, one + sign * two))
            )
            if problem.whole[j] and (sign > 0 or problem.whole[i]):
                a, b = a * part.columns[:, i], b * part.columns[:, j]
                power = -sign * _rounded((a + b) @ value / (value @ value))
                tried.append(
                    (_share(a + b + sign * power * value, a, b), _merged(problem, i, j, sign, power))
                )
    yield from (p for share, p in sorted(tried, key=lambda t: t[0])[:MOST_PAIRS] if share < FARTHEST and p.k)


def _offsets(problem: Problem, part: Problem, found: Surrogate) -> Iterator[Problem]:
    """The same where a constant is added to a column first, and powers of that sum as factors."""
    assert found.slopes is not None
    value, slopes = found.values * part.root, found.slopes * part.root[:, None]
    own = slopes * part.columns
    tried: list[tuple[float, Problem]] = []
    for i, j in product(range(problem.k), repeat=2):
        for sign in (1, -1) if i != j else (0,):
            goal, basis = own[:, j] - sign * own[:, i], np.column_stack([value, -slopes[:, j]])
            (power, offset), *_ = np.linalg.lstsq(basis, goal, rcond=None)
            rest = _share(goal - basis @ (power, offset), own[:, j], own[:, i])
            simple = rational(float(offset), (1, 2))
            near = abs(float(simple) - offset) < 0.01 * abs(offset)
            c = simple if near else sympy.Float(offset)
            shifted = problem.columns[:, j] + float(c)
            if abs(offset) < LEAST_OFFSET * problem.size[j] or np.min(shifted * np.sign(shifted[0])) <= 0:
                continue
            columns, meaning = problem.columns.copy(), list(problem.meaning)
            columns[:, j], meaning[j] = shifted, meaning[j] + c
            moved = replace(problem, columns=columns, meaning=tuple(meaning))
            tried.append((rest, _merged(moved, i, j, sign, _rounded(power))))
    yield from (p for share, p in sorted(tried, key=lambda t: t[0])[:MOST_PAIRS] if share < FARTHEST / 3)


def _rounded(power: float) -> float:
    return float(rational(float(power), (1, 2)))


def _merged(problem: Problem, i: int, j: int, sign: int, power: float) -> Problem:
    """The problem of the target over a power of column j, in its product (or ratio) with column i in place of both."""
    others = [m for m in range(problem.k) if m not in (i, j)]
    (u, v), (one, two) = problem.columns[:, [i, j]].T, (problem.meaning[i], problem.meaning[j])
    if power != int(power) and v.min() <= 0:
        return replace(problem, columns=problem.columns[:, :0], meaning=())
    left = _divided(problem, np.where(np.arange(problem.k) == j, power, 0.0), others)
    return _joined(left, u * v**sign, one * two**sign) if i != j else left


def _share(gaps: np.ndarray, a: np.ndarray, b: np.ndarray) -> float:
    return float(np.sqrt(gaps @ gaps / (a @ a + b @ b + 1e-300)))


def _joined(problem: Problem, column: np.ndarray, meaning: sympy.Expr) -> Problem:
    return replace(
        problem, columns=np.column_stack([problem.columns, column]), meaning=(*problem.meaning, meaning)
    )


def _upright(exponents: np.ndarray) -> np.ndarray:
    """The exponents with whole numbers where that needs a factor of two or three alone."""
    for factor in (1, 2, 3):
        if np.allclose(exponents * factor, np.round(exponents * factor), atol=1e-9):
            return exponents * factor if factor > 1 else exponents
    return exponents


def _signs(problem: Problem, exponents: np.ndarray) -> np.ndarray:
    odd = np.abs(exponents % 2) == 1
    return np.prod(np.where(odd & (problem.columns < 0), -1.0, 1.0), axis=1)


def _row_space(rows: np.ndarray, rank: int) -> np.ndarray:
    return np.linalg.svd(rows, full_matrices=False)[2][:rank]


def _reduced_rows(space: np.ndarray, first: int | None = None) -> np.ndarray | None:
    """A basis of a row space with ones and zeros at pivots; the first pivot is at ``first``."""
    basis = space.copy()
    free = [j for j in range(basis.shape[1]) if j != first]
    for i in range(len(basis)):
        if i == 0 and first is not None:
            pivot, row = first, int(np.argmax(np.abs(basis[:, first])))
        else:
            sizes = np.abs(basis[i:, free])
            row, place = np.unravel_index(np.argmax(sizes), sizes.shape)
            row, pivot = int(row) + i, free[int(place)]
            free.remove(pivot)
        if abs(basis[row, pivot]) < 1e-3:
            return None
        basis[[i, row]] = basis[[row, i]]
        basis[i] /= basis[i, pivot]
        others = [r for r in range(len(basis)) if r != i]
        basis[others] -= np.outer(basis[others, pivot], basis[i])
    return basis


def _near(value: float) -> sympy.Expr:
    """A weight of a column: a simple fraction where it is near one."""
    simple = rational(value, (1, 2))
    if abs(float(simple) - value) < 0.02 + 0.03 * abs(value):
        return simple
    return sympy.Float(value)

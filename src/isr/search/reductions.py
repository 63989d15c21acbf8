"""Reductions read from a surrogate: idle columns, power factors, differences, and what is left by a change of scale.

Each is kept only where a surrogate in fewer columns is no worse than that in all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import sympy

from isr.search.monomials import rational
from isr.search.problem import Problem
from isr.search.surrogate import Surrogate, surrogate

# A reduced surrogate may be worse by this factor; one that leaves more than this share says nothing.
WORSE, USELESS, NOISY = 1.1, 0.35, 3e-3
ROWS = 700
# How far an exponent may be from a fraction, and of how small a share of the slopes a direction counts as idle.
NEAR = 0.12


@dataclass(frozen=True, eq=False)
class Reduction:
    """A problem in fewer columns.

    Args:
        problem: The reduced problem.
        what: What was found.
        error: Of its surrogate, in units of the original target.
    """

    problem: Problem
    what: str
    error: float


def reductions(problem: Problem) -> Iterator[Reduction]:
    """Yield reductions of a problem, each after the one before: every one is worth solving."""
    part = problem.some(ROWS)
    if problem.k < 1 or len(part.target) < 30:
        return
    whole = surrogate(part.columns, part.target, part.root, slopes=True)
    logs = _of_logarithms(part)
    best = logs if logs is not None and logs.error < whole.error else whole
    size = np.sqrt(np.mean((part.target * part.root) ** 2))
    if best.error > USELESS * size:
        return
    # Under noise nearly all of the error is noise, of which a bogus reduction hides behind a small share.
    worse = WORSE if best.error < NOISY * size else 1 + (WORSE - 1) / 10
    limit = (worse * best.error + 1e-9 * size) * problem.unit
    for proposal in (_idle, _factors, _translations, _scales):
        tried = [
            Reduction(found, proposal.__name__[1:], _error(found)) for found in proposal(problem, part, best)
        ]
        fine = [reduction for reduction in tried if reduction.error <= limit]
        if fine:  # of those in the fewest columns the one that explains most
            yield min(fine, key=lambda r: (r.problem.k, r.error))
            return


def _of_logarithms(part: Problem) -> Surrogate | None:
    """The surrogate of log|t|, as one of t."""
    t = part.target
    if not (np.all(t > 0) or np.all(t < 0)):
        return None
    found = surrogate(part.columns, np.log(np.abs(t)), part.root * np.abs(t), slopes=True)
    assert found.slopes is not None
    return Surrogate(found.error, t, found.slopes * t[:, None])


def _error(reduced: Problem) -> float:
    """The error of a reduced problem's surrogate in units of the original target."""
    small = reduced.some(ROWS)
    if small.k == 0:
        middle = np.average(small.target, weights=small.root**2)
        return float(np.sqrt(np.mean(((small.target - middle) * small.root) ** 2))) * reduced.unit
    errors = [surrogate(small.columns, small.target, small.root).error]
    logs = _of_logarithms(small)
    return min([*errors, *([logs.error] if logs is not None else [])]) * reduced.unit


def _kept(problem: Problem, keep: list[int]) -> Problem:
    return replace(problem, columns=problem.columns[:, keep], meaning=tuple(problem.meaning[j] for j in keep),
                   depth=problem.depth + 1)  # fmt: skip


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
        yield replace(problem, columns=columns, meaning=meaning, depth=problem.depth + 1)


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

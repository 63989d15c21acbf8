"""Products: powers of columns times powers of a few functions, found as a sum in logarithms.

``log|t| = c + sum_j p_j log|x_j| + sum_a q_a log|f_a|``; changes of sign do no harm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import sympy

from isr.search.atoms import MULTIPLIED, Table, atoms
from isr.search.evaluate import opened
from isr.search.monomials import exponents, rational, values_of, written
from isr.search.problem import Problem
from isr.search.selection import select
from isr.search.sums import ALWAYS, FAR, Limit

# Rows nearer to zero than this share of the median size say little in logarithms, where there is noise.
NEAR_ZERO = 0.02


def powers(problem: Problem) -> Iterator[sympy.Expr]:
    """Yield the power law of the target in the columns, exponents rounded and as they are."""
    rows, logs, basis, root = _logarithms(problem)
    if len(rows) <= basis.shape[0] + 2:
        return
    yield from _written(problem, rows, np.zeros((0, len(rows))), [], logs, basis, root)


def with_functions(
    problem: Problem,
    limit: Limit,
    *,
    n_arguments: int = 60,
    n_factors: int = 2,
    numbers: str = "grid",
    n_rows: int = 300,
) -> Iterator[sympy.Expr]:
    """Yield products of powers with powers of functions that leave no more than ``limit`` says."""
    problem = problem.some(2 * n_rows)
    rows, logs, basis, root = _logarithms(problem)
    if len(rows) < 20:
        return
    table = Table()
    own = atoms(problem, MULTIPLIED, n_arguments, numbers=numbers)
    limit()
    with np.errstate(all="ignore"):
        own.values.reverse()
        own.writers.reverse()
        while own.values:  # they may be many, so they go as their logarithms come
            table.add(np.log(np.abs(own.values.pop()[rows])), own.writers.pop())
    if "exp" in problem.functions:
        e = exponents(problem, n_arguments + 1)[1:]
        for exponent, values in zip(e, values_of(problem, e), strict=True):
            table.add(values[rows], lambda x=exponent: sympy.exp(written(problem.symbols, x)))
    if not table.values:
        return
    values = np.array(table.values)
    table.values.clear()
    limit()
    sizes: dict[int, int] = {}
    for chosen in select(values, logs, root, fixed=basis, n_terms=n_factors, keep=14):
        rank = sizes[len(chosen.rows)] = sizes.get(len(chosen.rows), 0) + 1
        own_values = values[list(chosen.rows)]
        factors = [table.writers[i] for i in chosen.rows]
        yield from _written(
            problem, rows, own_values, factors, logs, basis, root, np.inf if rank <= ALWAYS else FAR * limit()
        )


def _logarithms(problem: Problem) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Rows that logarithms can use, log|t| there, the fixed part of the sum, and roots of weights."""
    t = np.abs(problem.target)
    middle = np.median(t[problem.root > 0]) if np.any(problem.root > 0) else 0.0
    rows = np.flatnonzero((problem.root > 0) & (t > NEAR_ZERO * middle) & (problem.columns != 0).all(axis=1))
    logs = np.log(t[rows])
    basis = np.concatenate([np.ones((1, len(rows))), np.log(np.abs(problem.columns[rows])).T])
    varies = np.ptp(basis, axis=1) > 1e-9
    basis[1:][~varies[1:]] = 0.0
    # An error of t is one of log|t| in proportion to 1/|t|.
    with np.errstate(divide="ignore"):  # where most of the target is zero, so is its median
        root = problem.root[rows] * np.minimum(t[rows] / middle, 20.0) if len(rows) else np.zeros(0)
    return rows, logs, basis, root


def _written(
    problem: Problem, rows: np.ndarray, values: np.ndarray, factors: list[Callable[[], sympy.Expr]], logs: np.ndarray,
    basis: np.ndarray, root: np.ndarray, most: float = np.inf,
) -> Iterator[sympy.Expr]:  # fmt: skip
    """Yield a product with rounded exponents, and with those of least squares where they are not near."""
    used = np.flatnonzero(np.any(basis != 0, axis=1))
    a = np.concatenate([basis[used], values]) * root
    size = np.sqrt(np.sum(a * a, axis=1))
    solution = np.linalg.lstsq((a / size[:, None]).T, logs * root, rcond=1e-12)[0] / size
    gaps = np.clip(logs - solution @ np.concatenate([basis[used], values]), -20, 20)
    if problem.unit * np.sqrt(np.mean((gaps * problem.root[rows] * problem.target[rows]) ** 2)) > most:
        return
    all_powers = np.zeros(1 + problem.k + len(factors))
    all_powers[[*used, *range(1 + problem.k, len(all_powers))]] = solution
    constant, exponent = all_powers[0], all_powers[1:]
    if np.abs(exponent).max(initial=0.0) > 30 or abs(constant) > 600:
        return
    parts = [*problem.symbols, *(write() for write in factors)]
    near = [_rounded(p, f) for p, f in zip(exponent, parts, strict=True)]
    off = max((abs(float(r) - p) for r, p in zip(near, exponent, strict=True)), default=0.0)
    options = [near]
    if off > 0.02:  # a number inside is not fitted yet, or powers are no fractions
        options.append([sympy.Float(p) for p in exponent])
    if factors and off > 0.02:
        options.append(
            [rational(p, (1, 2) if f.is_Symbol else (1,)) for p, f in zip(exponent, parts, strict=True)]
        )
        # A power of a column may stand in for a number inside a function of it.
        inside = {s for f in parts[problem.k :] for s in f.free_symbols}
        alone = [sympy.Integer(0) if p in inside else r for p, r in zip(problem.symbols, near, strict=False)]
        whole = [sympy.Integer(round(p) or (1 if p > 0 else -1)) for p in exponent[problem.k :]]
        options.append([*alone, *whole])
    for option in options:
        form = sympy.Mul(*(_power(f, r) for f, r in zip(parts, option, strict=True)))
        rest = values.T @ np.array([float(r) for r in option[problem.k :]]) if len(values) else 0.0
        rest = rest + basis[1:].T @ np.array([float(r) for r in option[: problem.k]])
        scale = np.exp(np.clip(np.average(logs - rest, weights=root**2 + 1e-300), -600, 600))
        yield sympy.Float(float(scale) * _sign(problem, rows, form)) * form


def _rounded(power: float, factor: sympy.Expr) -> sympy.Expr:
    if isinstance(factor, sympy.exp) and abs(power - round(power)) > 0.01:
        return sympy.Float(power)  # a number inside
    return rational(power)


def _power(base: sympy.Expr, power: sympy.Expr) -> sympy.Expr:
    if isinstance(base, sympy.exp):
        return sympy.exp(power * base.args[0])
    # A base that may be negative has no fractional powers.
    return base**power if power.is_Integer or base.is_Symbol else sympy.Pow(base, power)


def _sign(problem: Problem, rows: np.ndarray, form: sympy.Expr) -> float:
    values = opened(form, problem.symbols).values(list(problem.columns[rows].T))
    with np.errstate(all="ignore"):
        agreement = np.nansum(np.sign(values) * np.sign(problem.target[rows]) * problem.root[rows] ** 2)
    return 1.0 if agreement >= 0 else -1.0

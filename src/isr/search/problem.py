"""What a step of the search works on: columns that stand for expressions of x, a target, and the way back to y."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import sympy

from isr.search.surrogate import best_surrogate, surrogate

Undo = Callable[[Any], Any]
# A look at how plain a target is takes so many rows, of weights up to this factor of their median.
PLAIN_ROWS, EVEN = 300, 3.0
# A surrogate needs so many rows, and one that leaves more than this share of the spread says nothing.
LEAST_ROWS, USELESS = 60, 0.35


@dataclass(frozen=True, eq=False)
class Problem:
    """Find ``target`` as a function of ``columns``.

    Args:
        columns: Values (n, k).
        meaning: What each column is, in the variables of x.
        target: Values.
        root: Square root of each row's weight; 0 leaves a row out.
        undo: From a law of the target, in the variables of x, to a law of y.
        functions: Names of functions that laws may call.
        unit: What a weighted error of 1 is worth, in y.
    """

    columns: np.ndarray
    meaning: tuple[sympy.Expr, ...]
    target: np.ndarray
    root: np.ndarray
    undo: Undo
    functions: frozenset[str]
    unit: float = 1.0

    @property
    def k(self) -> int:
        """Number of columns."""
        return self.columns.shape[1]

    @cached_property
    def symbols(self) -> tuple[sympy.Symbol, ...]:
        """What laws of the target are written in."""
        return tuple(sympy.Symbol(f"column_{j}", real=True) for j in range(self.k))

    def lifted(self, law: sympy.Expr) -> sympy.Expr:
        """Return a law of y in the variables of x from a law of the target in the columns."""
        return self.undo(law.xreplace(dict(zip(self.symbols, self.meaning, strict=True))))

    @cached_property
    def size(self) -> np.ndarray:
        """Typical size of each column."""
        return np.sqrt(np.mean(self.columns**2, axis=0)) + 1e-300

    @cached_property
    def whole(self) -> np.ndarray:
        """Which columns never vanish."""
        return (np.abs(self.columns) > 1e-9 * self.size).all(axis=0)

    def some(self, n: int) -> Problem:
        """Return the problem with at most ``n`` rows of weight, evenly taken."""
        used = np.flatnonzero(self.root > 0)
        if len(used) > n:
            used = used[np.linspace(0, len(used) - 1, n).astype(int)]
        return replace(self, columns=self.columns[used], target=self.target[used], root=self.root[used])

    def smoothed(self) -> Problem | None:
        """Return the problem with a surrogate's values for its target, where noise is what a surrogate leaves."""
        used = self.root > 0
        if self.k == 0 or used.sum() < LEAST_ROWS:
            return None
        found = best_surrogate(self.columns, self.target, self.root)
        size = np.std(self.target[used] * self.root[used])
        if not found.is_noisy or found.error > USELESS * size:
            return None
        return replace(self, target=found.values)

    def with_target(self, target: np.ndarray, root: np.ndarray, undo: Undo) -> Problem:
        """Return the problem for a function of the target, undone by ``undo`` first."""
        back, size = self.undo, float(np.sqrt(np.mean(root**2)))
        return replace(
            self, target=target, root=root / size, unit=self.unit / size, undo=lambda e: back(undo(e))
        )

    @cached_property
    def plainness(self) -> float:
        """Return the share that a polynomial of degree two leaves: little where a law may be short."""
        if not self.k:
            return 1.0
        part, n_terms = self.some(PLAIN_ROWS), (self.k + 1) * (self.k + 2) // 2
        # Else few rows would speak for all where the slope of an outer function varies much.
        middle = np.median(part.root)
        root = np.minimum(part.root, EVEN * middle)
        spread = np.sqrt(
            np.average((part.target - np.average(part.target, weights=root**2)) ** 2, weights=root**2)
        )
        error = surrogate(part.columns, part.target, root, most=n_terms, both=True).error
        return error / float(spread * np.sqrt(np.mean(root**2)) + 1e-300)

    def error(self, gaps: np.ndarray) -> float:
        """Return what gaps in the target are in y, to first order: a weighted root mean square."""
        return self.unit * float(np.sqrt(np.mean((gaps * self.root) ** 2)))


# Outer functions: name, domain of the target, forward, slope of forward, and its inverse.
_OUTER: tuple[tuple[str, Any, Any, Any, Any], ...] = (
    ("log", lambda t: t > 0, np.log, lambda t: 1 / t, sympy.exp),
    ("", lambda t: t != 0, lambda t: 1 / t, lambda t: 1 / t**2, lambda e: 1 / e),
    ("", lambda t: t > 0, lambda t: t**2, lambda t: 2 * t, sympy.sqrt),
    ("", lambda t: t > 0, lambda t: 1 / t**2, lambda t: 2 / t**3, lambda e: 1 / sympy.sqrt(e)),
    ("", lambda t: t > 0, np.sqrt, lambda t: 0.5 / np.sqrt(t), lambda e: e**2),
    ("log", lambda t: t < 30, np.exp, np.exp, sympy.log),
    ("asin", lambda t: np.abs(t) <= np.pi / 2, np.sin, np.cos, sympy.asin),
    ("acos", lambda t: (t >= 0) & (t <= np.pi), np.cos, np.sin, sympy.acos),
    ("atan", lambda t: np.abs(t) < np.pi / 2, np.tan, lambda t: 1 / np.cos(t) ** 2, sympy.atan),
    ("tanh", lambda t: np.abs(t) < 1, np.arctanh, lambda t: 1 / (1 - t**2), sympy.tanh),
    ("sigmoid", lambda t: (t > 0) & (t < 1), lambda t: np.log(t / (1 - t)), lambda t: 1 / (t * (1 - t)),
     lambda e: 1 / (1 + sympy.exp(-e))),
)  # fmt: skip
# Powers from which a refit goes to others.
_POWERS: tuple[tuple[str, Any, Any, Any, Any], ...] = tuple(
    ("", lambda t: t > 0, lambda t, p=p: t ** (1 / p), lambda t, p=p: t ** (1 / p - 1) / p,
     lambda e, p=p: e ** sympy.Float(p)) for p in (3.0, 1.5, -1.5, -3.0)
)  # fmt: skip
# Rows outside the domain of an outer function may be so many, where there is noise.
MOST_OUTSIDE = 0.35


def outer(problem: Problem, sd: float = 0.0) -> list[Problem]:
    """Return the problem for functions of its target, rows weighed by the slope of the function, plain ones first."""
    return sorted(_changed(problem, sd, _OUTER), key=lambda changed: changed.plainness)


def powers(problem: Problem, sd: float = 0.0) -> Iterator[Problem]:
    """Yield the problem for what the target is a power of, exponents still to be fitted."""
    return _changed(problem, sd, _POWERS)


def _changed(problem: Problem, sd: float, functions: Any) -> Iterator[Problem]:
    t, used = problem.target, problem.root > 0
    for name, domain, forward, slope, inverse in functions:
        if name and name not in problem.functions:
            continue
        inside = domain(t) & used
        share = 1 - inside.sum() / max(used.sum(), 1)
        if share > (MOST_OUTSIDE if sd else 0.0) or inside.sum() < 8:
            continue
        if forward is np.exp and np.ptp(t[used]) > 12:
            continue
        safe = np.where(inside, t, np.median(t[inside]))
        with np.errstate(all="ignore"):
            target, root = forward(safe), problem.root / np.abs(slope(safe))
        fine = inside & np.isfinite(target) & np.isfinite(root)
        root = np.where(fine, root, 0.0)
        if not np.any(root > 0) or np.ptp(target[fine]) == 0:
            continue
        yield problem.with_target(np.where(fine, target, 0.0), root, inverse)

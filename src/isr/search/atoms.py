"""Atoms: functions of a monomial with a number inside, for tables that sums and products are selected from.

Numbers inside are natural ones and a coarse grid over what the rows can show; a refit finds the exact ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import sympy

from isr.search.monomials import exponents, values_of, written
from isr.search.problem import Problem

NATURAL = (1.0, 0.5, 2.0, np.pi, 2 * np.pi)
# A column with a wider range may hold degrees.
MANY_TURNS, DEGREES = 25.0, (np.pi / 180, np.pi / 90)


def sigmoid(u: Any) -> Any:
    """Return the logistic function as an expression."""
    return 1 / (1 + sympy.exp(-u))


def kink(u: Any) -> Any:
    """Return the distance from a number to be fitted, which stands in the argument or beside it."""
    return sympy.Abs(u - (1 if u.has(sympy.Float) else sympy.Float(1)))


@dataclass(frozen=True)
class Atom:
    """A function that atoms are made of.

    Args:
        needs: Name of the library's function.
        array: On arrays.
        write: On expressions.
        grid: Numbers inside, for an argument of range 1 (steps of the argument where it ``turns``).
        least: Below which the argument must not fall.
        most: Above which it must not rise.
        signed: Whether a negative number inside says something new.
    """

    needs: str
    array: Callable[[np.ndarray], np.ndarray]
    write: Callable[[Any], Any]
    grid: tuple[float, ...] = (0.5, 1.5, 4.0)
    least: float = -np.inf
    most: float = np.inf
    signed: bool = False


_TURNS = tuple(1.5 * j for j in range(1, 15))
ADDED: tuple[Atom, ...] = (
    Atom("sin", np.sin, sympy.sin, _TURNS),
    Atom("cos", np.cos, sympy.cos, _TURNS),
    Atom("exp", np.exp, sympy.exp, (0.7, 2.0, 5.0, 12.0), most=30.0, signed=True),
    Atom("sin", lambda u: np.sin(u) ** 2, lambda u: sympy.sin(u) ** 2, ()),
    Atom("cos", lambda u: np.cos(u) ** 2, lambda u: sympy.cos(u) ** 2, ()),
    Atom("log", np.log, sympy.log, (), least=1e-12),
    Atom("log", np.log1p, lambda u: sympy.log(1 + u), (0.5, 3.0, 20.0), least=-0.99),
    Atom("reciprocal", lambda u: 1 / (1 + u), lambda u: 1 / (1 + u), (0.5, 2.0, 8.0), least=-0.99),
    Atom("reciprocal", lambda u: 1 / (1 - u), lambda u: 1 / (1 - u), (0.3, 0.6, 0.9), most=0.99),
    Atom("sqrt", lambda u: np.sqrt(1 + u), lambda u: sympy.sqrt(1 + u), (1.0, 5.0), least=-0.999),
    Atom("sqrt", lambda u: np.sqrt(1 - u), lambda u: sympy.sqrt(1 - u), (0.5, 0.9), most=0.999),
    Atom("sqrt", lambda u: 1 / np.sqrt(1 + u), lambda u: 1 / sympy.sqrt(1 + u), (1.0, 5.0), least=-0.999),
    Atom("sqrt", lambda u: 1 / np.sqrt(1 - u), lambda u: 1 / sympy.sqrt(1 - u), (0.5, 0.9), most=0.999),
    Atom("tanh", np.tanh, sympy.tanh),
    Atom("atan", np.arctan, sympy.atan),
    Atom("asin", np.arcsin, sympy.asin, (0.7, 0.95), least=-1.0, most=1.0),
    Atom("acos", np.arccos, sympy.acos, (0.7, 0.95), least=-1.0, most=1.0),
    Atom("tan", np.tan, sympy.tan, (0.5, 1.0, 1.4), least=-1.55, most=1.55),
    Atom("sinh", np.sinh, sympy.sinh, (2.0,), most=30.0),
    Atom("cosh", np.cosh, sympy.cosh, (2.0,), most=30.0),
    Atom("sigmoid", lambda u: 1 / (1 + np.exp(-u)), sigmoid, (3.0, 8.0), signed=True),
    Atom("abs", np.abs, sympy.Abs, (), most=np.inf),
    Atom("abs", lambda u: np.abs(u - 1), kink, (1.5, 3.0, 6.0, 12.0), signed=True),
)
"""Functions that are added up."""
MULTIPLIED: tuple[Atom, ...] = (
    Atom("reciprocal", lambda u: 1 + u, lambda u: 1 + u, (0.5, 2.0, 8.0), least=-0.999),
    Atom("reciprocal", lambda u: 1 - u, lambda u: 1 - u, (0.3, 0.6, 0.9)),
    Atom("sin", np.sin, sympy.sin, _TURNS[:10]),
    Atom("cos", np.cos, sympy.cos, _TURNS[:10]),
    Atom("tan", np.tan, sympy.tan, ()),
    Atom("exp", lambda u: np.exp(u) - 1, lambda u: sympy.exp(u) - 1, (0.7, 2.0, 5.0), most=30.0, signed=True),
    Atom("exp", lambda u: np.exp(u) + 1, lambda u: sympy.exp(u) + 1, (0.7, 2.0, 5.0), most=30.0, signed=True),
    Atom("exp", lambda u: np.exp(np.exp(u)), lambda u: sympy.exp(sympy.exp(u)), (), most=3.0, signed=True),
    Atom("log", np.log, sympy.log, ()),
    Atom("log", np.log1p, lambda u: sympy.log(1 + u), (0.5, 3.0, 20.0), least=-0.99),
    Atom("tanh", np.tanh, sympy.tanh),
    Atom("atan", np.arctan, sympy.atan),
    Atom("asin", np.arcsin, sympy.asin, (0.7, 0.95), least=-1.0, most=1.0),
    Atom("acos", np.arccos, sympy.acos, (0.7, 0.95), least=-1.0, most=1.0),
    Atom("sinh", np.sinh, sympy.sinh, (2.0, 5.0), most=30.0),
    Atom("cosh", np.cosh, sympy.cosh, (2.0, 5.0), most=30.0),
    Atom("cos", lambda u: 1 - np.cos(u), lambda u: 1 - sympy.cos(u), ()),
    Atom("cos", lambda u: 1 + np.cos(u), lambda u: 1 + sympy.cos(u), ()),
)
"""Functions that are multiplied."""


@dataclass(eq=False)
class Table:
    """Terms to select from: rows of values with how each is written, and products of two of them."""

    values: list[np.ndarray] = field(default_factory=list)
    writers: list[Callable[[], sympy.Expr]] = field(default_factory=list)
    pairs: np.ndarray = field(default_factory=lambda: np.empty((0, 2), dtype=int))

    def add(self, values: np.ndarray, write: Callable[[], sympy.Expr]) -> None:
        """Add a row unless it is not finite."""
        if np.all(np.isfinite(values)):
            self.values.append(values)
            self.writers.append(write)

    def extend(self, other: Table) -> None:
        """Add the rows of another table."""
        self.values += other.values
        self.writers += other.writers

    def multiply(self, left: Sequence[int], right: Sequence[int], most: int) -> None:
        """Add products of rows, at most so many: the first on both sides, or far down on one side alone."""
        i, j = np.divmod(np.arange(len(left) * len(right)), max(len(right), 1))
        first = np.argsort((i + 2) * (j + 20), kind="stable")[:most]
        pairs = np.column_stack([np.array(left, dtype=int)[i[first]], np.array(right, dtype=int)[j[first]]])
        self.pairs = np.concatenate([self.pairs, pairs])

    def array(self, rows: np.ndarray) -> np.ndarray:
        """Return the values at some places, those of products last."""
        own = np.array([v[rows] for v in self.values])
        return np.concatenate([own, own[self.pairs[:, 0]] * own[self.pairs[:, 1]]])

    def whole(self, i: int) -> np.ndarray:
        """Return all values of a term."""
        if i < len(self.values):
            return self.values[i]
        a, b = self.pairs[i - len(self.values)]
        return self.values[a] * self.values[b]

    def written(self, i: int) -> sympy.Expr:
        """Return a term as an expression."""
        if i < len(self.values):
            return self.writers[i]()
        a, b = self.pairs[i - len(self.values)]
        return self.writers[a]() * self.writers[b]()


def atoms(problem: Problem, kinds: tuple[Atom, ...], n_arguments: int, *, numbers: str = "grid") -> Table:
    """Return functions of the simplest monomials."""
    powers = exponents(problem, n_arguments + 1)[1:]
    table = Table()
    for e, u in zip(powers, values_of(problem, powers), strict=True):
        width = np.ptp(u)
        if not np.isfinite(width) or width == 0:
            continue
        argument = written(problem.symbols, e)
        for kind in kinds:
            is_idle = kind.write is sympy.Abs and (u.min() >= 0 or u.max() <= 0)
            # Kinks of monomials would crowd others out.
            is_idle |= kind.write is kink and not argument.is_Symbol
            if kind.needs in problem.functions and not is_idle:
                numbers_inside = _numbers(kind, width, numbers)
                if argument.is_Symbol and width > MANY_TURNS and kind.needs in ("sin", "cos", "tan"):
                    numbers_inside = [*DEGREES, *numbers_inside]
                for c in numbers_inside:
                    _put(table, kind, c, u, argument)
    return table


def _numbers(kind: Atom, width: float, which: str) -> list[float]:
    grid = [g / width for g in kind.grid] if which == "grid" or kind.write is kink else []
    usual = list(NATURAL if kind.needs in ("sin", "cos") else (1.0,) if not kind.grid else NATURAL[:3])
    if which == "one":
        usual = [1.0, 2 * np.pi] if kind.needs in ("sin", "cos") else usual[:1]
    numbers = [*usual, *(g for g in grid if all(abs(g - c) > 0.02 * c for c in usual))]
    return [*numbers, *(-c for c in numbers)] if kind.signed else numbers


def _put(table: Table, kind: Atom, c: float, u: np.ndarray, argument: sympy.Expr) -> None:
    inside = c * u
    if inside.min() < kind.least or inside.max() > kind.most or np.abs(inside).max() > 200:
        return
    with np.errstate(all="ignore"):
        values = kind.array(inside)
    table.add(values, lambda: kind.write(_number(c) * argument))


def _number(c: float) -> sympy.Expr:
    for text, value in ((1, 1.0), (-1, -1.0)):
        if c == value:
            return sympy.Integer(text)
    return sympy.Float(c)

"""A formula with its constants set free, fitted to values: by how much must each one change to meet them?

Free is every number but a whole exponent, and as well the 1 that a term or an argument has before it, unless a change
of it is a change of the others: ``2 x / (3 + x)`` has two constants, however it is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import sympy as sp
from scipy.optimize import least_squares

SAME = 1e-6  # largest relative difference of numbers that are the same
STEP = 1e-5  # relative change of a constant that shows its effect
INDEPENDENT = 1e-6  # part of a constant's effect that those of others do not have
ENOUGH = 40  # points beyond the range at which both must be finite to count
MOST_CONSTANTS = 80
STRETCHES = 0.5, 2.0, 10.0  # how far beyond the range, in widths of it
Expression = Any


@dataclass(frozen=True)
class Values:
    """What a formula gives in the range and beyond it, one `STRETCHES` after another."""

    near: np.ndarray
    far: np.ndarray

    @classmethod
    def of(
        cls, formula: Expression, symbols: Sequence[sp.Symbol], near: np.ndarray, far: np.ndarray
    ) -> Values:
        """Return the values of a formula at points."""
        function = sp.lambdify(symbols, formula, ["numpy", "scipy"])
        return cls(*(_evaluated(function, x.T, len(x)) for x in (near, far)))


def _evaluated(function: Any, arguments: Any, n: int) -> np.ndarray:
    with np.errstate(all="ignore"):
        values = np.asarray(function(*arguments), dtype=complex)
        values = np.where(np.imag(values) == 0, np.real(values), np.nan)
        return np.broadcast_to(values, (n,))


def scale(values: np.ndarray) -> np.ndarray:
    """Return what differences are weighed against: the size of each value and the spread of all.

    The spread is that of the middle nine tenths, which a pole does not reach.
    """
    low, middle, high = np.quantile(values, (0.05, 0.5, 0.95)) if len(values) else (0.0, 0.0, 0.0)
    return np.abs(values) + max(high - low, abs(middle)) / 3 + np.finfo(float).tiny


def agree(mine: Values, true: Values) -> bool:
    """Return whether values are the same in the range, and mostly so beyond it where both are finite."""
    if not np.isfinite(mine.near).all() or np.max(np.abs(mine.near - true.near) / scale(true.near)) > SAME:
        return False
    return all(
        _mostly_agree(one, other)
        for one, other in zip(
            np.split(mine.far, len(STRETCHES)), np.split(true.far, len(STRETCHES)), strict=True
        )
    )


def _mostly_agree(mine: np.ndarray, true: np.ndarray) -> bool:
    both = np.isfinite(mine) & np.isfinite(true)
    if both.sum() < ENOUGH:
        return True
    gaps = np.abs(mine - true)[both] / scale(true[both])
    return bool(np.quantile(gaps, 0.9) <= 10 * SAME)


class Template:
    """A formula whose constants can change.

    Args:
        formula: The formula.
        symbols: Its inputs.

    Example:
        >>> x0, x1 = sp.symbols("x0 x1")
        >>> Template(2.5 * x0**2 + sp.sin(x1), (x0, x1)).constants.tolist()
        [2.5, 1.0, 1.0]
    """

    def __init__(self, formula: Expression, symbols: Sequence[sp.Symbol]) -> None:
        free = _Free()
        expression = free.scaled(formula)
        self.constants = np.array(free.constants)
        self._written = np.array(free.written, dtype=bool)
        self._function = sp.lambdify([*free.symbols, *symbols], expression, ["numpy", "scipy"])

    def changes(
        self, near: np.ndarray, far: np.ndarray, goal: Values, *, free: str | None = None
    ) -> np.ndarray | None:
        """Return relative changes of the constants with which the formula meets ``goal``, the smallest, or None.

        Args:
            near: Inputs in the range.
            far: Inputs beyond it.
            goal: Values to meet at both.
            free: Whether a ``"term"`` or a ``"factor"`` is added that does not count.
        """
        if len(self.constants) > MOST_CONSTANTS:
            return None
        found = [self._fitted(near, far, goal, free, backwards) for backwards in (False, True)]
        return min(
            (f for f in found if f is not None), key=lambda f: np.abs(f).max(initial=0.0), default=None
        )

    def _fitted(
        self, near: np.ndarray, far: np.ndarray, goal: Values, free: str | None, backwards: bool
    ) -> np.ndarray | None:
        n, extra = len(self.constants), free is not None
        size = float(np.median(np.abs(goal.near))) or 1.0
        weight = 1 / scale(goal.near)

        def values(d: np.ndarray, x: np.ndarray) -> np.ndarray:
            plain = _evaluated(self._function, [*(self.constants * (1 + d[:n])), *x.T], len(x))
            more = d[n] if extra else 0.0
            return plain + size * more if free == "term" else plain * (1 + more)

        def effect(i: int) -> np.ndarray:
            step = np.zeros(n + extra)
            step[i] = STEP
            return np.nan_to_num((values(step, near) - values(-step, near)) * weight / (2 * STEP))

        chosen = self._independent([effect(i) for i in range(n + extra)], backwards)

        def spread(d: np.ndarray) -> np.ndarray:
            full = np.zeros(n + extra)
            full[chosen] = d
            return full

        def residuals(d: np.ndarray) -> np.ndarray:
            gaps = (values(spread(d), near) - goal.near) * weight
            return np.nan_to_num(gaps, nan=1e6, posinf=1e6, neginf=-1e6)

        if not chosen:
            return None
        fitted = least_squares(
            residuals, np.zeros(len(chosen)), "3-point", ftol=1e-15, xtol=1e-15, gtol=1e-15, max_nfev=60
        ).x
        met = Values(values(spread(fitted), near), values(spread(fitted), far))
        return spread(fitted)[:n] if agree(met, goal) else None

    def _independent(self, effects: list[np.ndarray], backwards: bool) -> list[int]:
        """Return which constants to change: the extra one, those that are written, then others that add something."""
        n = len(self.constants)
        written = np.flatnonzero(self._written)
        order = [
            *range(n, len(effects)),
            *(written[::-1] if backwards else written),
            *np.flatnonzero(~self._written),
        ]
        basis, chosen = np.empty((0, len(effects[0]))) if effects else np.empty((0, 0)), []
        for i in order:
            size = np.linalg.norm(effects[i])
            rest = effects[i] - basis.T @ (basis @ effects[i])
            rest -= basis.T @ (basis @ rest)
            if size > 0 and np.linalg.norm(rest) > INDEPENDENT * size:
                basis = np.vstack([basis, rest / np.linalg.norm(rest)])
                chosen.append(int(i))
        return chosen


class _Free:
    """The constants met while a formula is taken apart, and which of them are written in it."""

    def __init__(self) -> None:
        self.constants: list[float] = []
        self.written: list[bool] = []

    @property
    def symbols(self) -> list[sp.Symbol]:
        return [sp.Symbol(f"c{i}", real=True) for i in range(len(self.constants))]

    def constant(self, value: Expression) -> sp.Symbol:
        self.constants.append(float(value))
        self.written.append(abs(float(value)) != 1)
        return self.symbols[-1]

    def scaled(self, part: Expression) -> Expression:
        """Return a term, factor or argument with a free number before it, or before each term of a sum."""
        if part.is_number:
            return self.constant(part) if part != 0 else part
        if part.is_Add:
            return sp.Add(*(self.scaled(term) for term in part.args))
        factors = sp.Mul.make_args(part)
        number = sp.Mul(*(factor for factor in factors if factor.is_number))
        return sp.Mul(self.constant(number), *(self.freed(f) for f in factors if not f.is_number))

    def freed(self, factor: Expression) -> Expression:
        """Return a factor whose numbers are free."""
        if factor.is_Symbol:
            return factor
        if not isinstance(factor, sp.Pow):
            return self.scaled(factor) if factor.is_Add else factor.func(*map(self.scaled, factor.args))
        base, power = factor.args
        if not power.is_number:
            return sp.Pow(self.scaled(base), self.scaled(power))
        whole = float(power).is_integer()
        # A number before a factor is the same as one before its power.
        factors = sp.Mul.make_args(base)
        base = (
            self.scaled(base)
            if base.is_Add
            else sp.Mul(*(f if f.is_number else self.freed(f) for f in factors))
        )
        return sp.Pow(base, sp.Integer(int(power)) if whole else self.constant(power))

"""Laws along the ends of rows: where what a law leaves stops at once, the ends of all rows tell its constants best.

Least squares are wrong by one over the root of the number of rows, the ends by one over that number. A linear programme
finds the constants with which every row is inside, and as near as can be.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import sympy
from jaxtyping import Float
from scipy import optimize

from isr.inversion.means import scaled, values_of
from isr.search.formula import Formula
from isr.tables.bounds import LEAST_OUTERMOST, OUTERMOST, end_gap

# Programmes one after the other: a formula is straight in its constants only nearby.
N_PROGRAMMES = 4
# The share of rows next to an end that a programme looks at, and how many at most.
NEAREST, MOST_ROWS = 0.3, 3000
# Terms that are smaller than so many gaps between rows at an end are left out.
SMALL_TERM = 20.0
# Where half of the outermost rows are within this share of their distance from the end, it may be a sharp one.
BLURRED = 0.78


def sharp_sides(residual: np.ndarray) -> list[str]:
    """Return which ends of what a law leaves may be sharp: the errors of the law blur them."""
    n = max(LEAST_OUTERMOST, int(OUTERMOST * len(residual)))
    sides = []
    for side, sign in (("low", 1.0), ("high", -1.0)):
        nearest = np.sort(sign * residual)[: n + 1]
        if len(residual) > 2 * n and nearest[n // 2] - nearest[0] < BLURRED * (nearest[n] - nearest[0]):
            sides.append(side)
    return [*sides, *(["both"] if len(sides) == 2 else [])]


def along_the_ends(given: Any, side: str) -> Any:
    """Return the law of a variable given others as that of the band its rows lie in, as near to the ends as can be."""
    low, high = float(np.min(given.residual)), float(np.max(given.residual))
    sign = np.sign(np.median(values_of(Formula(given.scale), given.read, given.names)))
    if side == "both":
        end = sympy.expand(given.mean + sympy.Float(sign * low) * given.scale)
        width = scaled(Formula(given.scale), sign * (high - low)).expression
        band = Band(given.names, given.read, given.column, end, width, 1.0).fitted(given.sizes)
        return replace(given, mean=band.end, scale=band.width)
    first = low if side == "low" else high
    end = given.mean + sympy.Float(first * np.median(given.sizes))
    band = Band(given.names, given.read, given.column, end, None, 1.0 if side == "low" else -1.0)
    return replace(given, mean=band.fitted(given.sizes).end)


@dataclass(frozen=True, eq=False)
class Band:
    """Where rows lie: from a curve in one direction, or up to another curve.

    Args:
        names: Of the variables that curves read.
        read: Their columns.
        column: The variable.
        end: The lower curve; the upper one where rows lie below it alone.
        width: Distance between two curves, None where there is one.
        sign: 1 where rows lie above the end, -1 where they lie below.
    """

    names: list[str]
    read: Float[np.ndarray, "n d"]
    column: Float[np.ndarray, " n"]
    end: sympy.Expr
    width: sympy.Expr | None
    sign: float

    def fitted(self, sizes: Float[np.ndarray, " n"]) -> Band:
        """Return the narrowest band; of one curve the one that rows are nearest to, in these sizes."""
        band = self
        for _ in range(N_PROGRAMMES):
            band = band._moved(sizes)
        return band._short()._touching()

    def _moved(self, sizes: np.ndarray) -> Band:
        end, slopes = self._linear(self.end)
        nearest = min(NEAREST, MOST_ROWS / len(end))
        gap = self.sign * (self.column - end)
        if self.width is None:
            rows, room = self.sign * slopes, gap
            costs = -np.mean(rows / sizes[:, None], axis=0)
            near = gap <= np.quantile(gap, nearest)
            rows, room = rows[near], room[near]
        else:
            width, wider = self._linear(self.width)
            lower = np.concatenate([slopes, np.zeros_like(wider)], axis=1)
            upper = np.concatenate([-slopes, -wider], axis=1)
            costs = np.concatenate([np.zeros(slopes.shape[1]), np.mean(wider / width[:, None], axis=0)])
            share = gap / width
            below, above = share <= np.quantile(share, nearest), share >= np.quantile(share, 1 - nearest)
            rows, room = (
                np.concatenate([lower[below], upper[above]]),
                np.concatenate([gap[below], (width - gap)[above]]),
            )
        reach = np.std(self.column) / np.maximum(np.sqrt(np.mean(rows**2, axis=0)), 1e-12)
        found = optimize.linprog(costs, rows, room, bounds=np.column_stack([-reach, reach]))
        if found.x is None:
            return self
        return self._with(found.x)

    def _with(self, step: np.ndarray) -> Band:
        end = Formula(self.end)
        n = len(end.constants)
        end = end.with_constants(np.asarray(end.constants) + step[:n])
        if self.width is None:
            return replace(self, end=end.expression)
        width = Formula(self.width)
        width = width.with_constants(np.asarray(width.constants) + step[n:])
        return replace(self, end=end.expression, width=width.expression)

    def _linear(self, expression: sympy.Expr) -> tuple[np.ndarray, np.ndarray]:
        """Values at the rows, and slopes in each constant."""
        formula = Formula(expression)
        opened, symbols = formula.open("free")
        back = dict(zip(symbols, map(sympy.Float, formula.constants), strict=True))
        slopes = [self._values(opened.diff(symbol).subs(back)) for symbol in symbols]
        return self._values(expression), np.reshape(slopes, (len(symbols), len(self.column))).T

    def _values(self, expression: sympy.Expr) -> np.ndarray:
        return values_of(Formula(expression), self.read, self.names)

    def _gap(self) -> float:
        """How far rows are apart next to the end."""
        return max(
            end_gap(self.sign * (self.column - self._values(self.end))), 1e-12 * float(np.std(self.column))
        )

    def _short(self) -> Band:
        """The band without terms that no row would miss."""
        least = SMALL_TERM * self._gap()

        def short(expression: sympy.Expr) -> sympy.Expr:
            terms = sympy.Add.make_args(expression)
            return sympy.Add(*(t for t in terms if np.max(np.abs(self._values(t))) > least))

        return replace(self, end=short(self.end), width=None if self.width is None else short(self.width))

    def _touching(self) -> Band:
        """The band with its end moved, or its curves, so that the outermost rows lie on them."""
        gap = self._gap()
        if self.width is None:
            rest = self.sign * np.min(self.sign * (self.column - self._values(self.end)))
            return replace(self, end=self.end + sympy.Float(rest)) if abs(rest) > gap else self
        share = (self.column - self._values(self.end)) / self._values(self.width)
        low, high = float(np.min(share)), float(np.max(share))
        moved = sympy.expand(self.end + sympy.Float(low) * self.width)
        is_off = abs(low) * np.median(self._values(self.width)) > gap
        return replace(
            self, end=moved if is_off else self.end, width=scaled(Formula(self.width), high - low).expression
        )

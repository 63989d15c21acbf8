"""Charts: columns of y solved for variables of x, exactly and branch by branch; the other variables stay free.

A chart turns ``(free variables, means of the solved columns)`` into rows of x. Steps are evaluated in reverse: the
solution of a column may read variables that later steps solve.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
import sympy
from jaxtyping import Bool, Float

from isr.equations.program import n_constants
from isr.equations.text import TextPrinter
from isr.inversion.isolate import TURNS, Solution, isolate
from isr.inversion.law import Law
from isr.inversion.prior import PriorLaw
from isr.search.formula import compiled, symbol

N_PILOT = 20_000
MOST_TURNS, MOST_BRANCHES, MOST_CHARTS = 12, 40, 12
# Solutions that miss their column by more than this share of its spread are none.
CHECKED, SAME = 1e-7, 1e-6
# Where a column has no closed form its roots are sought between so many quantiles of the variable.
N_GRID, MOST_ROOTS, N_HALVINGS = 65, 4, 54


@dataclass(frozen=True, eq=False)
class Step:
    """A column of the law solved for a variable of x: its mean, with variables of earlier steps put in.

    There is no solution where roots are sought; a branch holds the values of its signs and of its turns.
    """

    column: int
    variable: int
    mean: sympy.Expr
    solution: Solution | None
    branches: tuple[tuple[int, ...], ...] = ((),)


@dataclass(frozen=True, eq=False)
class Chart:
    """Columns of y solved for variables of x, in the order in which variables are put into later steps.

    Roots of a variable are sought between the points of its ``ranges``; ``spreads`` are those of the solved means.

    Example:
        >>> from isr.search.formula import Formula, parse
        >>> from isr.inversion.law import Column, Group
        >>> from isr.inversion.prior import of_prior
        >>> from isr.posterior.priors import parse_prior
        >>> names = ["h", "a"]
        >>> column = Column("y", 0, Formula(parse("h + sin(a)", names)), Formula(parse("0", [])))
        >>> law = Law(("h", "a"), (column,), (Group((0,)),))
        >>> chart = charts(law, of_prior(parse_prior({"h": (0, 1), "a": (0, 1)}), names), [0, 1], [0])[0]
        >>> print(chart)
        h = y - sin(a)
        >>> x, exists = chart.solve(np.zeros((1, 2)), np.array([[0.5]]))
        >>> x.tolist(), exists.tolist(), chart.log_det(x[0]).tolist()
        ([[[0.5, 0.0]]], [[True]], [0.0])
    """

    law: Law
    steps: tuple[Step, ...]
    ranges: Float[np.ndarray, "d m"] = field(repr=False)
    spreads: Float[np.ndarray, " k"] = field(repr=False)

    @property
    def solved(self) -> tuple[int, ...]:
        """Numbers of the variables that are solved."""
        return tuple(step.variable for step in self.steps)

    @property
    def columns(self) -> tuple[int, ...]:
        """Numbers of the columns of the law that are solved."""
        return tuple(step.column for step in self.steps)

    @property
    def is_closed(self) -> bool:
        """Whether every variable has a closed form."""
        return all(step.solution is not None for step in self.steps)

    @property
    def n_constants(self) -> int:
        """How many numbers its closed forms hold."""
        return sum(n_constants(s.solution.expression) for s in self.steps if s.solution is not None)

    @cached_property
    def noisy_law(self) -> Law | None:
        """The law of the columns with noise; None without any."""
        groups = [g for g in self.law.groups if not self.law.columns[g.columns[0]].is_exact]
        return self.law.part(groups) if groups else None

    @cached_property
    def _scales(self) -> Any:
        return compiled([self.law.columns[i].scale.expression for i in self.columns], self.law.x_names)

    def scales(self, rows: Float[np.ndarray, "n d"]) -> list[Float[np.ndarray, " n"]]:
        """Return the scale of each solved column at rows."""
        return [np.broadcast_to(np.abs(v), len(rows)) for v in self._scales(rows)]

    @cached_property
    def _determinant(self) -> Any:
        names = [symbol(self.law.x_names[j]) for j in self.solved]
        means = [self.law.columns[i].mean.expression for i in self.columns]
        slopes = sympy.Matrix([[mean.diff(name) for name in names] for mean in means])
        slopes = slopes.replace(sympy.DiracDelta, lambda *_: sympy.S.Zero)  # a step has no slope beside it
        return compiled([slopes.det(method="berkowitz")], self.law.x_names)

    @cached_property
    def _means(self) -> Any:
        return compiled([self.law.columns[i].mean.expression for i in self.columns], self.law.x_names)

    @cached_property
    def _solvers(self) -> list[Any]:
        names, found = [symbol(n) for n in self.law.x_names], []
        for number, step in enumerate(self.steps):
            targets = [_target(k) for k in range(number + 1)]
            expression = step.mean if step.solution is None else step.solution.expression
            signs = () if step.solution is None else step.solution.signs
            found.append(compiled([expression], [str(s) for s in (*names, *targets, *signs, TURNS)]))
        return found

    def solve(
        self, x: Float[np.ndarray, "n d"], t: Float[np.ndarray, "n k"]
    ) -> tuple[Float[np.ndarray, "b n d"], Bool[np.ndarray, "b n"]]:
        """Return the rows of each branch, and where they exist, for the free variables of x and means ``t``."""
        found = np.asarray(x, dtype=float)[None]
        for number in reversed(range(len(self.steps))):
            found = np.concatenate([self._solved(number, rows, t) for rows in found])
        return found, np.array([self._holds(rows, t) for rows in found])

    def _solved(self, number: int, rows: np.ndarray, t: np.ndarray) -> np.ndarray:
        step = self.steps[number]
        if step.solution is None:
            values = self._roots(number, rows, t)
        else:
            values = np.array([self._value(number, rows, t, branch) for branch in step.branches])
        found = np.repeat(rows[None], len(values), axis=0)
        found[:, :, step.variable] = values
        return found

    def _value(self, number: int, rows: np.ndarray, t: np.ndarray, branch: Sequence[int]) -> np.ndarray:
        n = len(rows)
        fixed = np.broadcast_to(np.asarray(branch, float), (n, len(branch)))
        value = self._solvers[number](np.column_stack([rows, t[:, : number + 1], fixed]))[0]
        return np.broadcast_to(np.asarray(value, float), n)

    def log_det(self, rows: Float[np.ndarray, "n d"]) -> Float[np.ndarray, " n"]:
        """Return the log of the size of the determinant of means by solved variables at rows."""
        with np.errstate(all="ignore"):
            return np.broadcast_to(np.log(np.abs(self._determinant(rows)[0])), len(rows))

    def _holds(self, rows: np.ndarray, t: np.ndarray) -> np.ndarray:
        """Where the means are what they are to be."""
        misses = [np.abs(m - t[:, i]) for i, m in enumerate(self._means(rows))]
        return np.all([m <= CHECKED * s for m, s in zip(misses, self.spreads, strict=True)], axis=0)

    def _roots(self, number: int, rows: np.ndarray, t: np.ndarray) -> np.ndarray:
        """Up to `MOST_ROOTS` roots of a column without closed form, between quantiles of its variable."""
        step, grid = self.steps[number], self.ranges[self.steps[number].variable]

        def value(at: np.ndarray) -> np.ndarray:
            moved = rows.copy()
            moved[:, step.variable] = at
            return self._value(number, moved, t, (0,)) - t[:, number]

        seen = np.array([value(np.full(len(rows), point)) for point in grid])
        with np.errstate(invalid="ignore"):
            crossing = np.sign(seen[:-1]) * np.sign(seen[1:]) <= 0
        order = np.argsort(~crossing, axis=0, kind="stable")[:MOST_ROOTS]
        found = np.full((MOST_ROOTS, len(rows)), np.nan)
        for k, at in enumerate(order):
            exists = np.take_along_axis(crossing, at[None], axis=0)[0]
            if not exists.any():
                break
            low, high = grid[at].copy(), grid[at + 1].copy()
            below = np.take_along_axis(seen, at[None], axis=0)[0]
            for _ in range(N_HALVINGS):
                middle = 0.5 * (low + high)
                same = np.sign(value(middle)) == np.sign(below)
                low, high = np.where(same, middle, low), np.where(same, high, middle)
            found[k] = np.where(exists, 0.5 * (low + high), np.nan)
        return found[np.isfinite(found).any(axis=1)] if np.isfinite(found).any() else found[:1]

    def lines(self, digits: int = 4) -> list[str]:
        """Return what is solved, as lines of text; ``±`` and the whole number ``n`` tell branches."""
        lines = []
        for number, step in enumerate(self.steps):
            left = self.law.x_names[step.variable]
            names = {_target(k): symbol(self._shown(k)) for k in range(number + 1)}
            if step.solution is None:
                mean = TextPrinter(digits).doprint(step.mean.xreplace(names))
                lines.append(f"{left}: every root of {mean} = {self._shown(number)}")
                continue
            text = TextPrinter(digits).doprint(_plain(step).xreplace(names))
            for sign in step.solution.signs:
                text = text.replace(f"- {sign}*", "∓").replace(f"+ {sign}*", "± ").replace(f"{sign}*", "±")
            lines.append(f"{left} = {text}")
        return lines

    def _shown(self, number: int) -> str:
        column = self.law.columns[self.steps[number].column]
        return f"log({column.name})" if column.transform else column.name

    def __str__(self) -> str:
        return "\n".join(self.lines())


def _target(number: int) -> sympy.Symbol:
    return sympy.Symbol(f"target_{number}", real=True)


def _plain(step: Step) -> sympy.Expr:
    """The closed form with signs and turns that are the same in all branches put in."""
    assert step.solution is not None
    symbols = (*step.solution.signs, TURNS)
    values = list(zip(*step.branches, strict=True))
    known = {s: v[0] for s, v in zip(symbols, values, strict=True) if len(set(v)) == 1}
    return step.solution.expression.xreplace({s: sympy.Integer(v) for s, v in known.items()})


# Choosing -------------------------------------------------------------------------------------------------------


def charts(law: Law, prior: PriorLaw, variables: Sequence[int], columns: Sequence[int]) -> list[Chart]:
    """Return the charts that solve all of some columns for variables of a block, closed forms and simple ones first."""
    allowed = [j for j in variables if not prior.is_discrete(j)]
    pilot = prior.sample(N_PILOT, np.random.default_rng(0))
    ranges, found = _ranges(pilot, prior), list[Chart]()
    for steps in _orders(law, allowed, columns, ()):
        chosen = [_with_branches(law, steps, number, pilot) for number in range(len(steps))]
        with np.errstate(all="ignore"):
            spreads = np.array([np.std(law.parts(pilot)[0][s.column]) for s in steps])
        if np.all(np.isfinite(spreads)) and all(step is not None for step in chosen):
            found.append(Chart(law, tuple(chosen), ranges, spreads))  # type: ignore[arg-type]
        if len(found) >= MOST_CHARTS:
            break
    return sorted(found, key=_price)


def _ranges(pilot: np.ndarray, prior: PriorLaw) -> np.ndarray:
    """Quantiles of each variable, and half of its range beyond them where the prior allows that."""
    ranges = np.quantile(pilot, np.linspace(0, 1, N_GRID), axis=0)
    beyond = 0.5 * (ranges[-1] - ranges[0])
    ends = np.clip(
        [ranges[0] - beyond, ranges[-1] + beyond], *map(np.asarray, (prior.bounds.low, prior.bounds.high))
    )
    return np.vstack([ends[0], ranges, ends[1]]).T


def _price(chart: Chart) -> tuple[int, int, int]:
    roots = sum(step.solution is None for step in chart.steps)
    branches = int(np.prod([len(step.branches) for step in chart.steps]))
    size = sum(sympy.count_ops(s.mean if s.solution is None else s.solution.expression) for s in chart.steps)
    return roots, branches, int(size)


def _orders(
    law: Law, variables: Sequence[int], columns: Sequence[int], steps: tuple[Step, ...]
) -> Iterator[tuple[Step, ...]]:
    """Every way to solve the columns one after the other."""
    if not columns:
        yield steps
        return
    put_in = {symbol(law.x_names[s.variable]): s.solution.expression for s in steps if s.solution is not None}
    for i in columns:
        mean = law.columns[i].mean.expression
        if any(symbol(law.x_names[s.variable]) in mean.free_symbols and _is_many(s) for s in steps):
            continue
        for _ in steps:
            mean = mean.xreplace(put_in)
        left = [c for c in columns if c != i]
        for j in variables:
            name = symbol(law.x_names[j])
            if name in mean.free_symbols:
                step = Step(i, j, mean, isolate(mean, name, _target(len(steps))))
                yield from _orders(law, [v for v in variables if v != j], left, (*steps, step))


def _is_many(step: Step) -> bool:
    """Whether a step has branches, so that it cannot be put into another."""
    return step.solution is None or bool(step.solution.signs) or step.solution.has_turns


def _with_branches(law: Law, steps: tuple[Step, ...], number: int, pilot: np.ndarray) -> Step | None:
    """A step with the branches that draws of the prior fall on."""
    step = steps[number]
    if step.solution is None:
        return step
    turns = range(-MOST_TURNS, MOST_TURNS + 1) if step.solution.has_turns else (0,)
    every = [(*signs, n) for n in turns for signs in product((1, -1), repeat=len(step.solution.signs))]
    chart = Chart(law, steps, np.zeros((0, 0)), np.zeros(0))
    t = np.column_stack([np.broadcast_to(m, len(pilot)) for m in chart._means(pilot)])
    x = pilot[:, step.variable]
    near = SAME * (np.std(x) + np.abs(x))
    with np.errstate(all="ignore"):
        kept = tuple(b for b in every if np.any(np.abs(chart._value(number, pilot, t, b) - x) <= near))
    return replace(step, branches=kept) if 0 < len(kept) <= MOST_BRANCHES else None

"""Laws among columns: each variable given others, by a formula for its centre and one for its scale.

Orders of the variables are compared by their price: minus the log-likelihood, and half of log(rows) for each constant.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import sympy
from jaxtyping import Float
from scipy import stats

from isr.bijections.bijection import AbstractBijection
from isr.bijections.formula import Triangular
from isr.densities.marginals import Marginal, find_marginal, marginal_steps
from isr.equations.complexity import n_constants
from isr.estimators.law_edges import Band
from isr.formulas.to_formulas import build_formulas, input_symbols
from isr.inversion.means import PASSED, find_mean, find_scale, scaled, values_of
from isr.inversion.screen import Features, depends
from isr.search.find import find_laws
from isr.search.formula import Formula
from isr.tables.edges import LEAST_OUTERMOST, OUTERMOST

# Rows that laws are found on.
N_ROWS = 3000
# With more variables than this laws are sparse polynomials; with more still there are none.
MOST_SEARCHED, MOST_ORDERED = 6, 8
# What a law may call: functions that formulas have.
LIBRARY = ("powers", "sqrt", "reciprocal", "exp", "log", "sin", "cos", "tanh", "sigmoid")
SECONDS = 20.0
# Excess kurtosis of what a law leaves from which rows far out count less.
HEAVY = 3.0
# Where half of the outermost rows are within this share of their distance from the end, it may be a sharp one.
BLURRED = 0.78

Steps = tuple[AbstractBijection, ...]
Rows = Float[np.ndarray, "n d"]


@dataclass(frozen=True, eq=False)
class _Given:
    """A variable given those before it: formulas for centre and scale, what they leave, and what that is worth.

    Args:
        names: Of the variables before it.
        read: Their columns.
        column: The variable.
        mean: Formula of the centre.
        scale: Formula of the scale; its sign means nothing.
        passed: Whether tests see nothing more of the variables in what it leaves.
    """

    names: list[str]
    read: Rows
    column: Float[np.ndarray, " n"]
    mean: sympy.Expr
    scale: sympy.Expr
    passed: bool = False

    @cached_property
    def sizes(self) -> Float[np.ndarray, " n"]:
        return np.abs(values_of(Formula(self.scale), self.read, self.names))

    @cached_property
    def residual(self) -> Float[np.ndarray, " n"]:
        with np.errstate(all="ignore"):
            return (self.column - values_of(Formula(self.mean), self.read, self.names)) / self.sizes

    @property
    def is_usable(self) -> bool:
        return bool(np.all(np.isfinite(self.residual)) and np.all(self.sizes > 0))

    @property
    def cost(self) -> float:
        """What the price of the residual lacks: the scale, and the constants."""
        return float(np.sum(np.log(self.sizes))) + 0.5 * np.log(len(self.column)) * self.size

    @property
    def size(self) -> int:
        return n_constants(self.mean) + n_constants(self.scale)

    @property
    def gain(self) -> float:
        """Nats by which it beats a normal law that reads nothing."""
        plain = len(self.column) * (np.log(np.std(self.column)) + 0.5)
        return plain - self.cost - 0.5 * float(self.residual @ self.residual)


def with_laws(
    x: Rows, alone: Sequence[Marginal], dim: int, *, search: bool = False
) -> Iterator[tuple[Steps, float]]:
    """Yield bijections in which some variables follow laws of those before them, and their price.

    Laws are polynomials and waves, or what a search finds. The ends of what a law leaves are soft: they move with its
    constants, and bounds would shut out rows that were inside.
    """
    if x.shape[1] > (MOST_SEARCHED if search else MOST_ORDERED):
        return
    names = [str(s) for s in input_symbols(x.shape[1])]
    for order in _orders(x, names):
        laws: list[_Given | None] = [None] * x.shape[1]
        marginals = list(alone)
        for place, i in enumerate(order[1:], 1):
            given = _given(x, i, order[:place], names, search=search)
            if given is not None:
                laws[i], marginals[i] = _with_marginal(given)
        if any(laws):
            price = sum(m.price for m in marginals) + sum(g.cost for g in laws if g is not None)
            yield (_triangular(laws, order, dim), *marginal_steps(marginals, dim)), price


def _orders(x: Rows, names: Sequence[str]) -> list[tuple[int, ...]]:
    """Orders of the variables: the last one is that whose law leaves nothing and is shortest, or says most; both orders
    of two.
    """
    if x.shape[1] == 2:
        return [(0, 1), (1, 0)]
    left, last = list(range(x.shape[1])), []
    while len(left) > 1:
        laws = {i: _given(x, i, [j for j in left if j != i], names) for i in left}
        told = {i: law for i, law in laws.items() if law is not None and law.gain > 0}
        if not told:
            break
        passed = [i for i, law in told.items() if law.passed]
        best = min(passed, key=lambda i: told[i].size) if passed else max(told, key=lambda i: told[i].gain)
        last.append(best)
        left.remove(best)
    return [(*left, *reversed(last))]


def _given(
    x: Rows, i: int, before: Sequence[int], names: Sequence[str], *, search: bool = False
) -> _Given | None:
    """The law of variable i given others; None where it says nothing."""
    some = slice(None) if len(x) <= N_ROWS else slice(0, None, -(-len(x) // N_ROWS))
    own, y = [names[j] for j in before], x[:, i]
    features = Features(x[some][:, list(before)])
    if not depends(features, y[some]):
        return None
    finder = _search if search else None
    mean = find_mean(features, y[some], own, finder)
    scale = find_scale(features, mean.residual[None], own, None, mean.formula)
    if not np.median(scale.values) > 0:  # a column that repeats others has no density
        return None
    standard = mean.residual / np.maximum(scale.values, 1e-3 * np.median(scale.values))
    middle = np.median(np.abs(standard))
    is_heavy = middle > 0 and stats.kurtosis(standard) > HEAVY
    if scale.formula.variables or is_heavy:
        weight = 1 / np.maximum(scale.values, 1e-3 * np.median(scale.values)) ** 2
        if is_heavy:  # a few rows far out would choose the terms
            weight = weight / (1 + (standard / (1.5 * middle)) ** 2)
        again = find_mean(features, y[some], own, finder, weight)
        if again.passed or not mean.passed:
            mean = again
            scale = find_scale(features, mean.residual[None], own, None, mean.formula)
    if not (mean.formula.variables or scale.formula.variables):
        return None
    passed = mean.passed and scale.p_value > PASSED
    found = _Given(own, x[:, list(before)], y, mean.formula.expression, scale.formula.expression, passed)
    return found if found.is_usable else None


def _search(x: np.ndarray, y: np.ndarray, weight: np.ndarray | None, names: Sequence[str]) -> list[Formula]:
    found = find_laws(x, y, names, weight=weight, library=LIBRARY, max_time=SECONDS)
    return [Formula(candidate.expression) for candidate in found.candidates]


# What a law leaves ----------------------------------------------------------------------------------------------


def _with_marginal(given: _Given) -> tuple[_Given, Marginal]:
    """The law and the marginal of what it leaves; where that ends sharply, the law goes along the ends of the rows."""
    marginal = find_marginal(given.residual, soft=True)
    for side in _sides(given.residual):
        moved = _along_the_ends(given, side)
        found = find_marginal(moved.residual, soft=True) if moved.is_usable else marginal
        if found.side == side and moved.cost + found.price < given.cost + marginal.price:
            has_low = found.low is not None
            ends = {"low": 0.0 if has_low else None, "high": None if side == "low" else float(has_low)}
            given, marginal = moved, replace(found, **ends)
    location, log_scale, *shape = marginal.numbers
    if marginal.mixture is not None:
        return given, marginal
    if not marginal.side and marginal.kind == "normal" and abs(location) < 0.02 and abs(log_scale) < 0.02:
        return given, replace(marginal, numbers=(0.0, 0.0, 0.0, 0.0))  # it is standard already
    if (
        marginal.side in ("low", "high") and not log_scale
    ):  # the scale of an exponential law is that of the law
        factor = float(np.exp(location if marginal.side == "low" else -location))
        given = replace(given, scale=scaled(Formula(given.scale), factor).expression)
        marginal = replace(marginal, numbers=(0.0, 0.0, *shape), softness=marginal.softness / factor)
    return given, marginal


def _sides(residual: np.ndarray) -> list[str]:
    """Which ends may be sharp: the errors of a law blur them."""
    n = max(LEAST_OUTERMOST, int(OUTERMOST * len(residual)))
    sides = []
    for side, sign in (("low", 1.0), ("high", -1.0)):
        nearest = np.sort(sign * residual)[: n + 1]
        if len(residual) > 2 * n and nearest[n // 2] - nearest[0] < BLURRED * (nearest[n] - nearest[0]):
            sides.append(side)
    return [*sides, *(["both"] if len(sides) == 2 else [])]


def _along_the_ends(given: _Given, side: str) -> _Given:
    """The law of the band that rows lie in, as near to its ends as can be."""
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


def _triangular(laws: Sequence[_Given | None], order: Sequence[int], dim: int) -> Triangular:
    scales = [sympy.Integer(1) if g is None else g.scale for g in laws] + [sympy.Integer(1)] * (
        dim - len(laws)
    )
    means = [sympy.Integer(0) if g is None else g.mean for g in laws] + [sympy.Integer(0)] * (dim - len(laws))
    formulas = build_formulas([as_opaque(e) for e in (*scales, *means)], dim, stack=2)
    return Triangular(formulas, (*order, *range(len(laws), dim)))


def as_opaque(expression: Any) -> Any:
    """Return an expression with its functions, roots and odd powers as calls of primitives, as formulas have them.

    Example:
        >>> x = sympy.Symbol("input0", real=True)
        >>> as_opaque(sympy.sin(2 * x) / x)
        sin(2*input0)/input0
    """
    if not expression.args:
        return expression
    parts = [as_opaque(part) for part in expression.args]
    if expression.is_Pow and not expression.exp.is_Integer:
        base, power = parts
        if power.is_Rational and power.q == 2:
            return sympy.Function("sqrt")(base) ** int(power.p)
        return sympy.Function("exp")(power * sympy.Function("log")(base))
    if isinstance(expression, sympy.Function):
        return sympy.Function(expression.func.__name__)(*parts)
    return expression.func(*parts)

"""Closed forms of a density, found without training: charts, laws of one variable given others, marginals, mixtures.

Each form is a chain of bijections whose constants start near their best values. Forms, and orders of the variables in
laws, are compared by their price: minus the log-likelihood of all rows, and half of log(rows) for each constant.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import sympy
from jaxtyping import Float
from scipy import stats

from isr.bijections import parameters
from isr.bijections.affine import LOG_SQRT_2PI, Bounded
from isr.bijections.bijection import AbstractBijection, Chain
from isr.bijections.formula import Triangular
from isr.bijections.shapes import Tails
from isr.densities.charts import Charted, find_chains, find_components, mapped
from isr.densities.marginals import Marginal, find_marginal, marginal_steps
from isr.densities.mixtures import find_mixture, find_normal
from isr.equations.program import n_constants
from isr.estimators.law_edges import along_the_ends, sharp_sides
from isr.formulas.to_formulas import build_formulas, input_symbols
from isr.inversion.means import PASSED, find_mean, find_scale, scaled, values_of
from isr.inversion.screen import Features, depends, normal_scores
from isr.search.find import find_laws
from isr.search.formula import Formula

# With more variables than this no mixture is tried.
MOST_MIXED = 30
FEW_MODES, MOST_MODES = 8, 30
# Constants that a form may have to end the search.
MOST_SHORT = 30
# Latents pass for normal and independent numbers unless this is less likely.
EXPLAINED, LEAST_TESTED = 0.01, 1000
# A form is exact, and needs no heavier tails, from so many rows on and with fewer constants per row.
LEAST_TOLD, FEW_CONSTANTS = 100, 0.1
# Rows that laws are found on.
N_ROWS = 3000
# With more variables than this laws are sparse polynomials; with more still there are none.
MOST_SEARCHED, MOST_ORDERED = 6, 8
# What a law may call: functions that formulas have.
LIBRARY = ("powers", "sqrt", "reciprocal", "exp", "log", "sin", "cos", "tanh", "sigmoid")
# Seconds of all searches for laws together; one may take a third of what is left.
SECONDS = 24.0
# Excess kurtosis of what a law leaves from which rows far out count less.
HEAVY = 3.0

Steps = tuple[AbstractBijection, ...]
Rows = Float[np.ndarray, "n d"]


@dataclass(frozen=True, eq=False)
class Form:
    """A closed form: its bijections and its price, in nats."""

    kind: str  # such as "laws" or "polar, laws"
    steps: Steps  # from x to the latent
    price: float  # minus the log-likelihood of all rows, and half of log(rows) for each constant
    is_settled: bool = False  # whether its constants are those of most likelihood already

    @property
    def n_constants(self) -> int:
        """How many constants it has."""
        return parameters.n_constants(self.steps)

    @property
    def is_short(self) -> bool:
        """Whether it has so few constants that nothing longer is looked for."""
        return self.n_constants <= MOST_SHORT

    def latents(self, x: Rows, dim: int) -> Rows:
        """Return the latents of rows, padding left out."""
        return mapped(Chain(self.steps), x, dim)[0][:, : x.shape[1]]


def closed_forms(
    x: Rows, *, dim: int | None = None, edges: bool = True, should_stop: Callable[[], bool] = lambda: False
) -> list[Form]:
    """Return closed forms of the density of rows, the best first.

    Args:
        x: Rows.
        dim: Variables of the chain, where it has more than x; those are left as they are.
        edges: Whether sharp ends become bounds.
        should_stop: Asked after every form whether time is up.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> a = rng.normal(size=1000)
        >>> closed_forms(np.column_stack([a, a**2 + 0.1 * rng.normal(size=1000)]))[0].kind
        'laws'
    """
    dim = dim or x.shape[1]
    found: list[Form] = []
    for form in _ladder(x, dim, edges):
        if not np.isfinite(form.price):
            continue
        found.append(form)
        is_best = form.is_short and form.price <= min(f.price for f in found)
        if should_stop() or (is_best and is_explained(form.latents(x, dim))):
            break
    return [_with_tails(form, x, dim) for form in sorted(found, key=lambda form: form.price)]


def _with_tails(form: Form, x: Rows, dim: int) -> Form:
    """The form, and where it is not exact what keeps rows far out from absurd densities."""
    is_few = form.n_constants < FEW_CONSTANTS * len(x)
    is_exact = is_few and is_explained(form.latents(x, dim), least=LEAST_TOLD)
    return form if is_exact else replace(form, steps=(*form.steps, Tails(dim, x.shape[1])))


def is_explained(z: Rows, *, least: int = LEAST_TESTED) -> bool:
    """Return whether latents are normal numbers that know nothing of each other, as far as tests see.

    Example:
        >>> z = np.random.default_rng(0).normal(size=(1000, 2))
        >>> is_explained(z), is_explained(z * [[1.0, 1.5]]), is_explained(np.column_stack([z[:, 0], z[:, 0]]))
        (True, False, False)
    """
    if len(z) < least or not np.all(np.isfinite(z)):
        return False
    found = [float(stats.kstest(column, "norm").pvalue) for column in z.T]
    for i in range(1, z.shape[1]):
        if min(found) * len(found) < EXPLAINED:
            return False
        features = Features(z[:, :i])
        found += [features.p_value(v, trend=True) for v in (z[:, i], normal_scores(np.abs(z[:, i])))]
    return bool(min(found) * len(found) > EXPLAINED)


def _ladder(x: Rows, dim: int, edges: bool) -> Iterator[Form]:
    """Forms from cheap to dear; who asks for the next one has seen that those before leave something."""
    alone = [find_marginal(column, edges=edges) for column in x.T]
    yield Form("marginals", tuple(marginal_steps(alone, dim)), sum(m.price for m in alone))
    if x.shape[1] == 1:
        return
    search = _Search()
    yield from _laws(x, alone, dim)
    yield from _charted(chain(find_chains(x, alone, dim), find_components(x, dim)), dim)
    n_modes = 0
    for form in _mixtures(x, dim, FEW_MODES):
        n_modes = len(form.steps[0].means)
        yield form
    yield from _dependent(x, alone, dim)
    yield from _laws(x, alone, dim, search)
    as_logs = [m.low == 0 and m.high is None for m in alone]
    if any(as_logs):
        low = tuple(0.0 if log else None for log in as_logs)
        chart = Bounded((*low, *(None,) * (dim - len(low))), (None,) * dim)
        opened = np.where(as_logs, np.log(np.where(as_logs, x, 1.0)), x)
        alone = [
            find_marginal(c, edges=edges, positive=False) if log else m
            for c, log, m in zip(opened.T, as_logs, alone, strict=True)
        ]
        forms = (_laws(opened, alone, dim, finder) for finder in (None, search))
        for form in chain(_mixtures(opened, dim, FEW_MODES), *forms):
            price = form.price + float(np.sum(opened[:, as_logs]))
            yield Form(f"logarithms, {form.kind}", (chart, *form.steps), price)
    if n_modes >= FEW_MODES - 1:  # with fewer, BIC has seen that more are no better
        yield from _mixtures(x, dim, MOST_MODES, least=FEW_MODES + 1)


def _charted(found: Iterator[Charted], dim: int) -> Iterator[Form]:
    for chart in found:
        alone = Form("marginals", tuple(marginal_steps(chart.alone, dim)), sum(m.price for m in chart.alone))
        is_apart = chart.kind == "components"  # which know nothing of each other, if anything does
        for form in chain([alone], () if is_apart else _laws(chart.seen, chart.alone, dim)):
            yield Form(f"{chart.kind}, {form.kind}", (*chart.steps, *form.steps), form.price + chart.price)


def _dependent(x: Rows, alone: Sequence[Marginal], dim: int) -> Iterator[Form]:
    """The marginals, and what they make of rows as one normal law with few correlations, or as a mixture of such."""
    steps = tuple(marginal_steps(alone, dim))
    if not steps:
        return
    z = mapped(Chain(steps), x, dim)[0]
    price = sum(m.price for m in alone) - float(np.sum(0.5 * z[:, : x.shape[1]] ** 2 + LOG_SQRT_2PI))
    linear, own = find_normal(z[:, : x.shape[1]])
    if x.shape[1] == dim:
        yield Form("marginals, normal law", (*steps, linear), price + own)
    for form in _mixtures(z[:, : x.shape[1]], dim, FEW_MODES):
        yield Form("marginals, mixture", (*steps, *form.steps), price + form.price, True)


def _mixtures(x: Rows, dim: int, most: int, *, least: int = 1) -> Iterator[Form]:
    if x.shape[1] <= MOST_MIXED and len(x) >= 50:
        mixture = find_mixture(x, most=most, least=least)
        if mixture is not None and len(mixture.weights) > 1:
            yield Form("mixture", (mixture.bijection(tuple(range(x.shape[1])), dim),), mixture.price, True)


# Laws of variables given others -------------------------------------------------------------------------


def _laws(x: Rows, alone: Sequence[Marginal], dim: int, search: _Search | None = None) -> Iterator[Form]:
    """Forms in which some variables follow laws of those before them: polynomials and waves, or what a search finds.

    The ends of what a law leaves are soft: they move with its constants, and bounds would shut out rows that were
    inside.
    """
    if x.shape[1] > (MOST_SEARCHED if search else MOST_ORDERED):
        return
    names = [str(s) for s in input_symbols(x.shape[1])]
    for order in _orders(x, names):
        laws: list[_Given | None] = [None] * x.shape[1]
        marginals = list(alone)
        for place, i in enumerate(order[1:], 1):
            given = _given(x, i, order[:place], names, search)
            if given is not None:
                laws[i], marginals[i] = _with_marginal(given)
        if any(laws):
            price = sum(m.price for m in marginals) + sum(g.cost for g in laws if g is not None)
            yield Form("laws", (_triangular(laws, order, dim), *marginal_steps(marginals, dim)), price)


@dataclass(frozen=True, eq=False)
class _Given:
    """A variable given those before it: formulas for centre and scale, what they leave, and what that is worth."""

    names: list[str]  # of the variables before it
    read: Rows  # their columns
    column: Float[np.ndarray, " n"]
    mean: sympy.Expr
    scale: sympy.Expr  # its sign means nothing
    passed: bool  # whether tests see nothing more of the variables in what it leaves

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
    x: Rows, i: int, before: Sequence[int], names: Sequence[str], finder: _Search | None = None
) -> _Given | None:
    """The law of variable i given others; None where it says nothing."""
    some = slice(None) if len(x) <= N_ROWS else slice(0, None, -(-len(x) // N_ROWS))
    own, y = [names[j] for j in before], x[:, i]
    features = Features(x[some][:, list(before)])
    if not depends(features, y[some]):
        return None
    mean = find_mean(features, y[some], own, finder)
    scale = find_scale(features, mean.residual[None], own, None, mean.formula)
    if not np.median(scale.values) > 0:  # a column that repeats others has no density
        return None
    sizes = np.maximum(scale.values, 1e-3 * np.median(scale.values))
    standard = mean.residual / sizes
    middle = np.median(np.abs(standard))
    is_heavy = middle > 0 and stats.kurtosis(standard) > HEAVY
    if scale.formula.variables or is_heavy:
        # A few rows far out would choose the terms.
        weight = 1 / sizes**2 / (1 + (standard / (1.5 * middle)) ** 2 if is_heavy else 1)
        again = find_mean(features, y[some], own, finder, weight)
        if again.passed or not mean.passed:
            mean = again
            scale = find_scale(features, mean.residual[None], own, None, mean.formula)
    if not (mean.formula.variables or scale.formula.variables):
        return None
    passed = mean.passed and scale.p_value > PASSED
    found = _Given(own, x[:, list(before)], y, mean.formula.expression, scale.formula.expression, passed)
    return found if found.is_usable else None


@dataclass
class _Search:
    """A search for laws with a clock, which is one for all of a density."""

    seconds: float = SECONDS

    def __call__(
        self, x: np.ndarray, y: np.ndarray, weight: np.ndarray | None, names: Sequence[str]
    ) -> list[Formula]:
        if self.seconds <= 0:
            return []
        began, limit = time.monotonic(), max(self.seconds / 3, 1.0)
        found = find_laws(x, y, names, weight=weight, library=LIBRARY, max_time=limit)
        self.seconds -= time.monotonic() - began
        return [Formula(candidate.expression) for candidate in found.candidates]


def _with_marginal(given: _Given) -> tuple[_Given, Marginal]:
    """The law and the marginal of what it leaves; where that ends sharply, the law goes along the ends of the rows."""
    marginal = find_marginal(given.residual, soft=True)
    for side in sharp_sides(given.residual):
        moved = along_the_ends(given, side)
        found = find_marginal(moved.residual, soft=True) if moved.is_usable else marginal
        if found.side == side and moved.cost + found.price < given.cost + marginal.price:
            has_low = found.low is not None
            ends = {"low": 0.0 if has_low else None, "high": None if side == "low" else float(has_low)}
            given, marginal = moved, replace(found, **ends)
    if marginal.mixture is not None:
        return given, marginal
    location, log_scale, *shape = marginal.numbers
    if not marginal.side and marginal.kind == "normal" and abs(location) < 0.02 and abs(log_scale) < 0.02:
        return given, replace(marginal, numbers=(0.0, 0.0, 0.0, 0.0))  # it is standard already
    if marginal.side in ("low", "high") and not log_scale:
        # The scale of an exponential law is that of the law.
        factor = float(np.exp(location if marginal.side == "low" else -location))
        given = replace(given, scale=scaled(Formula(given.scale), factor).expression)
        marginal = replace(marginal, numbers=(0.0, 0.0, *shape), softness=marginal.softness / factor)
    return given, marginal


def _triangular(laws: Sequence[_Given | None], order: Sequence[int], dim: int) -> Triangular:
    padded = [*laws, *[None] * (dim - len(laws))]
    scales = [sympy.Integer(1) if g is None else g.scale for g in padded]
    means = [sympy.Integer(0) if g is None else g.mean for g in padded]
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

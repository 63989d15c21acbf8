"""Closed forms of a density, found without training: charts, laws of one variable given others, marginals, mixtures.

Each form is a chain of bijections whose constants start near their best values. Forms are compared by their price:
minus the log-likelihood of all rows, and half of log(rows) for each constant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import sympy
from jaxtyping import Float
from scipy import optimize, stats

from isr.bijections.affine import Bounded
from isr.bijections.bijection import AbstractBijection, Chain
from isr.bijections.charts import Polar, Spiral
from isr.bijections.marginals import Marginal, find_marginal, find_mixture, marginal_steps
from isr.bijections.parameters import on_device
from isr.bijections.triangular import Triangular
from isr.equations.complexity import n_constants
from isr.formulas.canonical import build_formulas, input_symbols
from isr.inversion.means import find_mean, find_scale, values_of
from isr.inversion.screen import Features, depends, normal_scores
from isr.search.find import find_laws
from isr.search.formula import Formula

# Rows that laws are found on.
N_ROWS = 3000
# With more variables than this laws are sparse polynomials, and no mixture is tried.
MOST_SEARCHED, MOST_ORDERED, MOST_MIXED = 6, 8, 12
FEW_MODES, MOST_MODES = 8, 30
# Constants that a form may have to end the search.
MOST_SHORT = 30
# Latents pass for normal and independent numbers unless this is less likely.
EXPLAINED, LEAST_TESTED = 0.01, 1000
# What a law may call: functions that formulas have.
LIBRARY = ("powers", "sqrt", "reciprocal", "exp", "log", "sin", "cos", "tanh", "sigmoid")
SECONDS = 20.0
# Of a spiral: how well its turns must agree, where 1 is perfect; half of the rows all around agree to 0.
CONCENTRATED = 0.75

Steps = tuple[AbstractBijection, ...]
Rows = Float[np.ndarray, "n d"]


@dataclass(frozen=True, eq=False)
class Form:
    """A closed form: its bijections and its price, in nats.

    Args:
        kind: Such as ``"laws"`` or ``"polar, laws"``.
        steps: From x to the latent.
        price: Minus the log-likelihood of all rows, and half of log(rows) for each constant.
        is_settled: Whether its constants are those of most likelihood already.
    """

    kind: str
    steps: Steps
    price: float
    is_settled: bool = False

    @property
    def is_short(self) -> bool:
        """Whether it has so few constants that nothing longer is looked for."""
        return sum(np.count_nonzero(leaf) for leaf in jax.tree.leaves(self.steps)) <= MOST_SHORT


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
        is_best = form.is_short and form is min(found, key=_price)
        if should_stop() or (
            is_best and is_explained(_mapped(Chain(form.steps), x, dim)[0][:, : x.shape[1]])
        ):
            break
    return sorted(found, key=_price)


def _price(form: Form) -> float:
    return form.price


def _mapped(chart: AbstractBijection, x: Rows, dim: int) -> tuple[Rows, np.ndarray]:
    padded = np.concatenate([x, np.zeros((len(x), dim - x.shape[1]))], axis=1)
    with jax.enable_x64(True):
        seen, log_det = jax.vmap(chart.forward_and_log_det)(jnp.asarray(padded))
        return np.asarray(seen), np.asarray(log_det)


def is_explained(z: Rows) -> bool:
    """Return whether latents are normal numbers that know nothing of each other, as far as tests see.

    Example:
        >>> z = np.random.default_rng(0).normal(size=(1000, 2))
        >>> is_explained(z), is_explained(z * [[1.0, 1.5]]), is_explained(np.column_stack([z[:, 0], z[:, 0]]))
        (True, False, False)
    """
    if len(z) < LEAST_TESTED or not np.all(np.isfinite(z)):
        return False
    least = [float(stats.kstest(column, "norm").pvalue) for column in z.T]
    for i in range(1, z.shape[1]):
        if min(least) * len(least) < EXPLAINED:
            return False
        features = Features(z[:, :i])
        least += [features.p_value(v, trend=True) for v in (z[:, i], normal_scores(np.abs(z[:, i])))]
    return bool(min(least) * len(least) > EXPLAINED)


def _ladder(x: Rows, dim: int, edges: bool) -> Iterator[Form]:
    """Forms from cheap to dear; who asks for the next one has seen that those before leave something."""
    alone = [find_marginal(column, edges=edges) for column in x.T]
    yield Form("marginals", tuple(marginal_steps(alone, dim)), sum(m.price for m in alone))
    if x.shape[1] == 1:
        return
    yield from _with_laws(x, alone, dim)
    yield from _mixtures(x, dim, FEW_MODES)
    yield from _with_laws(x, alone, dim, search=True)
    as_logs = [m.low == 0 and m.high is None for m in alone]
    if any(as_logs):
        low = tuple(0.0 if log else None for log in as_logs)
        chart = Bounded((*low, *(None,) * (dim - len(low))), (None,) * dim)
        opened = np.where(as_logs, np.log(np.where(as_logs, x, 1.0)), x)
        alone = [
            find_marginal(c, edges=edges, positive=False) if log else m
            for c, log, m in zip(opened.T, as_logs, alone, strict=True)
        ]
        forms = (_with_laws(opened, alone, dim, search=search) for search in (False, True))
        for form in chain(_mixtures(opened, dim, FEW_MODES), *forms):
            price = form.price + float(np.sum(opened[:, as_logs]))
            yield Form(f"logarithms, {form.kind}", (chart, *form.steps), price)
    if x.shape[1] == 2:
        for kind, chart in _charts(x):
            seen, log_det = _mapped(chart, x, 2)
            alone = [find_marginal(column, edges=False, positive=False) for column in seen.T]
            price = -float(np.sum(log_det)) + np.log(len(x))
            plain = Form("marginals", tuple(marginal_steps(alone, dim)), sum(m.price for m in alone))
            for form in chain([plain], _with_laws(seen, alone, dim)):
                yield Form(f"{kind}, {form.kind}", (chart, *form.steps), form.price + price)
    yield from _mixtures(x, dim, MOST_MODES, least=FEW_MODES + 1)


def _mixtures(x: Rows, dim: int, most: int, *, least: int = 1) -> Iterator[Form]:
    if x.shape[1] <= MOST_MIXED and len(x) >= 50:
        mixture = find_mixture(x, most=most, least=least)
        if mixture is not None and len(mixture.weights) > 1:
            yield Form("mixture", (mixture.bijection(tuple(range(x.shape[1])), dim),), mixture.price, True)


# Laws -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Given:
    """A variable given others: formulas for centre and scale, what they leave, and what they gain in nats."""

    mean: sympy.Expr
    scale: sympy.Expr
    residual: np.ndarray
    cost: float
    gain: float


def _with_laws(x: Rows, alone: Sequence[Marginal], dim: int, *, search: bool = False) -> Iterator[Form]:
    """Forms in which some variables follow laws of those before them: polynomials, or what a search finds.

    What a law leaves has no bounds: they would move with its constants, and shut out rows that were inside.
    """
    if x.shape[1] > (MOST_SEARCHED if search else MOST_ORDERED):
        return
    names = [str(s) for s in input_symbols(x.shape[1])]
    for order in _orders(x, names):
        laws: list[_Given | None] = [None] * x.shape[1]
        for place, i in enumerate(order[1:], 1):
            laws[i] = _given(x, i, order[:place], names, search=search)
        if any(laws):
            yield _form_of(x, laws, order, alone, dim)


def _form_of(
    x: Rows, laws: Sequence[_Given | None], order: Sequence[int], alone: Sequence[Marginal], dim: int
) -> Form:
    marginals = [m if g is None else _unscaled(find_marginal(g.residual, edges=False, positive=False))
                 for m, g in zip(alone, laws, strict=True)]  # fmt: skip
    price = sum(m.price for m in marginals) + sum(g.cost for g in laws if g is not None)
    return Form("laws", (_triangular(laws, order, dim), *marginal_steps(marginals, dim)), price)


def _unscaled(marginal: Marginal) -> Marginal:
    """The same; what is normal and standard already needs no numbers."""
    location, log_scale, *_ = marginal.numbers
    is_plain = (
        marginal.kind == "normal"
        and marginal.mixture is None
        and (marginal.low, marginal.high) == (None, None)
    )
    if not is_plain or abs(location) > 0.02 or abs(log_scale) > 0.02:
        return marginal
    return Marginal(None, None, "normal", (0.0, 0.0, 0.0, 0.0), marginal.price)


def _orders(x: Rows, names: Sequence[str]) -> list[tuple[int, ...]]:
    """Orders of the variables: the last one is that which the others tell most of, and so on; both orders of two."""
    if x.shape[1] == 2:
        return [(0, 1), (1, 0)]
    left, last = list(range(x.shape[1])), []
    while len(left) > 1:
        gains = [(g.gain if (g := _given(x, i, [j for j in left if j != i], names)) else 0.0) for i in left]
        if max(gains) <= 0:
            break
        last.append(left.pop(int(np.argmax(gains))))
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
    if scale.formula.variables:
        weight = 1 / np.maximum(scale.values, 1e-3 * np.median(scale.values)) ** 2
        again = find_mean(features, y[some], own, finder, weight)
        if again.passed or not mean.passed:
            mean = again
            scale = find_scale(features, mean.residual[None], own, None, mean.formula)
    if not (mean.formula.variables or scale.formula.variables):
        return None
    return _judged(x, i, before, own, mean.formula, scale.formula)


def _judged(
    x: Rows, i: int, before: Sequence[int], own: list[str], mean: Formula, scale: Formula
) -> _Given | None:
    read = x[:, list(before)]
    sizes = np.abs(values_of(scale, read, own))
    residual = (x[:, i] - values_of(mean, read, own)) / sizes
    if not (np.all(np.isfinite(residual)) and np.all(sizes > 0)):
        return None
    size = n_constants(mean.expression) + n_constants(scale.expression)
    cost = float(np.sum(np.log(sizes))) + 0.5 * np.log(len(x)) * size
    plain = len(x) * (np.log(np.std(x[:, i])) + 0.5)
    return _Given(
        mean.expression, scale.expression, residual, cost, plain - cost - 0.5 * float(residual @ residual)
    )


def _search(x: np.ndarray, y: np.ndarray, weight: np.ndarray | None, names: Sequence[str]) -> list[Formula]:
    found = find_laws(x, y, names, weight=weight, library=LIBRARY, max_time=SECONDS)
    return [Formula(candidate.expression) for candidate in found.candidates]


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


# Charts ---------------------------------------------------------------------------------------------------------


def _charts(x: Rows) -> Iterator[tuple[str, AbstractBijection]]:
    """Polar coordinates around the middle of a ring, and the spiral whose arms agree best."""
    centre = _ring_centre(x)
    if centre is not None:
        yield "polar", Polar(on_device(centre), (0, 1), 2)
    spiral = _spiral(x)
    if spiral is not None:
        yield "spiral", spiral


def _ring_centre(x: Rows) -> np.ndarray | None:
    """The centre of the circle nearest to the rows, if few lie inside."""
    scale = float(np.std(x))

    def misfit(p: np.ndarray) -> np.ndarray:
        r = np.hypot(*(x - p[:2] * scale).T)
        return (r - np.exp(p[2]) * scale) / scale

    some = optimize.least_squares(
        misfit, [*(x.mean(axis=0) / scale), 0.3], loss="soft_l1", f_scale=0.1, max_nfev=200
    )
    centre = some.x[:2] * scale
    r = np.hypot(*(x - centre).T)
    centre = np.where(np.abs(centre) < 0.02 * np.mean(r), 0.0, centre)
    return centre if np.all(np.abs(centre - x.mean(axis=0)) < 10 * scale) and np.min(r) > 0 else None


def _spiral(x: Rows) -> Spiral | None:
    some = x if len(x) <= 2000 else x[:: -(-len(x) // 2000)]
    size = float(np.sqrt(np.mean((some - some.mean(axis=0)) ** 2)))

    def turned(p: np.ndarray) -> complex:
        a, b = (some - p[:2]).T
        return complex(np.mean(np.exp(1j * (np.hypot(a, b) / p[2] - np.arctan2(b, a)))))

    pitches = size * np.concatenate([s * np.geomspace(0.02, 0.6, 120) for s in (1, -1)])
    best: tuple[float, np.ndarray] = (0.0, np.zeros(3))
    for centre in (np.zeros(2), some.mean(axis=0), np.median(some, axis=0)):
        starts = sorted(((abs(turned(np.array([*centre, b]))), b) for b in pitches), reverse=True)[:3]
        for _, pitch in starts:
            options = {"maxiter": 300, "initial_simplex": _simplex(centre, pitch, size)}
            found = optimize.minimize(
                lambda p: -abs(turned(p)), [*centre, pitch], method="Nelder-Mead", options=options
            )
            best = max(best, (-float(found.fun), found.x), key=lambda pair: pair[0])
    agreement, (a, b, pitch) = best
    if agreement < CONCENTRATED:
        return None
    start = float(np.angle(turned(best[1]))) * pitch
    centre = np.where(np.abs([a, b]) < 0.01 * size, 0.0, [a, b])
    return Spiral(on_device(centre), on_device(start), on_device(pitch), (0, 1), 2)


def _simplex(centre: np.ndarray, pitch: float, size: float) -> np.ndarray:
    start = np.array([*centre, pitch])
    return np.stack([start, *(start + np.diag([0.1 * size, 0.1 * size, 0.02 * pitch]))])

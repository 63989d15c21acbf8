"""Closed forms of a density, found without training: charts, laws of one variable given others, marginals, mixtures.

Each form is a chain of bijections whose constants start near their best values. Forms are compared by their price:
minus the log-likelihood of all rows, and half of log(rows) for each constant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from isr.bijections.affine import LOG_SQRT_2PI, Bounded
from isr.bijections.bijection import AbstractBijection, Chain
from isr.bijections.shapes import Tails
from isr.densities.charts import find_charts, marginals_of
from isr.densities.marginals import Marginal, find_marginal, marginal_steps
from isr.densities.mixtures import find_mixture
from isr.densities.normal import find_normal
from isr.estimators.column_laws import Rows, Steps, with_laws
from isr.inversion.screen import Features, normal_scores

# With more variables than this no mixture is tried.
MOST_MIXED = 30
FEW_MODES, MOST_MODES = 8, 30
# Constants that a form may have to end the search.
MOST_SHORT = 30
# Latents pass for normal and independent numbers unless this is less likely.
EXPLAINED, LEAST_TESTED = 0.01, 1000
# A form is exact, and needs no heavier tails, from so many rows on and with fewer constants per row.
LEAST_TOLD, FEW_CONSTANTS = 100, 0.1


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
    def n_constants(self) -> int:
        """How many constants it has."""
        return sum(int(np.count_nonzero(leaf)) for leaf in jax.tree.leaves(self.steps))

    @property
    def is_short(self) -> bool:
        """Whether it has so few constants that nothing longer is looked for."""
        return self.n_constants <= MOST_SHORT


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
    return [_with_tails(form, x, dim) for form in sorted(found, key=_price)]


def _with_tails(form: Form, x: Rows, dim: int) -> Form:
    """The form, and where it is not exact what keeps rows far out from absurd densities."""
    z = _mapped(Chain(form.steps), x, dim)[0][:, : x.shape[1]]
    is_exact = form.n_constants < FEW_CONSTANTS * len(x) and is_explained(z, least=LEAST_TOLD)
    return form if is_exact else replace(form, steps=(*form.steps, Tails(dim, x.shape[1])))


def _price(form: Form) -> float:
    return form.price


def _mapped(chart: AbstractBijection, x: Rows, dim: int) -> tuple[Rows, np.ndarray]:
    padded = np.concatenate([x, np.zeros((len(x), dim - x.shape[1]))], axis=1)
    with jax.enable_x64(True):
        seen, log_det = jax.vmap(chart.forward_and_log_det)(jnp.asarray(padded))
        return np.asarray(seen), np.asarray(log_det)


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
    yield from _laws(x, alone, dim)
    if x.shape[1] == 2:
        yield from _charted(x, dim)
    yield from _mixtures(x, dim, FEW_MODES)
    yield from _dependent(x, alone, dim)
    yield from _laws(x, alone, dim, search=True)
    as_logs = [m.low == 0 and m.high is None for m in alone]
    if any(as_logs):
        low = tuple(0.0 if log else None for log in as_logs)
        chart = Bounded((*low, *(None,) * (dim - len(low))), (None,) * dim)
        opened = np.where(as_logs, np.log(np.where(as_logs, x, 1.0)), x)
        alone = [
            find_marginal(c, edges=edges, positive=False) if log else m
            for c, log, m in zip(opened.T, as_logs, alone, strict=True)
        ]
        forms = (_laws(opened, alone, dim, search=search) for search in (False, True))
        for form in chain(_mixtures(opened, dim, FEW_MODES), *forms):
            price = form.price + float(np.sum(opened[:, as_logs]))
            yield Form(f"logarithms, {form.kind}", (chart, *form.steps), price)
    yield from _mixtures(x, dim, MOST_MODES, least=FEW_MODES + 1)


def _charted(x: Rows, dim: int) -> Iterator[Form]:
    for kind, chart in find_charts(x):
        seen, log_det = _mapped(chart, x, 2)
        alone = marginals_of(chart, seen)
        price = -float(np.sum(log_det)) + np.log(len(x))
        plain = Form("marginals", tuple(marginal_steps(alone, dim)), sum(m.price for m in alone))
        for form in chain([plain], _laws(seen, alone, dim)):
            yield Form(f"{kind}, {form.kind}", (chart, *form.steps), form.price + price)


def _dependent(x: Rows, alone: Sequence[Marginal], dim: int) -> Iterator[Form]:
    """The marginals, and what they make of rows as one normal law with few correlations, or as a mixture of such."""
    steps = tuple(marginal_steps(alone, dim))
    if not steps:
        return
    z = _mapped(Chain(steps), x, dim)[0]
    price = sum(m.price for m in alone) - float(np.sum(0.5 * z[:, : x.shape[1]] ** 2 + LOG_SQRT_2PI))
    linear, own = find_normal(z[:, : x.shape[1]])
    if x.shape[1] == dim:
        yield Form("marginals, normal law", (*steps, linear), price + own)
    for form in _mixtures(z[:, : x.shape[1]], dim, FEW_MODES):
        yield Form("marginals, mixture", (*steps, *form.steps), price + form.price, True)


def _laws(x: Rows, alone: Sequence[Marginal], dim: int, *, search: bool = False) -> Iterator[Form]:
    for steps, price in with_laws(x, alone, dim, search=search):
        yield Form("laws", steps, price)


def _mixtures(x: Rows, dim: int, most: int, *, least: int = 1) -> Iterator[Form]:
    if x.shape[1] <= MOST_MIXED and len(x) >= 50:
        mixture = find_mixture(x, most=most, least=least)
        if mixture is not None and len(mixture.weights) > 1:
            yield Form("mixture", (mixture.bijection(tuple(range(x.shape[1])), dim),), mixture.price, True)

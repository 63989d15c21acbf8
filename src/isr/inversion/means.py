"""The mean of a column and the size of its residuals as formulas: small libraries first, a search where they fail."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import sympy
from jaxtyping import Float

from isr.inversion.polynomials import fit_polynomial, fit_waves
from isr.inversion.screen import Features, normal_scores
from isr.search.candidates import price
from isr.search.find import find_laws
from isr.search.formula import Formula, compiled, symbol

Search = Callable[[np.ndarray, np.ndarray, np.ndarray | None, Sequence[str]], Sequence[Formula]]
"""Rows of x, a column, weights and names to formulas worth judging."""

# A formula passes while no test of what it leaves refutes it at this level.
PASSED = 1e-3
# Residuals below this share of the spread are rounding.
EXACT = 1e-8
# A polynomial with at most so many terms needs no search beside it, where many rows leave no doubt.
SHORT, CLEARLY, MANY = 2, 0.02, 500
# Of the search for one column, and formulas of it that are judged.
MAX_SECONDS, MOST_CANDIDATES = 300.0, 5
CLIP = 4.0
# Where the scale nearly vanishes residuals are errors of the mean; rows there count no more than at this share of it.
LEAST_WEIGHED = 0.2
NORMAL_SIZE = float(np.sqrt(np.pi / 2))
# E log|z| of a standard normal z.
LOG_SIZE = -0.6351814227307391


@dataclass(frozen=True, eq=False)
class Mean:
    """A formula for a column, with what it leaves.

    Args:
        formula: What was found.
        residual: Rows minus the formula.
        p_value: Of the test that the residual does not depend on x.
    """

    formula: Formula
    residual: Float[np.ndarray, " n"]
    p_value: float

    @property
    def passed(self) -> bool:
        """Whether no dependence is left."""
        return self.p_value > PASSED


def find_mean(
    features: Features,
    y: Float[np.ndarray, " n"],
    names: Sequence[str],
    search: Search | None,
    weight: Float[np.ndarray, " n"] | None = None,
) -> Mean:
    """Return the shortest formula for the mean of a column that leaves nothing of x, or else the best there is.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> x = rng.uniform(-1, 1, size=(1000, 2))
        >>> found = find_mean(Features(x), x[:, 0] ** 2 + 0.1 * rng.normal(size=1000), ["a", "b"], None)
        >>> found.formula.variables, found.passed
        (('a',), True)
    """
    x, found = features.x, []
    for degree in (1, 2, 3):
        fit = fit_polynomial(x, y, names, degree=degree, weight=weight)
        found.append(_judged(features, fit.formula, y, names, weight))
        if found[-1].p_value > CLEARLY and fit.n_terms <= SHORT and len(x) >= MANY:
            return found[-1]
    waves = fit_waves(x, y, names, weight=weight)
    if waves is not None:
        found.append(_judged(features, waves.formula, y, names, weight))
        if found[-1].p_value > CLEARLY and not any(mean.passed for mean in found[:-1]):
            return found[-1]
    if search is not None:
        variables = features.variables(y) or list(range(x.shape[1]))
        for chosen in dict.fromkeys([tuple(variables), tuple(range(x.shape[1]))]):
            candidates = search(x[:, list(chosen)], y, weight, [names[j] for j in chosen])
            found += [_judged(features, formula, y, names, weight) for formula in candidates]
            if any(mean.passed for mean in found):
                break
    return min(found, key=lambda mean: (not mean.passed, _price(mean, weight)))


def search_laws(
    x: Float[np.ndarray, "n d"],
    y: Float[np.ndarray, " n"],
    weight: Float[np.ndarray, " n"] | None,
    names: Sequence[str],
) -> list[Formula]:
    """Return the best formulas that the search for laws finds for a column.

    Example:
        >>> x = np.random.default_rng(0).uniform(1, 3, size=(300, 1))
        >>> search_laws(x, np.exp(-x[:, 0]), None, ["t"])[0]
        exp(-t)
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        try:
            found = find_laws(x, y, names, weight=weight, max_time=MAX_SECONDS)
        except (ArithmeticError, np.linalg.LinAlgError):  # rows that no form can be fitted to
            return []
    return [Formula(candidate.expression) for candidate in found.candidates[:MOST_CANDIDATES]]


def values_of(formula: Formula, x: np.ndarray, names: Sequence[str]) -> Float[np.ndarray, " n"]:
    """Return a formula's values at rows of x."""
    return np.broadcast_to(np.asarray(compiled([formula.expression], names)(x)[0], float), len(x)).copy()


def _judged(
    features: Features, formula: Formula, y: np.ndarray, names: Sequence[str], weight: np.ndarray | None
) -> Mean:
    residual = y - values_of(formula, features.x, names)
    if not np.all(np.isfinite(residual)):
        return Mean(formula, np.full(len(y), np.inf), 0.0)
    return Mean(formula, residual, lack_of_fit(features, residual, y, weight))


def lack_of_fit(
    features: Features, residual: np.ndarray, y: np.ndarray, weight: np.ndarray | None = None
) -> float:
    """Return the p-value of "the mean residual is the same for every x"; 1 where there is only rounding."""
    if np.std(residual) <= EXACT * np.std(y):
        return 1.0
    scaled = residual if weight is None else residual * np.sqrt(weight)
    middle = np.median(scaled)
    width = 1.4826 * np.median(np.abs(scaled - middle)) or np.std(scaled)
    return features.p_value(np.clip((scaled - middle) / width, -CLIP, CLIP), trend=True)


def _price(mean: Mean, weight: np.ndarray | None) -> float:
    n = len(mean.residual)
    w = np.ones(n) if weight is None else weight / weight.mean()
    deviance = n * float(np.log(max(float(np.mean(w * mean.residual**2)), 1e-300)))
    return deviance + 2 * price(mean.formula.expression, n) if np.isfinite(deviance) else np.inf


# The size of residuals ------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Scale:
    """A formula for the scale of residuals.

    Args:
        formula: What was found; its sign means nothing.
        values: Its size at the rows.
        p_value: Of the test that standardised residuals have the same size for every x.
    """

    formula: Formula
    values: Float[np.ndarray, " n"]
    p_value: float


def find_scale(
    features: Features,
    residuals: Float[np.ndarray, "m n"],
    names: Sequence[str],
    search: Search | None,
    mean: Formula | None = None,
) -> Scale:
    """Return a formula for the scale that columns of residuals share: a number where their size does not depend on x.

    Args:
        features: Features of rows of x.
        residuals: Columns whose residuals have the same scale, as rows.
        names: Identifiers of the variables of x.
        search: What else to try where polynomials fail.
        mean: Formula of the mean; a scale in proportion to it is tried.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> x = rng.uniform(-3, 3, size=(4000, 1))
        >>> found = find_scale(Features(x), (x**2 * rng.normal(size=(4000, 1))).T, ["a"], None)
        >>> found.formula.variables, found.p_value > 1e-3
        (('a',), True)
    """
    x, size = features.x, np.mean(np.abs(residuals), axis=0)
    constant = float(np.sqrt(np.mean(residuals**2)))
    plain = Scale(Formula(sympy.Float(constant)), np.full(len(x), constant), _even(features, residuals))
    if plain.p_value > PASSED:
        return plain
    found = [plain]
    guess = np.full(len(x), constant)
    for degree in (1, 2, 3):
        for _ in range(2):  # sizes scatter in proportion to the scale itself
            weight = 1 / np.maximum(guess, LEAST_WEIGHED * np.median(guess)) ** 2
            fit = fit_polynomial(x, NORMAL_SIZE * size, names, degree=degree, weight=weight)
            guess = np.abs(values_of(fit.formula, x, names)) + 1e-3 * constant
        found += _with_floor(features, residuals, fit.formula, names)
        logs = fit_polynomial(
            x, np.mean(np.log(np.abs(residuals) + 1e-12 * constant), axis=0) - LOG_SIZE, names, degree=degree
        )
        found += _with_floor(features, residuals, Formula(sympy.exp(logs.formula.expression)), names)
        if any(s.p_value > PASSED for s in found):
            break
    if mean is not None and mean.variables:
        found += _with_floor(features, residuals, mean, names)
    if search is not None and all(s.p_value <= PASSED for s in found):
        chosen = features.variables(size) or list(range(x.shape[1]))
        for formula in search(x[:, chosen], NORMAL_SIZE * size, None, [names[j] for j in chosen]):
            found += _with_floor(features, residuals, formula, names)
    return min(found, key=lambda s: (s.p_value <= PASSED, _scale_price(s, residuals)))


def _even(features: Features, residuals: np.ndarray) -> float:
    """The p-value of "the size of residuals is the same for every x"."""
    return features.p_value(normal_scores(np.mean(np.log(np.abs(residuals) + 1e-300), axis=0)), trend=True)


def _with_floor(
    features: Features, residuals: np.ndarray, formula: Formula, names: Sequence[str]
) -> list[Scale]:
    """The scale as it is, and with the floor below it that likelihood likes best."""
    values = np.abs(values_of(formula, features.x, names))
    if not np.all(np.isfinite(values)) or not np.any(values > 0):
        return []
    middle = float(np.median(values))
    tried: list[tuple[float, Scale]] = []
    for floor in (0.0, 0.1, 0.5):
        size = np.sqrt(values**2 + (floor * middle) ** 2) if floor else np.maximum(values, 1e-12 * middle)
        factor = float(np.sqrt(np.mean((residuals / size) ** 2)))
        if not (np.isfinite(factor) and factor > 0):
            continue
        own = scaled(formula, factor)
        if floor:
            own = Formula(sympy.sqrt(own.expression**2 + sympy.Float(factor * floor * middle) ** 2))
        p_value = _even(features, residuals / size)
        scale = Scale(own, factor * size, p_value)
        tried.append((_scale_price(scale, residuals), scale))
    if not tried:
        return []
    without, best = tried[0], min(tried, key=lambda pair: pair[0])
    return [s for _, s in dict.fromkeys([without, best])]


def scaled(formula: Formula, factor: float) -> Formula:
    """Return a scale times a number, taken into the constants that it has.

    Example:
        >>> from isr.search.formula import parse
        >>> scaled(Formula(parse("sqrt(4.5*a**2 + 1.5)", ["a"])), 2.0), scaled(Formula(parse("a + 1.5", ["a"])), 2.0)
        (sqrt(18*a**2 + 6), 2*a + 3)
    """
    c = sympy.Float(factor)
    e: Any = formula.expression
    if e.is_Pow and e.exp == sympy.S.Half:
        parts: Any = sympy.Add.make_args(e.base)
        moved = [
            sympy.expand_mul(c * sympy.sqrt(p)) ** 2 if p.is_Pow and p.exp == 2 else c**2 * p for p in parts
        ]
        return Formula(sympy.sqrt(sympy.Add(*moved)))
    if isinstance(e, sympy.exp):
        return Formula(sympy.exp(e.args[0] + sympy.log(c)))
    return Formula(sympy.expand_mul(c * e))


def _scale_price(scale: Scale, residuals: np.ndarray) -> float:
    sizes = np.maximum(scale.values, 1e-300)
    deviance = 2 * float(np.sum(np.log(sizes) + 0.5 * (residuals / sizes) ** 2))
    cost = len(scale.formula.constants) + 0.25 * float(sympy.count_ops(scale.formula.expression))
    return deviance + cost * float(np.log(residuals.size))


def linear(names: Sequence[str], coefficients: Sequence[float]) -> sympy.Expr:
    """Return a sum of variables with a coefficient each, and the last coefficient alone."""
    *slopes, constant = coefficients
    return sympy.Add(
        *(sympy.Float(c) * symbol(n) for n, c in zip(names, slopes, strict=True)), sympy.Float(constant)
    )

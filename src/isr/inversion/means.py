"""The mean of a column and the size of its residuals as formulas: small libraries first, a search where they fail."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import sympy
from jaxtyping import Float

from isr.inversion.screen import Features, normal_scores
from isr.inversion.sums import KINKS, WAVES, fit_broken, fit_functions, fit_polynomial, fit_sum
from isr.search.candidates import Candidate, fitted, price
from isr.search.find import find_laws
from isr.search.formula import Formula, compiled, symbol
from isr.search.rows import Data

Search = Callable[[np.ndarray, np.ndarray, np.ndarray | None, Sequence[str]], Sequence[Formula]]
"""Rows of x, a column, weights and names to formulas worth judging."""

# A formula passes while no test of what it leaves refutes it at this level.
PASSED = 1e-3
# Residuals below this share of the spread are rounding.
EXACT = 1e-8
# A polynomial with at most so many terms needs no search beside it, where many rows leave no doubt; nor does a sum
# of many variables, each times a number.
SHORT, CLEARLY, MANY, MANY_VARIABLES = 2, 0.02, 500, 3
# Of all searches together, and of one at least; formulas of a search that are judged.
MAX_SECONDS, LEAST_SECONDS, MOST_CANDIDATES = 120.0, 4.0, 12
# Of fewer rows rivals are sought for so many seconds, where a short law ended the search before.
FEW_ROWS, RIVAL_SECONDS = 600, 15.0
CLIP = 4.0
# What is longer by less, twice in nats, is a rival.
RIVAL = 30.0
# How a variable of another column's formula is stretched or moved, in deviations, to start with; rows for that.
STRETCHED, MOVED, MOST_RELATIVES, MANY_ROWS = (0.3, 0.7, 1.5, 4.0), (-3.0, -1.0, 1.0, 3.0), 2, 1000
# Where the scale nearly vanishes residuals are errors of the mean; rows there count no more than at this share of it.
LEAST_WEIGHED = 0.2
# Floors of a scale that are tried, as shares of its median.
FLOORS = (0.0, 1e-4, 1e-3, 0.01, 0.03, 0.1, 0.3)
NORMAL_SIZE = float(np.sqrt(np.pi / 2))
# E log|z| of a standard normal z.
LOG_SIZE = -0.6351814227307391


@dataclass(frozen=True, eq=False)
class Mean:
    """A formula for a column, what it leaves, the p-value of "nothing of x is left", those as likely, all tried."""

    formula: Formula
    residual: Float[np.ndarray, " n"]
    p_value: float
    rivals: tuple[Formula, ...] = ()
    tried: tuple[Formula, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether no dependence is left."""
        return self.p_value > PASSED

    def price(self, weight: np.ndarray | None) -> float:
        """Return its deviance and what its form costs; smaller is better."""
        n = len(self.residual)
        w = np.ones(n) if weight is None else weight / weight.mean()
        deviance = n * float(np.log(max(float(np.mean(w * self.residual**2)), 1e-300)))
        return deviance + 2 * price(self.formula.expression, n) if np.isfinite(deviance) else np.inf


def find_mean(
    features: Features,
    y: Float[np.ndarray, " n"],
    names: Sequence[str],
    search: Search | None,
    weight: Float[np.ndarray, " n"] | None = None,
    also: Sequence[Formula] = (),
) -> Mean:
    """Return the shortest formula for the mean of a column that leaves nothing of x, or else the best there is.

    Other formulas that may be it, ``also``, are judged beside those that are found.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> x = rng.uniform(-1, 1, size=(1000, 2))
        >>> found = find_mean(Features(x), x[:, 0] ** 2 + 0.1 * rng.normal(size=1000), ["a", "b"], None)
        >>> found.formula.variables, found.passed
        (('a',), True)
    """
    x, found = features.x, list[Mean]()

    def judge(formula: Formula) -> Mean:
        residual = y - values_of(formula, x, names)
        if not np.all(np.isfinite(residual)):
            return Mean(formula, np.full(len(y), np.inf), 0.0)
        found.append(Mean(formula, residual, lack_of_fit(features, residual, y, weight)))
        return found[-1]

    for degree in (1, 2, 3):
        fit = fit_polynomial(x, y, names, degree=degree, weight=weight)
        mean = judge(fit.formula)
        is_clear = mean.p_value > CLEARLY and len(x) >= MANY
        if is_clear and (fit.n_terms <= SHORT or (degree == 1 and x.shape[1] >= MANY_VARIABLES)):
            return mean
    for functions in (WAVES, KINKS):
        known = any(mean.passed for mean in found)
        special = None if known else fit_functions(x, y, names, functions, weight=weight)
        if special is not None:
            mean = judge(special.formula)
            # More terms than variables, one for a constant, may stand in for something shorter.
            if mean.p_value > CLEARLY and special.n_terms <= len(special.formula.variables) + 1:
                return mean
    for formula in also:
        judge(formula)
    if search is not None:
        every = tuple(range(x.shape[1]))
        for chosen in dict.fromkeys([tuple(features.variables(y)) or every, every]):
            for formula in search(x[:, list(chosen)], y, weight, [names[j] for j in chosen]):
                judge(formula)
            if any(mean.passed for mean in found):
                break
        for broken in fit_broken(x, y, names, weight=weight):
            judge(broken.formula)
    ranked = sorted(found, key=lambda mean: (not mean.passed, mean.price(weight)))
    near = ranked[0].price(weight) + RIVAL
    rivals = [mean.formula for mean in ranked[1:] if mean.price(weight) < near]
    return replace(
        ranked[0], rivals=tuple(dict.fromkeys(rivals)), tried=tuple(mean.formula for mean in ranked)
    )


@dataclass
class Searcher:
    """The search for laws with a clock: a call takes at most a third of the seconds that are left.

    Example:
        >>> x = np.random.default_rng(0).uniform(1, 3, size=(300, 1))
        >>> Searcher()(x, np.exp(-x[:, 0]), None, ["t"])[0]
        exp(-t)
    """

    seconds: float = MAX_SECONDS
    say: Callable[[str], None] | None = None

    def __call__(
        self, x: np.ndarray, y: np.ndarray, weight: np.ndarray | None, names: Sequence[str]
    ) -> list[Formula]:
        """Return the best formulas for a column."""
        began = time.monotonic()
        ends = began + self.seconds

        def tell(what: str) -> None:
            if self.say is not None:
                self.say(f"  {what} (at most {max(0.0, ends - time.monotonic()):.0f} s left)")

        found = self._found(
            x, y, names, weight=weight, say=tell, max_time=max(self.seconds / 3, LEAST_SECONDS)
        )
        if found and len(x) < FEW_ROWS and time.monotonic() - began < RIVAL_SECONDS:
            found += self._found(x, y, names, weight=weight, say=tell, max_time=RIVAL_SECONDS, settles=False)
        self.seconds -= time.monotonic() - began
        ranked = sorted(found, key=lambda candidate: candidate.description_length)
        return [Formula(e) for e in dict.fromkeys(c.expression for c in ranked)][:MOST_CANDIDATES]

    def _found(self, *rows: Any, **options: Any) -> list[Candidate]:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)
                return list(find_laws(*rows, **options).candidates[:MOST_CANDIDATES])
        except (ArithmeticError, np.linalg.LinAlgError):  # rows that no form can be fitted to
            return []


def relatives(
    known: Sequence[Formula],
    x: np.ndarray,
    y: np.ndarray,
    names: Sequence[str],
    weight: np.ndarray | None = None,
) -> list[Formula]:
    """Return formulas of other columns, stretched, with variables stretched or one moved, that follow a column best.

    Channels of one instrument, such as times, distances or stations, differ in this way. A sum of others is first.

    Example:
        >>> from isr.search.formula import parse
        >>> x = np.random.default_rng(0).uniform(0.1, 2, size=(200, 2))
        >>> early, late = Formula(parse("c*exp(-k)", ["c", "k"])), x[:, 0] * np.exp(-4 * x[:, 1])
        >>> relatives([early], x, late, ["c", "k"])[0]
        c*exp(-4*k)
    """
    some = slice(MANY_ROWS)
    data, found = Data.of(names, x[some], y[some], None if weight is None else weight[some]), []
    for e in dict.fromkeys(formula.expression for formula in known):
        own = [v for v in data.symbols if v in e.free_symbols]
        spreads = [float(np.std(x[:, data.symbols.index(v)])) for v in own]
        tried = [{v: v * sympy.Float(s)} for v in own for s in STRETCHED]
        tried += [{v: v + sympy.Float(s * sd)} for v, sd in zip(own, spreads, strict=True) for s in MOVED]
        tried += [{v: v * sympy.Float(s + 0.01 * i) for i, v in enumerate(own)} for s in STRETCHED]
        fits = (fitted(data, sympy.Float(1.5) * e.xreplace(moved)) for moved in tried)
        found += [candidate for candidate in fits if candidate is not None]
    found.sort(key=lambda candidate: candidate.description_length)
    sums = [fit_sum(x, y, names, known, weight=weight).formula] if len(known) > 1 else []
    return list(dict.fromkeys([*sums, *(Formula(c.expression) for c in found[:MOST_RELATIVES])]))


def values_of(formula: Formula, x: np.ndarray, names: Sequence[str]) -> Float[np.ndarray, " n"]:
    """Return a formula's values at rows of x."""
    return np.broadcast_to(np.asarray(compiled([formula.expression], names)(x)[0], float), len(x)).copy()


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


# The size of residuals ------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Scale:
    """A formula for the scale of residuals, its size at rows, the p-value of "nothing else changes it", and rivals."""

    formula: Formula
    values: Float[np.ndarray, " n"]
    p_value: float
    rivals: tuple[Formula, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether standardised residuals have the same size for every x."""
        return self.p_value > PASSED

    def price(self, residuals: np.ndarray) -> float:
        """Return the deviance of residuals and what the form costs; smaller is better."""
        sizes = np.maximum(self.values, 1e-300)
        deviance = 2 * float(np.sum(np.log(sizes) + 0.5 * (residuals / sizes) ** 2))
        cost = len(self.formula.constants) + 0.25 * float(sympy.count_ops(self.formula.expression))
        return deviance + cost * float(np.log(residuals.size))


def find_scale(
    features: Features,
    residuals: Float[np.ndarray, "m n"],
    names: Sequence[str],
    search: Search | None,
    mean: Formula | None = None,
) -> Scale:
    """Return a formula for the scale that rows of residuals share: a number where their size does not depend on x.

    Scales in proportion to the mean or to its root, or in a line with it, are tried too, then polynomials, also of the
    logarithm.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> x = rng.uniform(-3, 3, size=(4000, 1))
        >>> found = find_scale(Features(x), (x**2 * rng.normal(size=(4000, 1))).T, ["a"], None)
        >>> found.formula.variables, found.p_value > 1e-3
        (('a',), True)
    """
    x, size = features.x, np.mean(np.abs(residuals), axis=0)
    constant = float(np.sqrt(np.mean(residuals**2)))
    found = [Scale(Formula(sympy.Float(constant)), np.full(len(x), constant), _evenness(features, residuals))]

    def consider(formula: Formula) -> None:
        found.extend(_with_floor(features, residuals, formula, names))

    def with_rivals(best: Scale) -> Scale:
        near = best.price(residuals) + RIVAL
        ranked = sorted(found, key=lambda s: s.price(residuals))
        rivals = [s.formula for s in ranked if s is not best and s.price(residuals) < near]
        return replace(best, rivals=tuple(dict.fromkeys(rivals)))

    def straight(rows: np.ndarray, names: Sequence[str], degree: int) -> Formula:
        guess = np.full(len(x), constant)
        for _ in range(2):  # sizes scatter in proportion to the scale itself
            weight = 1 / np.maximum(guess, LEAST_WEIGHED * np.median(guess)) ** 2
            sizes = fit_polynomial(rows, NORMAL_SIZE * size, names, degree=degree, weight=weight).formula
            guess = np.abs(values_of(sizes, rows, names)) + 1e-3 * constant
        return sizes

    if mean is not None and mean.variables:
        line = straight(values_of(mean, x, names)[:, None], ["mean"], 1).expression
        for e in (
            mean.expression,
            sympy.sqrt(sympy.Abs(mean.expression)),
            line.xreplace({symbol("mean"): mean.expression}),
        ):
            consider(Formula(e))
    if found[0].passed:
        return with_rivals(found[0])
    logs = np.mean(np.log(np.abs(residuals) + 1e-12 * constant), axis=0) - LOG_SIZE
    for degree in (1, 2, 3):
        consider(straight(x, names, degree))
        consider(Formula(sympy.exp(fit_polynomial(x, logs, names, degree=degree).formula.expression)))
        if any(s.passed for s in found):
            break
    if search is not None and not any(s.passed for s in found):
        chosen = features.variables(size) or list(range(x.shape[1]))
        for formula in search(x[:, chosen], NORMAL_SIZE * size, None, [names[j] for j in chosen]):
            consider(formula)
    return with_rivals(min(found, key=lambda s: (not s.passed, s.price(residuals))))


def _evenness(features: Features, residuals: np.ndarray) -> float:
    """The p-value of "the size of residuals is the same for every x"."""
    return features.p_value(normal_scores(np.mean(np.log(np.abs(residuals) + 1e-300), axis=0)), trend=True)


def _with_floor(
    features: Features, residuals: np.ndarray, formula: Formula, names: Sequence[str]
) -> list[Scale]:
    """The scale with the floor below it, or none, that likelihood likes best."""
    values = np.abs(values_of(formula, features.x, names))
    if not np.all(np.isfinite(values)) or not np.any(values > 0):
        return []
    middle, tried = float(np.median(values)), list[Scale]()
    for floor in FLOORS:
        size = np.sqrt(values**2 + (floor * middle) ** 2) if floor else np.maximum(values, 1e-12 * middle)
        factor = float(np.sqrt(np.mean((residuals / size) ** 2)))
        if not (np.isfinite(factor) and factor > 0):
            continue
        own = scaled(formula, factor)
        if floor:
            own = Formula(sympy.sqrt(own.expression**2 + sympy.Float(factor * floor * middle) ** 2))
        tried.append(Scale(own, factor * size, 0.0))
    best = min(tried, key=lambda s: s.price(residuals), default=None)
    return [replace(best, p_value=_evenness(features, residuals / best.values))] if best else []


def scaled(formula: Formula, factor: float) -> Formula:
    """Return a scale times a number, taken into the constants that it has.

    Example:
        >>> from isr.search.formula import parse
        >>> scaled(Formula(parse("sqrt(4.5*a**2 + 1.5)", ["a"])), 2.0), scaled(Formula(parse("a + 1.5", ["a"])), 2.0)
        (sqrt(18*a**2 + 6), 2*a + 3)
    """
    c, e = sympy.Float(factor), formula.expression
    if e.is_Pow and e.exp == sympy.S.Half:
        parts: Any = sympy.Add.make_args(e.base)
        moved = [
            sympy.expand_mul(c * sympy.sqrt(p)) ** 2 if p.is_Pow and p.exp == 2 else c**2 * p for p in parts
        ]
        return Formula(sympy.sqrt(sympy.Add(*moved)))
    if isinstance(e, sympy.exp):
        return Formula(sympy.exp(e.args[0] + sympy.log(c)))
    return Formula(sympy.Add(*(c * term for term in sympy.Add.make_args(e))))

"""Candidates and what they cost: the description length of a law and of the rows given the law, in nats."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import sympy

from isr.search.evaluate import Opened, opened, with_constants
from isr.search.levenberg import covariance, refit
from isr.search.rows import Data

# Nats for naming an operation or a variable, and of a fitted number beside half the logarithm of the rows.
NODE, NUMBER = 1.5, 3.0
# What more digits of a number cost where rows are exact.
EXACT_NUMBER = 12.0
MOST_CONSTANTS = 40
# Ratios of polynomials with more numbers, or nats, than this imitate other functions to all digits.
MOST_EXACT, LONGEST_EXACT = 5, 80.0
FEW = 3
# A law of more numbers that are no simple ones, or of more nats, may follow any rows; of 262 known laws one is longer.
MOST_OF_A_LAW, LONGEST_LAW = 6, 60.0
# After so many steps only what comes this near to the best, in the spread of what is left, is refitted further, or what
# has few numbers with exponents among them, which go a long way.
FIRST_STEPS, LAST_STEPS, NEAR = 5, 15, 2.0
# The same form is refitted from so many starts; what is this many nats longer than the best is forgotten.
MOST_TRIES, SLACK = 4, 100.0
# Standard errors from zero beyond which no constant can go.
IN_DOUBT = 8.0
# A function that varies by less than this share may be a constant.
LEVEL = 0.2
# Functions that are their argument near 0; what a gain of so many nats, two standard errors, may be by chance.
STRAIGHT, IN_ERROR = ("sin", "asin", "tan", "atan", "sinh", "tanh", "asinh", "atanh"), 2.0


@dataclass(frozen=True, eq=False)
class Candidate:
    """A law with its constants fitted.

    Args:
        expression: In the variables of x; its decimal numbers are the fitted constants.
        residual_sd: Weighted standard deviation of what it leaves.
        description_length: Nats for the law and for the rows given the law.
        standard_errors: Of the decimal numbers that are no exponents, in order of appearance.
        complexity: How many operations, variables and numbers it has.
    """

    expression: sympy.Expr
    residual_sd: float
    description_length: float
    standard_errors: tuple[float, ...] = ()
    complexity: int = 0
    loss: float = np.inf
    n_numbers: int = 0


@dataclass(eq=False)
class Pool:
    """Everything tried so far, refitted to the rows of y itself.

    Args:
        data: Rows to judge by.
        allowed: Whether a law may be tried.
        nearest: Standard deviation of what the nearest law with few numbers leaves.
    """

    data: Data
    allowed: Callable[[sympy.Expr], bool] = lambda law: True
    found: dict[Any, Candidate] = field(default_factory=dict)
    best: Candidate | None = None
    nearest: float = np.inf
    tries: dict[Any, int] = field(default_factory=dict)

    @property
    def is_exact(self) -> bool:
        """Whether what the best law leaves is rounding, and it is no imitation with many numbers."""
        best = self.best
        if best is None or best.loss > self.data.rounding or best.n_numbers > MOST_EXACT:
            return False
        return price(best.expression, len(self.data.y)) <= LONGEST_EXACT

    def offer(self, expression: sympy.Expr) -> None:
        """Refit an expression and keep it, unless it is not allowed or cannot be evaluated."""
        if not self.allowed(expression) or not _is_usable(expression):
            return
        law = opened(expression, self.data.symbols)
        if self.tries.get(law.program, 0) >= MOST_TRIES:
            return
        self.tries[law.program] = self.tries.get(law.program, 0) + 1
        constants, loss = _refitted(self.data, law, law.constants, FIRST_STEPS)
        goes_far = any(law.is_power) and len(constants) <= MOST_EXACT
        if goes_far or np.sqrt(loss / np.sum(self.data.root**2)) < NEAR * self.nearest:
            constants, loss = _refitted(self.data, law, constants, LAST_STEPS)
        candidate = _judged(self.data, expression, loss)
        old = self.found.get(law.program)
        if not np.isfinite(loss) or (old and old.description_length <= candidate.description_length):
            return
        if candidate.n_numbers <= FEW:
            self.nearest = min(self.nearest, candidate.residual_sd)
        if self.best is None or candidate.description_length < self.best.description_length + SLACK:
            form = with_constants(expression, [float(c) for c in constants])
            self.found[law.program] = candidate = replace(candidate, expression=form)
        if self.best is None or candidate.description_length < self.best.description_length:
            self.best = candidate

    def put(self, candidate: Candidate) -> None:
        """Keep a candidate that is already fitted."""
        self.found[opened(candidate.expression, self.data.symbols).program] = candidate
        if self.best is None or candidate.description_length < self.best.description_length:
            self.best = candidate

    def ranked(self, n: int | None = None) -> list[Candidate]:
        """Return the best candidates, best first."""
        return sorted(self.found.values(), key=lambda c: c.description_length)[:n]


def fitted(data: Data, expression: sympy.Expr, *, iterations: int = 20) -> Candidate | None:
    """Return an expression as a candidate, its constants refitted by at most so many steps."""
    expression = sympy.sympify(expression, strict=True)
    if not _is_usable(expression):
        return None
    law = opened(expression, data.symbols)
    constants, loss = _refitted(data, law, law.constants, iterations)
    if not np.isfinite(loss):
        return None
    form = with_constants(expression, [float(c) for c in constants])
    return _judged(data, form, loss)


def _is_usable(expression: sympy.Expr) -> bool:
    return _n_floats(expression) <= MOST_CONSTANTS and not expression.has(
        sympy.zoo, sympy.nan, sympy.oo, sympy.I
    )


def _refitted(data: Data, law: Opened, constants: np.ndarray, steps: int) -> tuple[np.ndarray, float]:
    """Constants and loss after so many steps; exact laws are left as they are."""
    with np.errstate(all="ignore"):
        gaps = (law.values(data.columns, constants) - data.y) * data.root
        loss = float(gaps @ gaps)
    if len(constants) and steps and not loss <= data.rounding * 1e-4:
        tried, lower = refit(law, data.columns, data.y, data.root, constants, iterations=steps)
        if lower < loss or not np.isfinite(loss):
            return tried, lower
    return constants, loss if np.isfinite(loss) else np.inf


def _judged(data: Data, expression: sympy.Expr, loss: float) -> Candidate:
    """A candidate with its description length, given the weighted squares it leaves."""
    sd, n_numbers = float(np.sqrt(loss / np.sum(data.root**2))), _n_floats(expression)
    length = _misfit(data, loss, n_numbers) + price(expression, len(data.y))
    if loss <= data.rounding and not data.known_noise:
        length += EXACT_NUMBER * n_numbers
    return Candidate(expression, sd, length, (), size(expression), loss, n_numbers)


def with_errors(data: Data, candidate: Candidate) -> Candidate:
    """Return a candidate with the standard errors of its constants."""
    law = opened(candidate.expression, data.symbols)
    errors = errors_of(data, law, candidate.loss)
    own = (float(e) for e, is_power in zip(errors, law.is_power, strict=True) if not is_power)
    return replace(candidate, standard_errors=tuple(own))


def errors_of(data: Data, law: Opened, loss: float) -> np.ndarray:
    """Return the standard errors of all decimal numbers of a law, exponents included."""
    free = max(len(data.y) - len(law.constants), 1)
    variance = 1.0 if data.known_noise else loss / free
    return np.sqrt(np.diag(covariance(law, data.columns, data.root, law.constants)) * variance)


def _misfit(data: Data, loss: float, n_numbers: int) -> float:
    if data.known_noise:
        return 0.5 * loss
    n = len(data.y)
    # Of few rows, many numbers leave less than the noise.
    return 0.5 * n * float(np.log((loss + data.rounding) / max(n - n_numbers, 1)))


def price(expression: sympy.Expr, n: int) -> float:
    """Return the nats that the form and the numbers of an expression cost.

    Example:
        >>> x = sympy.Symbol("x", real=True)
        >>> price(2 * x, 100) < price(2.1 * x, 100) < price(2.1 * x + 0.3, 100)
        True
    """
    e: Any = expression
    if e.is_Float:
        return NUMBER + 0.5 * float(np.log(n))
    if e.is_Rational:
        return 0.0 if e in (1, -1) else number_price(Fraction(int(e.p), int(e.q)))
    if e.is_Symbol or not e.args:
        return NODE
    total = sum(price(a, n) for a in e.args)
    if e.is_Add or e.is_Mul:
        return total + 0.5 * NODE * (len(e.args) - 1)
    if e.is_Pow:
        if not e.exp.is_number:
            return price(e.base, n) + price(e.exp, n) + 3 * NODE
        cheap = e.exp in (-1, 2, sympy.S.Half)
        return price(e.base, n) + 0.5 * NODE + (0.5 if cheap else max(price(e.exp, n), 1.0))
    return total + 1.5 * NODE


def number_price(value: Fraction) -> float:
    """Return the nats of a fraction."""
    return 0.7 + 1.3 * float(np.log(abs(value.numerator) + 1.0)) + 1.8 * float(np.log(value.denominator))


def size(expression: sympy.Expr) -> int:
    """Return how many operations, variables and numbers an expression has."""
    e: Any = expression
    if not e.args:
        return 0 if e == -1 else 1
    if e.is_Add or e.is_Mul:
        return sum(map(size, e.args)) + len(e.args) - 1
    if e.is_Pow:
        return size(e.base) + (1 if e.exp in (-1, 2, sympy.S.Half) else 2)
    return sum(map(size, e.args)) + 1


def is_flexible(expression: sympy.Expr, n: int) -> bool:
    """Return whether a law of n rows is so long, and no straight line, that it may follow any rows.

    Example:
        >>> x = sympy.Symbol("x", real=True)
        >>> powers = sympy.Add(*(sympy.Float(k + 0.5) * x**k for k in range(8)))
        >>> is_flexible(1.5 * x + 0.2, 100), is_flexible(powers, 100)
        (False, True)
    """
    terms = [term.as_coeff_Mul()[1] for term in sympy.Add.make_args(expression)]
    is_line = all(term == 1 or term.is_Symbol for term in terms)
    return not is_line and (_n_floats(expression) > MOST_OF_A_LAW or price(expression, n) > LONGEST_LAW)


def _n_floats(expression: sympy.Expr) -> int:
    if expression.is_Float:
        return 1
    if expression.is_Pow and expression.exp.is_number:
        return _n_floats(expression.base) + int(expression.exp.is_Float)
    return sum(_n_floats(a) for a in expression.args)


def eliminated(data: Data, candidate: Candidate) -> Candidate:
    """Return the candidate without the constants, and the parts that hardly vary, that rows do not ask for."""
    best = candidate
    for part, plain in [*_waves(candidate.expression), *_straightened(data, candidate.expression)]:
        tried = fitted(data, best.expression.xreplace({part: plain}))
        if tried is not None and tried.description_length < best.description_length + IN_ERROR:
            best = tried
    while True:
        law = opened(best.expression, data.symbols)
        errors = errors_of(data, law, best.loss)
        ratios = [abs(c) / (e + 1e-300) for c, e in zip(law.constants, errors, strict=True)]
        better, is_exact = None, best.loss <= data.rounding
        in_doubt = [i for i in np.argsort(ratios)[:4] if is_exact or ratios[i] < IN_DOUBT]
        for i in in_doubt:
            values: Sequence[Any] = [float(c) for c in law.constants]
            shorter = with_constants(best.expression, [*values[:i], sympy.Integer(0), *values[i + 1 :]])
            tried = fitted(data, shorter)
            if tried is not None and tried.description_length < best.description_length:
                better = tried
                break
        if better is None:
            return best
        best = better


def _straightened(data: Data, law: sympy.Expr) -> Iterator[tuple[sympy.Expr, sympy.Expr]]:
    """Parts of a law that hardly vary with a number, and functions near 0 with their argument."""
    for part in sorted(law.atoms(sympy.Function, sympy.Pow), key=str):
        values = opened(part, data.symbols).values(data.columns)
        middle = float(np.mean(values))
        if np.ptp(values) < LEVEL * abs(middle):
            yield part, sympy.Integer(1) if abs(middle - 1) < LEVEL else sympy.Float(middle)
        elif type(part).__name__ in STRAIGHT and np.max(np.abs(values)) < LEVEL:
            yield part, part.args[0]


def _waves(law: sympy.Expr) -> Iterator[tuple[sympy.Expr, sympy.Expr]]:
    """Sums of a sine and a cosine with one sine that has a phase."""
    for total in sorted(law.atoms(sympy.Add), key=str):
        terms = [(term, *term.as_coeff_Mul()) for term in total.args]
        for (one, a, sine), (other, b, cosine) in product(terms, terms):
            if isinstance(sine, sympy.sin) and isinstance(cosine, sympy.cos):
                phase = sympy.Float(np.arctan2(float(b), float(a)))
                wave = sympy.Float(np.hypot(float(a), float(b))) * sympy.sin(sine.args[0] + phase)
                yield total, sympy.Add(wave, *(term for term in total.args if term not in (one, other)))

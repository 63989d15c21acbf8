"""Factors of an output: powers of positive inputs that it can be divided by, found before anything is trained.

Much of physics is a product. Where y = x₀^p g(x₁, …), the logarithm of y is a straight line in that of x₀ whatever
the others are, which a polynomial in logarithms shows at once, while a sum of functions has to find it by chance.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations_with_replacement
from math import comb
from typing import Any, NamedTuple

import numpy as np
import sympy
from jaxtyping import Float, Int

from isr.bijections.affine import standardise

# Below this the guards of reciprocals and roots are near, and logarithms are steep.
LEAST_INPUT = 0.02
# An input that varies by less shows no power.
LEAST_RATIO = 1.5
MOST_DEGREE = 3
LARGEST_POWER = 4
ROWS_PER_TERM = 4
MOST_TERMS = 500
MOST_ROWS = 5000
# How far a line may be from straight, relative to its own spread, and its slope from a half or whole number.
STRAIGHT = 0.05
NEAR = 0.05
FARTHEST = 0.2  # where rows are noisy
# What the remaining variables may fail to explain beyond what all of them do, as a share of the spread.
UNEXPLAINED = 0.02


@dataclass(frozen=True)
class Factor:
    """A product of whole or half powers of the inputs, 0 for those that have no part in it."""

    powers: tuple[Fraction, ...]

    def values(self, x: Float[np.ndarray, "n width"]) -> Float[np.ndarray, " n"]:
        """Return the product for every row."""
        used = [column ** float(power) for column, power in zip(x.T, self.powers, strict=True) if power]
        return np.prod([np.ones(len(x)), *used], axis=0)

    def expression(self, inputs: Sequence[Any]) -> Any:
        """Return the product with roots and reciprocals as opaque functions, as formulas have them."""
        reciprocal, root = sympy.Function("reciprocal"), sympy.Function("sqrt")
        factors = []
        for symbol, power in zip(inputs, self.powers, strict=True):
            whole, half = divmod(abs(power), 1)
            parts = [symbol] * int(whole) + [root(symbol)] * bool(half)
            factors += [reciprocal(part) for part in parts] if power < 0 else parts
        return sympy.Mul(*factors)


def find_factor(
    x: Float[np.ndarray, "n width"],
    y: Float[np.ndarray, " n"],
    library: Collection[str],
    *,
    among: Int[np.ndarray, " some"] | None = None,
) -> Factor:
    """Return the factor of ``y`` that a library allows; all powers are 0 where there is none.

    Without products there is no factor; negative powers take ``"reciprocal"``, half ones ``"sqrt"``. The rows
    ``among`` tell the powers, all when left out; the others need only be positive.
    """
    none = Factor((Fraction(0),) * x.shape[1])
    if "product" not in library or not (np.all(y > 0) or np.all(y < 0)):
        return none
    is_open = (x.min(axis=0) > LEAST_INPUT) & (x.max(axis=0) > LEAST_RATIO * x.min(axis=0))
    told_by = (np.arange(len(x)) if among is None else among)[:MOST_ROWS]
    x, y = x[told_by], y[told_by]
    target = np.log(np.abs(y))
    full = _Polynomial.of(np.where(is_open, np.log(np.where(is_open, x, 1.0)), x), target)
    if full is None:
        return none
    powers = [full.power(i) if is_open[i] else Fraction(0) for i in range(x.shape[1])]
    found = Factor(tuple(p if _is_offered(p, library) else Fraction(0) for p in powers))
    rest = full.columns[:, [not p for p in found.powers]]
    left = _Polynomial.of(rest, target - np.log(found.values(np.where(is_open, x, 1.0))))
    allowed = 1.3 * full.residual + UNEXPLAINED * float(np.std(target))
    return found if left is not None and left.residual <= allowed else none


def _is_offered(power: Fraction, library: Collection[str]) -> bool:
    return (power > 0 or "reciprocal" in library) and (power.denominator == 1 or "sqrt" in library)


class _Polynomial(NamedTuple):
    """A polynomial of standardised columns, fitted by least squares; a term is the columns it multiplies."""

    columns: np.ndarray
    widths: np.ndarray
    terms: list[tuple[int, ...]]
    design: np.ndarray
    weights: np.ndarray
    residual: float

    @staticmethod
    def of(columns: np.ndarray, target: np.ndarray) -> _Polynomial | None:
        """The richest that so many rows allow; None if they do not even allow squares."""
        width, allowed = columns.shape[1], min(MOST_TERMS, len(target) // ROWS_PER_TERM)
        degree = next((d for d in range(MOST_DEGREE, 1, -1) if comb(width + d, d) <= allowed), None)
        if degree is None:
            return None
        terms = [t for d in range(degree + 1) for t in combinations_with_replacement(range(width), d)]
        scale = standardise(columns)
        standard = (columns - np.asarray(scale.shift)) / np.asarray(scale.scale)
        design = np.stack([np.prod(standard[:, list(term)], axis=1) for term in terms], axis=1)
        weights = np.linalg.lstsq(design, target, rcond=None)[0]
        residual = float(np.sqrt(np.mean((design @ weights - target) ** 2)))
        return _Polynomial(columns, np.asarray(scale.scale), terms, design, weights, residual)

    def power(self, i: int) -> Fraction:
        """The slope in column i if the polynomial is straight there and the slope a whole or half number, else 0."""
        bent = np.array([i in term and term != (i,) for term in self.terms])
        bend = float(np.std(self.design[:, bent] @ self.weights[bent]))
        rise = float(self.weights[self.terms.index((i,))])  # over a standard deviation of the column
        slope, noise = rise / float(self.widths[i]), self.residual / np.sqrt(len(self.design))
        nearest = Fraction(round(2 * slope), 2)
        is_straight = bend <= STRAIGHT * abs(rise) + 2 * noise * np.sqrt(bent.sum())
        is_near = abs(slope - float(nearest)) <= min(FARTHEST, NEAR + 2 * noise / float(self.widths[i]))
        return nearest if is_straight and is_near and abs(nearest) <= LARGEST_POWER else Fraction(0)

"""Constants as people write them: whole numbers, fractions, multiples of π and of roots, within their error."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import sympy

from isr.search.candidates import Candidate, errors_of, fitted, number_price
from isr.search.evaluate import opened, with_constants
from isr.search.rows import Data

# A simple value may lie so many standard errors away; without noise so far in relation to the constant.
REACH, LEAST_REACH = 2.0, 1e-8
DENOMINATORS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20)
SPECIAL = (sympy.pi, 1 / sympy.pi, sympy.pi**2, 1 / sympy.pi**2, sympy.pi**3, 1 / sympy.pi**3,
           sympy.sqrt(2), sympy.sqrt(3), sympy.sqrt(sympy.pi), 1 / sympy.sqrt(sympy.pi),
           1 / sympy.sqrt(2 * sympy.pi), sympy.E, sympy.log(2), sympy.pi / 180)  # fmt: skip
# Of a relative error: a constant known no better says nothing about its neighbours.
KNOWN = 0.15
SPECIAL_KNOWN = 0.01
# What rounding may do to a constant.
NEARLY = 1e-7


def simple_values(value: float, error: float) -> list[sympy.Expr]:
    """Return simple numbers within the error of a value, the simplest first.

    Example:
        >>> simple_values(0.4999, 0.001)[0], simple_values(0.0795774715, 1e-12)
        (1/2, [1/(4*pi)])
    """
    reach = max(REACH * error, LEAST_REACH * abs(value))
    found = [(price, number) for price, number in _fractions(value) if abs(float(number) - value) <= reach]
    if error <= SPECIAL_KNOWN * abs(value):
        for special in SPECIAL:
            size = float(special)
            found += [
                (price + 3.0, number * special)
                for price, number in _fractions(value / size)
                if abs(float(number) * size - value) <= reach
            ]
    return [number for _, number in sorted(found, key=lambda f: f[0])]


def _fractions(value: float) -> Iterator[tuple[float, Any]]:
    for denominator in DENOMINATORS:
        if abs(value) * denominator < 1e6:
            fraction = sympy.Rational(round(value * denominator), denominator)
            if fraction != 0 and fraction.q == denominator:
                yield number_price(fraction), fraction


def snapped(data: Data, candidate: Candidate) -> Candidate:
    """Return a law with constants set to simple values, one after the other, where that is the shorter description."""
    best, settled = _at_once(data, candidate), set()
    while True:
        law = opened(best.expression, data.symbols)
        errors = errors_of(data, law, best.loss)
        values: list[Any] = [float(c) for c in law.constants]
        order = sorted(range(len(values)), key=lambda i: errors[i] / (abs(values[i]) + 1e-300))
        better = None
        for i in order:
            if round(values[i], 12) in settled or not errors[i] <= KNOWN * abs(values[i]):
                continue
            for number in simple_values(values[i], errors[i])[:3]:
                changed = with_constants(best.expression, [*values[:i], number, *values[i + 1 :]])
                tried = fitted(data, changed, iterations=8)
                if tried is not None and tried.description_length < best.description_length:
                    better = tried
                    break
            if better is not None:
                break
            settled.add(round(values[i], 12))
        if better is None:
            return best
        best = better


def _at_once(data: Data, candidate: Candidate) -> Candidate:
    """The law with all constants and powers set to simple values: where rounding is amplified, one alone fails."""
    values = [float(c) for c in opened(candidate.expression, data.symbols).constants]
    simple = [next(iter(simple_values(value, NEARLY * abs(value))), value) for value in values]
    tried = fitted(data, with_constants(candidate.expression, simple)) if values else None
    is_better = tried is not None and tried.description_length < candidate.description_length
    return tried if tried is not None and is_better else candidate


def without_idle_abs(law: sympy.Expr, data: Data) -> sympy.Expr:
    """Return a law without those absolute values whose argument has one sign in all rows."""

    def plain(size: Any) -> Any:
        values = opened(size.args[0], data.symbols).values(data.columns)
        return size.args[0] if values.min() >= 0 else -size.args[0] if values.max() <= 0 else size

    return law.replace(lambda part: isinstance(part, sympy.Abs), plain)

"""Isolating a variable: from ``f(x_j, others) = t`` to x_j in closed form, with signs and whole turns as branches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sympy

TURNS = sympy.Symbol("n", integer=True)
"""Whole number of turns, or of half turns, in a solution."""


@dataclass(frozen=True)
class Solution:
    """A variable in closed form.

    Args:
        expression: In the other variables, the target, `TURNS` and ``signs``.
        signs: Symbols that are 1 or -1.
    """

    expression: sympy.Expr
    signs: tuple[sympy.Symbol, ...] = ()

    @property
    def has_turns(self) -> bool:
        """Whether solutions repeat."""
        return TURNS in self.expression.free_symbols


def isolate(expression: sympy.Expr, variable: sympy.Symbol, target: sympy.Expr) -> Solution | None:
    """Return the solutions of ``expression = target``, or None where the variable cannot be set free.

    Example:
        >>> x, a, y = sympy.symbols("x a y", real=True)
        >>> isolate(a + 2 * sympy.exp(x), x, y).expression
        log(-a/2 + y/2)
        >>> isolate(sympy.cos(x + a), x, y).expression
        -a + 2*pi*n + sign1*acos(y)
        >>> isolate(sympy.cos(x) + 2 * sympy.sin(x + a), x, y).expression.has(sympy.atan2)
        True
        >>> isolate(x * sympy.exp(x), x, y)
    """
    signs: list[sympy.Symbol] = []
    value: Any = target
    current: Any = expression
    while current != variable:
        found = _outer(current, variable, value, signs)
        if found is None:
            return None
        current, value = found
    return Solution(sympy.expand_mul(value), tuple(signs))


def _outer(e: Any, variable: sympy.Symbol, value: Any, signs: list[sympy.Symbol]) -> tuple[Any, Any] | None:
    """The equation with the outermost operation undone."""
    if e.is_Add or e.is_Mul:
        held = [a for a in e.args if variable in a.free_symbols]
        rest = e.func(*(a for a in e.args if variable not in a.free_symbols))
        if len(held) == 1:
            return held[0], (value - rest if e.is_Add else value / rest)
        if e.is_Mul:
            return _product(e, variable, value)
        return _harmonic(e, variable, value, signs) or _quadratic(e, variable, value, signs)
    if e.is_Pow and not e.exp.free_symbols:
        return _root(e, value, signs)
    if e.is_Pow and variable not in e.exp.free_symbols:
        return e.base, value ** (1 / e.exp)
    if e.is_Pow and variable not in e.base.free_symbols:
        return e.exp, sympy.log(value) / sympy.log(e.base)
    inner = e.args[0] if len(e.args) == 1 else None
    if inner is not None and e.func in _INVERSES:
        return inner, _INVERSES[e.func](value)
    if e.func in (sympy.sin, sympy.cos):
        turned = 2 * sympy.pi * TURNS + _sign(signs) * sympy.acos(value)
        return (inner, turned) if e.func is sympy.cos else (inner, sympy.pi / 2 - turned)
    if e.func is sympy.tan:
        return inner, sympy.atan(value) + sympy.pi * TURNS
    if e.func is sympy.Abs:
        return inner, _sign(signs) * value
    if e.func is sympy.cosh:
        return inner, _sign(signs) * sympy.acosh(value)
    if e.func in (
        sympy.Min,
        sympy.Max,
    ):  # where the variable is not the one that counts, solutions do not check
        held = [a for a in e.args if variable in a.free_symbols]
        return (held[0], value) if len(held) == 1 else None
    return None


_INVERSES = {
    sympy.exp: sympy.log, sympy.log: sympy.exp, sympy.tanh: sympy.atanh, sympy.sinh: sympy.asinh,
    sympy.asin: sympy.sin, sympy.acos: sympy.cos, sympy.atan: sympy.tan, sympy.asinh: sympy.sinh,
    sympy.atanh: sympy.tanh,
}  # fmt: skip


def _sign(signs: list[sympy.Symbol]) -> sympy.Symbol:
    signs.append(sympy.Symbol(f"sign{len(signs) + 1}", real=True))
    return signs[-1]


def _root(e: Any, value: Any, signs: list[sympy.Symbol]) -> tuple[Any, Any] | None:
    power = sympy.nsimplify(e.exp, rational=True)
    if power == 0:
        return None
    if not power.is_Rational:  # such as a power of √2, of what is not negative
        return e.base, value ** (1 / power)
    if power.q % 2 == 0 or power.p % 2 == 0:
        root = sympy.Pow(value, 1 / power)
        return e.base, (_sign(signs) * root if power.p % 2 == 0 else root)
    return e.base, sympy.sign(value) * sympy.Abs(value) ** (1 / power)


def _product(e: Any, variable: sympy.Symbol, value: Any) -> tuple[Any, Any] | None:
    """Several factors hold the variable: take logarithms where they are powers and exponentials of it alone."""
    merged = sympy.powsimp(e)
    return (merged, value) if merged != e and not merged.is_Mul else None


def _harmonic(
    e: Any, variable: sympy.Symbol, value: Any, signs: list[sympy.Symbol]
) -> tuple[Any, Any] | None:
    """Sines and cosines that turn alike with the variable are one cosine: ``p cos(a v) + q sin(a v)``."""
    p, q, rate = sympy.S.Zero, sympy.S.Zero, None
    for term in e.args:
        if variable not in term.free_symbols:
            value = value - term
            continue
        waves = [f for f in term.args if variable in f.free_symbols] if term.is_Mul else [term]
        wave = waves[0]
        if len(waves) != 1 or wave.func not in (sympy.sin, sympy.cos):
            return None
        slope = wave.args[0].diff(variable)
        if not slope.is_number or (rate is not None and abs(slope) != abs(rate)):
            return None
        rate, size = rate or slope, term / wave
        shift = sympy.expand(wave.args[0] - slope * variable)
        shift = shift if slope == rate else -shift
        c, s = sympy.cos(shift), sympy.sin(shift)
        if wave.func is sympy.cos:
            p, q = p + size * c, q - size * s
        else:
            size = size if slope == rate else -size
            p, q = p + size * s, q + size * c
    turned = _sign(signs) * sympy.acos(value / sympy.sqrt(p**2 + q**2))
    return variable, (sympy.atan2(q, p) + turned + 2 * sympy.pi * TURNS) / rate


def _quadratic(
    e: Any, variable: sympy.Symbol, value: Any, signs: list[sympy.Symbol]
) -> tuple[Any, Any] | None:
    """Several terms hold the variable: solved where they are a polynomial of degree one or two in something."""
    for inner in _cores(e, variable):
        symbol = sympy.Dummy(real=True)
        replaced = e.subs(inner, symbol) if inner != variable else e.xreplace({variable: symbol})
        if variable in replaced.free_symbols:
            continue
        try:
            polynomial = sympy.Poly(replaced, symbol)
        except sympy.PolynomialError:
            continue
        if polynomial.degree() > 2 or symbol in sympy.Add(*polynomial.all_coeffs()).free_symbols:
            continue
        *high, linear, constant = polynomial.all_coeffs()
        if not high:
            return inner, (value - constant) / linear
        a, c = high[0], constant - value
        return inner, (-linear + _sign(signs) * sympy.sqrt(linear**2 - 4 * a * c)) / (2 * a)
    return None


def _cores(e: Any, variable: sympy.Symbol) -> list[Any]:
    """What the terms may be a polynomial in: the variable, or a function or power of it."""
    held = [
        part
        for part in sympy.preorder_traversal(e)
        if (part.is_Function or (part.is_Pow and not part.exp.is_number)) and variable in part.free_symbols
    ]
    return [variable, *dict.fromkeys(held)]

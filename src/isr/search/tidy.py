"""The shortest way to write a law: the forms that algebra knows, judged by the price of their parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import sympy

from isr.search.candidates import price, size
from isr.search.evaluate import opened, with_constants
from isr.search.rows import Data

# The algebra of polynomials takes minutes on long laws, and on shorter ones with many decimal numbers or variables.
LARGEST, LARGEST_WITH_NUMBERS, MOST_NUMBERS, MOST_SYMBOLS = 120, 40, 2, 7
SAME = 1e-9
# A square must be shorter than its polynomial by so many parts.
PLAINER = 1
ROUNDS = 3
_NUMBER = "number_"


def tidied(law: sympy.Expr, data: Data) -> sympy.Expr:
    """Return the shortest form of a law that has its values in all rows.

    Example:
        >>> from isr.search.formula import parse
        >>> x = np.random.default_rng(0).uniform(1, 2, size=(50, 2))
        >>> data = Data.of(["s", "k"], x, x[:, 0], None, None)
        >>> tidied(parse("s/(k*(1 + s/k))", ["s", "k"]), data)
        s/(k + s)
    """
    if size(law) > LARGEST:
        return law
    best, values, n = law, opened(law, data.symbols).values(data.columns), len(data.y)
    for _ in range(ROUNDS):
        before = best
        for form in _forms(before, data):
            if price(form, n) < price(best, n) and _agrees(form, values, data):
                best = form
        if best == before:
            break
    plain = best.replace(_is_log_of_power, lambda e: e.args[0].exp * sympy.log(e.args[0].base))
    best = plain if plain != best and _agrees(plain, values, data) else best
    return best.replace(_is_negative_sum, lambda e: sympy.Mul(*e.args[1:-1]) * sympy.expand_mul(-e.args[-1]))


def _forms(law: sympy.Expr, data: Data) -> Iterator[sympy.Expr]:
    """The law after each of the rules, its decimal numbers kept as symbols meanwhile."""
    numbers = [sympy.Float(c) for c in opened(law, data.symbols).constants]
    held = [sympy.Symbol(f"{_NUMBER}{i}", real=True) for i in range(len(numbers))]
    whole, back = with_constants(law, held), dict(zip(held, numbers, strict=True))
    is_small = size(law) <= LARGEST_WITH_NUMBERS and len(numbers) <= MOST_NUMBERS
    is_dear = len(whole.free_symbols) > MOST_SYMBOLS or (bool(numbers) and not is_small)
    for rule in _CHEAP if is_dear else (*_CHEAP, *_DEAR):
        with suppress(sympy.PolynomialError, NotImplementedError, ZeroDivisionError, AttributeError):
            yield from (form.xreplace(back) for form in rule(whole))


def _partial(law: sympy.Expr) -> Iterator[sympy.Expr]:
    if law.is_rational_function():
        for name in sorted(law.free_symbols, key=str):
            if not name.name.startswith(_NUMBER):
                yield sympy.apart(sympy.cancel(law), name)


def _half_angles(law: sympy.Expr) -> sympy.Expr:
    """Squares of sines in place of cosines of twice an angle."""
    return law.replace(
        lambda e: isinstance(e, sympy.cos),
        lambda e: sympy.expand(1 - 2 * sympy.sin(sympy.expand(e.args[0] / 2)) ** 2),
    )


def _squares(law: sympy.Expr) -> sympy.Expr:
    """Quadratic polynomials as a square and what it leaves: roots of squares alone become absolute values."""

    def completed(part: sympy.Expr) -> sympy.Expr:
        for x in sorted(part.free_symbols, key=str):
            others, own = part.as_independent(x, as_Add=True)
            if not x.name.startswith(_NUMBER) and own.is_polynomial(x) and sympy.degree(own, x) == 2:
                a, b, c = sympy.Poly(own, x).all_coeffs()
                rest = others + sympy.cancel(c - b**2 / (4 * a))
                square = sympy.simplify(a) * (x + sympy.cancel(b / (2 * a))) ** 2 + rest
                if size(square) + PLAINER < size(part):
                    return square
        return part

    return law.replace(lambda e: e.is_Add, completed)


def _is_negative_sum(part: sympy.Expr) -> bool:
    return part.is_Mul and part.args[0] == -1 and part.args[-1].is_Add


def _is_log_of_power(part: sympy.Expr) -> bool:
    return isinstance(part, sympy.log) and part.args[0].is_Pow and part.args[0].exp.is_number


def _one_root(law: sympy.Expr) -> Iterator[sympy.Expr]:
    """Products of roots, and of other factors with a root where that is the whole law, as one root."""

    def is_root(part: sympy.Expr) -> bool:
        return part.is_Pow and part.exp.is_Rational and part.exp.q == 2

    for algebra in (sympy.factor, sympy.expand):

        def merged(part: sympy.Expr, algebra: Callable[[sympy.Expr], sympy.Expr] = algebra) -> sympy.Expr:
            roots = [a for a in part.args if is_root(a)]
            others = [a for a in part.args if a not in roots]
            return sympy.Mul(*others) * sympy.sqrt(algebra(sympy.Mul(*(a**2 for a in roots))))

        yield law.replace(lambda e: e.is_Mul and sum(map(is_root, e.args)) > 1, merged)
        if law.is_Mul and any(a.is_Pow and a.exp == sympy.S.Half for a in law.args):
            yield sympy.sqrt(algebra(law**2))


def _once(rule: Callable[[sympy.Expr], sympy.Expr]) -> Callable[[sympy.Expr], list[sympy.Expr]]:
    return lambda law: [rule(law)]


_CHEAP: tuple[Callable[[sympy.Expr], Any], ...] = (
    _once(sympy.expand_mul),
    _once(lambda e: sympy.expand_log(e, force=True)),
    _once(lambda e: sympy.logcombine(sympy.expand_mul(e), force=True)),
    _once(sympy.powsimp),
    _once(lambda e: sympy.expand_power_base(e, force=True)),
    _once(_half_angles),
    _once(sympy.factor_terms),
    _once(_squares),
)
_DEAR: tuple[Callable[[sympy.Expr], Any], ...] = (
    _once(sympy.expand),
    _once(lambda e: sympy.cancel(sympy.together(e))),
    _once(sympy.factor),
    _once(lambda e: sympy.factor(e, deep=True)),
    _one_root,
    _partial,
)


def _agrees(form: sympy.Expr, values: np.ndarray, data: Data) -> bool:
    other = opened(form, data.symbols).values(data.columns)
    return bool(np.max(np.abs(other - values)) <= SAME * np.max(np.abs(values)))

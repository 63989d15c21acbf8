"""Complexity: what equations cost, summed over the block form.

The rule: a variable costs what the identity costs, a constant 1 (the factor -1 is free); adding two terms costs 1, so
does multiplying by a constant, and a product of two variables what the product primitive costs. A power, root,
reciprocal or function costs what its primitive does; a function without one costs 4, a limit (Min, Max) 1.
Naming an intermediate is free, and it is counted once however often it is read.
"""

from __future__ import annotations

from typing import Any

import sympy

from isr.bijections.primitives import PRIMITIVES
from isr.equations.functions import Guarded
from isr.equations.program import Program

FUNCTION_COST = 4
LARGEST_PRODUCT = 7  # a whole power up to this is written as a product
_POWERS = {2: "square", 3: "cube", -1: "reciprocal", sympy.S.Half: "sqrt"}


def complexity(equations: Program | sympy.Expr) -> int:
    """Return the cost of a program or of a single expression.

    Example:
        >>> u = sympy.Symbol("u")
        >>> complexity(0.8 - 0.8 * u**2)
        7
    """
    return sum(map(_cost, _equations(equations)))


def n_constants(equations: Program | sympy.Expr) -> int:
    """Return how many numbers a reader of the equations meets, apart from 1, -1, exponents and π.

    Example:
        >>> u = sympy.Symbol("u")
        >>> n_constants(0.8 - 0.8 * u**2)
        2
    """
    return sum(map(_constants, _equations(equations)))


def _equations(equations: Program | sympy.Expr) -> tuple[sympy.Expr, ...]:
    # The log-determinant follows from the map and would be counted twice.
    return equations.expressions[:-1] if isinstance(equations, Program) else (equations,)


def _cost(e: Any) -> int:
    if isinstance(e, Guarded):
        return _cost(e.written)
    if e.is_Symbol:
        return PRIMITIVES["id"].cost
    if e.is_number:
        return 0 if e == -1 else 1
    if e.is_Pow:
        return _cost(e.base) + _power_cost(e.exp)
    if e.is_Add:
        return sum(map(_cost, e.args)) + len(e.args) - 1
    if e.is_Mul:
        number, factors = _factors(e)
        constant = 0 if number in (1, -1) else 2
        return constant + sum(map(_cost, factors)) + PRIMITIVES["product"].cost * (len(factors) - 1)
    primitive = PRIMITIVES.get(type(e).__name__)
    own = 1 if isinstance(e, sympy.Min | sympy.Max) else primitive.cost if primitive else FUNCTION_COST
    return own + sum(_cost(a) for a in e.args if isinstance(a, sympy.Expr))


def _power_cost(power: Any) -> int:
    if power in _POWERS:
        return PRIMITIVES[_POWERS[power]].cost
    if power.is_Integer and power < 0:
        return PRIMITIVES["reciprocal"].cost + _power_cost(-power)
    if power.is_Integer and power <= LARGEST_PRODUCT:
        return int(power)
    return FUNCTION_COST + (0 if power.is_number else _cost(power))


def _constants(e: Any) -> int:
    if isinstance(e, Guarded):
        return _constants(e.written)
    if e.is_number:
        return 0 if e in (1, -1, sympy.pi, 0) else 1
    if e.is_Pow and e.exp.is_number:
        return _constants(e.base)
    if e.is_Mul:
        number, factors = _factors(e)
        return _constants(number) + sum(map(_constants, factors))
    return sum(_constants(a) for a in e.args if isinstance(a, sympy.Expr))


def _factors(product: Any) -> tuple[sympy.Expr, list[Any]]:
    """The number in front of a product, and its other factors."""
    numbers = [a for a in product.args if a.is_number]
    return sympy.Mul(*numbers), [a for a in product.args if not a.is_number]

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
from isr.equations.program import Program

FUNCTION_COST = 4


def complexity(equations: Program | sympy.Expr) -> int:
    """Return the cost of a program or of a single expression.

    Example:
        >>> u = sympy.Symbol("u")
        >>> complexity(0.8 - 0.8 * u**2)
        7
    """
    if isinstance(equations, Program):
        return sum(_cost(e) for e in _equations(equations))
    return _cost(equations)


def n_constants(equations: Program | sympy.Expr) -> int:
    """Return how many numbers stand in the equations, apart from 1, -1, exponents and π.

    Example:
        >>> u = sympy.Symbol("u")
        >>> n_constants(0.8 - 0.8 * u**2)
        2
    """
    if isinstance(equations, Program):
        return sum(_constants(e) for e in _equations(equations))
    return _constants(equations)


def _equations(program: Program) -> tuple[sympy.Expr, ...]:
    # The log-determinant follows from the map and would be counted twice.
    return program.expressions[:-1]


def _cost(e: Any) -> int:
    if e.is_Symbol:
        return PRIMITIVES["id"].cost
    if e.is_number:
        return 0 if e == -1 else 1
    if e.is_Add:
        return sum(_cost(a) for a in e.args) + len(e.args) - 1
    if e.is_Mul:
        constants = [a for a in e.args if a.is_number]
        factors = [a for a in e.args if not a.is_number]
        constant = 0 if not constants or sympy.Mul(*constants) == -1 else 2
        return constant + sum(_cost(a) for a in factors) + PRIMITIVES["product"].cost * (len(factors) - 1)
    if e.is_Pow:
        return _cost(e.base) + _power_cost(e.exp)
    own = 1 if isinstance(e, sympy.Min | sympy.Max) else _function_cost(e)
    return own + sum(_cost(a) for a in e.args if isinstance(a, sympy.Expr))


def _power_cost(power: sympy.Expr) -> int:
    known = {
        sympy.Integer(2): "square",
        sympy.Integer(3): "cube",
        sympy.Integer(-1): "reciprocal",
        sympy.Rational(1, 2): "sqrt",
    }
    if power in known:
        return PRIMITIVES[known[power]].cost
    if power.is_Integer and power < 0:
        return PRIMITIVES["reciprocal"].cost + _power_cost(-power)
    return (
        int(power)
        if power.is_Integer and power < 8
        else FUNCTION_COST + (0 if power.is_number else _cost(power))
    )


def _function_cost(e: sympy.Expr) -> int:
    primitive = PRIMITIVES.get(type(e).__name__)
    return primitive.cost if primitive else FUNCTION_COST


def _constants(e: Any) -> int:
    if e.is_number:
        return 0 if e in (1, -1, sympy.pi, 0) else 1
    if e.is_Pow and e.exp.is_number:
        return _constants(e.base)
    if e.is_Mul:
        number = sympy.Mul(*(a for a in e.args if a.is_number))
        return _constants(number) + sum(_constants(a) for a in e.args if not a.is_number)
    return sum(_constants(a) for a in e.args if isinstance(a, sympy.Expr))

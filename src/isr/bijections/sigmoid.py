"""The symbol form of the sigmoid, kept whole so that equations hold it as one function."""

from __future__ import annotations

from typing import Any

import sympy
from mpmath import mp


class sigmoid(sympy.Function):
    """The logistic function ``1 / (1 + exp(-g))``.

    Written out, SymPy would split the exponential of a sum into factors, which overflow where the sigmoid does not.
    `written_out` gives the form that is printed.
    """

    nargs = 1
    is_real = True

    def _eval_evalf(self, prec: int):
        with mp.workprec(prec + 10):
            argument: Any = self.args[0]
            return sympy.Float(1 / (1 + mp.exp(-argument._to_mpmath(prec + 10))), precision=prec)

    def fdiff(self, argindex: int = 1) -> sympy.Expr:
        return self * (1 - self)

    def _eval_rewrite_as_exp(self, arg: Any, **options: Any) -> sympy.Expr:
        return 1 / (1 + sympy.exp(-arg))

    def _eval_rewrite_as_tanh(self, arg: Any, **options: Any) -> sympy.Expr:
        return (1 + sympy.tanh(arg / 2)) / 2


def written_out(expression: Any) -> Any:
    """Return an expression with every sigmoid as ``1 / (1 + exp(-g))``, its exponent in one piece.

    Example:
        >>> u = sympy.Symbol("u")
        >>> written_out(2 * sigmoid(1.5 * u - 0.5))
        2/(exp(0.5 - 1.5*u) + 1)
    """
    if not expression.has(sigmoid):
        return expression
    arguments = [written_out(a) for a in expression.args]
    if isinstance(expression, sigmoid):
        return 1 / (1 + sympy.exp(-arguments[0], evaluate=False))
    return expression.func(*arguments)

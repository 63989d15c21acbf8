"""Functions that equations hold as one piece: the normal distribution function, its quantile, and the sigmoid."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sympy
from mpmath import mp


class _Whole(sympy.Function):
    """A function of one real number, worked out by mpmath."""

    nargs = 1
    is_real = True
    _value: Callable[[Any], Any]

    def _eval_evalf(self, prec: int) -> sympy.Float:
        argument: Any = self.args[0]
        with mp.workprec(prec + 10):
            return sympy.Float(type(self)._value(argument._to_mpmath(prec + 10)), precision=prec)


class Phi(_Whole):
    """The standard normal distribution function.

    Example:
        >>> x = sympy.Symbol("x", real=True)
        >>> round(float(Phi(sympy.Float(1.0)).evalf()), 4)
        0.8413
        >>> Phi(x).diff(x)
        sqrt(2)*exp(-x**2/2)/(2*sqrt(pi))
    """

    _value = staticmethod(mp.ncdf)

    def fdiff(self, argindex: int = 1) -> sympy.Expr:
        """Return the derivative, for SymPy's ``diff``."""
        u: Any = self.args[0]
        return sympy.exp(-(u**2) / 2) / sympy.sqrt(2 * sympy.pi)

    def _latex(self, printer, exp=None) -> str:
        power = f"^{{{exp}}}" if exp else ""
        return rf"\Phi{power}\left({printer._print(self.args[0])}\right)"


class PhiInverse(_Whole):
    """The standard normal quantile.

    Example:
        >>> PhiInverse(Phi(sympy.Symbol("x", real=True)))
        PhiInverse(Phi(x))
        >>> round(float(PhiInverse(sympy.Float(0.975)).evalf()), 3)
        1.96
    """

    _value = staticmethod(lambda p: mp.sqrt(2) * mp.erfinv(2 * p - 1))

    def fdiff(self, argindex: int = 1) -> sympy.Expr:
        """Return the derivative, for SymPy's ``diff``."""
        return sympy.sqrt(2 * sympy.pi) * sympy.exp(self**2 / 2)

    def _latex(self, printer, exp=None) -> str:
        inner = rf"\Phi^{{-1}}\left({printer._print(self.args[0])}\right)"
        return rf"\left({inner}\right)^{{{exp}}}" if exp else inner


class sigmoid(_Whole):
    """The logistic function ``1 / (1 + exp(-g))``.

    Written out, SymPy would split the exponential of a sum into factors, which overflow where the sigmoid does not.
    `written_out` gives the form that is printed.

    Example:
        >>> sigmoid(sympy.Float(0.0)).evalf()
        0.500000000000000
    """

    _value = staticmethod(lambda g: 1 / (1 + mp.exp(-g)))

    def fdiff(self, argindex: int = 1) -> sympy.Expr:
        """Return the derivative, for SymPy's ``diff``."""
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

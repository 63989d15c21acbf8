"""The two functions SymPy lacks in the form we print: the normal distribution function and its quantile."""

from __future__ import annotations

from typing import Any

import sympy
from mpmath import mp


def _argument(function: sympy.Function) -> Any:
    return function.args[0]


class Phi(sympy.Function):
    """The standard normal distribution function.

    Example:
        >>> x = sympy.Symbol("x", real=True)
        >>> round(float(Phi(sympy.Float(1.0)).evalf()), 4)
        0.8413
        >>> Phi(x).diff(x)
        sqrt(2)*exp(-x**2/2)/(2*sqrt(pi))
    """

    nargs = 1
    is_real = True

    def _eval_evalf(self, prec: int):
        with mp.workprec(prec + 10):
            return sympy.Float(mp.ncdf(_argument(self)._to_mpmath(prec + 10)), precision=prec)

    def fdiff(self, argindex: int = 1) -> sympy.Expr:
        """Return the derivative, for SymPy's ``diff``."""
        u = _argument(self)
        return sympy.exp(-(u**2) / 2) / sympy.sqrt(2 * sympy.pi)

    def _latex(self, printer, exp=None) -> str:
        power = f"^{{{exp}}}" if exp else ""
        return rf"\Phi{power}\left({printer._print(self.args[0])}\right)"


class PhiInverse(sympy.Function):
    """The standard normal quantile.

    Example:
        >>> PhiInverse(Phi(sympy.Symbol("x", real=True)))
        PhiInverse(Phi(x))
        >>> round(float(PhiInverse(sympy.Float(0.975)).evalf()), 3)
        1.96
    """

    nargs = 1
    is_real = True

    def _eval_evalf(self, prec: int):
        with mp.workprec(prec + 10):
            p = _argument(self)._to_mpmath(prec + 10)
            return sympy.Float(mp.sqrt(2) * mp.erfinv(2 * p - 1), precision=prec)

    def fdiff(self, argindex: int = 1) -> sympy.Expr:
        """Return the derivative, for SymPy's ``diff``."""
        return sympy.sqrt(2 * sympy.pi) * sympy.exp(self**2 / 2)

    def _latex(self, printer, exp=None) -> str:
        inner = rf"\Phi^{{-1}}\left({printer._print(self.args[0])}\right)"
        return rf"\left({inner}\right)^{{{exp}}}" if exp else inner

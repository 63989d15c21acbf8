"""The functions that equations are made of: what each is in SymPy, and on numbers.

Some stay whole in SymPy too: the normal distribution function, its quantile, and the sigmoid.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import sympy
from mpmath import mp
from scipy import special


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
        >>> round(float(Phi(sympy.Float(1.0)).evalf()), 4), Phi(x).diff(x)
        (0.8413, sqrt(2)*exp(-x**2/2)/(2*sqrt(pi)))
    """

    _value = staticmethod(mp.ncdf)

    def fdiff(self, argindex: int = 1) -> sympy.Expr:
        """Return the derivative, for SymPy's ``diff``."""
        u: Any = self.args[0]
        return sympy.exp(-(u**2) / 2) / sympy.sqrt(2 * sympy.pi)


class PhiInverse(_Whole):
    """The standard normal quantile.

    Example:
        >>> round(float(PhiInverse(sympy.Float(0.975)).evalf()), 3)
        1.96
    """

    _value = staticmethod(lambda p: mp.sqrt(2) * mp.erfinv(2 * p - 1))

    def fdiff(self, argindex: int = 1) -> sympy.Expr:
        """Return the derivative, for SymPy's ``diff``."""
        return sympy.sqrt(2 * sympy.pi) * sympy.exp(self**2 / 2)


class Guarded(sympy.Function):
    """A function that keeps digits where the form that readers see, ``written``, would lose them."""

    is_real = True
    written: Any

    def _sympystr(self, printer: Any) -> str:
        return printer._print(self.written)


class Probit(Guarded):
    """The standard normal quantile of p, told what p lacks to 1 as well, so that no tail loses digits."""

    nargs = 2
    written = property(lambda self: PhiInverse(self.args[0]))

    def _eval_evalf(self, prec: int) -> Any:
        p, q = (argument.evalf(30) for argument in self.args)  # type: ignore[attr-defined]
        return (PhiInverse(p) if p < q else -PhiInverse(q)).evalf(20)


class LogAddExp(Guarded):
    """``log(exp(a) + exp(b))``, without overflow."""

    nargs = 2
    written = property(lambda self: sympy.log(sympy.exp(self.args[0]) + sympy.exp(self.args[1])))

    def _eval_evalf(self, prec: int) -> Any:
        return self.written._eval_evalf(prec)

    def fdiff(self, argindex: int = 1) -> Any:
        a, b = self.args
        return sigmoid(a - b if argindex == 1 else b - a)  # type: ignore[operator]


class Log1p(Guarded, _Whole):
    """``log(1 + u)``, exact near zero."""

    _value = staticmethod(mp.log1p)
    written = property(lambda self: sympy.log(1 + self.args[0]))

    def fdiff(self, argindex: int = 1) -> Any:
        return 1 / (1 + self.args[0])


class Expm1(Guarded, _Whole):
    """``exp(u) - 1``, exact near zero."""

    _value = staticmethod(mp.expm1)
    written = property(lambda self: sympy.exp(self.args[0]) - 1)

    def fdiff(self, argindex: int = 1) -> Any:
        return sympy.exp(self.args[0])


class MixtureQuantile(sympy.Function):
    """The x that a mixture of k normal laws takes to the normal number u: ``sum_k r_k Phi((x - m_k)/s_k) = Phi(u)``.

    Its arguments are u, then all ``r``, all ``m`` and all ``s``.
    """

    is_real = True

    def _eval_evalf(self, prec: int) -> sympy.Float:
        with mp.workprec(prec + 10):
            u, *parts = (argument._to_mpmath(prec + 10) for argument in self.args)  # type: ignore[attr-defined]
            k = len(parts) // 3
            laws = list(zip(parts[:k], parts[k : 2 * k], parts[2 * k :], strict=True))
            ends = [m + s * u for _, m, s in laws]
            sign = 1 if u < 0 else -1

            def gap(x: Any) -> Any:
                return mp.fsum(r * mp.ncdf(sign * (x - m) / s) for r, m, s in laws) - mp.ncdf(sign * u)

            low, high = min(ends), max(ends)
            root = low if low == high else mp.findroot(gap, (low, high), solver="anderson", verify=False)
            return sympy.Float(root, precision=prec)


class sigmoid(_Whole):
    """The logistic function ``1 / (1 + exp(-g))``.

    Written out, SymPy would split the exponential of a sum into factors, which overflow where the sigmoid does not.
    `written_out` gives the form that is printed.
    """

    _value = staticmethod(lambda g: 1 / (1 + mp.exp(-g)))

    def fdiff(self, argindex: int = 1) -> Any:
        return self * (1 - self)


NAMES = ("Phi", "PhiInverse", "MixtureQuantile", "Probit", "sigmoid", "LogAddExp", "Log1p", "Expm1")
"""Functions that printed equations call; no variable may have their names."""


def written_out(expression: Any) -> Any:
    """Return an expression as it is printed: every sigmoid as ``1 / (1 + exp(-g))``, its exponent in one piece."""
    if not expression.has(sigmoid, Guarded):
        return expression
    if isinstance(expression, Guarded):
        return written_out(expression.written)
    arguments = [written_out(a) for a in expression.args]
    if isinstance(expression, sigmoid):
        return 1 / (1 + sympy.exp(-arguments[0], evaluate=False))
    return expression.func(*arguments)


def _gumbel_of_number(u: Any) -> Any:
    """Written twice: near 1 a probability has lost what it lacks."""
    below, above = sympy.log(Phi(u)), Log1p(-Phi(-u))  # type: ignore[operator]
    return sympy.Piecewise((-sympy.log(-below), u < 0), (-sympy.log(-above), True))  # type: ignore[operator]


def _mixture_number(*parts: Any) -> Any:
    pairs = list(zip(parts[: len(parts) // 2], parts[len(parts) // 2 :], strict=True))
    return Probit(*(sympy.Add(*(r * Phi(sign * a) for r, a in pairs)) for sign in (1, -1)))


def _cases(condition: Any, then: Any, otherwise: Any) -> Any:
    others = otherwise.args if isinstance(otherwise, sympy.Piecewise) else [(otherwise, True)]
    return sympy.Piecewise((then, condition), *others)


_max, _min = (functools.partial(limit, evaluate=False) for limit in (sympy.Max, sympy.Min))


# Elementary functions by the names of JAX's steps: what they are on numbers, and in SymPy.
STEPS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "exp": (np.exp, sympy.exp), "log": (np.log, sympy.log), "sin": (np.sin, sympy.sin), "cos": (np.cos, sympy.cos),
    "tan": (np.tan, sympy.tan), "asin": (np.arcsin, sympy.asin), "acos": (np.arccos, sympy.acos),
    "atan": (np.arctan, sympy.atan), "atan2": (np.arctan2, sympy.atan2), "sinh": (np.sinh, sympy.sinh),
    "cosh": (np.cosh, sympy.cosh), "tanh": (np.tanh, sympy.tanh), "asinh": (np.arcsinh, sympy.asinh),
    "acosh": (np.arccosh, sympy.acosh), "atanh": (np.arctanh, sympy.atanh), "logistic": (special.expit, sigmoid),
    "erf": (special.erf, sympy.erf), "erfc": (special.erfc, sympy.erfc), "erf_inv": (special.erfinv, sympy.erfinv),
    "abs": (np.abs, sympy.Abs), "sign": (np.sign, sympy.sign), "floor": (np.floor, sympy.floor),
    "ceil": (np.ceil, sympy.ceiling), "lgamma": (special.gammaln, sympy.loggamma),
    "log1p": (np.log1p, Log1p), "expm1": (np.expm1, Expm1),
    "cbrt": (np.cbrt, lambda a: sympy.sign(a) * sympy.Abs(a) ** sympy.Rational(1, 3)),
    "rem": (np.fmod, lambda a, b: a - b * sympy.sign(a / b) * sympy.floor(sympy.Abs(a / b))),
    "lt": (np.less, sympy.Lt), "le": (np.less_equal, sympy.Le), "gt": (np.greater, sympy.Gt),
    "ge": (np.greater_equal, sympy.Ge), "eq": (np.equal, sympy.Eq), "ne": (np.not_equal, sympy.Ne),
    "and": (np.logical_and, sympy.And), "or": (np.logical_or, sympy.Or), "not": (np.logical_not, sympy.Not),
}  # fmt: skip
# Functions of JAX and of the library that are read as one piece, by the names of their calls.
CALLS: dict[str, Callable[..., Any]] = {
    "sin": sympy.sin,
    "cos": sympy.cos,
    "pow": sympy.Pow,
    "arctan": sympy.atan,
    "sigmoid": sigmoid,
    "ndtr": Phi,
    "ndtri": PhiInverse,
    "sin2pi": lambda g: sympy.sin(2 * sympy.pi * g),
    "hypot": lambda a, b: sympy.sqrt(a**2 + b**2),
    "remainder": sympy.Mod,
    "log_ndtr": lambda u: sympy.log(Phi(u)),
    "log_cosh": lambda w: sympy.log(sympy.cosh(w)),
    "logaddexp": LogAddExp,
    "number_of_logistic": lambda w: Probit(sigmoid(w), sigmoid(-w)),
    "number_of_gumbel": lambda w: Probit(sympy.exp(-sympy.exp(-w)), -Expm1(-sympy.exp(-w))),
    "gumbel_of_number": _gumbel_of_number,
    "number_of_laplace": lambda w: -sympy.sign(w) * PhiInverse(sympy.exp(-sympy.Abs(w)) / 2),
    "mixture_number": _mixture_number,
    "mixture_quantile": MixtureQuantile,
    "soft_clamp": lambda s, bound: 2 * bound * sympy.atan(s / bound) / sympy.pi,
    "leaky_relu": lambda g, slope: _max(g, slope * g),
    "inside": lambda x, low, high: _min(_max(x, low), high),
}
FORMS = (
    {name: form for name, (_, form) in STEPS.items()} | CALLS | {"where": _cases, "max": _max, "min": _min}
)
"""What each operation of a graph is in SymPy."""

"""The symbolic twins of the closed-form charts: bounds, polar coordinates, tails and two modes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import sympy
from scipy.special import log_ndtr, ndtr

from isr.bijections.affine import EDGE, LARGEST_EXPONENT, NEAREST, Bounded
from isr.bijections.charts import Polar, SinhArcsinh
from isr.bijections.split import LOWEST, Split
from isr.equations.functions import Phi, PhiInverse
from isr.equations.twins import Context, Mapped, Values, forward, inverse
from isr.equations.writer import exponential, folded, held, number, scaled

HALF_LOG_2PI = sympy.log(2 * sympy.pi) / 2


@forward.register
def _(bijection: Bounded, values: Values, context: Context) -> Mapped:
    write, images, log_dets = context.write, [], []
    for i, (x, low, high) in enumerate(zip(values, bijection.low, bijection.high, strict=True)):
        u = x
        if low is not None and high is not None:
            u = _quantile(held(scaled(x, low, high - low, write, "bounds"), EDGE, 1 - EDGE))
            u = write.name(u, f"w_{i + 1}", part="bounds", role="unbounded")
            log_dets += [HALF_LOG_2PI + u**2 / 2, number(-np.log(high - low))]
        elif low is not None:
            u = sympy.log(held(x - number(low), NEAREST, None))
            u = write.name(u, f"w_{i + 1}", part="bounds", role="unbounded")
            log_dets.append(-u)
        elif high is not None:
            u = -sympy.log(held(number(high) - x, NEAREST, None))
            u = write.name(u, f"w_{i + 1}", part="bounds", role="unbounded")
            log_dets.append(u)
        images.append(u)
    return images, sympy.Add(*log_dets)


@inverse.register
def _(bijection: Bounded, values: Values, context: Context) -> Mapped:
    write, images, log_dets = context.write, [], []
    for i, (z, low, high) in enumerate(zip(values, bijection.low, bijection.high, strict=True)):
        x, label = z, f"w_{i + 1}"
        if low is not None and high is not None:
            u = write.name(z, label, part="bounds", role="unbounded")
            x = number(low) + number(high - low) * _share(u)
            log_dets += [-HALF_LOG_2PI - u**2 / 2, number(np.log(high - low))]
        elif low is not None:
            u = write.name(held(z, None, LARGEST_EXPONENT), label, part="bounds", role="guard")
            x = number(low) + exponential(u)
            log_dets.append(u)
        elif high is not None:
            u = write.name(held(z, -LARGEST_EXPONENT, None), label, part="bounds", role="guard")
            x = number(high) - exponential(-u)
            log_dets.append(-u)
        images.append(write.name(x, f"x_{i + 1}", part="bounds", role="bounded"))
    return images, sympy.Add(*log_dets)


@forward.register
def _(bijection: Polar, values: Values, context: Context) -> Mapped:
    i, j = bijection.pair
    name = lambda value, label: context.write.name(value, label, part="polar", role=label)  # noqa: E731
    centre = np.asarray(bijection.centre, np.float64)
    a, b = name(values[i] - number(centre[0]), "dx"), name(values[j] - number(centre[1]), "dy")
    log_radius = name(sympy.log(a**2 + b**2) / 2, "rho")
    share = sympy.Rational(1, 2) + sympy.atan2(b, a) / (2 * sympy.pi)
    u = name(_quantile(held(folded(share), EDGE, 1 - EDGE)), "angle")
    images = list(values)
    images[i], images[j] = log_radius, u
    return images, -2 * log_radius - HALF_LOG_2PI + u**2 / 2


@inverse.register
def _(bijection: Polar, values: Values, context: Context) -> Mapped:
    i, j = bijection.pair
    name = lambda value, label: context.write.name(value, label, part="polar", role=label)  # noqa: E731
    centre = np.asarray(bijection.centre, np.float64)
    log_radius = name(held(values[i], -80.0, 80.0), "rho")
    u = name(values[j], "angle")
    turn = name(2 * sympy.pi * (_share(u) - sympy.Rational(1, 2)), "turn")
    images = list(values)
    images[i] = name(number(centre[0]) + exponential(log_radius) * sympy.cos(turn), "px")
    images[j] = name(number(centre[1]) + exponential(log_radius) * sympy.sin(turn), "py")
    return images, 2 * log_radius + HALF_LOG_2PI - u**2 / 2


@forward.register
def _(bijection: SinhArcsinh, values: Values, context: Context) -> Mapped:
    tails, skews = np.asarray(bijection.log_tail, np.float64), np.asarray(bijection.skew, np.float64)
    stretched = [
        lambda x, tail=tail, skew=skew: number(np.exp(tail)) * sympy.asinh(x) - number(skew)
        for tail, skew in zip(tails, skews, strict=True)
    ]
    return _sinh_of(values, stretched, tails, context)


@inverse.register
def _(bijection: SinhArcsinh, values: Values, context: Context) -> Mapped:
    tails, skews = np.asarray(bijection.log_tail, np.float64), np.asarray(bijection.skew, np.float64)
    stretched = [
        lambda z, tail=tail, skew=skew: number(np.exp(-tail)) * (sympy.asinh(z) + number(skew))
        for tail, skew in zip(tails, skews, strict=True)
    ]
    return _sinh_of(values, stretched, -tails, context)


def _sinh_of(values: Values, stretched: Sequence, tails: np.ndarray, context: Context) -> Mapped:
    images, log_dets = [], []
    for i, (value, stretch, tail) in enumerate(zip(values, stretched, tails, strict=True)):
        name = lambda v, label, i=i: context.write.name(v, f"{label}_{i + 1}", part="tails", role=label)  # noqa: E731
        value = name(value, "a")
        w = stretch(value)
        if w == sympy.asinh(value):
            images.append(value)
            continue
        w = name(w, "w")
        images.append(name(sympy.sinh(w), "q"))
        log_dets += [number(tail), sympy.log(sympy.cosh(w)), -sympy.log(1 + value**2) / 2]
    return images, sympy.Add(*log_dets)


@forward.register
def _(bijection: Split, values: Values, context: Context) -> Mapped:
    chart = _SplitNumbers.of(bijection)
    label = f"{{}}_{bijection.variable + 1}"
    name = lambda value, what: context.write.name(value, label.format(what), part="split", role=what)  # noqa: E731
    x = name(values[bijection.variable], "q")
    left = x < number(chart.cut)
    a, b = (
        name((x - number(c)) * number(1 / w), what)
        for what, c, w in zip("ab", chart.centres, chart.widths, strict=True)
    )
    below = _quantile(held(number(chart.left_share) * _share(held(a, None, chart.a_cut)), LOWEST, None))
    above = -_quantile(held(number(chart.right_share) * _share(held(-b, None, -chart.b_cut)), LOWEST, None))
    u = name(_either(left, below, above), "u")
    images = list(values)
    images[bijection.variable] = u
    return images, chart.log_slope(left, a, b, u)


@inverse.register
def _(bijection: Split, values: Values, context: Context) -> Mapped:
    chart = _SplitNumbers.of(bijection)
    label = f"{{}}_{bijection.variable + 1}"
    name = lambda value, what: context.write.name(value, label.format(what), part="split", role=what)  # noqa: E731
    u = name(values[bijection.variable], "u")
    left = u < number(chart.balance)
    share = held(_share(u) * number(1 / chart.left_share), LOWEST, float(ndtr(chart.a_cut)))
    a = name(_quantile(share), "a")
    share = held(_share(-u) * number(1 / chart.right_share), LOWEST, float(ndtr(-chart.b_cut)))
    b = name(-_quantile(share), "b")
    below, above = (
        number(c) + number(w) * standard
        for c, w, standard in zip(chart.centres, chart.widths, (a, b), strict=True)
    )
    images = list(values)
    images[bijection.variable] = name(_either(left, below, above), "q")
    return images, -chart.log_slope(left, a, b, u)


@dataclass(frozen=True)
class _SplitNumbers:
    """The numbers that a split's equations hold."""

    balance: float
    cut: float
    centres: np.ndarray
    widths: np.ndarray
    a_cut: float
    b_cut: float

    @classmethod
    def of(cls, split: Split) -> _SplitNumbers:
        centres, widths = (
            np.asarray(split.centres, np.float64),
            np.exp(np.asarray(split.log_widths, np.float64)),
        )
        a_cut, b_cut = (split.cut - centres) / widths
        return cls(float(split.balance), split.cut, centres, widths, float(a_cut), float(b_cut))

    @property
    def left_share(self) -> float:
        return float(ndtr(self.balance) / ndtr(self.a_cut))

    @property
    def right_share(self) -> float:
        return float(ndtr(-self.balance) / ndtr(-self.b_cut))

    def log_slope(self, left: Any, a: sympy.Expr, b: sympy.Expr, u: sympy.Expr) -> sympy.Expr:
        below = number(log_ndtr(self.balance) - log_ndtr(self.a_cut) - np.log(self.widths[0])) - a**2 / 2
        above = number(log_ndtr(-self.balance) - log_ndtr(-self.b_cut) - np.log(self.widths[1])) - b**2 / 2
        return _either(left, below, above) + u**2 / 2


def _either(condition: Any, first: sympy.Expr, second: sympy.Expr) -> sympy.Expr:
    return sympy.Piecewise((first, condition), (second, True))


def _share(u: sympy.Expr) -> sympy.Expr:
    return cast(sympy.Expr, Phi(u))


def _quantile(p: sympy.Expr) -> sympy.Expr:
    return cast(sympy.Expr, PhiInverse(p))

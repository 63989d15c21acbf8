"""Writer: collects equations while a model is read, and the small arithmetic they are written in."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import cast

import sympy
from sympy.core.add import _addsort

from isr.equations.program import Assignment


class Writer:
    """Gives names to values. What needs none (a number, a symbol) passes through; equal values share a name.

    Args:
        taken: Names that no intermediate may have.
    """

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self.assignments: list[Assignment] = []
        self._taken = set(taken)
        self._named: dict[sympy.Expr, sympy.Symbol] = {}

    def name(self, value: sympy.Expr, name: str, *, part: str = "", role: str = "") -> sympy.Expr:
        """Return the symbol that stands for ``value`` from here on."""
        value = folded(value)
        if value.is_Symbol or value.is_number:
            return value
        if value not in self._named:
            symbol = sympy.Symbol(self._free(name), real=True)
            self._named[value] = symbol
            self.assignments.append(Assignment(symbol, value, part, role))
        return self._named[value]

    def name_all(
        self, values: Sequence[sympy.Expr], name: str, *, part: str = "", role: str = ""
    ) -> list[sympy.Expr]:
        """Return a symbol for each value: ``name`` when there is one value, else ``name_1``, ``name_2``, ..."""
        return [
            self.name(v, indexed(name, i, len(values)), part=part, role=role) for i, v in enumerate(values)
        ]

    def _free(self, name: str) -> str:
        candidate, number = name, 2
        while candidate in self._taken:
            candidate, number = f"{name}_v{number}", number + 1
        self._taken.add(candidate)
        return candidate


def indexed(name: str, index: int, n: int) -> str:
    """Return the name of component ``index`` of ``n``."""
    return name if n == 1 else f"{name}_{index + 1}"


def number(value: float) -> sympy.Expr:
    """Return a number for a formula: whole ones as integers, the others with all the digits of a double.

    Example:
        >>> number(2.0), float(number(0.1))
        (2, 0.1)
    """
    value = float(value)
    return sympy.Integer(int(value)) if value.is_integer() and abs(value) < 1e9 else sympy.Float(value)


def folded(value: sympy.Expr) -> sympy.Expr:
    """Return ``value`` as one number when it holds no variable."""
    if value.is_Symbol or value.is_Rational or value.is_Float or value.free_symbols:
        return value
    return number(float(value.evalf(20)))


def linear(terms: Sequence[tuple[sympy.Expr, sympy.Expr]], constant: sympy.Expr) -> sympy.Expr:
    """Return the sum of ``coefficient * value`` over ``terms``, plus ``constant``."""
    values = [value for _, value in terms]
    if not all(c.is_Float and v.is_Symbol for c, v in terms) or len(set(values)) < len(values):
        return sympy.Add(*(c * v for c, v in terms), constant)
    # Nothing is left to combine, so the sum is put together as SymPy would leave it, many times faster.
    products = [sympy.Mul._from_args((c, v), is_commutative=True) for c, v in terms]
    _addsort(products)
    if constant != 0:
        products.insert(0, constant)
    return cast(sympy.Expr, sympy.Add._from_args(products, is_commutative=True))


def exponential(value: sympy.Expr) -> sympy.Expr:
    """Return ``exp(value)``, as a number when ``value`` is one."""
    return number(math.exp(float(value))) if value.is_number else sympy.exp(value)


def held(value: sympy.Expr, low: float | None, high: float | None) -> sympy.Expr:
    """Return ``value`` held inside limits, the symbol form of ``clip``."""
    if value.is_number:
        clipped = float(value)
        clipped = clipped if low is None else max(clipped, low)
        return number(clipped if high is None else min(clipped, high))
    if low is not None:
        value = sympy.Max(value, number(low))
    return value if high is None else sympy.Min(value, number(high))


def scaled(value: sympy.Expr, shift: float, scale: float, write: Writer, part: str) -> sympy.Expr:
    """Return ``(value - shift) / scale``."""
    centred = value - number(shift)
    if abs(shift) > 1e3 * abs(scale):
        # Spread out as value/scale - shift/scale, two large numbers would cancel and cost digits.
        centred = write.name(centred, "centred", part=part, role="centred")
    return centred if scale == 1 else centred * number(1 / scale)

"""Equations as presentation MathML, which browsers show without any script."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from typing import Any

import sympy
from sympy.printing.mathml import MathMLPresentationPrinter

from isr.expressions.labels import label_of
from isr.expressions.program import Program
from isr.expressions.text import PositiveFirst, as_guard, below_one, number_text
from isr.model.sigmoid import written_out

_INVISIBLE_TIMES = "\u2062"


class _Printer(PositiveFirst, MathMLPresentationPrinter):
    def __init__(self, labels: Mapping[str, str], digits: int) -> None:
        super().__init__({"ln_notation": True, "mul_symbol": _INVISIBLE_TIMES})
        self.labels = labels
        self.digits = digits

    def _element(self, tag: str, *children: Any) -> Any:
        element = self.dom.createElement(tag)
        for child in children:
            # SymPy writes text nodes as they are, so what could be markup is escaped here.
            element.appendChild(
                self.dom.createTextNode(html.escape(child)) if isinstance(child, str) else child
            )
        return element

    def _print_Float(self, expr: sympy.Float) -> Any:
        mantissa, _, power = number_text(float(expr), self.digits).partition("e")
        number = self._element("mn", mantissa)
        if not power:
            return number
        ten = self._element("msup", self._element("mn", "10"), self._element("mn", str(int(power))))
        return ten if mantissa == "1" else self._element("mrow", number, self._element("mo", "·"), ten)

    def _print_Symbol(self, expr: sympy.Symbol, style: str = "plain") -> Any:
        label = label_of(expr.name, self.labels)
        base = self._element("mtext" if label.verbatim else "mi", label.base)
        below = self._element("mtext", ",".join(label.subscripts))
        above = self._element("mtext", f"({label.block})")
        if label.subscripts and label.block:
            return self._element("msubsup", base, below, above)
        if label.subscripts:
            return self._element("msub", base, below)
        return self._element("msup", base, above) if label.block else base

    def _print_Phi(self, expr: sympy.Expr) -> Any:
        return self._applied(self._element("mi", "Φ"), expr.args)

    def _print_PhiInverse(self, expr: sympy.Expr) -> Any:
        power = self._element("mn", "-1")
        return self._applied(self._element("msup", self._element("mi", "Φ"), power), expr.args)

    def _print_Min(self, expr: sympy.Expr) -> Any:
        guard = as_guard(expr)
        return self._limited("clip" if guard else "min", guard or expr.args)

    def _print_Max(self, expr: sympy.Expr) -> Any:
        return self._limited("max", expr.args)

    def _limited(self, function: str, arguments: tuple) -> Any:
        return self._call(self._element("mi", function), [self._limit(a) for a in arguments])

    def _limit(self, argument: Any) -> Any:
        gap = below_one(argument, self.digits)
        if gap is None:
            return self._print(argument)
        return self._element("mrow", self._element("mn", "1"), self._element("mo", "−"), self._print(gap))

    def _print_Piecewise(self, expr: Any) -> Any:
        rows = []
        for value, condition in expr.args:
            word = self._element("mtext", "otherwise" if condition is sympy.true else "if ")
            cell = [word] if condition is sympy.true else [word, self._print(condition)]
            rows.append(
                self._element("mtr", self._element("mtd", self._print(value)), self._element("mtd", *cell))
            )
        return self._element("mrow", self._element("mo", "{"), self._element("mtable", *rows))

    def _print_Relational(self, expr: Any) -> Any:
        sign = self._element("mo", expr.rel_op)
        return self._element("mrow", self._print(expr.lhs), sign, self._print(expr.rhs))

    def _applied(self, function: Any, arguments: tuple) -> Any:
        return self._call(function, [self._print(a) for a in arguments])

    def _call(self, function: Any, arguments: list[Any]) -> Any:
        inner: list[Any] = []
        for argument in arguments:
            inner += [self._element("mo", ","), argument] if inner else [argument]
        return self._element("mrow", function, self._element("mo", "("), *inner, self._element("mo", ")"))

    def doprint(self, expr: sympy.Expr) -> str:
        return re.sub(r"&[A-Za-z]+;", _as_character, super().doprint(written_out(expr)))


_OF_XML = ("&lt;", "&gt;", "&amp;", "&quot;")


def _as_character(entity: re.Match) -> str:
    """The character an entity stands for, since only a browser knows its name."""
    return entity[0] if entity[0] in _OF_XML else html.unescape(entity[0])


def mathml(program: Program, *, digits: int = 4) -> str:
    """Return a program as one ``<math>`` element, an equation a row.

    Args:
        program: One direction of a model.
        digits: Significant digits of a number.

    Example:
        >>> x, z = sympy.symbols("x z", real=True)
        >>> program = Program((x,), (), (), (2 * x,), sympy.log(2.0), output_symbols=(z,))
        >>> "<mn>2</mn>" in mathml(program)
        True
    """
    printer = _Printer(program.labels, digits)
    equations = [(printer.doprint(a.target), printer.doprint(a.value)) for a in program.assignments]
    equations += [
        (printer.doprint(symbol), printer.doprint(value))
        for symbol, value in zip(program.output_symbols, program.outputs, strict=True)
    ]
    determinant = "<mrow><mi>ln</mi><mo>|</mo><mi>det</mi><mi>J</mi><mo>|</mo></mrow>"
    equations.append((determinant, printer.doprint(program.log_det)))
    left, right = ' style="text-align:right"', ' style="text-align:left"'
    rows = "".join(
        f"<mtr><mtd{left}>{target}</mtd><mtd><mo>=</mo></mtd><mtd{right}>{value}</mtd></mtr>"
        for target, value in equations
    )
    return f'<math xmlns="http://www.w3.org/1998/Math/MathML" display="block"><mtable>{rows}</mtable></math>'

"""Equations as presentation MathML, which browsers show without any script, and the listings of a page made of it."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import sympy
from sympy.printing.mathml import MathMLPresentationPrinter

from isr.equations.print.text import (
    PositiveFirst,
    as_guard,
    below_one,
    broken,
    label_of,
    number_text,
    rows_of,
)
from isr.equations.program import Assignment, ExpressionTooLarge, Program, compose

if TYPE_CHECKING:
    from isr.equations.expressions import Expressions

_INVISIBLE_TIMES = "\u2062"


class _Printer(PositiveFirst, MathMLPresentationPrinter):
    def __init__(self, labels: Mapping[str, str], digits: int, errors: Mapping[float, float]) -> None:
        super().__init__({"ln_notation": True, "mul_symbol": _INVISIBLE_TIMES})
        self.labels, self.digits, self.errors = labels, digits, errors

    def _element(self, tag: str, *children: Any) -> Any:
        element = self.dom.createElement(tag)
        for child in children:
            # SymPy writes text nodes as they are, so what could be markup is escaped here.
            element.appendChild(
                self.dom.createTextNode(html.escape(child)) if isinstance(child, str) else child
            )
        return element

    def _print_Float(self, expr: sympy.Float) -> Any:
        value = float(expr)
        shown = number_text(value, self.digits, self.errors)
        mantissa, _, power = shown.partition("e")
        number = self._element("mn", mantissa)
        if not power:
            return number
        ten = self._element("msup", self._element("mn", "10"), self._element("mn", str(int(power))))
        return ten if mantissa == "1" else self._element("mrow", number, self._element("mo", "·"), ten)

    def _print_Symbol(self, expr: sympy.Symbol, style: str = "plain") -> Any:
        label = label_of(expr.name, self.labels)
        base = self._element("mtext" if label.verbatim else "mi", label.base)
        below = [self._element("mtext", ",".join(label.subscripts))] if label.subscripts else []
        above = [self._element("mtext", f"({label.block})")] if label.block else []
        tag = f"m{'sub' if below else ''}{'sup' if above else ''}"
        return self._element(tag, base, *below, *above) if below or above else base

    def _print_Phi(self, expr: sympy.Expr) -> Any:
        return self._call(self._element("mi", "Φ"), map(self._print, expr.args))

    def _print_Probit(self, expr: Any) -> Any:
        return self._print(expr.written)

    def _print_PhiInverse(self, expr: sympy.Expr) -> Any:
        power = self._element("mn", "-1")
        name = self._element("msup", self._element("mi", "Φ"), power)
        return self._call(name, map(self._print, expr.args))

    def _print_Min(self, expr: sympy.Expr) -> Any:
        guard = as_guard(expr)
        return self._limited("clip" if guard else "min", guard or expr.args)

    def _print_Max(self, expr: sympy.Expr) -> Any:
        return self._limited("max", expr.args)

    def _limited(self, function: str, arguments: tuple) -> Any:
        return self._call(self._element("mi", function), map(self._limit, arguments))

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

    def _call(self, function: Any, arguments: Iterable[Any]) -> Any:
        inner: list[Any] = []
        for argument in arguments:
            inner += [self._element("mo", ","), argument] if inner else [argument]
        return self._element("mrow", function, self._bracket("("), *inner, self._bracket(")"))

    def _bracket(self, character: str) -> Any:
        bracket = self._element("mo", character)
        bracket.setAttribute("stretchy", "false")
        return bracket

    def doprint(self, expr: sympy.Expr) -> str:
        markup = re.sub(r"&[A-Za-z]+;", _as_character, super().doprint(expr))
        for plain, typeset in _TYPESET.items():
            markup = markup.replace(plain, typeset)
        return markup


# A true minus, an ordinary e, and a little room between factors, where words would run into numbers.
_TYPESET = {
    "<mo>-</mo>": "<mo>&#8722;</mo>",
    "<mn>-": "<mn>&#8722;",
    "<mi>ⅇ</mi>": "<mi>e</mi>",
    "<mo>&#8290;</mo>": '<mo>&#8290;</mo><mspace width="0.17em"></mspace>',
}
_DETERMINANT = (
    '<mrow><mi>ln</mi><mo form="prefix" stretchy="false">|</mo><mi>det</mi><mspace width="0.17em"></mspace>'
    '<mi>J</mi><mo form="postfix" stretchy="false">|</mo></mrow>'
)
_OF_XML = ("&lt;", "&gt;", "&amp;", "&quot;")


def _as_character(entity: re.Match) -> str:
    """The character an entity stands for, since only a browser knows its name."""
    return entity[0] if entity[0] in _OF_XML else html.unescape(entity[0])


def mathml(
    program: Program,
    *,
    digits: int = 4,
    errors: Mapping[float, float] | None = None,
    width: int | None = None,
    log_det: bool = True,
) -> str:
    """Return a program as one ``<math>`` element, one equation per row; a sum wider than about ``width`` characters
    goes on in the next row.

    ``errors`` gives the standard error of a constant by its absolute value; it is shown as ``0.794(12)``.

    Example:
        >>> x, z = sympy.symbols("x z", real=True)
        >>> program = Program((x,), (), (), (2 * x,), sympy.log(2.0), output_symbols=(z,))
        >>> "<mn>2</mn>" in mathml(program)
        True
    """
    printer = _Printer(program.labels, digits, errors or {})
    left, right = ' style="text-align:right"', ' style="text-align:left"'
    rows = []
    for target, value, _ in rows_of(program, log_det):
        name = _DETERMINANT if target is None else printer.doprint(target)
        first, *others = broken(value, printer, width, _printed_width)
        rows.append(f"<mtd{left}>{name}</mtd><mtd><mo>=</mo></mtd><mtd{right}>{first}</mtd>")
        for line in others:
            plus = "" if _plain(line)[:1] in ("-", "−") else "<mo>+</mo>"
            rows.append(f"<mtd></mtd><mtd></mtd><mtd{right}><mrow>{plus}{line}</mrow></mtd>")
    table = "".join(f"<mtr>{row}</mtr>" for row in rows)
    return f'<math xmlns="http://www.w3.org/1998/Math/MathML" display="block"><mtable>{table}</mtable></math>'


def _printed_width(markup: str) -> int:
    return len(_plain(markup).replace(_INVISIBLE_TIMES, ""))


def _plain(markup: str) -> str:
    return html.unescape(re.sub(r"<[^>]*>", "", markup))


# Longer than this nobody reads; the sources hold the rest.
MOST_EQUATIONS = 40
MOST_TERMS = 1500
# A composed form of more operations is no easier to read than the equations it replaces.
MOST_COMPOSED = 120
LINE_WIDTH = 84
HEADINGS = {"forward": "Forward", "inverse": "Inverse"}
_ELLIPSIS = sympy.Symbol("⋮")


@dataclass(frozen=True)
class Listing:
    """Equations under one heading, as MathML, and what the reader should know about them."""

    heading: str
    html: str
    note: str = ""

    @property
    def width(self) -> int:
        """About how many characters the longest line has."""
        return max(len(re.sub(r"<[^>]*>|&#8290;", "", row)) for row in self.html.split("</mtr>"))

    @property
    def section(self) -> str:
        """Heading, equations and note as HTML of their own."""
        parts = [f"<p>{html.escape(self.heading)}</p>" if self.heading else "", self.html]
        return "".join([*parts, f"<p>{html.escape(self.note)}</p>" if self.note else ""])


def units_html(units: Mapping[str, str]) -> str:
    """Return a paragraph that tells the units of variables, or nothing where there are none.

    Example:
        >>> units_html({"depth": "m", "speed": "m/s"})
        '<p>Units: depth in m, speed in m/s</p>'
    """
    told = ", ".join(f"{name} in {unit}" for name, unit in units.items())
    return f"<p>Units: {html.escape(told)}</p>" if told else ""


def listings(expressions: Expressions, errors: Mapping[float, float] | None = None) -> list[Listing]:
    """Return the equations of a model, each direction under its heading; ``errors`` as in `mathml`."""
    if expressions.inverse is None:
        return [listing(expressions.forward, "y from x", errors=errors, log_det=False)]
    return [
        listing(expressions.program(way), f"{HEADINGS[way]}: {_arrow(expressions, way)}", errors=errors)
        for way in expressions.directions
    ]


def composed_listings(expressions: Expressions) -> list[Listing]:
    """Return each direction of a model without intermediates, where that is short."""
    found = (_in_one_piece(expressions, direction) for direction in expressions.directions)
    return [piece for piece in found if piece is not None]


def listing(
    program: Program, heading: str = "", *, errors: Mapping[float, float] | None = None, log_det: bool = True
) -> Listing:
    """Return the equations of one direction under a heading; ``errors`` as in `mathml`."""
    n, shown, note = len(program.assignments), program.assignments, ""
    few = n_terms(program) <= MOST_TERMS
    if n > MOST_EQUATIONS or not few:
        shown = shown[: MOST_EQUATIONS if few else MOST_EQUATIONS // 4]
        note = (
            f"{n - len(shown):,} more equations are left out here; the Python and C sources hold all of them."
        )
        program = replace(program, assignments=(*shown, Assignment(_ELLIPSIS, _ELLIPSIS)))
    return Listing(heading, mathml(program, errors=errors, width=LINE_WIDTH, log_det=log_det), note)


def n_terms(program: Program) -> int:
    """Return how many numbers stand in the intermediates of a program."""
    return sum(len(a.value.atoms(sympy.Number)) for a in program.assignments)


def _in_one_piece(expressions: Expressions, direction: str) -> Listing | None:
    program = expressions.program(direction)
    if not program.assignments:
        return None
    try:
        composed = compose(program, max_operations=MOST_COMPOSED)
    except ExpressionTooLarge:
        return None
    log_det = expressions.inverse is not None
    return listing(composed, f"{HEADINGS[direction]}, in one piece", log_det=log_det)


def _arrow(expressions: Expressions, direction: str) -> str:
    latent = "y, z" if expressions.noise else "z"
    given = "" if expressions.noise or not expressions.y_names else " given y"
    return f"x to {latent}{given}" if direction == "forward" else f"{latent} to x{given}"

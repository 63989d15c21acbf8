"""Equations as LaTeX: one ``align*`` environment, long sums broken over lines, names that cannot do harm."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import sympy
from sympy.printing.latex import LatexPrinter

from isr.bijections.sigmoid import written_out
from isr.equations.print.labels import GREEK, label_of
from isr.equations.print.text import PositiveFirst, as_guard, below_one, number_text
from isr.equations.program import Program

LINE_WIDTH = 90
_ESCAPES = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "%": r"\%",
    "_": r"\_", "^": r"\^{}", "~": r"\~{}", "<": r"\textless{}", ">": r"\textgreater{}",
}  # fmt: skip


class _Printer(PositiveFirst, LatexPrinter):
    def __init__(self, labels: Mapping[str, str], digits: int) -> None:
        super().__init__({"ln_notation": True, "inv_trig_style": "full"})
        self.labels = labels
        self.digits = digits

    def _print_Float(self, expr: sympy.Float) -> str:
        mantissa, _, power = number_text(float(expr), self.digits).partition("e")
        if not power:
            return mantissa
        ten = f"10^{{{int(power)}}}"
        return {"1": ten, "-1": f"- {ten}"}.get(mantissa, rf"{mantissa} \cdot {ten}")

    def _print_Symbol(self, expr: sympy.Symbol, style: str = "plain") -> str:
        return symbol_latex(expr.name, self.labels)

    def _print_Min(self, expr: sympy.Min, exp: str | None = None) -> str:
        guard = as_guard(expr)
        if guard is None:
            return self._limited(r"\min", sorted(expr.args, key=sympy.default_sort_key), exp)
        return self._limited(r"\operatorname{clip}", guard, exp)

    def _print_Max(self, expr: sympy.Max, exp: str | None = None) -> str:
        return self._limited(r"\max", sorted(expr.args, key=sympy.default_sort_key), exp)

    def _limited(self, function: str, arguments: Sequence[Any], exp: str | None) -> str:
        power = f"^{{{exp}}}" if exp else ""
        inner = ", ".join(map(self._limit, arguments))
        return rf"{function}{power}\left({inner}\right)"

    def _limit(self, argument: Any) -> str:
        gap = below_one(argument, self.digits)
        return self._print(argument) if gap is None else f"1 - {self._print(gap)}"


def latex(
    program: Program,
    *,
    digits: int = 4,
    width: int = LINE_WIDTH,
    log_det: bool = True,
    units: Mapping[str, str] | None = None,
) -> str:
    """Return a program as a LaTeX ``align*`` environment.

    Args:
        program: One direction of a model.
        digits: Significant digits of a number.
        width: About how many characters wide a line of print may be.
        log_det: Whether the log-determinant has a line.
        units: Unit of a variable, by the user's name for it; told in comments.

    Example:
        >>> x, z = sympy.symbols("x_1 z1", real=True)
        >>> program = Program((x,), (), (), (0.123456 * x**2,), sympy.Integer(0), output_symbols=(z,))
        >>> print(latex(program))
        \\begin{align*}
        z_{1} &= 0.1235 x_{1}^{2} \\\\
        \\ln \\left| \\det J \\right| &= 0
        \\end{align*}
    """
    printer = _Printer(program.labels, digits)
    equations = [(printer.doprint(a.target), a.value) for a in program.assignments]
    equations += [
        (printer.doprint(symbol), value)
        for symbol, value in zip(program.output_symbols, program.outputs, strict=True)
    ]
    if log_det:
        equations.append((r"\ln \left| \det J \right|", program.log_det))
    rows = [f"{target} &= {_broken(written_out(value), printer, width)}" for target, value in equations]
    # Escaped though a comment: a page that typesets in the browser may not know comments.
    remarks = [
        f"% {' '.join(_escaped(f'{name} in {unit}').split())}\n" for name, unit in (units or {}).items()
    ]
    return "\\begin{align*}\n" + "".join(remarks) + " \\\\\n".join(rows) + "\n\\end{align*}"


def symbol_latex(name: str, labels: Mapping[str, str]) -> str:
    """Return a symbol's name as LaTeX; text the user chose is escaped.

    Example:
        >>> symbol_latex("b1_s1_2", {})
        's_{1,2}^{(1)}'
        >>> print(symbol_latex("x", {"x": "100% $"}))
        \\text{100\\% \\$}
    """
    label = label_of(name, labels)
    if label.verbatim:
        return rf"\text{{{_escaped(label.base)}}}"
    below = ",".join(_word(part) for part in label.subscripts)
    return (
        _word(label.base)
        + (f"_{{{below}}}" if below else "")
        + (f"^{{({label.block})}}" if label.block else "")
    )


def _word(word: str) -> str:
    if word in GREEK:
        return rf"\{GREEK[word]}" if GREEK[word] != "omicron" else "o"
    if word.isascii():
        return word if len(word) == 1 or word.isdigit() else rf"\mathrm{{{word}}}"
    return rf"\text{{{_escaped(word)}}}"


def _escaped(text: str) -> str:
    return "".join(_ESCAPES.get(c, c) for c in text)


def _broken(value: sympy.Expr, printer: _Printer, width: int) -> str:
    """The value, a long sum broken before terms."""
    whole = printer.doprint(value)
    if not value.is_Add or _printed_width(whole) <= width:
        return whole
    lines: list[str] = [""]
    for term in printer._as_ordered_terms(value):
        piece = printer.doprint(term)
        if lines[0] and not piece.startswith("-"):
            piece = f"+ {piece}"
        if lines[-1] and _printed_width(lines[-1] + piece) > width:
            lines.append(piece)
        else:
            lines[-1] = f"{lines[-1]} {piece}".strip()
    return " \\\\\n&\\quad {} ".join(lines)


def _printed_width(source: str) -> int:
    source = re.sub(r"\\(left|right|quad|mathrm|text|operatorname|frac)\b", "", source)
    return len(re.sub(r"\\[a-z]+", "ab", source).translate({ord(c): None for c in "{}^_ "}))

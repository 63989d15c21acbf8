"""Equations as LaTeX: one ``align*`` environment, long sums broken over lines, names that cannot do harm."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import sympy
from sympy.printing.latex import LatexPrinter

from isr.equations.print.text import (
    GREEK,
    PositiveFirst,
    as_guard,
    below_one,
    broken,
    label_of,
    number_text,
    rows_of,
)
from isr.equations.program import Program

LINE_WIDTH = 90
_ESCAPES = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "%": r"\%",
    "_": r"\_", "^": r"\^{}", "~": r"\~{}", "<": r"\textless{}", ">": r"\textgreater{}",
}  # fmt: skip


class _Printer(PositiveFirst, LatexPrinter):
    def __init__(
        self, labels: Mapping[str, str], digits: int, errors: Mapping[float, float] | None = None
    ) -> None:
        super().__init__({"ln_notation": True, "inv_trig_style": "full"})
        self.labels, self.digits, self.errors = labels, digits, errors

    def _print_Float(self, expr: sympy.Float) -> str:
        mantissa, _, power = number_text(float(expr), self.digits, self.errors).partition("e")
        if not power:
            return mantissa
        ten = f"10^{{{int(power)}}}"
        return {"1": ten, "-1": f"- {ten}"}.get(mantissa, rf"{mantissa} \cdot {ten}")

    def _print_Symbol(self, expr: sympy.Symbol, style: str = "plain") -> str:
        return symbol_latex(expr.name, self.labels)

    def _print_Min(self, expr: sympy.Min, exp: str | None = None) -> str:
        guard = as_guard(expr)
        if guard is not None:
            return self._limits(r"\operatorname{clip}", guard, exp)
        return self._limits(r"\min", sorted(expr.args, key=sympy.default_sort_key), exp)

    def _print_Max(self, expr: sympy.Max, exp: str | None = None) -> str:
        return self._limits(r"\max", sorted(expr.args, key=sympy.default_sort_key), exp)

    def _limits(self, function: str, arguments: Iterable[Any], exp: str | None) -> str:
        gaps = [(a, below_one(a, self.digits)) for a in arguments]
        inner = ", ".join(self._print(a) if gap is None else f"1 - {self._print(gap)}" for a, gap in gaps)
        power = f"^{{{exp}}}" if exp else ""
        return rf"{function}{power}\left({inner}\right)"


def latex(
    program: Program,
    *,
    digits: int = 4,
    width: int = LINE_WIDTH,
    log_det: bool = True,
    units: Mapping[str, str] | None = None,
    errors: Mapping[float, float] | None = None,
) -> str:
    """Return a program as a LaTeX ``align*`` environment, its lines about ``width`` characters of print wide, units
    in comments, constants with their errors as in `isr.equations.print.text.number_text`.

    Example:
        >>> x, z = sympy.symbols("x_1 z1", real=True)
        >>> program = Program((x,), (), (), (0.123456 * x**2,), sympy.Integer(0), output_symbols=(z,))
        >>> print(latex(program))
        \\begin{align*}
        z_{1} &= 0.1235 x_{1}^{2} \\\\
        \\ln \\left| \\det J \\right| &= 0
        \\end{align*}
    """
    printer = _Printer(program.labels, digits, errors)
    equations = []
    for target, value, _ in rows_of(program, log_det):
        left = r"\ln \left| \det J \right|" if target is None else printer.doprint(target)
        first, *others = broken(value, printer, width, _printed_width)
        more = [line if line.startswith("-") else f"+ {line}" for line in others]
        equations.append(" \\\\\n&\\quad {} ".join([f"{left} &= {first}", *more]))
    # Escaped though a comment: a page that typesets in the browser may not know comments.
    remarks = [
        f"% {' '.join(_escaped(f'{name} in {unit}').split())}\n" for name, unit in (units or {}).items()
    ]
    return "\\begin{align*}\n" + "".join(remarks) + " \\\\\n".join(equations) + "\n\\end{align*}"


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
    below = f"_{{{','.join(map(_word, label.subscripts))}}}" if label.subscripts else ""
    return _word(label.base) + below + (f"^{{({label.block})}}" if label.block else "")


def _word(word: str) -> str:
    if word in GREEK:
        return rf"\{GREEK[word]}" if GREEK[word] != "omicron" else "o"
    if word.isascii():
        return word if len(word) == 1 or word.isdigit() else rf"\mathrm{{{word}}}"
    return rf"\text{{{_escaped(word)}}}"


def _escaped(text: str) -> str:
    return "".join(_ESCAPES.get(c, c) for c in text)


def _printed_width(source: str) -> int:
    source = re.sub(r"\\(left|right|quad|mathrm|text|operatorname|frac)\b", "", source)
    return len(re.sub(r"\\[a-z]+", "ab", source).translate({ord(c): None for c in "{}^_ "}))

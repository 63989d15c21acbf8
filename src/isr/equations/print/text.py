"""Equations as text for a terminal.

The plain form holds one equation per line that SymPy can read; remarks start with ``#``. The Unicode form is for eyes.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from typing import Any

import sympy
from sympy.printing.precedence import PRECEDENCE
from sympy.printing.str import StrPrinter

from isr.equations.naming import LOG_DET
from isr.equations.print.layout import PositiveFirst, as_guard, below_one, number_text, rows_of
from isr.equations.program import Program

_SUPERSCRIPT = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")
_SUBSCRIPT = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
_WORDS = {"pi": "π", "sqrt": "√", "Phi": "Φ", "PhiInverse": "Φ⁻¹", "log": "ln"}


class _Printer(PositiveFirst, StrPrinter):
    """SymPy's text with so many significant digits; all there are for ``None``."""

    def __init__(self, digits: int | None) -> None:
        super().__init__()
        self.digits = digits

    def _print_Float(self, expr: sympy.Float) -> str:
        return number_text(float(expr), self.digits)

    def _print_LatticeOp(self, expr: Any) -> str:
        return self._limits(expr.func.__name__, sorted(expr.args, key=sympy.default_sort_key))

    def _limits(self, function: str, arguments: Any) -> str:
        """Min, Max or clip; a limit just below 1 is written as ``1 - 1e-12``."""
        gaps = [(a, below_one(a, self.digits)) for a in arguments]
        texts = [self._print(a) if gap is None else f"1 - {self._print(gap)}" for a, gap in gaps]
        return f"{function}({', '.join(texts)})"

    def _print_Relational(self, expr: Any) -> str:
        return f"{self._print(expr.lhs)} {expr.rel_op} {self._print(expr.rhs)}"


class _UnicodePrinter(_Printer):
    def _print_Min(self, expr: sympy.Min) -> str:
        guard = as_guard(expr)
        return self._print_LatticeOp(expr) if guard is None else self._limits("clip", guard)

    def _print_Piecewise(self, expr: Any) -> str:
        cases = [f"{self._print(e)} if {self._print(c)}" for e, c in expr.args[:-1]]
        return f"{{{', '.join(cases)}, else {self._print(expr.args[-1].expr)}}}"

    def _print_Pow(self, expr: sympy.Pow, rational: bool = False) -> str:
        if expr.exp.is_Integer and expr.exp > 1:
            return self.parenthesize(expr.base, PRECEDENCE["Pow"]) + str(expr.exp).translate(_SUPERSCRIPT)
        return super()._print_Pow(expr, rational)


def text(
    program: Program,
    *,
    digits: int | None = 4,
    unicode: bool = False,
    log_det: bool = True,
    units: Mapping[str, str] | None = None,
) -> str:
    """Return a program as lines of text.

    Args:
        program: One direction of a model.
        digits: Significant digits of a number; ``None`` gives all there are.
        unicode: Whether to print for the eye (π, ², ·, the user's own letters) instead of for a parser.
        log_det: Whether the log-determinant has a line.
        units: Unit of a variable, by the user's name for it; a remark says it.

    Example:
        >>> x, z = sympy.symbols("x z", real=True)
        >>> program = Program((x,), (), (), (0.123456 * x**2,), sympy.log(2.0), output_symbols=(z,))
        >>> print(text(program))
        z       = 0.1235*x**2
        log_det = 0.6931
    """
    printer = _UnicodePrinter(digits) if unicode else _Printer(digits)
    shown = [
        (LOG_DET if target is None else target.name, printer.doprint(value), part)
        for target, value, part in rows_of(program, log_det)
    ]
    if unicode:
        shown = [(_pretty(target, program), _pretty(value, program), part) for target, value, part in shown]
    width = max(len(target) for target, _, _ in shown)
    lines, last = [f"# {remark}" for remark in legend(program, units or {}, unicode=unicode)], ""
    several = len({part for _, _, part in shown}) > 2
    for target, value, part in shown:
        if several and part != last:
            lines.append(f"# {part}")
            last = part
        lines.append(f"{target:<{width}} = {value}")
    return "\n".join(lines)


def legend(program: Program, units: Mapping[str, str], *, unicode: bool = False) -> list[str]:
    """Return what symbols stand for, where that is not what is printed, and in which unit.

    Args:
        program: One direction of a model.
        units: Unit of a variable, by the user's name for it.
        unicode: Whether the user's own letters are printed where they can be.

    Example:
        >>> depth, c = sympy.symbols("depth c", real=True)
        >>> program = Program((depth,), (), (), (depth,), sympy.S.Zero, output_symbols=(c,), labels={"c": "speed"})
        >>> legend(program, {"depth": "m", "speed": "m/s"})
        ['depth in m', 'c: speed in m/s']
    """
    lines = []
    for symbol in dict.fromkeys((*program.inputs, *program.conditions, *program.output_symbols)):
        label = program.labels.get(symbol.name, symbol.name)
        unit = f" in {_one_line(units[label])}" if units.get(label) else ""
        if label != symbol.name and not (unicode and _letters(label)):
            lines.append(f"{symbol.name}: {_one_line(label)}{unit}")
        elif unit:
            lines.append(f"{_letters(label) if unicode else symbol.name}{unit}")
    return lines


def _letters(label: str) -> str:
    """The user's name as it may stand in an equation for the eye; empty when it may not."""
    plain = unicodedata.normalize("NFKC", label)
    return plain if plain.isidentifier() else ""


def _one_line(label: str) -> str:
    return "".join(c if c.isprintable() else " " for c in label)


def _pretty(line: str, program: Program) -> str:
    def word(match: re.Match) -> str:
        name = match[0]
        if name in program.labels:
            return _subscripted(_letters(program.labels[name]) or name)
        return _WORDS.get(name, _subscripted(name))

    line = re.sub(r"(?<![\w.])1e([+-]\d+)", lambda m: _power_of_ten(m[1]), line)
    line = re.sub(r"(\d)e([+-]\d+)", lambda m: f"{m[1]}·{_power_of_ten(m[2])}", line)
    return re.sub(r"[A-Za-z_][A-Za-z0-9_]*", word, line).replace("*", "·").replace("-", "−")


def _power_of_ten(power: str) -> str:
    return f"10{str(int(power)).translate(_SUPERSCRIPT)}"


def _subscripted(name: str) -> str:
    match = re.fullmatch(r"([^\W\d_]+)(\d+)", name)
    return name if match is None else match[1] + match[2].translate(_SUBSCRIPT)

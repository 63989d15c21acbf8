"""Equations as text for a terminal.

The plain form holds one equation a line that SymPy can read; remarks start with ``#``. The Unicode form is for eyes.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from typing import Any

import sympy
from sympy.printing.precedence import PRECEDENCE
from sympy.printing.printer import Printer
from sympy.printing.str import StrPrinter

from isr.bijections.sigmoid import written_out
from isr.equations.naming import LOG_DET
from isr.equations.program import Program

_SUPERSCRIPT = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")
_SUBSCRIPT = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
_WORDS = {"pi": "π", "sqrt": "√", "Phi": "Φ", "PhiInverse": "Φ⁻¹", "log": "ln"}


class PositiveFirst(Printer):
    """Writes ``z - t`` and ``1 + exp(g)`` where SymPy's order of terms would give ``-t + z`` and ``exp(g) + 1``."""

    def _as_ordered_terms(self, expr: Any, order: str | None = None) -> list[Any]:
        terms = super()._as_ordered_terms(expr, order)
        if len(terms) != 2:
            return terms
        first, second = terms
        swap = (_is_negative(first) and not _is_negative(second)) or (
            second == 1 and isinstance(first, sympy.exp)
        )
        return [second, first] if swap else terms


def _is_negative(term: Any) -> bool:
    return bool(term.as_coeff_Mul()[0].is_negative)


class EquationPrinter(PositiveFirst, StrPrinter):
    """SymPy's text with so many significant digits.

    Args:
        digits: Significant digits of a number; ``None`` gives all there are.
    """

    def __init__(self, digits: int | None = 4) -> None:
        super().__init__()
        self.digits = digits

    def _print_Float(self, expr: sympy.Float) -> str:
        return number_text(float(expr), self.digits)

    def _print_LatticeOp(self, expr: Any) -> str:
        arguments = sorted(expr.args, key=sympy.default_sort_key)
        return f"{expr.func.__name__}({', '.join(map(self.limit, arguments))})"

    def limit(self, expr: Any) -> str:
        """The text of an argument of Min or Max; a limit a hair below 1 keeps its hair."""
        gap = below_one(expr, self.digits)
        return self._print(expr) if gap is None else f"1 - {self._print(gap)}"

    def _print_Relational(self, expr) -> str:
        return f"{self._print(expr.lhs)} {expr.rel_op} {self._print(expr.rhs)}"


class _UnicodePrinter(EquationPrinter):
    def _print_Min(self, expr: sympy.Min) -> str:
        guard = as_guard(expr)
        if guard is None:
            return self._print_LatticeOp(expr)
        return f"clip({', '.join(map(self.limit, guard))})"

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
    printer = _UnicodePrinter(digits) if unicode else EquationPrinter(digits)
    equations = [(a.target.name, a.value, a.part) for a in program.assignments]
    names = [s.name for s in program.output_symbols] or [f"out{i + 1}" for i in range(len(program.outputs))]
    equations += [(name, value, "result") for name, value in zip(names, program.outputs, strict=True)]
    if log_det:
        equations.append((LOG_DET, program.log_det, "result"))
    shown = [(target, printer.doprint(written_out(value)), part) for target, value, part in equations]
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


def number_text(value: float, digits: int | None) -> str:
    """Return a number with so many significant digits, without trailing zeros."""
    return repr(value) if digits is None else f"{value:.{digits}g}"


def below_one(expr: Any, digits: int | None) -> sympy.Float | None:
    """Return how far a number lies below 1 when ``digits`` would round it to 1, else None."""
    if digits is None or not expr.is_Float or float(expr) >= 1 or number_text(float(expr), digits) != "1":
        return None
    return sympy.Float(1 - float(expr))


def as_guard(expr: Any) -> tuple[sympy.Expr, sympy.Expr, sympy.Expr] | None:
    """Return (value, low, high) when an expression holds a value inside two numbers, else None."""
    if not isinstance(expr, sympy.Min) or len(expr.args) != 2:
        return None
    numbers: list[Any] = [a for a in expr.args if a.is_number]
    inner: list[Any] = [a for a in expr.args if isinstance(a, sympy.Max) and len(a.args) == 2]
    if len(numbers) != 1 or len(inner) != 1:
        return None
    lows = [a for a in inner[0].args if a.is_number]
    values = [a for a in inner[0].args if not a.is_number]
    return (values[0], lows[0], numbers[0]) if len(lows) == 1 else None


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

    line = re.sub(r"(?<![\w.])1e([+-]\d+)", lambda m: f"10{str(int(m[1])).translate(_SUPERSCRIPT)}", line)
    line = re.sub(r"[A-Za-z_][A-Za-z0-9_]*", word, re.sub(r"(\d)e([+-]\d+)", _power_of_ten, line))
    return line.replace("*", "·").replace("-", "−")


def _power_of_ten(match: re.Match) -> str:
    return f"{match[1]}·10{str(int(match[2])).translate(_SUPERSCRIPT)}"


def _subscripted(name: str) -> str:
    match = re.fullmatch(r"([^\W\d_]+)(\d+)", name)
    return name if match is None else match[1] + match[2].translate(_SUBSCRIPT)

"""Equations as text for a terminal, and what all printed forms share: labels of symbols, rows, digits, long sums.

The plain form holds one equation per line that SymPy can read; remarks start with ``#``. The Unicode form is for eyes.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import sympy
from sympy.printing.precedence import PRECEDENCE
from sympy.printing.printer import Printer
from sympy.printing.str import StrPrinter

from isr.equations.extract import LOG_DET
from isr.equations.program import Program, written_out

_GREEK_NAMES = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron pi rho sigma tau upsilon "
    "phi chi psi omega"
).split()
GREEK = dict(zip("αβγδεζηθικλμνξοπρστυφχψω", _GREEK_NAMES, strict=True))
LETTERS = {name: letter for letter, name in GREEK.items()}


@dataclass(frozen=True)
class Label:
    """A name taken apart: letter or word, what stands below it, the block above it, and whether it is free text."""

    base: str
    subscripts: tuple[str, ...] = ()
    block: str = ""
    verbatim: bool = False


def label_of(name: str, labels: Mapping[str, str]) -> Label:
    """Return how the symbol called ``name`` looks, where ``labels`` holds the user's own names.

    Example:
        >>> label_of("b2_s1_3", {})
        Label(base='s', subscripts=('1', '3'), block='2', verbatim=False)
        >>> label_of("p_Pa", {"p_Pa": "p (Pa)"})
        Label(base='p (Pa)', subscripts=(), block='', verbatim=True)
    """
    if name in labels:
        return _of_user(labels[name])
    block = re.match(r"b(\d+)_(?=[a-z])", name)
    rest = name[block.end() :] if block else name
    base, subscripts = _parts(rest)
    return Label(base, subscripts, block[1] if block else "")


def _of_user(label: str) -> Label:
    plain = unicodedata.normalize("NFKC", label)
    if re.fullmatch(r"[^\W\d_]+\d*(_[^\W_]+)*", plain):
        return Label(*_parts(plain))
    return Label("".join(c if c.isprintable() else " " for c in label), verbatim=True)


def _parts(name: str) -> tuple[str, tuple[str, ...]]:
    first, *rest = name.split("_")
    match = re.fullmatch(r"([^\W\d]+)(\d*)", first)
    if match is None:
        return name, ()
    base = LETTERS.get(match[1], match[1])
    return base, tuple(part for part in (match[2], *rest) if part)


Row = tuple[sympy.Symbol | None, sympy.Expr, str]


def rows_of(program: Program, log_det: bool) -> list[Row]:
    """Return target, value and part of each equation; the log-determinant, last, has no target."""
    outputs = program.output_symbols or sympy.symbols(f"out1:{len(program.outputs) + 1}")
    rows: list[Row] = [(a.target, a.value, a.part) for a in program.assignments]
    rows += [(symbol, value, "result") for symbol, value in zip(outputs, program.outputs, strict=True)]
    if log_det:
        rows.append((None, program.log_det, "result"))
    return [(target, written_out(value), part) for target, value, part in rows]


class PositiveFirst(Printer):
    """Writes ``z - t`` and ``1 + exp(g)`` where SymPy's order of terms would give ``-t + z`` and ``exp(g) + 1``."""

    def _as_ordered_terms(self, expr: Any, order: str | None = None) -> list[Any]:
        terms = super()._as_ordered_terms(expr, order)
        if len(terms) != 2:
            return terms
        first, second = terms
        swap = _is_negative(first) and not _is_negative(second)
        return [second, first] if swap or (second == 1 and isinstance(first, sympy.exp)) else terms


def _is_negative(term: Any) -> bool:
    return bool(term.as_coeff_Mul()[0].is_negative)


def number_text(value: float, digits: int | None, errors: Mapping[float, float] | None = None) -> str:
    """Return a number with so many significant digits, without trailing zeros, or with the error of its last digits.

    ``errors`` holds the standard error of a constant by its absolute value.
    """
    error = (errors or {}).get(abs(value))
    if error is not None:
        return with_error(value, error)
    return repr(value) if digits is None else f"{value:.{digits}g}"


def with_error(value: float, error: float) -> str:
    """Return a number with the standard error of its last digits in parentheses.

    Example:
        >>> with_error(0.79432, 0.0123), with_error(-1234.5, 67.0), with_error(2.5e-7, 3e-9)
        ('0.794(12)', '-1234(67)', '2.500(30)e-07')
    """
    if not (math.isfinite(value) and math.isfinite(error) and error > 0):
        return number_text(value, 4)
    error = float(f"{error:.1e}")  # before its digits are counted: 0.0099996 has those of 0.010
    size = math.floor(math.log10(max(abs(value), error)))
    shift = size if not -4 <= size <= 5 else 0
    decimals = max(0, 1 - math.floor(math.log10(error)) + shift)
    if decimals > 12:  # so small an error says no more than the digits do
        return number_text(value, 12)
    shown = round(error / 10.0**shift * 10**decimals)
    return f"{value / 10.0**shift:.{decimals}f}({shown})" + (f"e{shift:+03d}" if shift else "")


def below_one(expr: Any, digits: int | None) -> sympy.Float | None:
    """Return how far a number lies below 1 when ``digits`` would round it to 1, else None."""
    if digits is None or not expr.is_Float or float(expr) >= 1 or number_text(float(expr), digits) != "1":
        return None
    return sympy.Float(1 - float(expr))


def as_guard(expr: Any) -> tuple[sympy.Expr, sympy.Expr, sympy.Expr] | None:
    """Return (value, low, high) when an expression holds a value between two numbers, else None."""
    if not isinstance(expr, sympy.Min) or len(expr.args) != 2:
        return None
    high, inner = _number_first(expr)
    if not high.is_number or not isinstance(inner, sympy.Max) or len(inner.args) != 2:
        return None
    low, value = _number_first(inner)
    return (value, low, high) if low.is_number and not value.is_number else None


def _number_first(limited: Any) -> list[Any]:
    return sorted(limited.args, key=lambda a: not a.is_number)


def broken(value: sympy.Expr, printer: Any, width: int | None, width_of: Callable[[str], int]) -> list[str]:
    """Return the print of a value; that of a long sum as several, each of about ``width`` characters."""
    whole = printer.doprint(value)
    if width is None or not value.is_Add or width_of(whole) <= width:
        return [whole]
    lines: list[list[Any]] = [[]]
    taken = 0
    for term in printer._as_ordered_terms(value):
        needed = width_of(printer.doprint(term)) + 3
        if lines[-1] and taken + needed > width:
            lines.append([])
            taken = 0
        lines[-1].append(term)
        taken += needed
    return [printer.doprint(sympy.Add(*line, evaluate=False) if line[1:] else line[0]) for line in lines]


_SUPERSCRIPT = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")
_SUBSCRIPT = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
_WORDS = {"pi": "π", "sqrt": "√", "Phi": "Φ", "PhiInverse": "Φ⁻¹", "log": "ln"}


class _Printer(PositiveFirst, StrPrinter):
    """SymPy's text with so many significant digits, all there are for ``None``, and errors of constants."""

    def __init__(self, digits: int | None, errors: Mapping[float, float] | None = None) -> None:
        super().__init__()
        self.digits, self.errors = digits, errors

    def _print_Float(self, expr: sympy.Float) -> str:
        return number_text(float(expr), self.digits, self.errors)

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
    errors: Mapping[float, float] | None = None,
) -> str:
    """Return a program as lines of text, all digits of a number for None; ``errors`` as in `number_text`.

    With ``unicode`` it is for the eye (π, ², ·, the user's own letters) instead of for a parser. Units, by the user's
    name of a variable, stand in remarks.

    Example:
        >>> x, z = sympy.symbols("x z", real=True)
        >>> program = Program((x,), (), (), (0.123456 * x**2,), sympy.log(2.0), output_symbols=(z,))
        >>> print(text(program))
        z       = 0.1235*x**2
        log_det = 0.6931
    """
    printer = (_UnicodePrinter if unicode else _Printer)(digits, errors)
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
    line = re.sub(r"([\d)])e([+-]\d+)", lambda m: f"{m[1]}·{_power_of_ten(m[2])}", line)
    return re.sub(r"[A-Za-z_][A-Za-z0-9_]*", word, line).replace("*", "·").replace("-", "−")


def _power_of_ten(power: str) -> str:
    return f"10{str(int(power)).translate(_SUPERSCRIPT)}"


def _subscripted(name: str) -> str:
    match = re.fullmatch(r"([^\W\d_]+)(\d+)", name)
    return name if match is None else match[1] + match[2].translate(_SUBSCRIPT)

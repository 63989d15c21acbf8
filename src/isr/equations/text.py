"""Equations as text for a terminal, and what all printed forms share: labels, digits, the order of terms.

The plain text holds one equation per line that SymPy can read; remarks start with ``#``. The Unicode text is for eyes.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import sympy
from sympy.printing.precedence import PRECEDENCE
from sympy.printing.printer import Printer
from sympy.printing.str import StrPrinter

from isr.equations.program import LOG_DET, Program, written_out
from isr.tables.names import GREEK_NAMES

# Other capitals look like Latin ones, and LaTeX has no name for them.
_LATIN = "ΑΒΕΖΗΙΚΜΝΟΡΤΧς"
GREEK = {letter: name for letter, name in GREEK_NAMES.items() if letter not in _LATIN}
LETTERS = {name: letter for letter, name in GREEK.items()}
_RAISED = "⁰¹²³⁴⁵⁶⁷⁸⁹"
_SUPERSCRIPT = str.maketrans("0123456789-", f"{_RAISED}⁻")
_SUBSCRIPT = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")


class Label(NamedTuple):
    """A name taken apart: letter or word, what stands below and above it, and whether it is free text."""

    base: str
    below: tuple[str, ...] = ()
    above: str = ""
    verbatim: bool = False


def label_of(name: str, labels: Mapping[str, str]) -> Label:
    """Return how the symbol called ``name`` looks, where ``labels`` holds the user's own names."""
    if name not in labels:
        block = re.match(r"b(\d+)_(?=[a-z])", name)
        return Label(*_parts(name[block.end() :] if block else name), f"({block[1]})" if block else "")
    stem = labels[name].rstrip(_RAISED)
    above = unicodedata.normalize("NFKC", labels[name][len(stem) :])
    plain = unicodedata.normalize("NFKC", stem)
    if re.fullmatch(r"[^\W\d_]+\d*(_[^\W_]+)*", plain):
        return Label(*_parts(plain), above)
    return Label(one_line(labels[name]), verbatim=True)


def _parts(name: str) -> tuple[str, tuple[str, ...]]:
    first, *rest = name.split("_")
    if (match := re.fullmatch(r"([^\W\d]+)(\d*)", first)) is None:
        return name, ()
    return LETTERS.get(match[1], match[1]), tuple(part for part in (match[2], *rest) if part)


def one_line(label: str) -> str:
    """Return a text without anything that would end a line."""
    return "".join(c if c.isprintable() else " " for c in label)


Row = tuple[sympy.Symbol | None, sympy.Expr, str]


def rows_of(program: Program, log_det: bool) -> list[Row]:
    """Return target, value and part of each equation; the log-determinant, last, has no target."""
    outputs = program.output_symbols or sympy.symbols(f"out1:{len(program.outputs) + 1}")
    rows: list[Row] = [(a.target, a.value, a.part) for a in program.assignments]
    rows += [(symbol, value, "result") for symbol, value in zip(outputs, program.outputs, strict=True)]
    if log_det:
        rows.append((None, program.log_det, "result"))
    return [(target, written_out(value), part) for target, value, part in rows]


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


class Readable(Printer):
    """What printed forms share: digits and errors of numbers, the order of terms, limits, functions of the library.

    A form says how it writes a function, ``_function(name, arguments, power)``.
    """

    clips = True

    def __init__(
        self,
        digits: int | None = 4,
        errors: Mapping[float, float] | None = None,
        labels: Mapping[str, str] | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(settings)
        self.digits, self.errors, self.labels = digits, errors, labels or {}
        found = {name: label_of(name, self.labels) for name in self.labels}
        self._words = {n for n, of in found.items() if of.verbatim or re.search("[A-Za-z]{2}", of.base)}

    def _as_ordered_terms(self, expr: Any, order: str | None = None) -> list[Any]:
        """``x2`` before ``x10``; ``z - t`` and ``1 + exp(g)`` where SymPy would write ``-t + z`` and ``exp(g) + 1``."""

        def natural(variable: Any) -> str:
            return re.sub(r"\d+", lambda m: m[0].zfill(9), variable.name) if variable.is_Symbol else "\uffff"

        key, is_reversed = expr._parse_order(order or self.order)
        terms, variables = expr.as_terms()
        places = sorted(range(len(variables)), key=lambda i: natural(variables[i]))
        ordered = [(term, (n, tuple(powers[i] for i in places), rest)) for term, (n, powers, rest) in terms]
        found = [term for term, _ in sorted(ordered, key=key, reverse=is_reversed)]
        if len(found) == 2:
            first, second = found
            is_negative = [bool(term.as_coeff_Mul()[0].is_negative) for term in found]
            swap = is_negative == [True, False]
            found = found[::-1] if swap or (second == 1 and isinstance(first, sympy.exp)) else found
        return found

    def _print_Float(self, expr: sympy.Float) -> Any:
        mantissa, _, power = number_text(float(expr), self.digits, self.errors).partition("e")
        return self._number(mantissa, str(int(power)) if power else "")

    def _print_Mul(self, expr: Any) -> Any:
        """A product without a factor that would be printed as 1."""
        factor, rest = expr.as_coeff_Mul()
        shown = number_text(float(factor), self.digits, self.errors) if factor.is_Float else ""
        if shown in ("1", "-1"):
            return self._print(rest if shown == "1" else -rest)
        return super()._print_Mul(expr)

    def _print_Min(self, expr: Any, exp: str | None = None) -> Any:
        guard = _guard(expr) if self.clips else None
        return self._limited("clip" if guard else "min", guard or expr.args, exp, guard is None)

    def _print_Max(self, expr: Any, exp: str | None = None) -> Any:
        return self._limited("max", expr.args, exp)

    def _limited(self, name: str, arguments: Sequence[Any], power: str | None, in_order: bool = True) -> Any:
        arguments = sorted(arguments, key=sympy.default_sort_key) if in_order else arguments
        return self._function(name, [self._print(self._below_one(a)) for a in arguments], power)

    def _below_one(self, expr: Any) -> Any:
        """A number that so many digits would round to 1, as 1 less what it lacks."""
        is_near = self.digits is not None and expr.is_Float and float(expr) < 1
        if not is_near or number_text(float(expr), self.digits) != "1":
            return expr
        return sympy.Add(1, sympy.Float(float(expr) - 1), evaluate=False)

    def has_words(self, expr: Any) -> bool:
        """Whether several of the user's names in an expression are words, or any text."""
        return len(self._words) > 1 and len(self._words & {symbol.name for symbol in expr.free_symbols}) > 1

    def _print_Phi(self, expr: Any, exp: str | None = None) -> Any:
        return self._function(type(expr).__name__, [self._print(a) for a in expr.args], exp)

    _print_PhiInverse = _print_atan2 = _print_Phi


def _guard(expr: Any) -> tuple[sympy.Expr, sympy.Expr, sympy.Expr] | None:
    """(value, low, high) when an expression holds a value between two numbers, else None."""
    high, inner = _number_first(expr)
    if not high.is_number or not isinstance(inner, sympy.Max):
        return None
    low, value = _number_first(inner)
    return (value, low, high) if low.is_number and not value.is_number else None


def _number_first(limited: Any) -> list[Any]:
    parts = sorted(limited.args, key=lambda a: not a.is_number)
    return parts if len(parts) == 2 else [sympy.Symbol("several"), limited]


def broken(value: sympy.Expr, printer: Any, width: int | None, width_of: Callable[[str], int]) -> list[str]:
    """Return the print of a value; that of a long sum as several, each of about ``width`` characters."""
    whole = printer.doprint(value)
    lines, taken = [[]], 0
    if width is None or not value.is_Add or width_of(whole) <= width:
        return [whole]
    for term in printer._as_ordered_terms(value):
        needed = width_of(printer.doprint(term)) + 3
        if lines[-1] and taken + needed > width:
            lines.append([])
            taken = 0
        lines[-1].append(term)
        taken += needed
    return [printer.doprint(sympy.Add(*line, evaluate=False) if line[1:] else line[0]) for line in lines]


class TextPrinter(Readable, StrPrinter):
    """SymPy's text, which SymPy can read."""

    clips = False
    names: ClassVar[dict[str, str]] = {"min": "Min", "max": "Max"}
    signs: ClassVar[dict[str, str]] = {}

    def _number(self, mantissa: str, power: str) -> str:
        return f"{mantissa}e{int(power):+03d}" if power else mantissa

    def _function(self, name: str, arguments: Sequence[str], power: Any = None) -> str:
        return f"{self.names.get(name, name)}({', '.join(arguments)})"

    def _print_Relational(self, expr: Any) -> str:
        return f"{self._print(expr.lhs)} {self.signs.get(expr.rel_op, expr.rel_op)} {self._print(expr.rhs)}"


_ROOTS = {2: "√", 3: "∛", 4: "∜"}
SIGNS = {"<=": "≤", ">=": "≥", "!=": "≠", "==": "="}


class UnicodePrinter(TextPrinter):
    """Text for the eye: π, x₁², |x|, and the user's own letters."""

    clips = True
    signs = SIGNS
    names: ClassVar[dict[str, str]] = {
        "log": "ln", "Phi": "Φ", "PhiInverse": "Φ⁻¹", "atan": "arctan", "asin": "arcsin", "acos": "arccos",
    }  # fmt: skip

    def doprint(self, expr: Any) -> str:
        return super().doprint(expr).replace("*", "·").replace("-", "−")

    def _number(self, mantissa: str, power: str) -> str:
        ten = f"10{power.translate(_SUPERSCRIPT)}"
        return mantissa if not power else {"1": ten, "-1": f"-{ten}"}.get(mantissa, f"{mantissa}*{ten}")

    def _print_Pi(self, expr: Any) -> str:
        return "π"

    def _print_Symbol(self, expr: sympy.Symbol) -> str:
        own = self.labels.get(expr.name)
        is_plain = own is not None and unicodedata.normalize("NFKC", own).isidentifier()
        shown = own if is_plain else expr.name
        match = re.fullmatch(r"([^\W\d_]+)(\d+)", shown, re.ASCII if own is None else 0)
        return match[1] + match[2].translate(_SUBSCRIPT) if match else shown

    def _print_Function(self, expr: Any) -> str:
        return self._function(expr.func.__name__, [self._print(a) for a in expr.args])

    def _print_Abs(self, expr: Any) -> str:
        return f"|{self._print(expr.args[0])}|"

    def _print_Pow(self, expr: sympy.Pow, rational: bool = False) -> str:
        base, power = expr.args
        if power.is_Rational and power.is_negative:
            return f"1/{self.parenthesize(base**-power, PRECEDENCE['Mul'], strict=False)}"
        if power.is_Integer:
            shown = self.parenthesize(base, PRECEDENCE["Pow"])
            return (f"({shown})" if shown[-1] in _RAISED else shown) + str(power).translate(_SUPERSCRIPT)
        if power.is_Rational and power.p == 1 and power.q in _ROOTS:
            return f"{_ROOTS[power.q]}({self._print(base)})"
        return f"{self.parenthesize(base, PRECEDENCE['Pow'])}^{self.parenthesize(power, PRECEDENCE['Atom'])}"

    def _print_And(self, expr: Any) -> str:
        word = f" {type(expr).__name__.lower()} "
        return word.join(self._print(a) for a in sorted(expr.args, key=sympy.default_sort_key))

    _print_Or = _print_And

    def _print_Not(self, expr: Any) -> str:
        return f"not ({self._print(expr.args[0])})"

    def _print_Piecewise(self, expr: Any) -> str:
        cases = [f"{self._print(e)} if {self._print(c)}" for e, c in expr.args[:-1]]
        return f"{{{', '.join(cases)}, else {self._print(expr.args[-1].expr)}}}"


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
    """
    printer = (UnicodePrinter if unicode else TextPrinter)(digits, errors, program.labels)
    rows = rows_of(program, log_det)
    targets = [LOG_DET if target is None else printer.doprint(target) for target, _, _ in rows]
    width = max(map(len, targets))
    lines, last = [f"# {remark}" for remark in legend(program, units or {}, printer)], ""
    several = len({part for _, _, part in rows}) > 2
    for target, (_, value, part) in zip(targets, rows, strict=True):
        if several and part != last:
            lines.append(f"# {part}")
            last = part
        lines.append(f"{target:<{width}} = {printer.doprint(value)}")
    return "\n".join(lines)


def legend(program: Program, units: Mapping[str, str], printer: Printer | None = None) -> list[str]:
    """Return what symbols stand for, where that is not what ``printer`` prints, and in which unit."""
    lines, printer = [], printer or TextPrinter()
    for symbol in dict.fromkeys((*program.inputs, *program.conditions, *program.output_symbols)):
        label, shown = program.labels.get(symbol.name, symbol.name), printer.doprint(symbol)
        unit = f" in {one_line(units[label])}" if units.get(label) else ""
        if unicodedata.normalize("NFKC", label) != unicodedata.normalize("NFKC", shown):
            lines.append(f"{shown}: {one_line(label)}{unit}")
        elif unit:
            lines.append(f"{shown}{unit}")
    return lines

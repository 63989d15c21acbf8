"""What the printed forms share: their rows, the order of terms, digits, limits, and long sums over several lines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sympy
from sympy.printing.printer import Printer

from isr.equations.functions import written_out
from isr.equations.program import Program

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


def number_text(value: float, digits: int | None) -> str:
    """Return a number with so many significant digits, without trailing zeros."""
    return repr(value) if digits is None else f"{value:.{digits}g}"


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

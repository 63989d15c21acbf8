"""What to write, before it is written: safe names, the order of equations and their division into functions.

Equations that read the condition alone come first (*prepare*), so that many samples for one condition share them.
Long programs are cut into functions of bounded length: compilers and browsers give up on very long ones.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import sympy

from isr.equations.code.printers import printer_for, write
from isr.equations.program import Assignment, Program
from isr.tables.names import symbol_names

# V8 compiles no function beyond 60 kB of bytecode to machine code, which is about 120,000 characters of ours, and is
# quickest with short ones: a dense model of 5,400 constants draws 8 % faster from 6,000 characters than from 16,000.
_LONGEST_FUNCTION = 16_000
_LONGEST_IN_JAVASCRIPT = 6_000
# Equations of the condition alone get a function of their own from this length on.
_WORTH_PREPARING = 500
# Identifiers that a C header or a compiler may define as something else, beyond what `symbol_names` avoids.
_CLAIMED = re.compile(
    r"(?i:isr_.*)|_.*|U?INT.*|(M|FP|DBL|FLT|MATH|HUGE)_.*|.*_(MAX|MIN|C|WIDTH)|HUGE.*|linux|unix|i386"
)


@dataclass(frozen=True)
class Line:
    """One equation as text.

    Args:
        target: The identifier given.
        value: Its value as text.
        reads: The identifiers the value reads.
        part: Which part of the model it belongs to.
        before: Other equations that have to come first.
    """

    target: str
    value: str
    reads: frozenset[str]
    part: str
    before: tuple[str, ...] = ()


@dataclass(frozen=True)
class Piece:
    """Equations that form one function.

    Args:
        lines: The equations.
        inputs: Inputs it reads, as (identifier, index).
        conditions: Conditions it reads, as (identifier, index).
        carried_in: Intermediates of earlier pieces it reads, as (identifier, slot).
        carried_out: Intermediates later pieces read, as (identifier, slot).
    """

    lines: tuple[Line, ...]
    inputs: tuple[tuple[str, int], ...]
    conditions: tuple[tuple[str, int], ...]
    carried_in: tuple[tuple[str, int], ...]
    carried_out: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Plan:
    """One direction of a model, ready to be written.

    Args:
        prepare: Pieces that read the condition alone.
        run: The other pieces, in order.
        outputs: Text of each output, held inside its bounds.
        log_det: Text of the log-determinant.
        before_outputs: Other equations that have to come before the outputs.
        n_carried: How many intermediates pass between pieces.
    """

    prepare: tuple[Piece, ...]
    run: tuple[Piece, ...]
    outputs: tuple[str, ...]
    log_det: str
    before_outputs: tuple[str, ...]
    n_carried: int


def plan(program: Program, language: str, n_outputs: int, *, in_one_piece: bool = False) -> Plan:
    """Return a program's equations as text, named, ordered and cut.

    Args:
        program: One direction of a model.
        language: Whose syntax.
        n_outputs: How many leading outputs are wanted; equations only the others need are left out.
        in_one_piece: Whether to leave the equations in one function whatever its length.
    """
    names = _identifiers(program)
    printer = printer_for(language, program, names)
    results = [_held(e, *b) for e, b in zip(program.outputs, _bounds(program), strict=True)][:n_outputs]
    last_reads = frozenset(names[s] for e in (*results, program.log_det) for s in _symbols(e))
    lines = [
        Line(names[a.target], write(printer, a.value, language), reads, a.part, printer.take_pending())
        for a, reads in _needed(program.assignments, last_reads, names)
    ]
    outputs = tuple(write(printer, e, language) for e in results)
    log_det = write(printer, program.log_det, language)
    inputs = {names[s]: i for i, s in enumerate(program.inputs)}
    conditions = {names[s]: i for i, s in enumerate(program.conditions)}
    before = printer.take_pending()
    if in_one_piece:
        early_groups, late_groups = [], [lines]
    else:
        early, late = _by_condition(lines, set(conditions))
        longest = _LONGEST_IN_JAVASCRIPT if language == "javascript" else _LONGEST_FUNCTION
        early_groups, late_groups = _cut(early, longest), _cut(late, longest) or [[]]
    pieces, n_carried = _pieces([*early_groups, *late_groups], last_reads, inputs, conditions)
    n = len(early_groups)
    return Plan(tuple(pieces[:n]), tuple(pieces[n:]), outputs, log_det, before, n_carried)


def _symbols(expression: sympy.Basic) -> set[sympy.Symbol]:
    return expression.free_symbols  # type: ignore[return-value]


def _identifiers(program: Program) -> dict[sympy.Symbol, str]:
    """A safe identifier for each symbol: its own name, unless a language or the runtime has claimed it."""
    symbols = list(
        dict.fromkeys([*program.inputs, *program.conditions, *(a.target for a in program.assignments)])
    )
    claimed = [s.name for s in symbols if _CLAIMED.fullmatch(s.name)]
    return dict(zip(symbols, symbol_names([s.name for s in symbols], taken=claimed), strict=True))


def wrapped(text: str, indent: str, width: int = 110) -> str:
    """Return a long expression over several lines, broken before the signs of sums."""
    if len(text) <= width:
        return text
    lines = [""]
    for term in re.split(r" (?=[+-] )", text):
        if lines[-1] and len(lines[-1]) + len(term) >= width:
            lines.append("")
        lines[-1] += f" {term}" if lines[-1] else term
    return f"\n{indent}".join(lines)


def _bounds(program: Program) -> Sequence[tuple[float | None, float | None]]:
    return program.bounds or ((None, None),) * len(program.outputs)


def _held(expression: sympy.Expr, low: float | None, high: float | None) -> sympy.Expr:
    if low is not None:
        expression = sympy.Max(expression, sympy.Float(low), evaluate=False)
    if high is not None:
        expression = sympy.Min(expression, sympy.Float(high), evaluate=False)
    return expression


def _needed(
    assignments: Sequence[Assignment], last_reads: frozenset[str], names: dict[sympy.Symbol, str]
) -> list[tuple[Assignment, frozenset[str]]]:
    """The assignments the results need, each with the identifiers it reads."""
    wanted = set(last_reads)
    kept = []
    for assignment in reversed(assignments):
        if names[assignment.target] in wanted:
            reads = frozenset(names[s] for s in _symbols(assignment.value))
            kept.append((assignment, reads))
            wanted |= reads
    return kept[::-1]


def _by_condition(lines: list[Line], conditions: set[str]) -> tuple[list[Line], list[Line]]:
    """Lines that read the condition alone (or nothing), and the others."""
    if not conditions:
        return [], lines
    fixed: set[str] = set(conditions)
    early: list[Line] = []
    late: list[Line] = []
    for line in lines:
        if line.reads and line.reads <= fixed:
            fixed.add(line.target)
            early.append(line)
        else:
            late.append(line)
    return (early, late) if sum(len(line.value) for line in early) >= _WORTH_PREPARING else ([], lines)


def _cut(lines: list[Line], longest: int) -> list[list[Line]]:
    groups: list[list[Line]] = []
    length = longest + 1
    for line in lines:
        if length + len(line.value) > longest:
            groups.append([])
            length = 0
        groups[-1].append(line)
        length += len(line.value)
    return groups


def _pieces(
    groups: list[list[Line]], last_reads: frozenset[str], inputs: dict[str, int], conditions: dict[str, int]
) -> tuple[list[Piece], int]:
    reads = [set().union(*(line.reads for line in group)) for group in groups]
    reads[-1] |= last_reads
    given = [{line.target for line in group} for group in groups]
    slots: dict[str, int] = {}
    for at, group in enumerate(groups):
        later = set().union(*reads[at + 1 :])
        for line in group:
            if line.target in later:
                slots[line.target] = len(slots)
    pieces = [
        Piece(
            tuple(group),
            tuple((name, i) for name, i in inputs.items() if name in reads[at]),
            tuple((name, i) for name, i in conditions.items() if name in reads[at]),
            tuple((name, slot) for name, slot in slots.items() if name in reads[at] - given[at]),
            tuple((name, slot) for name, slot in slots.items() if name in given[at]),
        )
        for at, group in enumerate(groups)
    ]
    return pieces, len(slots)

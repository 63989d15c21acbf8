"""The plan of a source: safe names, the order of equations and their division into functions.

Equations that read the condition alone come first (*prepare*), so that many samples for one condition share them.
Long programs are cut into functions of bounded length: compilers and browsers give up on very long ones.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import sympy

from isr.equations.code.printers import (
    CPrinter,
    JavascriptPrinter,
    JaxTextPrinter,
    LanguagePrinter,
    PythonPrinter,
)
from isr.equations.program import Program, without_dead_code
from isr.tables.names import symbol_names

# Equations of the condition alone get a function of their own from this many characters on.
_WORTH_PREPARING = 500
# Identifiers that a C header or a compiler may define as something else, beyond what `symbol_names` avoids.
_CLAIMED = re.compile(
    r"(?i:isr_.*)|_.*|U?INT.*|(M|FP|DBL|FLT|MATH|HUGE)_.*|.*_(MAX|MIN|C|WIDTH)|HUGE.*|linux|unix|i386"
)


@dataclass(frozen=True)
class Language:
    """One language that equations are written in; its syntax stands in its template.

    Functions are cut at ``longest`` characters, and none has a ``claimed`` name.
    """

    name: str
    template: str
    printer: type[LanguagePrinter]
    longest: int | None = None
    claimed: tuple[str, ...] = ()


# V8 compiles no function beyond 60 kB of bytecode to machine code, which is about 120,000 characters of ours, and is
# quickest with short ones: a dense model of 5,400 constants draws 8 % faster from 6,000 characters than from 16,000.
_BESSEL = ("j0", "j1", "jn", "y0", "y1", "yn", "gamma")
LANGUAGES = {
    language.name: language
    for language in (
        Language("c", "model.c.j2", CPrinter, 16_000, _BESSEL),
        Language("javascript", "model.js.j2", JavascriptPrinter, 6_000),
        Language("jax", "model_jax.py.j2", JaxTextPrinter),
        Language("python", "model.py.j2", PythonPrinter),
    )
}
"""The languages code can be written in, by name."""


@dataclass(frozen=True)
class Line:
    """One equation as text, with the identifiers its value reads and the part of the model it belongs to."""

    target: str
    value: str
    reads: frozenset[str]
    part: str


@dataclass(frozen=True)
class Piece:
    """Equations that form one function; what it reads, and leaves for later pieces, as (identifier, index)."""

    lines: tuple[Line, ...]
    inputs: tuple[tuple[str, int], ...]
    conditions: tuple[tuple[str, int], ...]
    carried_in: tuple[tuple[str, int], ...]
    carried_out: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Plan:
    """One direction of a model, ready to be written.

    Args:
        arguments: Identifiers of the inputs.
        names: Identifiers of the outputs, where they have names.
        prepare: Pieces that read the condition alone.
        run: The other pieces, in order.
        outputs: Text of each output, held inside its bounds.
        log_det: Its text.
        n_carried: How many intermediates pass between pieces.
    """

    arguments: tuple[str, ...]
    names: tuple[str, ...]
    prepare: tuple[Piece, ...]
    run: tuple[Piece, ...]
    outputs: tuple[str, ...]
    log_det: str
    n_carried: int


def plan(program: Program, language: Language, n_outputs: int | None = None) -> Plan:
    """Return a program's equations as text, named, ordered and cut; equations that only outputs beyond ``n_outputs``
    need are left out.
    """
    names = _identifiers(program, language)
    printer = language.printer(program, names)
    bounds = program.bounds or ((None, None),) * len(program.outputs)
    held = tuple(_held(e, *b) for e, b in zip(program.outputs, bounds, strict=True))
    kept = replace(program, outputs=held[:n_outputs])
    program = without_dead_code(kept) if len(kept.outputs) < len(held) else kept
    lines: list[Line] = []
    for assignment in program.assignments:
        reads = frozenset(names[s] for s in _symbols(assignment.value))
        value = printer.write(assignment.value)
        lines += _products(printer, assignment.part)
        lines.append(Line(names[assignment.target], value, reads, assignment.part))
    last_reads = frozenset(names[s] for e in (*program.outputs, program.log_det) for s in _symbols(e))
    outputs, log_det = tuple(map(printer.write, program.outputs)), printer.write(program.log_det)
    lines += _products(printer, "result")
    inputs = {names[s]: i for i, s in enumerate(program.inputs)}
    conditions = {names[s]: i for i, s in enumerate(program.conditions)}
    early, late = _by_condition(lines, set(conditions)) if language.longest else ([], lines)
    early_groups, late_groups = _cut(early, language.longest), _cut(late, language.longest) or [[]]
    pieces, n_carried = _pieces([*early_groups, *late_groups], last_reads, inputs, conditions)
    n = len(early_groups)
    named = tuple(names[s] for s in program.output_symbols)
    return Plan(tuple(inputs), named, tuple(pieces[:n]), tuple(pieces[n:]), outputs, log_det, n_carried)


def wrapped(text: str, indent: int, width: int = 110) -> str:
    """Return a long expression over several lines, broken before the signs of sums."""
    if len(text) <= width or "\n" in text:
        return text
    lines = [""]
    for term in re.split(r" (?=[+-] )", text):
        if lines[-1] and len(lines[-1]) + len(term) >= width:
            lines.append("")
        lines[-1] += f" {term}" if lines[-1] else term
    return f"\n{' ' * indent}".join(lines)


def _symbols(expression: sympy.Basic) -> set[sympy.Symbol]:
    return expression.free_symbols  # type: ignore[return-value]


def _identifiers(program: Program, language: Language) -> dict[sympy.Symbol, str]:
    """A safe identifier for each symbol: its own name, unless a language or the runtime has claimed it."""
    targets = (a.target for a in program.assignments)
    symbols = list(dict.fromkeys([*program.inputs, *program.conditions, *targets, *program.output_symbols]))
    claimed = [s.name for s in symbols if _CLAIMED.fullmatch(s.name)]
    claimed += [s.name for s in program.output_symbols if s.name in language.claimed]
    return dict(zip(symbols, symbol_names([s.name for s in symbols], taken=claimed), strict=True))


def _products(printer: LanguagePrinter, part: str) -> list[Line]:
    return [Line(name, text, frozenset(), part) for name, text in printer.take_products()]


def _held(expression: sympy.Expr, low: float | None, high: float | None) -> sympy.Expr:
    if low is not None:
        expression = sympy.Max(expression, sympy.Float(low), evaluate=False)
    if high is not None:
        expression = sympy.Min(expression, sympy.Float(high), evaluate=False)
    return expression


def _by_condition(lines: list[Line], conditions: set[str]) -> tuple[list[Line], list[Line]]:
    """Lines that read the condition alone, and the others."""
    fixed, early, late = set(conditions), [], []
    for line in lines:
        if line.reads and line.reads <= fixed:
            fixed.add(line.target)
            early.append(line)
        else:
            late.append(line)
    return (early, late) if sum(len(line.value) for line in early) >= _WORTH_PREPARING else ([], lines)


def _cut(lines: list[Line], longest: int | None) -> list[list[Line]]:
    groups: list[list[Line]] = []
    length = 0
    for line in lines:
        length += len(line.value)
        if not groups or (longest is not None and length > longest):
            groups.append([])
            length = len(line.value)
        groups[-1].append(line)
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

    def read(places: dict[str, int], wanted: set[str]) -> tuple[tuple[str, int], ...]:
        return tuple((name, i) for name, i in places.items() if name in wanted)

    pieces = [
        Piece(
            tuple(group),
            read(inputs, reads[at]),
            read(conditions, reads[at]),
            read(slots, reads[at] - given[at]),
            read(slots, given[at]),
        )
        for at, group in enumerate(groups)
    ]
    return pieces, len(slots)

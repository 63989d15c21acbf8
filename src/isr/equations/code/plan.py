"""The plan of a source: safe names, the order of equations and their division into functions.

Equations that read the condition alone come first (*prepare*), so that many samples for one condition share them.
Long programs are cut into functions of bounded length: compilers and browsers give up on very long ones.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import sympy

from isr.equations.code.languages import Language, LanguagePrinter
from isr.equations.program import Program, without_dead_code
from isr.tables.names import symbol_names

# Equations of the condition alone get a function of their own from this many characters on.
_WORTH_PREPARING = 500
# Identifiers that a C header or a compiler may define as something else, beyond what `symbol_names` avoids.
_CLAIMED = re.compile(
    r"(?i:isr_.*)|_.*|U?INT.*|(M|FP|DBL|FLT|MATH|HUGE)_.*|.*_(MAX|MIN|C|WIDTH)|HUGE.*|linux|unix|i386"
)


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

    Attributes:
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
    """Return a program's equations as text, named, ordered and cut, for its first ``n_outputs`` outputs."""
    bounds = program.bounds or ((None, None),) * len(program.outputs)
    held = [_held(e, *b) for e, b in zip(program.outputs, bounds, strict=True)][:n_outputs]
    program = without_dead_code(replace(program, outputs=tuple(held)))
    names = _identifiers(program, language)
    printer = LanguagePrinter(language, names)

    def read_by(*expressions: Any) -> frozenset[str]:
        return frozenset(names[s] for e in expressions for s in e.free_symbols)

    lines = [
        Line(names[a.target], printer.write(a.value), read_by(a.value), a.part) for a in program.assignments
    ]
    conditions = [names[s] for s in program.conditions]
    early, late = _by_condition(lines, set(conditions)) if language.longest else ([], lines)
    prepare, run = _cut(early, language.longest), _cut(late, language.longest) or [[]]
    arguments = [names[s] for s in program.inputs]
    pieces, n_carried = _pieces(
        [*prepare, *run], read_by(*program.outputs, program.log_det), arguments, conditions
    )
    return Plan(
        tuple(arguments), tuple(names[s] for s in program.output_symbols), tuple(pieces[: len(prepare)]),
        tuple(pieces[len(prepare) :]), tuple(map(printer.write, program.outputs)), printer.write(program.log_det),
        n_carried,
    )  # fmt: skip


def _identifiers(program: Program, language: Language) -> dict[sympy.Symbol, str]:
    """A safe identifier for each symbol: its own name, unless a language or the runtime has claimed it."""
    targets = (a.target for a in program.assignments)
    symbols = list(dict.fromkeys([*program.inputs, *program.conditions, *targets, *program.output_symbols]))
    claimed = [s.name for s in symbols if _CLAIMED.fullmatch(s.name)]
    claimed += [s.name for s in program.output_symbols if s.name in language.claimed]
    return dict(zip(symbols, symbol_names([s.name for s in symbols], taken=claimed), strict=True))


def _held(expression: sympy.Expr, low: float | None, high: float | None) -> Any:
    for limit, end in ((sympy.Max, low), (sympy.Min, high)):
        expression = expression if end is None else limit(expression, sympy.Float(end), evaluate=False)
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
    groups: list[list[Line]], last_reads: frozenset[str], inputs: Sequence[str], conditions: Sequence[str]
) -> tuple[list[Piece], int]:
    reads = [set().union(*(line.reads for line in group)) for group in groups]
    reads[-1] |= last_reads
    given = [{line.target for line in group} for group in groups]
    passed = [
        line.target
        for at, group in enumerate(groups)
        for line in group
        if any(line.target in later for later in reads[at + 1 :])
    ]

    def places(names: Sequence[str], wanted: set[str]) -> tuple[tuple[str, int], ...]:
        return tuple((name, i) for i, name in enumerate(names) if name in wanted)

    pieces = [
        Piece(
            tuple(group), places(inputs, r), places(conditions, r), places(passed, r - g), places(passed, g)
        )
        for group, r, g in zip(groups, reads, given, strict=True)
    ]
    return pieces, len(passed)

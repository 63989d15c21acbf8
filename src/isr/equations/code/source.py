"""Sources from equations: each direction planned as lines and functions, then put into the template of a language.

Equations that read the condition alone come first (*prepare*), so that many samples for one condition share them.
Long programs are cut into functions of bounded length: compilers and browsers give up on very long ones.
Names and units stand in comments that cannot break out.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import sympy
from jinja2 import Environment, PackageLoader, StrictUndefined

from isr.bijections.affine import LOG_SQRT_2PI
from isr.bijections.flow import N_PAD_NODES
from isr.equations.code.languages import LANGUAGES, Language, LanguagePrinter, number
from isr.equations.program import Program, without_dead_code
from isr.equations.text import legend, one_line
from isr.tables.names import symbol_names

if TYPE_CHECKING:
    from isr.equations.expressions import Expressions

# Equations of the condition alone get a function of their own from this many characters on.
_WORTH_PREPARING = 500
# Identifiers that a C header or a compiler may define as something else, beyond what `symbol_names` avoids.
_CLAIMED = re.compile(
    r"(?i:isr_.*)|_.*|U?INT.*|(M|FP|DBL|FLT|MATH|HUGE)_.*|.*_(MAX|MIN|C|WIDTH)|HUGE.*|linux|unix|i386"
)
_LINE = 110
_HOSTILE = {"*/": "* /", "/*": "/ *", "</": "< /", "<!": "< !", "->": "- >", "??": "? ?"}
_ALIASES = {"c99": "c", "js": "javascript", "numpy": "python", "py": "python"}


def generate(equations: Expressions, language: str) -> str:
    """Return equations as source in another language, standing alone.

    Args:
        equations: What `isr.extract` gave.
        language: ``"python"`` (NumPy alone), ``"c"`` (C99), ``"javascript"`` (an ES module) or ``"jax"``; ``"py"``,
            ``"numpy"``, ``"c99"`` and ``"js"`` are the same.

    Example:
        >>> import jax, isr
        >>> source = generate(isr.extract(isr.build_flow(jax.random.key(0), 2)), "c")
        >>> "double isr_log_prob(const double *x, const double *y)" in source
        True
    """
    name = _ALIASES.get(str(language).lower(), str(language).lower())
    if name not in LANGUAGES:
        raise ValueError(f"no code for language {language!r}; known: {', '.join(LANGUAGES)}")
    parts = (_of_regressor if equations.inverse is None else _of_flow)(equations, LANGUAGES[name])
    return templates().get_template(LANGUAGES[name].template).render(about=_about(equations), **parts)


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
    kept = replace(program, outputs=tuple(held))
    program = kept if len(held) == len(program.outputs) else without_dead_code(kept)
    names = _identifiers(program, language)
    printer = LanguagePrinter(language, names)

    def read_by(*expressions: Any) -> frozenset[str]:
        return frozenset(names[s] for e in expressions for s in e.free_symbols)

    if language.products:
        printer.group_sums(program.expressions)
    lines: list[Line] = []

    def written(expression: Any, part: str) -> str:
        text = printer.write(expression)
        lines.extend(Line(*product, frozenset(), part) for product in printer.take_products())
        return text

    for a in program.assignments:
        value = written(a.value, a.part)
        lines.append(Line(names[a.target], value, read_by(a.value), a.part))
    outputs = tuple(written(e, "result") for e in program.outputs)
    log_det = written(program.log_det, "result")
    conditions = [names[s] for s in program.conditions]
    early, late = _by_condition(lines, set(conditions)) if language.longest else ([], lines)
    prepare, run = _cut(early, language.longest), _cut(late, language.longest) or [[]]
    arguments = [names[s] for s in program.inputs]
    pieces, n_carried = _pieces(
        [*prepare, *run], read_by(*program.outputs, program.log_det), arguments, conditions
    )
    shown = tuple(names[s] for s in program.output_symbols)
    n = len(prepare)
    return Plan(tuple(arguments), shown, tuple(pieces[:n]), tuple(pieces[n:]), outputs, log_det, n_carried)


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


def _of_regressor(equations: Expressions, language: Language) -> dict[str, Any]:
    """What a template needs of a regressor: a plan for each output."""
    program, whole = equations.forward, replace(language, longest=None)
    single = (
        replace(program, outputs=(output,), output_symbols=(symbol,), bounds=(), log_det=sympy.S.Zero)
        for output, symbol in zip(program.outputs, program.output_symbols, strict=True)
    )
    return {"inverse": None, "functions": [plan(without_dead_code(one), whole) for one in single]}


def _of_flow(equations: Expressions, language: Language) -> dict[str, Any]:
    """What a template needs of a flow: a plan for each direction, and how the latent is distributed."""
    forward, inverse = equations.forward_padded or equations.forward, equations.program("inverse")
    n_x, n_latent, noise = len(equations.x_names), len(inverse.inputs), equations.noise
    nodes, weights = np.polynomial.hermite_e.hermegauss(N_PAD_NODES)
    return {
        "forward": plan(forward, language),
        "inverse": plan(inverse, language, n_x),
        "n_x": n_x,
        "n_y": len(equations.y_names),
        "n_latent": n_latent,
        "x_names": equations.x_names,
        "y_names": equations.y_names,
        "noise": noise,
        "n_padding": equations.n_padding,
        # Whether the equations themselves read y.
        "conditional": bool(forward.conditions or inverse.conditions or (equations.y_names and not noise)),
        # Where x has no density: a box is closed, an end bounded alone is open.
        "outside": [
            (i, sign if None not in pair else f"{sign}=", end)
            for i, pair in enumerate(inverse.bounds)
            for sign, end in zip("<>", pair, strict=True)
            if end is not None
        ],
        # What the latent's log-density adds to -sum(standardised**2)/2.
        "base_constant": -float(sum(np.log(s) for s in noise) + n_latent * LOG_SQRT_2PI),
        "nodes": nodes.tolist(),
        "log_weights": (np.log(weights) + 0.5 * nodes**2).tolist(),
    }


def comment(text: str) -> str:
    """Return ``text`` as it may stand in a comment of any of the languages: one line that ends nothing."""
    line = one_line(text).replace("\\", "/").replace('"', "'")
    for hostile, tame in _HOSTILE.items():
        while hostile in line:
            line = line.replace(hostile, tame)
    return re.sub(" +", " ", line).strip()[:200]


def _about(equations: Expressions) -> list[str]:
    """The lines that open a generated source: what it is, and its variables."""
    origin = "Written by isr from a fitted model's equations; stands alone."
    noise, y_names, n_latent = equations.noise, equations.y_names, len(equations.forward.outputs)
    if equations.inverse is None:
        remarks = [f"  {comment(line)}" for line in legend(equations.forward, equations.units)]
        lines = ["Formulas y = f(x), one function per output.", origin]
        return [*lines, "", "Variables:", *remarks] if remarks else lines
    form = (
        "Joint map f(x) = [y, z]" if noise else "Conditional map f(x; y) = z" if y_names else "Map f(x) = z"
    )
    lines = [
        f"{form} with its inverse and the density of x{' given y' if y_names else ''}.",
        origin,
        "",
        "Variables:",
    ]
    for letter, names in (("x", equations.x_names), ("y", y_names)):
        for i, name in enumerate(names):
            unit = equations.units.get(name, "")
            line = f"  {letter}[{i}]  {comment(f'{name} ({unit})' if unit else name)}"
            told = (
                f", observed with normal noise of standard deviation {noise[i]!r}"
                if letter == "y" and noise
                else ""
            )
            lines.append(line + told)
    first = "the first is y" if len(noise) == 1 else f"the first {len(noise)} are y"
    rest = "" if n_latent == len(noise) else ", the rest is standard normal"
    lines.append(
        f"  the latent has {n_latent} entries: {first + rest if noise else 'each is standard normal'}"
    )
    if equations.n_padding:
        lines.append(
            "  the second one belongs to a padding of x by zero, which a coupling of one variable needs"
        )
    return lines


def wrapped(text: str, indent: int) -> str:
    """Return a long expression over several lines, broken before the signs of sums."""
    if len(text) <= _LINE or "\n" in text:
        return text
    lines = [""]
    for term in re.split(r" (?=[+-] )", text):
        if lines[-1] and len(lines[-1]) + len(term) >= _LINE:
            lines.append("")
        lines[-1] += f" {term}" if lines[-1] else term
    return f"\n{' ' * indent}".join(lines)


def _in_brackets(text: str) -> str:
    """A long expression over several lines, which Python reads as one inside brackets only."""
    lines = wrapped(text, 8)
    return lines if "\n" not in lines else f"(\n        {lines}\n    )"


def _text_list(names: Sequence[str]) -> str:
    """Names as a list of string literals that Python and JavaScript read alike, safe inside HTML."""
    return json.dumps(list(names)).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@functools.cache
def templates() -> Environment:
    environment = Environment(
        loader=PackageLoader("isr.equations.code"),
        undefined=StrictUndefined,
        autoescape=False,  # what users wrote passes `comment` or `text_list`
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    own = {"comment": comment, "number": number, "text_list": _text_list}
    environment.filters |= own | {"wrapped": wrapped, "in_brackets": _in_brackets}
    return environment

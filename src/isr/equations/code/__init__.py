"""Code in other languages from equations: C, JavaScript, Python and JAX, each standing alone.

A language is a row of the table in `languages` and a file in ``templates/``. The source of a flow offers forward,
inverse, log-determinant, log-density and sampling, given y where there is one; that of a regressor one function per
output, named after it, with the inputs as arguments.

Equations that read the condition alone come first (*prepare*), so that many samples for one condition share them.
Long programs are cut into functions of bounded length: compilers and browsers give up on very long ones.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

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

__all__ = ["ALIASES", "LANGUAGES", "generate", "templates"]

# Equations of the condition alone get a function of their own from this many characters on.
_WORTH_PREPARING = 500
# Identifiers that a C header or a compiler may define as something else, beyond what `symbol_names` avoids.
_CLAIMED = re.compile(
    r"(?i:isr_.*)|_.*|U?INT.*|(M|FP|DBL|FLT|MATH|HUGE)_.*|.*_(MAX|MIN|C|WIDTH)|HUGE.*|linux|unix|i386"
)
_LINE = 110
_HOSTILE = {"*/": "* /", "/*": "/ *", "</": "< /", "<!": "< !", "->": "- >", "??": "? ?"}
ALIASES = {"c99": "c", "js": "javascript", "numpy": "python", "py": "python"}


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
    name = ALIASES.get(str(language).lower(), str(language).lower())
    if name not in LANGUAGES:
        raise ValueError(f"no code for language {language!r}; known: {', '.join(LANGUAGES)}")
    parts = (_of_regressor if equations.inverse is None else _of_flow)(equations, LANGUAGES[name])
    return templates().get_template(LANGUAGES[name].template).render(about=_about(equations), **parts)


class Line(NamedTuple):
    """One equation as text, with the identifiers its value reads and the part of the model it belongs to."""

    target: str
    value: str
    reads: frozenset[str]
    part: str


Places = tuple[tuple[str, int], ...]


class Piece(NamedTuple):
    """Equations that form one function; what it reads, and leaves for later pieces, as (identifier, index)."""

    lines: tuple[Line, ...]
    inputs: Places
    conditions: Places
    carried_in: Places
    carried_out: Places


class Plan(NamedTuple):
    """One direction of a model: identifiers of inputs and of named outputs, the pieces that read the condition alone
    and the others, text of outputs and log-determinant, and how many intermediates pass between pieces.
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
    held: list[Any] = list(program.outputs[:n_outputs])
    for i, (low, high) in enumerate(program.bounds[:n_outputs]):
        held[i] = held[i] if low is None else sympy.Max(held[i], sympy.Float(low), evaluate=False)
        held[i] = held[i] if high is None else sympy.Min(held[i], sympy.Float(high), evaluate=False)
    kept = replace(program, outputs=tuple(held))
    program = kept if len(held) == len(program.outputs) else without_dead_code(kept)
    # A safe identifier for each symbol: its own name, unless a language or the runtime has claimed it.
    targets = (a.target for a in program.assignments)
    symbols = list(dict.fromkeys([*program.inputs, *program.conditions, *targets, *program.output_symbols]))
    claimed = [s.name for s in symbols if _CLAIMED.fullmatch(s.name)]
    claimed += [s.name for s in program.output_symbols if s.name in language.claimed]
    names = dict(zip(symbols, symbol_names([s.name for s in symbols], taken=claimed), strict=True))
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
    arguments, conditions = (tuple(names[s] for s in part) for part in (program.inputs, program.conditions))
    fixed, early = set(conditions), []
    for line in lines:
        if line.reads and line.reads <= fixed:
            fixed.add(line.target)
            early.append(line)
    if not language.longest or sum(len(line.value) for line in early) < _WORTH_PREPARING:
        early = []
    done = {line.target for line in early}
    late = [line for line in lines if line.target not in done]
    prepare, run = _cut(early, language.longest), _cut(late, language.longest) or [[]]
    last_reads, n = read_by(*program.outputs, program.log_det), len(prepare)
    pieces, n_carried = _pieces([*prepare, *run], last_reads, arguments, conditions)
    shown = tuple(names[s] for s in program.output_symbols)
    return Plan(arguments, shown, tuple(pieces[:n]), tuple(pieces[n:]), outputs, log_det, n_carried)


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
    passed: list[str] = []
    for at, group in enumerate(groups):
        wanted = set().union(*reads[at + 1 :])
        passed += [line.target for line in group if line.target in wanted]

    def places(names: Sequence[str], wanted: set[str]) -> Places:
        return tuple((name, i) for i, name in enumerate(names) if name in wanted)

    pieces = [
        Piece(
            tuple(g), places(inputs, r), places(conditions, r), places(passed, r - own), places(passed, own)
        )
        for g, r, own in zip(groups, reads, given, strict=True)
    ]
    return pieces, len(passed)


def _of_regressor(equations: Expressions, language: Language) -> dict[str, Any]:
    """What a template needs of a regressor: a plan for each output."""
    program, whole = equations.forward, replace(language, longest=None)
    plain = replace(program, bounds=(), log_det=sympy.S.Zero)
    pairs = zip(program.outputs, program.output_symbols, strict=True)
    single = (replace(plain, outputs=(output,), output_symbols=(symbol,)) for output, symbol in pairs)
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
    form = "Conditional map f(x; y) = z" if y_names else "Map f(x) = z"
    form = "Joint map f(x) = [y, z]" if noise else form
    given = " given y" if y_names else ""
    lines = [f"{form} with its inverse and the density of x{given}.", origin, "", "Variables:"]
    for letter, names in (("x", equations.x_names), ("y", y_names)):
        for i, name in enumerate(names):
            unit = equations.units.get(name, "")
            line = f"  {letter}[{i}]  {comment(f'{name} ({unit})' if unit else name)}"
            if letter == "y" and noise:
                line += f", observed with normal noise of standard deviation {noise[i]!r}"
            lines.append(line)
    first = "the first is y" if len(noise) == 1 else f"the first {len(noise)} are y"
    rest = "" if n_latent == len(noise) else ", the rest is standard normal"
    told = first + rest if noise else "each is standard normal"
    lines.append(f"  the latent has {n_latent} entries: {told}")
    padding = "  the second one belongs to a padding of x by zero, which a coupling of one variable needs"
    return [*lines, padding] if equations.n_padding else lines


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
    """The templates; what users wrote passes `comment` or `_text_list`."""
    environment = Environment(
        loader=PackageLoader("isr.equations.code"),
        undefined=StrictUndefined,
        autoescape=False,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    own = {"comment": comment, "number": number, "text_list": _text_list}
    environment.filters |= own | {"wrapped": wrapped, "in_brackets": _in_brackets}
    return environment

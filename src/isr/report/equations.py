"""The equations of a model as they stand on the page, and as text to copy."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import sympy

from isr.data.names import symbol_names
from isr.expressions import Expressions, extract
from isr.expressions.compose import ExpressionTooLarge
from isr.expressions.latex import latex
from isr.expressions.mathml import mathml
from isr.expressions.program import Assignment, Program
from isr.model.flow import Flow
from isr.model.formula import Formulas, express
from isr.model.sigmoid import written_out
from isr.report.uncertainty import constant_errors

# Longer than this nobody reads; the sources hold the rest.
MOST_EQUATIONS = 40
MOST_TERMS = 1500
# A composed form of more operations is no easier to read than the equations it replaces.
MOST_COMPOSED = 120
LINE_WIDTH = 84
# Two columns of equations have room for so many characters each.
HALF_WIDTH = 46
HEADINGS = {"forward": "Forward", "inverse": "Inverse"}
_ELLIPSIS = sympy.Symbol("⋮")


@dataclass(frozen=True)
class Listing:
    """Equations under one heading.

    Args:
        heading: What they are.
        html: MathML, or nothing where they are too long.
        note: What the reader should know about it.
    """

    heading: str
    html: str
    note: str = ""

    @property
    def width(self) -> int:
        """About how many characters the longest line has."""
        return max(len(re.sub(r"<[^>]*>|&#8290;", "", row)) for row in self.html.split("</mtr>"))


@dataclass(frozen=True)
class Equations:
    """A model's equations.

    Args:
        listings: What is shown.
        sources: Text to copy, by its name.
        complexity: Their cost; None where it is not known.
        n_constants: How many numbers stand in them.
        errors: Standard errors of printed constants, by absolute value.
    """

    listings: tuple[Listing, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict)
    complexity: int | None = None
    n_constants: int | None = None
    errors: Mapping[float, float] = field(default_factory=dict)

    @property
    def columns(self) -> int:
        """How many listings fit side by side."""
        return 2 if max((item.width for item in self.listings), default=0) <= HALF_WIDTH else 1


def flow_equations(expressions: Expressions, flow: Flow | None = None, errors: Any = None) -> Equations:
    """Return the equations of a flow, both ways, with sources to copy.

    Args:
        expressions: What `isr.extract` gave.
        flow: The model; needed for standard errors.
        errors: Standard errors of its learned numbers.
    """
    known: dict[float, float] = {}
    if flow is not None and errors is not None:
        units = dict(expressions.units)
        names = expressions.x_names, expressions.y_names or None, units

        def write(model: Any) -> list[sympy.Expr]:
            found = extract(model, *names)
            return [*found.forward.expressions, *found.inverse.expressions]

        known = constant_errors(flow, np.asarray(errors), write)
    listings = flow_listings(expressions, known)
    pieces = [_in_one_piece(expressions, direction) for direction in HEADINGS]
    return Equations(
        (*listings, *(piece for piece in pieces if piece is not None)),
        _flow_sources(expressions),
        expressions.complexity,
        expressions.n_constants,
        known,
    )


def flow_listings(expressions: Expressions, errors: Mapping[float, float] | None = None) -> list[Listing]:
    """Return the equations of a flow, forward and inverse."""
    return [
        _listing(expressions.program(direction), f"{heading}: {_arrow(expressions, direction)}", errors or {})
        for direction, heading in HEADINGS.items()
    ]


def _in_one_piece(expressions: Expressions, direction: str) -> Listing | None:
    program = expressions.program(direction)
    if not program.assignments:
        return None
    try:
        composed = expressions.composed(direction, max_operations=MOST_COMPOSED)
    except ExpressionTooLarge:
        return None
    whole = replace(program, assignments=(), outputs=composed.outputs, log_det=composed.log_det)
    return _listing(whole, f"{HEADINGS[direction]}, in one piece", {})


def _arrow(expressions: Expressions, direction: str) -> str:
    latent = "y, z" if expressions.noise else "z"
    given = "" if expressions.noise or not expressions.y_names else " given y"
    return f"x to {latent}{given}" if direction == "forward" else f"{latent} to x{given}"


def _listing(
    program: Program, heading: str, errors: Mapping[float, float], *, log_det: bool = True
) -> Listing:
    n, shown = len(program.assignments), program.assignments
    n_terms = sum(len(a.value.atoms(sympy.Number)) for a in shown)
    if n > MOST_EQUATIONS or n_terms > MOST_TERMS:
        shown = shown[:MOST_EQUATIONS] if n_terms <= MOST_TERMS else shown[: MOST_EQUATIONS // 4]
        note = (
            f"{n - len(shown):,} more equations are left out here; the Python and C sources hold all of them."
        )
        gap = Assignment(_ELLIPSIS, _ELLIPSIS)
        return Listing(heading, _markup(replace(program, assignments=(*shown, gap)), errors, log_det), note)
    return Listing(heading, _markup(program, errors, log_det))


def _markup(program: Program, errors: Mapping[float, float], log_det: bool) -> str:
    return mathml(program, errors=errors, width=LINE_WIDTH, log_det=log_det)


def _flow_sources(expressions: Expressions) -> dict[str, str]:
    sources = {}
    n_terms = sum(len(a.value.atoms(sympy.Number)) for a in expressions.forward.assignments)
    if n_terms <= MOST_TERMS:
        sources["LaTeX"] = (
            f"% forward\n{expressions.latex('forward')}\n\n% inverse\n{expressions.latex('inverse')}\n"
        )
    sources["Python"] = expressions.code("python")
    sources["C"] = expressions.code("c")
    return sources


def regressor_equations(
    formulas: Formulas, x_names: Sequence[str], y_names: Sequence[str], errors: Any = None
) -> Equations:
    """Return the formulas of a regressor, one an output."""
    program = _formula_program(formulas, x_names, y_names)
    known: dict[float, float] = {}
    if errors is not None:
        known = constant_errors(
            formulas, np.asarray(errors), lambda m: _formula_program(m, x_names, y_names).outputs
        )
    return Equations(
        (_listing(program, "y from x", known, log_det=False),), _formula_sources(program), errors=known
    )


def _formula_program(formulas: Formulas, x_names: Sequence[str], y_names: Sequence[str]) -> Program:
    names = symbol_names([*x_names, *y_names])
    symbols = [sympy.Symbol(name, real=True) for name in names]
    inputs, outputs = tuple(symbols[: len(x_names)]), tuple(symbols[len(x_names) :])
    constants = [_number(c) for c in np.asarray(formulas.constants, np.float64)]
    return Program(
        inputs=inputs,
        conditions=(),
        assignments=(),
        outputs=tuple(express(tree, inputs, constants) for tree in formulas.trees),
        log_det=sympy.S.Zero,
        output_symbols=outputs,
        labels=dict(zip(names, (*x_names, *y_names), strict=True)),
    )


def _number(value: float) -> sympy.Expr:
    return sympy.Integer(int(value)) if float(value).is_integer() else sympy.Float(float(value))


def _formula_sources(program: Program) -> dict[str, str]:
    arguments = [s.name for s in program.inputs]
    pairs = [(s.name, written_out(e)) for s, e in zip(program.output_symbols, program.outputs, strict=True)]
    python = ["from math import *", ""]
    c = ["#include <math.h>", ""]
    for name, value in pairs:
        python += [f"def {name}({', '.join(arguments)}):"]
        python += [f"    return {sympy.pycode(value, fully_qualified_modules=False)}", ""]
        c += [f"double {name}({', '.join(f'double {a}' for a in arguments)})"]
        c += ["{", f"    return {sympy.ccode(value, standard='c99')};", "}", ""]
    rows = latex(program).replace(" \\\\\n\\ln \\left| \\det J \\right| &= 0", "")
    return {"LaTeX": rows, "Python": "\n".join(python), "C": "\n".join(c)}

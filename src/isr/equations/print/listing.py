"""Equations as they stand on a page: MathML under a heading, cut short where nobody would read on."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import sympy

from isr.equations.compose import ExpressionTooLarge, compose
from isr.equations.print.mathml import mathml
from isr.equations.program import Assignment, Program

if TYPE_CHECKING:
    from isr.equations.expressions import Expressions

# Longer than this nobody reads; the sources hold the rest.
MOST_EQUATIONS = 40
MOST_TERMS = 1500
# A composed form of more operations is no easier to read than the equations it replaces.
MOST_COMPOSED = 120
LINE_WIDTH = 84
HEADINGS = {"forward": "Forward", "inverse": "Inverse"}
_ELLIPSIS = sympy.Symbol("⋮")


@dataclass(frozen=True)
class Listing:
    """Equations under one heading.

    Args:
        heading: What they are.
        html: MathML.
        note: What the reader should know about it.
    """

    heading: str
    html: str
    note: str = ""

    @property
    def width(self) -> int:
        """About how many characters the longest line has."""
        return max(len(re.sub(r"<[^>]*>|&#8290;", "", row)) for row in self.html.split("</mtr>"))

    @property
    def section(self) -> str:
        """Heading, equations and note as HTML of their own."""
        parts = [f"<p>{html.escape(self.heading)}</p>" if self.heading else "", self.html]
        return "".join([*parts, f"<p>{html.escape(self.note)}</p>" if self.note else ""])


def units_html(units: Mapping[str, str]) -> str:
    """Return a paragraph that tells the units of variables, or nothing where there are none.

    Example:
        >>> units_html({"depth": "m", "speed": "m/s"})
        '<p>Units: depth in m, speed in m/s</p>'
    """
    told = ", ".join(f"{name} in {unit}" for name, unit in units.items())
    return f"<p>Units: {html.escape(told)}</p>" if told else ""


def listings(expressions: Expressions, errors: Mapping[float, float] | None = None) -> list[Listing]:
    """Return the equations of a model, each direction under its heading.

    Args:
        expressions: What `isr.extract` gave.
        errors: Standard error of a constant, by its absolute value.
    """
    if expressions.inverse is None:
        return [listing(expressions.forward, "y from x", errors=errors, log_det=False)]
    return [
        listing(expressions.program(way), f"{HEADINGS[way]}: {_arrow(expressions, way)}", errors=errors)
        for way in expressions.directions
    ]


def composed_listings(expressions: Expressions) -> list[Listing]:
    """Return each direction of a model without intermediates, where that is short."""
    found = (_in_one_piece(expressions, direction) for direction in expressions.directions)
    return [piece for piece in found if piece is not None]


def listing(
    program: Program, heading: str = "", *, errors: Mapping[float, float] | None = None, log_det: bool = True
) -> Listing:
    """Return the equations of one direction.

    Args:
        program: The equations.
        heading: What they are.
        errors: Standard error of a constant, by its absolute value.
        log_det: Whether the log-determinant has a row.
    """
    n, shown, note = len(program.assignments), program.assignments, ""
    few = n_terms(program) <= MOST_TERMS
    if n > MOST_EQUATIONS or not few:
        shown = shown[: MOST_EQUATIONS if few else MOST_EQUATIONS // 4]
        note = (
            f"{n - len(shown):,} more equations are left out here; the Python and C sources hold all of them."
        )
        program = replace(program, assignments=(*shown, Assignment(_ELLIPSIS, _ELLIPSIS)))
    return Listing(heading, mathml(program, errors=errors, width=LINE_WIDTH, log_det=log_det), note)


def n_terms(program: Program) -> int:
    """Return how many numbers stand in the intermediates of a program."""
    return sum(len(a.value.atoms(sympy.Number)) for a in program.assignments)


def _in_one_piece(expressions: Expressions, direction: str) -> Listing | None:
    program = expressions.program(direction)
    if not program.assignments:
        return None
    try:
        composed = compose(program, max_operations=MOST_COMPOSED)
    except ExpressionTooLarge:
        return None
    whole = replace(program, assignments=(), outputs=composed.outputs, log_det=composed.log_det)
    log_det = expressions.inverse is not None
    return listing(whole, f"{HEADINGS[direction]}, in one piece", log_det=log_det)


def _arrow(expressions: Expressions, direction: str) -> str:
    latent = "y, z" if expressions.noise else "z"
    given = "" if expressions.noise or not expressions.y_names else " given y"
    return f"x to {latent}{given}" if direction == "forward" else f"{latent} to x{given}"

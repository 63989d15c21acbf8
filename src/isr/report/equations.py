"""The equations of a model as they stand in a report: listings, sources to copy, errors of printed constants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import sympy

from isr.equations import Expressions, extract
from isr.equations.print.listing import (
    MOST_TERMS,
    Listing,
    composed_listings,
    listings,
    n_terms,
)
from isr.report.uncertainty import constant_errors

# Two columns of equations have room for so many characters each.
HALF_WIDTH = 46


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


def equations_of(model: Any, expressions: Expressions, errors: Any = None) -> Equations:
    """Return the equations of a model with sources to copy.

    Args:
        model: A flow, or the formulas of a regressor.
        expressions: What `isr.extract` gave for it.
        errors: Standard errors of its learned numbers.
    """
    known = printed_errors(model, expressions, errors)
    sources = {"Python": expressions.code("python"), "C": expressions.code("c")}
    if expressions.inverse is None:
        sources = {"LaTeX": expressions.latex(), **sources}
    elif n_terms(expressions.forward) <= MOST_TERMS:
        both = "\n\n".join(f"% {way}\n{expressions.latex(way)}" for way in expressions.directions)
        sources = {"LaTeX": f"{both}\n", **sources}
    return Equations(
        (*listings(expressions, known), *composed_listings(expressions)),
        sources,
        expressions.complexity,
        expressions.n_constants,
        known,
    )


def printed_errors(model: Any, expressions: Expressions, errors: Any) -> dict[float, float]:
    """Return the standard error of each printed constant that has one, by its absolute value."""
    names = expressions.x_names, expressions.y_names or None, dict(expressions.units)

    def write(model: Any) -> list[sympy.Expr]:
        found = extract(model, *names)
        return [e for direction in found.directions for e in found.program(direction).expressions]

    return {} if errors is None else constant_errors(model, np.asarray(errors), write)

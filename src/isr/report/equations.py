"""The equations of a model as they stand in a report: listings, sources to copy, errors of printed constants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import sympy

from isr.bijections.flow import Flow
from isr.bijections.formula import Formulas
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


def flow_equations(expressions: Expressions, flow: Flow | None = None, errors: Any = None) -> Equations:
    """Return the equations of a flow, both ways, with sources to copy.

    Args:
        expressions: What `isr.extract` gave.
        flow: The model; needed for standard errors.
        errors: Standard errors of its learned numbers.
    """
    known = flow_errors(expressions, flow, errors) if flow is not None and errors is not None else {}
    return Equations(
        (*listings(expressions, known), *composed_listings(expressions)),
        _flow_sources(expressions),
        expressions.complexity,
        expressions.n_constants,
        known,
    )


def flow_errors(expressions: Expressions, flow: Flow, errors: Any) -> dict[float, float]:
    """Return the standard error of each constant printed in either direction of a flow, by its absolute value."""
    names = expressions.x_names, expressions.y_names or None, dict(expressions.units)

    def write(model: Any) -> list[sympy.Expr]:
        found = extract(model, *names)
        return [*found.forward.expressions, *found.inverse.expressions]

    return constant_errors(flow, np.asarray(errors), write)


def formula_errors(
    formulas: Formulas, x_names: Sequence[str], y_names: Sequence[str], errors: Any
) -> dict[float, float]:
    """Return the standard error of each constant printed in a regressor's formulas, by its absolute value."""
    return constant_errors(
        formulas, np.asarray(errors), lambda m: extract(m, x_names, y_names).forward.outputs
    )


def _flow_sources(expressions: Expressions) -> dict[str, str]:
    sources = {}
    if n_terms(expressions.forward) <= MOST_TERMS:
        sources["LaTeX"] = (
            f"% forward\n{expressions.latex('forward')}\n\n% inverse\n{expressions.latex('inverse')}\n"
        )
    return {**sources, "Python": expressions.code("python"), "C": expressions.code("c")}


def regressor_equations(
    formulas: Formulas,
    x_names: Sequence[str],
    y_names: Sequence[str],
    errors: Any = None,
    units: Mapping[str, str] | None = None,
) -> Equations:
    """Return the formulas of a regressor, one an output."""
    equations = extract(formulas, x_names, y_names, units)
    known = formula_errors(formulas, x_names, y_names, errors) if errors is not None else {}
    return Equations(
        tuple(listings(equations, known)),
        {"LaTeX": equations.latex(), "Python": equations.code("python"), "C": equations.code("c")},
        equations.complexity,
        equations.n_constants,
        known,
    )

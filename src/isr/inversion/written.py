"""Laws in the forms that equations have: text for a page or a terminal, and `Expressions`, for LaTeX and code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import sympy

from isr.equations.expressions import Expressions
from isr.equations.functions import NAMES
from isr.equations.program import Program
from isr.inversion.law import Law
from isr.inversion.prior import PriorLaw
from isr.inversion.proposal import Proposal
from isr.search.formula import symbol
from isr.tables.names import symbol_names


def sections(law: Law, prior: PriorLaw, proposal: Proposal) -> list[tuple[str, str]]:
    """Return what was found under a heading each: the law of y, the law of x, and how draws are made.

    Example:
        >>> from isr.inversion.law import Column, Group
        >>> from isr.inversion.prior import of_prior
        >>> from isr.inversion.proposal import find_proposal
        >>> from isr.posterior.priors import parse_prior
        >>> from isr.search.formula import Formula, parse
        >>> column = Column("y", 0, Formula(parse("2.0*a", ["a"])), Formula(parse("0.1", [])))
        >>> law, prior = Law(("a",), (column,), (Group((0,)),)), of_prior(parse_prior({"a": (0, 1)}), ["a"])
        >>> dict(sections(law, prior, find_proposal(law, prior)))["y given x"]
        'y = 2*a ± 0.1'
        >>> expressions(law, ["a"]).text().splitlines()
        ['y    = 2*a', 'y_sd = 0.1']
    """
    return [("y given x", str(law)), ("x", str(prior)), ("x given y", str(proposal))]


def expressions(law: Law, x_names: Sequence[str], units: Mapping[str, str] | None = None) -> Expressions:
    """Return mean and standard deviation of each column as equations in x; those of log y under that name."""
    shown, values = [], []
    for column in law.columns:
        name = f"log_{column.name}" if column.transform else column.name
        shown += [name] if column.is_exact else [name, f"{name}_sd"]
        values += [column.mean.expression, *([] if column.is_exact else [abs(column.scale.expression)])]
    names = symbol_names([*x_names, *shown], taken=NAMES)
    inputs, outputs = (tuple(map(symbol, part)) for part in (names[: len(x_names)], names[len(x_names) :]))
    moved = dict(zip(map(symbol, law.x_names), inputs, strict=True))
    values = [value.xreplace(moved) for value in values]
    labels = dict(zip((s.name for s in (*inputs, *outputs)), (*x_names, *shown), strict=True))
    program = Program(inputs, (), (), tuple(values), sympy.S.Zero, output_symbols=outputs, labels=labels)
    return Expressions(program, None, tuple(x_names), tuple(shown), dict(units or {}))

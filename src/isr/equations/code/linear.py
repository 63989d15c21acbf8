"""Sums over the same variables gathered into matrices, for languages that compile matrix products better."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sympy

from isr.equations.program import Program

# A sum of fewer weighed variables is as quick term by term.
_FEWEST_TERMS = 3


@dataclass(frozen=True)
class LinearForms:
    """Sums that weigh the same variables, side by side: one matrix product gives them all.

    Args:
        symbols: The variables, in the order of the matrix's columns.
        rows: The weights of each sum.
    """

    symbols: tuple[sympy.Symbol, ...]
    rows: dict[sympy.Expr, list[float]]


def linear_forms(program: Program) -> dict[sympy.Expr, LinearForms]:
    """Return the group each sum of a program belongs to, for sums worth a matrix product.

    Written out term by term, a dense layer takes XLA minutes to compile; as a product, seconds.
    """
    groups: dict[tuple[sympy.Symbol, ...], LinearForms] = {}
    for expression in program.expressions:
        for total in sorted(expression.atoms(sympy.Add), key=sympy.default_sort_key):
            weights = dict(pair for pair in map(weighed, total.args) if pair is not None)
            if len(weights) >= _FEWEST_TERMS:
                symbols = tuple(sorted(weights, key=lambda s: s.name))
                row = [weights[s] for s in symbols]
                groups.setdefault(symbols, LinearForms(symbols, {})).rows[total] = row
    return {total: forms for forms in groups.values() for total in forms.rows}


def weighed(term: Any) -> tuple[sympy.Symbol, float] | None:
    """Return variable and weight of a term ``number * variable``, ``None`` for any other term."""
    if term.is_Symbol:
        return term, 1.0
    if term.is_Mul and len(term.args) == 2 and term.args[0].is_Number and term.args[1].is_Symbol:
        return term.args[1], float(term.args[0])
    return None

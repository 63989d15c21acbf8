"""Laws that a user knows already: text by column of y, or a function written in JAX."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sympy

from isr.search.formula import Formula, parse, symbol
from isr.tables.names import quoted


def read_laws(given: Any, x_names: Sequence[str], y_names: Sequence[str]) -> dict[str, Formula]:
    """Return the stated formula of each column of y that has one.

    Args:
        given: None, text of the only column, a list of texts, a mapping from column to text, or a function of one row
            of x in JAX that gives all columns.
        x_names: Identifiers of the variables of x.
        y_names: Names of the columns of y.

    Example:
        >>> read_laws("0.5*sin(a) + h", ["h", "a"], ["y"])
        {'y': h + 0.5*sin(a)}
        >>> import jax.numpy as jnp
        >>> read_laws(lambda x: jnp.stack([x[0] + 0.5 * jnp.sin(x[1])]), ["h", "a"], ["y"])
        {'y': h + 0.5*sin(a)}
    """
    if given is None:
        return {}
    if callable(given):
        return dict(zip(y_names, _of_function(given, x_names, y_names), strict=True))
    if isinstance(given, str):
        given = [given]
    if isinstance(given, Mapping):
        unknown = sorted(set(given) - set(y_names))
        if unknown:
            raise ValueError(
                f"law names {quoted(unknown)}, which are no columns of y; known: {quoted(y_names)}"
            )
    else:
        if len(given) != len(y_names):
            raise ValueError(
                f"law gives {len(given)} formulas for the {len(y_names)} columns of y: {quoted(y_names)}; "
                "give a mapping from column to text where only some are known"
            )
        given = dict(zip(y_names, given, strict=True))
    return {name: Formula(parse(str(text), x_names)) for name, text in given.items()}


def _of_function(function: Any, x_names: Sequence[str], y_names: Sequence[str]) -> list[Formula]:
    from isr.equations.extract import function_program
    from isr.equations.program import compose

    inputs = [symbol(name) for name in x_names]
    outputs = [sympy.Symbol(f"output_{i}", real=True) for i in range(len(y_names))]
    try:
        program = function_program(function, inputs, outputs, {})
    except Exception as error:
        raise ValueError(
            f"law could not be read: {error}; it must be a function of one row of x written in JAX, or text"
        ) from error
    composed = compose(program, max_operations=float("inf")).outputs
    if len(composed) != len(y_names):
        raise ValueError(f"law gives {len(composed)} values, but y has the columns {quoted(y_names)}")
    return [Formula(sympy.sympify(expression, strict=True)) for expression in composed]

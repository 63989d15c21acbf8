"""Composition: the closed form without intermediates, where it stays readable.

How large it would be is counted before anything is composed: the size of each intermediate follows from those it reads.
"""

from __future__ import annotations

from dataclasses import dataclass

import sympy

from isr.equations.functions import written_out
from isr.equations.program import Program, replaced


class ExpressionTooLarge(ValueError):
    """The composed closed form would be too large to read."""


@dataclass(frozen=True)
class Composed:
    """One direction in closed form.

    Args:
        inputs: The variables that go in.
        conditions: The observations read besides.
        outputs: Each output in inputs and conditions alone.
        log_det: The log-determinant, likewise.
        output_symbols: The names of the outputs.
    """

    inputs: tuple[sympy.Symbol, ...]
    conditions: tuple[sympy.Symbol, ...]
    outputs: tuple[sympy.Expr, ...]
    log_det: sympy.Expr
    output_symbols: tuple[sympy.Symbol, ...] = ()


def compose(program: Program, *, max_operations: float = 1000) -> Composed:
    """Return a program with every intermediate put in.

    Args:
        program: One direction of a model.
        max_operations: Refuse what would take more operations than this.

    Raises:
        ExpressionTooLarge: When it would.

    Example:
        >>> from isr.equations.program import Assignment
        >>> x, v = sympy.symbols("x v", real=True)
        >>> compose(Program((x,), (), (Assignment(v, 2 * x),), (v + 1,), sympy.log(2))).outputs
        (2*x + 1,)
    """
    size = composed_size(program)
    if size > max_operations:
        raise ExpressionTooLarge(
            f"the composed closed form would take about {_readable(size)} operations, more than the "
            f"{max_operations:,} allowed; read the block form instead (.forward, .inverse, .blocks), prune the model "
            f"to fewer terms, or raise max_operations"
        )
    values: dict[sympy.Basic, sympy.Expr] = {}
    for assignment in program.assignments:
        values[assignment.target] = replaced(assignment.value, values)
    return Composed(
        inputs=program.inputs,
        conditions=program.conditions,
        outputs=tuple(written_out(replaced(e, values)) for e in program.outputs),
        log_det=written_out(replaced(program.log_det, values)),
        output_symbols=program.output_symbols,
    )


def composed_size(program: Program) -> int:
    """Return how many operations the composed outputs and log-determinant would take together."""
    sizes: dict[sympy.Basic, int] = {}
    for assignment in program.assignments:
        sizes[assignment.target] = _size(assignment.value, sizes)
    return sum(_size(e, sizes) for e in (*program.outputs, program.log_det))


def _size(expression: sympy.Expr, sizes: dict[sympy.Basic, int]) -> int:
    own = int(sympy.count_ops(expression))
    return own + sum(sizes.get(leaf, 0) for leaf in sympy.preorder_traversal(expression) if leaf.is_Symbol)


def _readable(size: int) -> str:
    return f"{size:,}" if size < 10**9 else f"{float(size):.1e}" if size < 10**300 else "10^300 or more"

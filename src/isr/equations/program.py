"""Program: a map written as equations, one named intermediate after the other, or composed into one closed form.

The program is the block form of an expression. It grows in proportion to the model, where the composed closed form may
swell exponentially, and every other form (text, LaTeX, code) is made from it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

import sympy

from isr.equations.functions import written_out

LOG_DET = "log_det"
"""What the log-determinant is called where it is printed."""


@dataclass(frozen=True)
class Assignment:
    """One equation ``target = value``.

    Args:
        target: The name given.
        value: An expression of inputs, conditions and earlier targets.
        part: Which part of the model it belongs to, such as ``"standardise"`` or ``"block 1"``.
        role: What it is in the paper's words (``"s1"``, ``"t1"``, ``"v1"``, ``"o2"``, ``"hidden"``, ``"guard"``, ...).

    Example:
        >>> x, v = sympy.symbols("x v", real=True)
        >>> Assignment(v, 2 * x).value
        2*x
    """

    target: sympy.Symbol
    value: sympy.Expr
    part: str = ""
    role: str = ""


@dataclass(frozen=True)
class Program:
    """One direction of a bijection with its log-determinant, as a list of equations.

    Args:
        inputs: The variables that go in, in order.
        conditions: The observations the equations read besides (conditional form), in order.
        assignments: The equations, each reading only what stands before it.
        outputs: What comes out, in order: expressions of inputs, conditions and targets.
        log_det: Natural logarithm of the absolute Jacobian determinant of this direction.
        bounds: For each output the limits it is held inside, ``None`` where open; empty when all are open.
        output_symbols: The names the outputs go by, one each; no equation reads them.
        labels: The user's own name of a symbol, where the symbol stands for one.

    Example:
        >>> x, v = sympy.symbols("x v", real=True)
        >>> program = Program((x,), (), (Assignment(v, 2 * x),), (v + 1,), sympy.log(2))
        >>> program.expressions, program.n_operations
        ((2*x, v + 1, log(2)), 3)
    """

    inputs: tuple[sympy.Symbol, ...]
    conditions: tuple[sympy.Symbol, ...]
    assignments: tuple[Assignment, ...]
    outputs: tuple[sympy.Expr, ...]
    log_det: sympy.Expr
    bounds: tuple[tuple[float | None, float | None], ...] = ()
    output_symbols: tuple[sympy.Symbol, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    @property
    def n_operations(self) -> int:
        """How many operations the equations take in all."""
        return int(sum(sympy.count_ops(v) for v in self.expressions))

    @property
    def expressions(self) -> tuple[sympy.Expr, ...]:
        """Every right-hand side: assignments, outputs, log-determinant."""
        return (*(a.value for a in self.assignments), *self.outputs, self.log_det)

    def __str__(self) -> str:
        from isr.equations.text import text

        return text(self)

    def __repr__(self) -> str:
        names = ", ".join(symbol.name for symbol in (*self.inputs, *self.conditions))
        n = len(self.assignments) + len(self.outputs)
        return f"<Program of {names}: {n} equations; print them to read them>"

    def _repr_latex_(self) -> str:
        from isr.equations.typeset import latex

        return latex(self)

    def _repr_html_(self) -> str:
        from isr.equations.expressions import as_html

        return as_html("", [("", str(self))])


@dataclass(frozen=True)
class Block:
    """The functions of one coupling block, named as in the paper's appendix, one expression for each component.

    ``v1 = u1 * exp(s1) + t1`` with ``s1`` and ``t1`` functions of u2; ``o2 = u2 * exp(s2) + t2`` with ``s2`` and
    ``t2`` functions of v1. The clamp and the guard are part of them.

    Attributes:
        number: Of the block, from 1.
        values: Expressions by role: u1, u2, v1, o2 and the parameters of both halves, such as s1 and t2.
    """

    number: int
    values: Mapping[str, tuple[sympy.Expr, ...]]

    def __getattr__(self, role: str) -> tuple[sympy.Expr, ...]:
        if role.startswith("_") or role not in self.values:
            raise AttributeError(f"a block has no {role!r}; it has {', '.join(self.values)}")
        return self.values[role]


def replaced(expression: sympy.Expr, table: Mapping[Any, Any]) -> sympy.Expr:
    """Return an expression with whatever ``table`` names exchanged."""
    return cast(sympy.Expr, expression.xreplace(dict(table)))


def without_dead_code(program: Program) -> Program:
    """Return the program without equations that nothing reads, and without copies of outputs.

    An intermediate that is read once, as an output itself, gives its value to that output.
    """
    kept: list[Assignment] = []
    readers = Counter(s for output in program.outputs for s in output.free_symbols)
    readers.update(dict.fromkeys(program.log_det.free_symbols, 2))  # which is no place for a long value
    for assignment in reversed(program.assignments):
        if assignment.target in readers:
            kept.append(assignment)
            readers.update(assignment.value.free_symbols)
    values = {a.target: a.value for a in kept if readers[a.target] == 1 and a.target in program.outputs}
    return replace(
        program,
        assignments=tuple(a for a in reversed(kept) if a.target not in values),
        outputs=tuple(values.get(output, output) for output in program.outputs),
    )


class ExpressionTooLarge(ValueError):
    """The composed closed form would be too large to read."""


def compose(program: Program, *, max_operations: float = 1000) -> Program:
    """Return a program with every intermediate put in: outputs and log-determinant in inputs and conditions alone.
    What would take more operations than allowed is refused with `ExpressionTooLarge`.

    Example:
        >>> from isr.equations.program import Assignment
        >>> x, v = sympy.symbols("x v", real=True)
        >>> compose(Program((x,), (), (Assignment(v, 2 * x),), (v + 1,), sympy.log(2))).outputs
        (2*x + 1,)
    """
    size = composed_size(program)
    if size > max_operations:
        shown = f"{size:,}" if size < 10**9 else f"{float(size):.1e}" if size < 10**300 else "10^300 or more"
        raise ExpressionTooLarge(
            f"the composed closed form would take about {shown} operations, more than the {max_operations:,} "
            f"allowed; read the block form instead (.forward, .inverse, .blocks), prune the model to fewer terms, or "
            f"raise max_operations"
        )
    values: dict[sympy.Basic, sympy.Expr] = {}
    for assignment in program.assignments:
        values[assignment.target] = replaced(assignment.value, values)
    outputs = tuple(written_out(replaced(e, values)) for e in program.outputs)
    log_det = written_out(replaced(program.log_det, values))
    return replace(program, assignments=(), outputs=outputs, log_det=log_det)


def composed_size(program: Program) -> int:
    """Return how many operations the composed outputs and log-determinant would take together."""
    sizes: Counter[sympy.Basic] = Counter()

    def size(expression: sympy.Expr) -> int:
        leaves = (leaf for leaf in sympy.preorder_traversal(expression) if leaf.is_Symbol)
        return int(sympy.count_ops(expression)) + sum(sizes[leaf] for leaf in leaves)

    for assignment in program.assignments:
        sizes[assignment.target] = size(assignment.value)
    return sum(map(size, (*program.outputs, program.log_det)))

"""Program: a map written as equations, one named intermediate after the other, or composed into one closed form.

The program is the block form of an expression. It grows in proportion to the model, where the composed closed form may
swell exponentially, and every other form (text, LaTeX, code) is made from it.

Complexity is what equations cost, summed over the block form. A variable costs what the identity costs, a constant 1
(the factor -1 is free); adding two terms costs 1, so does multiplying by a constant, and a product of two variables
what the product primitive costs. A power, root, reciprocal or function costs what its primitive does; one without
any costs 4, a limit (Min, Max) 1. Naming an intermediate is free, and it is counted once however often it is read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

import sympy

from isr.bijections.primitives import PRIMITIVES
from isr.equations.functions import Guarded, written_out

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


FUNCTION_COST = 4
LARGEST_PRODUCT = 7  # a whole power up to this is written as a product
_POWERS = {2: "square", 3: "cube", -1: "reciprocal", sympy.S.Half: "sqrt"}


def complexity(equations: Program | sympy.Expr) -> int:
    """Return the cost of a program or of a single expression.

    Example:
        >>> u = sympy.Symbol("u")
        >>> complexity(0.8 - 0.8 * u**2)
        7
    """
    return sum(map(_cost, _equations(equations)))


def n_constants(equations: Program | sympy.Expr) -> int:
    """Return how many numbers a reader of the equations meets, apart from 1, -1, exponents and π.

    Example:
        >>> u = sympy.Symbol("u")
        >>> n_constants(0.8 - 0.8 * u**2)
        2
    """
    return sum(map(_constants, _equations(equations)))


def _equations(equations: Program | sympy.Expr) -> tuple[sympy.Expr, ...]:
    # The log-determinant follows from the map and would be counted twice.
    return equations.expressions[:-1] if isinstance(equations, Program) else (equations,)


def _cost(e: Any) -> int:
    if isinstance(e, Guarded):
        return _cost(e.written)
    if e.is_Symbol:
        return PRIMITIVES["id"].cost
    if e.is_number:
        return 0 if e == -1 else 1
    if e.is_Pow:
        return _cost(e.base) + _power_cost(e.exp)
    if e.is_Add:
        return sum(map(_cost, e.args)) + len(e.args) - 1
    if e.is_Mul:
        number, factors = _factors(e)
        constant = 0 if number in (1, -1) else 2
        return constant + sum(map(_cost, factors)) + PRIMITIVES["product"].cost * (len(factors) - 1)
    primitive = PRIMITIVES.get(type(e).__name__)
    own = 1 if isinstance(e, sympy.Min | sympy.Max) else primitive.cost if primitive else FUNCTION_COST
    return own + sum(_cost(a) for a in e.args if isinstance(a, sympy.Expr))


def _power_cost(power: Any) -> int:
    if power in _POWERS:
        return PRIMITIVES[_POWERS[power]].cost
    if power.is_Integer and power < 0:
        return PRIMITIVES["reciprocal"].cost + _power_cost(-power)
    if power.is_Integer and power <= LARGEST_PRODUCT:
        return int(power)
    return FUNCTION_COST + (0 if power.is_number else _cost(power))


def _constants(e: Any) -> int:
    if isinstance(e, Guarded):
        return _constants(e.written)
    if e.is_number:
        return 0 if e in (1, -1, sympy.pi, 0) else 1
    if e.is_Pow and e.exp.is_number:
        return _constants(e.base)
    if e.is_Mul:
        number, factors = _factors(e)
        return _constants(number) + sum(map(_constants, factors))
    return sum(_constants(a) for a in e.args if isinstance(a, sympy.Expr))


def _factors(product: Any) -> tuple[sympy.Expr, list[Any]]:
    """The number in front of a product, and its other factors."""
    numbers = [a for a in product.args if a.is_number]
    return sympy.Mul(*numbers), [a for a in product.args if not a.is_number]

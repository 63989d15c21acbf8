"""Program: a map written as equations, one named intermediate after the other.

This is the block form of an expression. It grows in proportion to the model, where the composed closed form
may swell exponentially, and every other form (text, LaTeX, code) is made from it.
"""

from __future__ import annotations

from dataclasses import dataclass

import sympy


@dataclass(frozen=True)
class Assignment:
    """One equation ``target = value``.

    Args:
        target: The name given.
        value: An expression of inputs, conditions and earlier targets.
        part: Which part of the model it belongs to, such as ``"standardise"`` or ``"block 1"``.
        role: What it is in the paper's words (``"s1"``, ``"t1"``, ``"v1"``, ``"o2"``, ``"hidden"``, ``"guard"``, ...).
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
        bounds: For each output the limits it is held inside, ``None`` where open.
    """

    inputs: tuple[sympy.Symbol, ...]
    conditions: tuple[sympy.Symbol, ...]
    assignments: tuple[Assignment, ...]
    outputs: tuple[sympy.Expr, ...]
    log_det: sympy.Expr
    bounds: tuple[tuple[float | None, float | None], ...] = ()

    @property
    def n_operations(self) -> int:
        """How many operations the equations take in all."""
        values = [a.value for a in self.assignments]
        return int(sum(sympy.count_ops(v) for v in (*values, *self.outputs, self.log_det)))

"""A flow as equations: extraction, complexity, checks, and every form they are printed in."""

from isr.equations.check import CheckResult, check
from isr.equations.expressions import Expressions
from isr.equations.extract import extract
from isr.equations.functions import Phi, PhiInverse
from isr.equations.program import (
    Assignment,
    Block,
    ExpressionTooLarge,
    Program,
    complexity,
    compose,
    n_constants,
)

__all__ = [
    "Assignment", "Block", "CheckResult", "ExpressionTooLarge", "Expressions", "Phi", "PhiInverse", "Program",
    "check", "complexity", "compose", "extract", "n_constants",
]  # fmt: skip

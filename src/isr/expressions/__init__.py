"""A flow as equations: extraction, simplification, complexity, checks, and every form they are printed in."""

from isr.expressions.check import CheckResult, check
from isr.expressions.complexity import complexity, n_constants
from isr.expressions.compose import Composed, ExpressionTooLarge, compose
from isr.expressions.facade import Expressions, extract
from isr.expressions.functions import Phi, PhiInverse
from isr.expressions.program import Assignment, Program
from isr.expressions.simplify import simplify
from isr.expressions.twins import Block

__all__ = [
    "Assignment",
    "Block",
    "CheckResult",
    "Composed",
    "ExpressionTooLarge",
    "Expressions",
    "Phi",
    "PhiInverse",
    "Program",
    "check",
    "complexity",
    "compose",
    "extract",
    "n_constants",
    "simplify",
]

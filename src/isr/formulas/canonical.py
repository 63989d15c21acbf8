"""Networks to formulas: dead units dropped, linear units folded, equal terms merged.

An equation-learner network is written out with SymPy, once nested as the network has it and once expanded;
the form with fewer constants becomes the formula.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import sympy
from sympy.core.function import AppliedUndef

from isr.bijections.formula import Formulas, Tree
from isr.bijections.networks import EQL, MLP
from isr.bijections.parameters import cast, on_device
from isr.equations.extract import read_formulas

# SymPy's annotations promise less than its expressions do.
Expression = Any

# Expanding a form with more terms than this is not worth trying: it can only grow.
MAX_EXPANDED_TERMS = 200
# A larger exponent would make a factor too large or too small to be read.
MOST_OUTSIDE = 15
# A phase this small is rounding of one that is zero.
ROUNDING = 1e-9


def network_expressions(network: EQL | MLP | Formulas) -> list[Expression]:
    """Return the outputs of a stack of networks as expressions with float constants, the first network's first.

    Functions that are not polynomials stay opaque, named after their primitive.
    """
    if isinstance(network, MLP):
        raise TypeError("a leaky-ReLU network has no formulas; use subnet='eql'")
    inputs = input_symbols(network.n_inputs)
    if not isinstance(network, Formulas):
        with jax.enable_x64(True):
            return read_formulas(cast(network, jnp.float64), inputs)
    # Constants are read as symbols, which tells them from the whole numbers of a formula.
    values = np.asarray(network.constants, np.float64)
    symbols = [sympy.Symbol(f"constant{i}", real=True) for i in range(len(values))]
    n = network.n_inputs

    def outputs(both: Any) -> Any:
        return dataclasses.replace(network, constants=both[n:])(both[:n])

    swap = {
        s: sympy.Float(v) if v else sympy.Integer(0) for s, v in zip(symbols, values.tolist(), strict=True)
    }
    return [e.xreplace(swap) for e in read_formulas(outputs, [*inputs, *symbols], whole_numbers=True)]


def functions_in(expressions: Sequence[Expression]) -> frozenset[str]:
    """Return the names of the functions, other than polynomials, that expressions use."""
    return frozenset(
        f.func.__name__ for e in expressions for f in sympy.sympify(e, strict=True).atoms(AppliedUndef)
    )


def input_symbols(n: int) -> list[sympy.Symbol]:
    """Return the symbols that stand for a formula's inputs."""
    return [sympy.Symbol(f"input{i}", real=True) for i in range(n)]


def shortest(expression: Expression) -> Expression:
    """Return the nested or the expanded form, whichever holds fewer constants."""
    expression = _without_factors_in_exponents(sympy.sympify(expression, strict=True))
    if expression.is_number:
        return sympy.Float(expression.evalf(17))
    if _expanded_terms(expression) > MAX_EXPANDED_TERMS:
        return expression
    expanded = sympy.expand(expression)
    return expanded if _n_floats(expanded) <= _n_floats(expression) else expression


def _without_factors_in_exponents(expression: Expression) -> Expression:
    """Write exp(a + u) as exp(a) exp(u), where the number can join a factor: two constants would do the work of one."""

    def outside(node: Expression) -> Expression:
        number, rest = node.args[0].as_coeff_Add()
        return sympy.Float(sympy.exp(number).evalf(17)) * node.func(rest)

    def has_number(node: Expression) -> bool:
        if not node.is_Function or node.func.__name__ != "exp":
            return False
        return 0 < abs(node.args[0].as_coeff_Add()[0]) < MOST_OUTSIDE

    taken_out = expression.replace(has_number, outside)
    return taken_out if _n_floats(taken_out) <= _n_floats(expression) else expression


def with_small_phases(expression: Expression) -> Expression:
    """Write sin(u + c) with c between -π/2 and π/2, by whole half turns: -sin(u - 3.14) is sin(u)."""

    def turned(node: Expression) -> Expression:
        phase, rest = node.args[0].as_coeff_Add()
        n = round(float(phase) / np.pi)
        small = float(phase) - n * np.pi
        return (-1) ** n * node.func(rest + (sympy.Float(small) if abs(small) > ROUNDING else 0))

    def is_turned(node: Expression) -> bool:
        if not node.is_Function or node.func.__name__ != "sin":
            return False
        return abs(node.args[0].as_coeff_Add()[0]) > np.pi / 2

    return expression.replace(is_turned, turned)


def _n_floats(expression: Expression) -> int:
    return sum(1 for node in sympy.preorder_traversal(expression) if node.is_Float)


def _expanded_terms(expression: Expression) -> int:
    if expression.is_Add:
        return sum(_expanded_terms(a) for a in expression.args)
    if expression.is_Mul:
        return int(np.prod([min(_expanded_terms(a), 10**6) for a in expression.args]))
    if expression.is_Pow and expression.exp.is_Integer and expression.exp > 0:
        return _expanded_terms(expression.base) ** int(expression.exp)
    if expression.args:
        return max(1, *(_expanded_terms(a) // 10 for a in expression.args))
    return 1


def build_formulas(expressions: Sequence[Expression], n_inputs: int, *, stack: int) -> Formulas:
    """Return formulas with every float of ``expressions`` as a constant of its own; these are in the symbols of
    `input_symbols`, opaque functions named after primitives.
    """
    constants: list[float] = []
    places = {s: i for i, s in enumerate(input_symbols(n_inputs))}
    trees = tuple(_tree(sympy.sympify(e, strict=True), places, constants) for e in expressions)
    values = on_device(np.array(constants, dtype=np.float64).reshape(-1))
    return Formulas(constants=values, trees=trees, stack=stack, n_inputs=n_inputs)


def _tree(node: Expression, places: dict, constants: list[float]) -> Tree:
    if node in places:
        return ("input", places[node])
    if node.is_Integer:
        return ("number", int(node))
    if node.is_number:
        constants.append(float(node))
        return ("constant", len(constants) - 1)
    if node.is_Pow and node.exp.is_Integer:
        return ("pow", _tree(node.base, places, constants), int(node.exp))
    if node.is_Add or node.is_Mul:
        kind = "add" if node.is_Add else "mul"
        return (kind, *(_tree(a, places, constants) for a in node.args))
    return ("call", node.func.__name__, *(_tree(a, places, constants) for a in node.args))

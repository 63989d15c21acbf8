"""Networks to formulas: dead units dropped, linear units folded, equal terms merged.

An equation-learner network is written out with SymPy, once nested as the network has it and once expanded;
the form with fewer constants becomes the formula.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import sympy
from sympy.core.function import AppliedUndef

from isr.bijections.arrays import on_device
from isr.bijections.eql import EQL, units
from isr.bijections.formula import Formulas, Tree
from isr.bijections.formula import express as express_tree
from isr.bijections.primitives import lookup

# SymPy's annotations promise less than its expressions do.
Expression = Any

# Expanding a form with more terms than this is not worth trying: it can only grow.
MAX_EXPANDED_TERMS = 200
# A larger exponent would make a factor too large or too small to be read.
MOST_OUTSIDE = 15
# A phase this small is rounding of one that is zero.
ROUNDING = 1e-9
_POLYNOMIAL = {"id", "square", "cube", "product"}


def formulas_of(network: EQL, inputs: Sequence[Expression] | None = None) -> list[Expression]:
    """Return the outputs of ``network`` as expressions with float constants, the first network's first.

    Functions that are not polynomials stay opaque symbols named after their primitive.
    """
    symbols = list(inputs) if inputs is not None else input_symbols(network.n_inputs)
    return [e for k in range(network.stack) for e in _one_network(network, k, symbols)]


def functions_in(expressions: Sequence[Expression]) -> frozenset[str]:
    """Return the names of the functions, other than polynomials, that expressions use."""
    return frozenset(
        f.func.__name__ for e in expressions for f in sympy.sympify(e, strict=True).atoms(AppliedUndef)
    )


def input_symbols(n: int) -> list[sympy.Symbol]:
    """Return the symbols that stand for a formula's inputs."""
    return [sympy.Symbol(f"input{i}", real=True) for i in range(n)]


def _one_network(network: EQL, k: int, inputs: list[Expression]) -> list[Expression]:
    seen, h = list(inputs), list(inputs)
    for layer in range(len(network.weights)):
        last = layer == len(network.weights) - 1
        columns = seen if network.skip and last else h
        weight = np.asarray(network.weights[layer], dtype=float)[k]
        bias = None if network.biases is None else np.asarray(network.biases[layer], dtype=float)[k]
        g = [_affine(row, columns, 0.0 if bias is None else bias[i]) for i, row in enumerate(weight)]
        if last:
            return g
        h = _units(network, g)
        seen += h
    raise AssertionError("a network has at least one layer")


def _affine(row: np.ndarray, columns: list[Expression], bias: float) -> Expression:
    terms = [sympy.Float(float(w)) * c for w, c in zip(row, columns, strict=True) if w and c != 0]
    return sympy.Add(*terms, sympy.Float(float(bias)) if bias else 0)


def _units(network: EQL, g: list[Expression]) -> list[Expression]:
    start, values = 0, []
    for primitive, count in units(network.library):
        for i in range(count):
            arguments = [g[start + i + j * count] for j in range(primitive.arity)]
            values.append(_apply(primitive.name, arguments))
        start += primitive.arity * count
    return values


def _apply(name: str, arguments: list[Expression]) -> Expression:
    if all(a.is_number for a in arguments):
        return sympy.Float(lookup(name).express(*arguments).evalf(17))
    if name in _POLYNOMIAL:
        return lookup(name).symbol(*arguments)
    if name == "sin2pi":  # the factor joins the constants inside, which makes frequencies readable
        return sympy.Function("sin")(sympy.expand(2 * np.pi * arguments[0]))
    return sympy.Function(name)(*arguments)


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
    """Return formulas with every float of ``expressions`` as a constant of its own.

    Args:
        expressions: In the symbols of `input_symbols`, opaque functions named after primitives.
        n_inputs: Number of variables read.
        stack: How many networks the expressions stand for.
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
    if node.is_Pow and node.exp.is_Integer and node.exp > 0:
        return ("pow", _tree(node.base, places, constants), int(node.exp))
    if node.is_Add or node.is_Mul:
        kind = "add" if node.is_Add else "mul"
        return (kind, *(_tree(a, places, constants) for a in node.args))
    return ("call", node.func.__name__, *(_tree(a, places, constants) for a in node.args))


def expressions_of(formulas: Formulas) -> list[Expression]:
    """Return formulas as expressions with float constants, functions opaque: the inverse of `build_formulas`."""
    values = [sympy.Float(float(c)) if c else sympy.Integer(0) for c in np.asarray(formulas.constants)]
    inputs = input_symbols(formulas.n_inputs)
    return [_opaque(tree, inputs, values) for tree in formulas.trees]


def _opaque(tree: Tree, inputs: list, values: list) -> Expression:
    if tree[0] in ("input", "constant", "number"):
        return express_tree(tree, inputs, values)
    if tree[0] == "pow":
        return _opaque(tree[1], inputs, values) ** tree[2]
    arguments = [_opaque(t, inputs, values) for t in (tree[2:] if tree[0] == "call" else tree[1:])]
    if tree[0] == "call":
        return _apply(tree[1], arguments)
    return sympy.Add(*arguments) if tree[0] == "add" else sympy.Mul(*arguments)

"""Networks to formulas: a trained flow in standardised units becomes formulas in the user's own units.

An equation-learner network is written out with SymPy, dead units dropped and equal terms merged, once nested as the
network has it and once expanded; the form with fewer constants becomes the formula. Standardisation is folded into the
formulas, the clamp of the log-scales and the guard of the inputs are dropped. What comes out equals the trained flow
near the data, and is where the refit of the constants starts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import sympy
from jaxtyping import Float
from sympy.core.function import AppliedUndef

from isr.bijections.affine import Shift, Standardise
from isr.bijections.bijection import AbstractBijection, Chain
from isr.bijections.coupling import Coupling
from isr.bijections.flow import Flow
from isr.bijections.formula import PLAIN, Formulas, Tree, evaluate
from isr.bijections.networks import EQL, MLP
from isr.bijections.parameters import cast, on_device
from isr.bijections.primitives import lookup
from isr.equations.extract import read_formulas

# SymPy's annotations promise less than its expressions do.
Expression = Any

# Expanding a form with more terms than this is not worth trying: it can only grow.
MAX_EXPANDED_TERMS = 200
# A larger exponent would make a factor too large or too small to be read.
MOST_OUTSIDE = 15
# A phase this small is rounding of one that is zero.
ROUNDING = 1e-9


def open_flow(flow: Flow) -> Flow:
    """Return ``flow`` (its steps: an optional Standardise first, then learned steps) as formulas.

    Only unconditional flows are opened to raw units; a condition stays standardised.
    """
    steps = list(flow.steps)
    scale = steps[0] if isinstance(steps[0], Standardise) else None
    steps = steps[1:] if scale is not None else steps
    opened: list[AbstractBijection] = []
    for step in steps:
        if step.subnetworks:
            found, scale = _open_coupling(step, scale), None
        else:
            found, scale = ([step], None) if scale is None else step.after(scale)
        opened += found
    return replace(flow, bijection=Chain(tuple(opened)))


def functions_of(flow: Flow) -> frozenset[str]:
    """Return the names of the functions, other than polynomials, that the couplings of a flow use."""
    return functions_in([e for step in flow.steps for n in step.subnetworks for e in network_expressions(n)])


def _open_coupling(step: Any, scale: Standardise | None) -> list[AbstractBijection]:
    """The coupling as formulas, in raw units where its transformer can take the scale in."""
    split, halves = step.split, (step.split, step.dim - step.split)
    outputs = zip(map(network_expressions, step.subnetworks), halves, strict=True)
    opened = [step.transformer.unclamped(*own[i::n]) for own, n in outputs for i in range(n)]
    transformer, parameters = opened[0][0], [list(own) for _, own in opened]  # by variable, no clamps
    offset, before = np.zeros(step.dim), []
    if scale is not None:
        units = list(zip(scale.shift, scale.scale, strict=True))
        folded = [transformer.from_raw_units(*u, *p) for u, p in zip(units, parameters, strict=True)]
        known = [f for f in folded if f is not None]
        if len(known) < len(folded):
            before = [scale]
        else:
            offset, parameters = np.array([f[1] for f in known]), [list(f[0]) for f in known]
            # The first network reads u2 = (x2 - shift) / scale, of which a shift may have been taken already.
            swap = {}
            reads = input_symbols(step.first.n_inputs)
            for symbol, (shift, width), taken in zip(reads, units[split:], offset[split:], strict=False):
                left = shift - taken
                swap[symbol] = (symbol - sympy.Float(left) if left else symbol) / sympy.Float(width)
            parameters[:split] = [[e.xreplace(swap) for e in row] for row in parameters[:split]]
    networks = []
    for half, n in zip((parameters[:split], parameters[split:]), step.subnetworks, strict=True):
        formulas = [shortest(e) for one in zip(*half, strict=True) for e in one]
        networks.append(build_formulas(formulas, n.n_inputs, stack=n.stack))
    coupling = Coupling(*networks, split, step.dim, transformer, guard=None)
    return [*before, *([Shift(on_device(offset))] if offset.any() else []), coupling]


def tidy(flow: Flow) -> Flow:
    """Return ``flow`` with constants that are exactly zero taken out of its formulas, and what they held up."""
    steps = []
    for step in flow.steps:
        if all(isinstance(network, Formulas) for network in step.subnetworks):
            outputs = ([shortest(e) for e in network_expressions(n)] for n in step.subnetworks)
            pairs = zip(outputs, step.subnetworks, strict=True)
            step = step.with_subnetworks(*(build_formulas(e, n.n_inputs, stack=n.stack) for e, n in pairs))
        if not isinstance(step, Shift) or np.any(np.asarray(step.offset)):
            steps.append(step)
    return replace(flow, bijection=Chain(tuple(steps)))


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
        return replace(network, constants=both[n:])(both[:n])

    swap = {s: sympy.Float(v) if v else sympy.Integer(0) for s, v in zip(symbols, values, strict=True)}
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


def _constant_in(node: Expression, name: str) -> float:
    """The number that is added in the argument of a function of that name; 0 for any other node."""
    return float(node.args[0].as_coeff_Add()[0]) if node.is_Function and node.func.__name__ == name else 0.0


def _without_factors_in_exponents(expression: Expression) -> Expression:
    """Write exp(a + u) as exp(a) exp(u), where the number can join a factor: two constants would do the work of one."""

    def outside(node: Expression) -> Expression:
        number, rest = node.args[0].as_coeff_Add()
        return sympy.Float(sympy.exp(number).evalf(17)) * node.func(rest)

    taken_out = expression.replace(lambda node: 0 < abs(_constant_in(node, "exp")) < MOST_OUTSIDE, outside)
    return taken_out if _n_floats(taken_out) <= _n_floats(expression) else expression


def with_small_phases(expression: Expression) -> Expression:
    """Write sin(u + c) with c between -π/2 and π/2, by whole half turns: -sin(u - 3.14) is sin(u)."""

    def turned(node: Expression) -> Expression:
        phase, rest = node.args[0].as_coeff_Add()
        n = round(float(phase) / np.pi)
        small = float(phase) - n * np.pi
        return (-1) ** n * node.func(rest + (sympy.Float(small) if abs(small) > ROUNDING else 0))

    return expression.replace(lambda node: abs(_constant_in(node, "sin")) > np.pi / 2, turned)


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


def without_idle_guards(formulas: Formulas, x: Float[np.ndarray, "n inputs"]) -> Formulas:
    """Return formulas without the limits that no row of ``x`` reaches; constants stay as they are.

    Example:
        >>> guarded = Formulas(jnp.array([2.0]), (("call", "reciprocal", ("input", 0)),), 1, 1)
        >>> [without_idle_guards(guarded, np.array([[1.0], [v]])).trees[0][0] for v in (3.0, 0.0)]
        ['pow', 'call']
    """
    rows, constants = jnp.asarray(np.asarray(x, float).T), formulas.constants

    def plain(tree: Tree) -> Tree:
        parts = tuple(plain(part) if isinstance(part, tuple) else part for part in tree)
        if parts[0] != "call" or (parts[1] not in PLAIN and parts[1] != "reciprocal"):
            return parts
        low, high = lookup(parts[1]).domain
        argument = parts[2]
        with jax.enable_x64(True):
            values = np.asarray(jax.vmap(lambda v: evaluate(argument, v, constants), in_axes=-1)(rows))
        inside = (low is None or np.min(values) > low) and (high is None or np.max(values) < high)
        if (low, high) == (None, None) or not inside:
            return parts
        return ("pow", argument, -1) if parts[1] == "reciprocal" else ("plain", parts[1], argument)

    return Formulas(constants, tuple(map(plain, formulas.trees)), formulas.stack, formulas.n_inputs)

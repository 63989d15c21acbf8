"""Formulas: subnetworks written out as expression trees, with their constants in one vector.

After pruning, an equation-learner network is turned into its formulas, folded and merged; from there on the
formula *is* the subnetwork. A tree is a nested tuple:
``("input", i)``, ``("constant", k)``, ``("number", n)``, ``("add", a, b, ...)``, ``("mul", a, b, ...)``,
``("pow", a, n)`` with a whole exponent, or ``("call", primitive, a, ...)``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from isr.model.primitives import lookup

if TYPE_CHECKING:
    import sympy

Tree = tuple[Any, ...]


class Formulas(eqx.Module):
    """``stack`` times ``n_outputs`` formulas over the same inputs; a drop-in for an EQL network.

    Args:
        constants: The numbers that the trees refer to.
        trees: One tree an output, the first network's outputs first.
        stack: How many networks the trees stand for.
        n_inputs: Number of variables read.
    """

    constants: Float[Array, " k"]
    trees: tuple[Tree, ...] = eqx.field(static=True)
    stack: int = eqx.field(static=True)
    n_inputs: int = eqx.field(static=True)

    def __check_init__(self) -> None:
        if not self.trees or len(self.trees) % self.stack:
            raise ValueError(f"{len(self.trees)} formulas do not divide into {self.stack} networks")

    @property
    def n_outputs(self) -> int:
        """How many outputs there are."""
        return len(self.trees) // self.stack

    def __call__(self, inputs: Float[Array, " n_inputs"]) -> Float[Array, "stack n_outputs"]:
        values = [evaluate(tree, inputs, self.constants) for tree in self.trees]
        return jnp.stack(values).reshape(self.stack, self.n_outputs)

    def columns(self, inputs: Float[Array, "n_inputs n"]) -> Float[Array, "stack n_outputs n"]:
        """Return the values at many inputs, one a column."""
        return jax.vmap(self, in_axes=-1, out_axes=-1)(inputs)


def evaluate(tree: Tree, inputs: Float[Array, " n"], constants: Float[Array, " k"]) -> Float[Array, ""]:
    """Return the value of one tree."""
    kind = tree[0]
    if kind == "input":
        return inputs[tree[1]]
    if kind == "constant":
        return constants[tree[1]]
    if kind == "number":
        return jnp.asarray(tree[1], constants.dtype)
    if kind == "pow":
        return evaluate(tree[1], inputs, constants) ** tree[2]
    if kind == "call":
        return lookup(tree[1]).apply(*(evaluate(t, inputs, constants) for t in tree[2:]))
    values = [evaluate(t, inputs, constants) for t in tree[1:]]
    return reduce(jnp.add if kind == "add" else jnp.multiply, values)


def express(tree: Tree, inputs: Sequence[sympy.Expr], constants: Sequence[sympy.Expr]) -> sympy.Expr:
    """Return one tree as a SymPy expression of ``inputs`` and ``constants``."""
    import sympy

    kind = tree[0]
    if kind == "input":
        return inputs[tree[1]]
    if kind == "constant":
        return constants[tree[1]]
    if kind == "number":
        return sympy.Integer(tree[1])
    if kind == "pow":
        return express(tree[1], inputs, constants) ** tree[2]
    if kind == "call":
        return lookup(tree[1]).express(*(express(t, inputs, constants) for t in tree[2:]))
    terms = [express(t, inputs, constants) for t in tree[1:]]
    return sympy.Add(*terms) if kind == "add" else sympy.Mul(*terms)


def complexity(tree: Tree) -> int:
    """Return the cost of one tree: 1 a constant, an input or a joint, and each primitive's own cost."""
    kind = tree[0]
    if kind in ("input", "constant", "number"):
        return 1
    if kind == "pow":
        return complexity(tree[1]) + (lookup("square").cost if tree[2] == 2 else lookup("cube").cost)
    if kind == "call":
        return lookup(tree[1]).cost + sum(complexity(t) for t in tree[2:])
    return sum(complexity(t) for t in tree[1:]) + len(tree) - 2

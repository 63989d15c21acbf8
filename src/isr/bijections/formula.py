"""Formulas: subnetworks written out as expression trees, their constants in one vector; variables given others by them.

After pruning, an equation-learner network is turned into its formulas, folded and merged; from there on the
formula *is* the subnetwork. A tree is a nested tuple:
``("input", i)``, ``("constant", k)``, ``("number", n)``, ``("add", a, b, ...)``, ``("mul", a, b, ...)``,
``("pow", a, n)`` with a whole exponent, ``("call", primitive, a, ...)``, or ``("plain", name, a)`` for a function of
`PLAIN`, which has no guards. `check_tree` judges one from outside.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import reduce
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Array, Float

from isr.bijections.bijection import AbstractBijection, Mapped, Vector, told
from isr.bijections.primitives import lookup

Tree = tuple[Any, ...]
# Of a tree from a file: higher powers and larger whole numbers are no formula, and would take SymPy for ever.
LARGEST_POWER = 1000
LARGEST_NUMBER = 1e300
PLAIN: dict[str, Callable[..., Any]] = {
    "exp": jnp.exp, "log": jnp.log, "sin": jnp.sin, "cos": jnp.cos, "tan": jnp.tan, "asin": jnp.arcsin,
    "acos": jnp.arccos, "atan": jnp.arctan, "sinh": jnp.sinh, "cosh": jnp.cosh, "tanh": jnp.tanh,
    "asinh": jnp.arcsinh, "acosh": jnp.arccosh, "atanh": jnp.arctanh, "Abs": jnp.abs, "sqrt": jnp.sqrt,
    "power": jnp.power,
}  # fmt: skip
"""Functions as mathematics has them; ``power`` takes a base and an exponent."""


class Formulas(eqx.Module):
    """``stack`` times ``n_outputs`` formulas over the same inputs; a drop-in for an EQL network.

    The trees, the first network's first, refer to the constants by number.
    """

    constants: Float[Array, " k"]
    trees: tuple[Tree, ...] = eqx.field(static=True)
    stack: int = eqx.field(static=True)
    n_inputs: int = eqx.field(static=True)

    def __check_init__(self) -> None:
        if not self.trees or len(self.trees) % self.stack:
            raise ValueError(f"{len(self.trees)} formulas do not divide into {self.stack} networks")

    n_outputs = told("How many outputs each has.", lambda self: len(self.trees) // self.stack)

    def __call__(self, inputs: Float[Array, " n_inputs"]) -> Float[Array, "stack n_outputs"]:
        values = [evaluate(tree, inputs, self.constants) for tree in self.trees]
        return jnp.stack(values).reshape(self.stack, self.n_outputs)

    def columns(self, inputs: Float[Array, "n_inputs n"]) -> Float[Array, "stack n_outputs n"]:
        """Return the values at many inputs, one per column."""
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
    if kind == "plain" and tree[1] == "power":
        # By a number itself, so that equations read it as one.
        power = tree[3][1] if tree[3][0] == "number" else evaluate(tree[3], inputs, constants)
        return evaluate(tree[2], inputs, constants) ** power
    if kind == "plain":
        return PLAIN[tree[1]](evaluate(tree[2], inputs, constants))
    values = [evaluate(t, inputs, constants) for t in tree[1:]]
    return reduce({"add": jnp.add, "mul": jnp.multiply}[kind], values)


def check_tree(tree: Any, n_inputs: int, n_constants: int) -> int:
    """Return the highest power a tree holds, once it is known to be one; raise ValueError that says what is not."""
    if not isinstance(tree, tuple) or not tree:
        raise ValueError(f"a formula holds {tree!r} where an operator with its arguments should stand")
    kind, *rest = tree
    if kind in ("input", "constant"):
        n = n_inputs if kind == "input" else n_constants
        if len(rest) != 1 or not _is_whole(rest[0]) or not 0 <= rest[0] < n:
            raise ValueError(f"a formula refers to {kind} {rest}, but there are {n}")
        return 1
    if kind == "number":
        if len(rest) != 1 or isinstance(rest[0], bool) or not isinstance(rest[0], int | float):
            raise ValueError(f"a formula holds the number {rest}, which is none")
        if not math.isfinite(rest[0]) or abs(rest[0]) > LARGEST_NUMBER:
            raise ValueError(f"a formula holds the number {rest[0]!r}, beyond {LARGEST_NUMBER:g}")
        return 1
    if kind == "pow":
        if len(rest) != 2 or not _is_whole(rest[1]):
            raise ValueError(f"a power needs a base and a whole exponent, got {rest[1:]}")
        power = check_tree(rest[0], n_inputs, n_constants) * abs(rest[1])
        if power > LARGEST_POWER:
            raise ValueError(f"a formula holds powers up to {power}, beyond {LARGEST_POWER}")
        return max(1, power)
    if kind == "call":
        if not rest or not isinstance(rest[0], str) or lookup(rest[0]).arity != len(rest) - 1:
            raise ValueError(
                f"a formula calls {rest[:1]} with {len(rest) - 1} arguments, which it does not take"
            )
        rest = rest[1:]
    elif kind == "plain":
        if len(rest) != 2 + (rest[:1] == ["power"]) or rest[0] not in PLAIN:
            raise ValueError(
                f"a formula calls {rest[:1]}, which is no plain function; known: {', '.join(PLAIN)}"
            )
        rest = rest[1:]
    elif kind not in ("add", "mul") or not rest:
        known = "input, constant, number, add, mul, pow, call, plain"
        raise ValueError(f"a formula holds {kind!r}, which is no operator; known: {known}")
    powers = [check_tree(part, n_inputs, n_constants) for part in rest]
    power = sum(powers) if kind == "mul" else max(powers)
    if power > LARGEST_POWER:
        raise ValueError(f"a formula holds powers up to {power}, beyond {LARGEST_POWER}")
    return power


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


class Triangular(AbstractBijection):
    """Maps ``x_i`` to ``(x_i - t_i) / s_i``, where ``t_i`` and ``s_i`` are formulas of the variables before i.

    A scale may change its sign, and its sign means nothing.

    Args:
        laws: Formulas of all scales, then of all centres, of all variables.
        order: The order of the variables: a formula may read those that stand before its own.
    """

    laws: Formulas
    order: tuple[int, ...] = eqx.field(static=True)
    part: ClassVar[str] = "laws"

    def __check_init__(self) -> None:
        n = self.laws.n_inputs
        if sorted(self.order) != list(range(n)) or len(self.laws.trees) != 2 * n:
            raise ValueError(f"{n} variables need {2 * n} formulas and an order of all, got {self.order}")
        for place, i in enumerate(self.order):
            trees = self.laws.trees[i], self.laws.trees[n + i]
            read = {node[1] for tree in trees for node in nodes(tree) if node[0] == "input"}
            if not read <= set(self.order[:place]):
                raise ValueError(f"the law of variable {i} reads {sorted(read)}, some of them not before it")

    dim = told("How many variables it maps.", lambda self: self.laws.n_inputs)

    subnetworks = told("The networks or formulas that give its parameters.", lambda self: (self.laws,))

    def with_subnetworks(self, *networks: Any) -> Triangular:
        return replace(self, laws=networks[0])

    def forward_and_log_det(self, x: Vector, condition: Vector | None = None) -> Mapped:
        scale, centre = self.laws(x)
        return (x - centre) / scale, -jnp.sum(jnp.log(jnp.abs(scale)))

    def inverse_and_log_det(self, z: Vector, condition: Vector | None = None) -> Mapped:
        x, log_det, n = list(z), jnp.zeros((), z.dtype), self.dim
        for i in self.order:
            scale, centre = (evaluate(self.laws.trees[k], x, self.laws.constants) for k in (i, n + i))
            x[i] = checkpoint_name(centre + scale * z[i], f"x_{i + 1}")
            log_det = log_det + jnp.log(jnp.abs(scale))
        return jnp.stack(x), log_det


def nodes(tree: Tree) -> Iterator[Tree]:
    """Yield every node of a tree, itself first."""
    yield tree
    for part in tree[1:]:
        if isinstance(part, tuple):
            yield from nodes(part)

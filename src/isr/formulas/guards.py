"""Guards that the rows prove idle: a safe reciprocal, root, logarithm or exponential becomes the plain one."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from isr.bijections.formula import PLAIN, Formulas, Tree, evaluate
from isr.bijections.primitives import lookup


def without_idle_guards(formulas: Formulas, x: Float[np.ndarray, "n inputs"]) -> Formulas:
    """Return formulas without the limits that no row of ``x`` reaches; constants stay as they are.

    Example:
        >>> guarded = Formulas(jnp.array([2.0]), (("call", "reciprocal", ("input", 0)),), 1, 1)
        >>> without_idle_guards(guarded, np.array([[1.0], [3.0]])).trees
        (('pow', ('input', 0), -1),)
        >>> without_idle_guards(guarded, np.array([[1.0], [0.0]])).trees == guarded.trees
        True
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

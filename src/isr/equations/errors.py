"""Standard errors of printed constants.

A printed constant is often a function of a fitted number, such as ``exp(s)``, so its error follows from its derivative,
taken by moving one fitted number at a time. Where several enter, their covariance would be needed, and none is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
import sympy

from isr.bijections.parameters import cast, flatten
from isr.equations.expressions import Expressions
from isr.equations.extract import extract

# Equations are written out once for each fitted number; a model with more is no formula to read constants from.
MOST_CONSTANTS = 60
_STEP = 1e-6
# A derivative below this share of the largest is rounding.
_ROUNDING = 1e-6


def printed_errors(model: Any, expressions: Expressions, errors: Any) -> dict[float, float]:
    """Return the standard error of each printed constant that has one, by its absolute value."""
    names = expressions.x_names, expressions.y_names or None, dict(expressions.units)

    def write(model: Any) -> list[sympy.Expr]:
        found = extract(model, *names)
        return [e for direction in found.directions for e in found.program(direction).expressions]

    return {} if errors is None else constant_errors(model, np.asarray(errors), write)


def constant_errors(
    model: Any, errors: np.ndarray, write: Callable[[Any], Sequence[sympy.Expr]]
) -> dict[float, float]:
    """Return the standard error of each printed constant that has one, by its absolute value.

    ``errors`` are those of the model's learned numbers, NaN where there is none. ``write`` gives its equations; other
    numbers in the model must give equations of the same form.
    """
    with jax.enable_x64(True):
        theta, restore = flatten(cast(model, np.float64))
        theta = np.asarray(theta, np.float64)
    errors = np.asarray(errors, dtype=float)
    fitted = np.flatnonzero(np.isfinite(errors) & (errors > 0)) if errors.shape == theta.shape else []
    if not 0 < len(fitted) <= MOST_CONSTANTS:
        return {}
    constants = _floats(write(model))
    parts = np.zeros((len(fitted), len(constants)))
    for row, k in enumerate(fitted):
        moved = theta.copy()
        step = _STEP * max(abs(theta[k]), 1e-3)
        moved[k] += step
        with jax.enable_x64(True):
            values = _floats(write(restore(moved)))
        if values.shape != constants.shape or not np.allclose(values, constants, rtol=1e-3, atol=1e-6):
            return {}
        parts[row] = (values - constants) / step * errors[k]
    sizes = np.abs(parts)
    largest = sizes.max(axis=0, initial=0.0)
    alone = (sizes > _ROUNDING * largest).sum(axis=0) == 1
    known: dict[float, float] = {}
    for value, error in zip(np.abs(constants[alone]), largest[alone], strict=True):
        # The same digits with two different errors are two constants that cannot be told apart.
        before = known.get(float(value), float(error))
        known[float(value)] = float(error) if np.isclose(before, error) else np.nan
    return {value: error for value, error in known.items() if np.isfinite(error) and error > 0}


def _floats(expressions: Sequence[sympy.Expr]) -> np.ndarray:
    """Every number in the expressions, in order of size; whole ones are exact and left out.

    SymPy orders terms by their numbers too, so that the order of reading is not kept when one of them moves.
    """
    leaves: list[Any] = [leaf for e in expressions for leaf in sympy.preorder_traversal(e)]
    return np.sort([float(leaf) for leaf in leaves if leaf.is_Float])

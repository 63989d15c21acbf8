"""The normal law, linear in y where there is one, that every density and every posterior competes with."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from isr.bijections.affine import Linear, Standardise
from isr.bijections.chain import Chain
from isr.bijections.coupling import ConditionMap, Coupling
from isr.bijections.flow import Flow
from isr.bijections.formula import Formulas, Tree
from isr.estimators.rows import Rows

# Added to a covariance of standardised rows, whose columns may repeat each other.
RIDGE = 1e-6


def normal_law(rows: Rows) -> Flow:
    """Return the normal law of standard rows, linear in y where there is one.

    ``z = W (x - mean)`` for a density and ``z = W (x - B y)`` given y, with a triangular ``W``. A single variable has
    its padding beside it, as every flow of one has, so that losses can be compared.
    """
    arrays = rows.standard(rows.train)
    x = arrays["x"].T
    if not rows.n_observed:
        return Flow(Linear(jnp.asarray(_whitening(x, rows.n_padding))), n_padding=rows.n_padding)
    y = arrays["y"].T
    slopes = np.linalg.lstsq(y, x, rcond=None)[0].T
    slopes[rows.dim :] = 0.0
    matrix = _whitening(x - y @ slopes.T, rows.n_padding)
    steps = (Linear(jnp.asarray(matrix)), _shifts(-matrix @ slopes, len(matrix)))
    unchanged = Standardise((0.0,) * rows.n_observed, (1.0,) * rows.n_observed)
    return Flow(Chain(steps), ConditionMap(unchanged, None, None), n_padding=rows.n_padding)


def _whitening(rows: np.ndarray, n_padding: int) -> np.ndarray:
    covariance = np.atleast_2d(np.cov(rows.T)) + RIDGE * np.eye(rows.shape[1])
    matrix = np.linalg.inv(np.linalg.cholesky(covariance))
    return np.diag([matrix[0, 0], 1.0]) if n_padding else matrix


def _shifts(slopes: np.ndarray, dim: int) -> Coupling:
    """Return the coupling that adds a linear function of the condition to each variable."""
    split = dim // 2

    def formulas(part: np.ndarray, n_other: int) -> Formulas:
        n, d_y = part.shape

        def shift(row: int) -> Tree:
            products = [("mul", ("constant", row * d_y + j), ("input", n_other + j)) for j in range(d_y)]
            return products[0] if d_y == 1 else ("add", *products)

        trees = (*[("number", 0)] * n, *(shift(row) for row in range(n)))
        return Formulas(jnp.asarray(part.ravel()), trees, 2, n_other + d_y)

    first, second = formulas(slopes[:split], dim - split), formulas(slopes[split:], split)
    return Coupling(first, second, split, dim)

"""The normal law, linear in y where there is one, that every density and every posterior competes with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import jax.numpy as jnp
import numpy as np

from isr.bijections.affine import Linear, Standardise
from isr.bijections.chain import Chain
from isr.bijections.condition import ConditionMap
from isr.bijections.coupling import Coupling
from isr.bijections.flow import Flow
from isr.bijections.formula import Formulas, Tree
from isr.estimators.flow_stages import complexity_of, network_point
from isr.estimators.pipeline import MAX_CONSTANTS
from isr.estimators.rows import Rows
from isr.formulas.front import Point

# Added to a covariance of standardised rows, whose columns may repeat each other.
RIDGE = 1e-6


def normal_point(rows: Rows, *, joint: bool, weigh: bool = True) -> Point | None:
    """Return the normal law of x, linear in y where there is one, as a point of the front; None for a joint model.

    ``z = W (x - mean)`` for a density and ``z = W (x - B y)`` given y, with a triangular ``W``. A single variable has
    its padding beside it, as every flow of one has, so that losses can be compared. To ``weigh`` is to write its
    equations and count what they cost, which loads SymPy; else that is estimated.
    """
    if joint:
        return None
    arrays = rows.standard(rows.train)
    x = arrays["x"].T
    if not rows.n_observed:
        law = Flow(Linear(jnp.asarray(_whitening(x, rows.n_padding))), n_padding=rows.n_padding)
    else:
        y = arrays["y"].T
        slopes = np.linalg.lstsq(y, x, rcond=None)[0].T
        slopes[rows.dim :] = 0.0
        matrix = _whitening(x - y @ slopes.T, rows.n_padding)
        steps = (Linear(jnp.asarray(matrix)), _shifts(-matrix @ slopes, len(matrix)))
        unchanged = Standardise((0.0,) * rows.n_observed, (1.0,) * rows.n_observed)
        law = Flow(Chain(steps), ConditionMap(unchanged, None, None), n_padding=rows.n_padding)
    point = replace(network_point(law, rows), is_network=False)
    if not weigh or point.n_constants > 3 * MAX_CONSTANTS:
        return point
    return replace(point, complexity=complexity_of(point.model, rows))


def better_than(front: Sequence[Point], normal: Point | None) -> list[int]:
    """Return which points the normal law does not beat on held-out rows, by more than two standard errors."""
    if normal is None:
        return list(range(len(front)))
    kept = [i for i, point in enumerate(front) if not is_beaten(point, normal)]
    return kept or [int(np.argmin([point.held_out_nats for point in front]))]


def beaten_by(normal: Point | None, trained: Sequence[Point]) -> tuple[float, float] | None:
    """Return the normal law's loss and the least of the trained points' where it beats them all, else None."""
    best = min(trained, key=lambda p: p.held_out_nats if np.isfinite(p.held_out_nats) else np.inf)
    if normal is None or not is_beaten(best, normal):
        return None
    return normal.held_out_nats, best.held_out_nats


def is_beaten(point: Point, normal: Point) -> bool:
    """Return whether the normal law is better on held-out rows, by more than two standard errors."""
    gap = point.held_out_rows - normal.held_out_rows
    return not np.mean(gap) <= 2 * np.std(gap) / np.sqrt(len(gap))


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

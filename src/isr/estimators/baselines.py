"""The normal law that every density competes with, and the models that must not be chosen whatever their mean loss.

A mean over held-out rows does not see what happens to one row in a hundred thousand, nor where draws go.
"""

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
from isr.estimators.flow_points import closed_point, complexity_of, without_bounds
from isr.estimators.refine import MAX_CONSTANTS
from isr.estimators.rows import Rows
from isr.formulas.front import Point

# Nats by which a row may be less likely than under the normal law.
WORST_ROW = 60.0
# Draws farther out than so many times the reach of the data (ten standard deviations or twice the range) are wild.
WILD_DRAW = 5.0
# Rows moved by so many standard deviations are still where data may lie; none of them may cost so many nats more than
# under the normal law, unless the density is so narrow that most of them do.
MOVED = 0.1
WORST_MOVED_ROW = 1000.0
N_TRIED = 4096
# Added to a covariance of standardised rows, whose columns may repeat each other.
RIDGE = 1e-6


def normal_point(rows: Rows, *, joint: bool, weigh: bool = True) -> Point | None:
    """Return the normal law of x, linear in y where there is one, as a point of the front; None for a joint model.

    ``z = W (x - mean)`` for a density and ``z = W (x - B y)`` given y, with a triangular ``W``. A single variable has
    its padding beside it, as every flow of one has, so that losses can be compared.

    Args:
        rows: What it is fitted to.
        joint: Whether y is an output.
        weigh: Whether to write its equations and count what they cost, which loads SymPy; else that is estimated.
    """
    if joint:
        return None
    n_padding = int(rows.dim == 1)
    arrays = rows.standard(n_padding=n_padding)
    x = arrays["x"].T
    if not rows.n_observed:
        member = Flow(Linear(jnp.asarray(_whitening(x, n_padding))), n_padding=n_padding)
    else:
        y = arrays["y"].T
        slopes = np.linalg.lstsq(y, x, rcond=None)[0].T
        slopes[rows.dim :] = 0.0
        matrix = _whitening(x - y @ slopes.T, n_padding)
        steps = (Linear(jnp.asarray(matrix)), _shifts(-matrix @ slopes, len(matrix)))
        same = Standardise((0.0,) * rows.n_observed, (1.0,) * rows.n_observed)
        member = Flow(Chain(steps), ConditionMap(same, None, None), n_padding=n_padding)
    point = closed_point(member, rows)
    if not weigh or point.n_constants > 3 * MAX_CONSTANTS:
        return point
    return replace(point, complexity=complexity_of(point.model))


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
    return Coupling(first, second, split, dim, None, None)


def not_wild(front: Sequence[Point], rows: Rows, normal: Point | None) -> list[Point]:
    """Return the points that do nothing absurd to held-out rows, to their own draws or to rows near the data.

    Densities only: given y, a law may be as narrow as the noise of y makes it, and rows far out in it are no fault.
    """
    if rows.n_observed or normal is None:
        return list(front)
    rng = np.random.default_rng(0)
    some = rng.integers(len(rows.raw_train), size=N_TRIED)
    spread = rows.raw_train.std(axis=0)
    moved = rows.raw_train[some] + MOVED * spread * rng.normal(size=(N_TRIED, rows.dim))
    reach = WILD_DRAW * (np.maximum(10 * spread, 2 * np.ptp(rows.raw_train, axis=0)) + 1e-12)
    expected = without_bounds(normal.model, rows).log_prob(moved)

    def is_fine(point: Point) -> bool:
        if point is normal:
            return True
        if np.any(point.held_out_rows > normal.held_out_rows + WORST_ROW):
            return False
        flow = without_bounds(point.model, rows)
        drawn = flow.draw(np.random.default_rng(1).normal(size=(N_TRIED, flow.bijection.dim)))
        if not np.all(np.abs(drawn - rows.raw_train.mean(axis=0)) <= reach):
            return False
        loss = expected - flow.log_prob(moved)
        return bool(np.all(loss < WORST_MOVED_ROW) or np.median(loss) > WORST_ROW)

    return [point for point in front if is_fine(point)]


def better_than(front: Sequence[Point], normal: Point | None) -> list[int]:
    """Return which points the normal law does not beat on held-out rows, by more than two standard errors."""
    if normal is None:
        return list(range(len(front)))
    gaps = [point.held_out_rows - normal.held_out_rows for point in front]
    kept = [i for i, gap in enumerate(gaps) if np.mean(gap) <= 2 * np.std(gap) / np.sqrt(len(gap))]
    return kept or [int(np.argmin([point.held_out_nats for point in front]))]

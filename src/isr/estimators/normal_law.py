"""The normal law that every flow competes with and may be mixed with, and whether a flow does anything absurd.

A mean over held-out rows does not see what happens to one row in a hundred thousand, nor where draws go.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
from scipy.special import logsumexp
from sklearn.linear_model import RidgeCV

from isr.bijections.affine import Linear, Standardise
from isr.bijections.bijection import AbstractBijection, Chain
from isr.bijections.coupling import Affine, ConditionMap, Coupling
from isr.bijections.flow import Ensemble, Flow
from isr.bijections.networks import MLP
from isr.estimators.rows import Part, Rows
from isr.formulas.front import Point
from isr.training.losses import DEFENCE

# With fewer rows per column of y the slopes are shrunk as far as cross-validation says.
ENOUGH_ROWS = 20
# Bounds of the log-scale and of what networks read in the steps that begin as the normal law.
CLAMP, GUARD = 2.0, 6.0
# Added to a covariance of standardised rows, whose columns may repeat each other.
RIDGE = 1e-6
# Share of the wide law in a mixture: so small that it hardly ever is drawn from.
WIDE = 1e-4


def normal_law(rows: Rows) -> Flow:
    """Return the normal law of standard rows, linear in y where there is one.

    ``z = W (x - mean)`` for a density and ``z = W (x - B y)`` given y, with a triangular ``W``. A single variable has
    its padding beside it, as every flow of one has, so that losses can be compared.
    """
    condition = _unchanged(rows) if rows.n_observed else None
    return Flow(Chain(normal_steps(rows, None, None)), condition, n_padding=rows.n_padding)


def wide_law(rows: Rows) -> Flow:
    """Return the normal law of standard x at every y alike."""
    matrix = _whitening(rows.standard(rows.train)["x"].T, rows.n_padding)
    return Flow(Linear(jnp.asarray(matrix)), _unchanged(rows), n_padding=rows.n_padding)


def _unchanged(rows: Rows) -> ConditionMap:
    return ConditionMap(Standardise((0.0,) * rows.n_observed, (1.0,) * rows.n_observed), None, None)


def with_normal(rows: Rows, arrays: dict[str, np.ndarray], part: Part) -> dict[str, np.ndarray]:
    """Return arrays and beside them the log-density of each row under the normal law, as ``reference``."""
    some = rows.standard(part)
    density = normal_law(rows).log_prob(some["x"].T, some["y"].T if "y" in some else None)
    return arrays | {"reference": density[None]}


def normal_steps(
    rows: Rows, clamp: float | None = CLAMP, guard: float | None = GUARD
) -> tuple[AbstractBijection, ...]:
    """Return the same law as the first steps of a flow of networks, which begins where the law ends."""
    matrix, slopes = _normal(rows)
    linear = Linear(jnp.asarray(matrix))
    if not rows.n_observed:
        return (linear,)
    dim, split = len(matrix), len(matrix) // 2

    def network(part: np.ndarray, n_other: int) -> MLP:
        weights = np.zeros((2, len(part), n_other + rows.n_observed))
        weights[1, :, n_other:] = part
        return MLP((jnp.asarray(weights),), (jnp.zeros((2, len(part))),))

    shifts = -matrix @ slopes
    first, second = network(shifts[:split], dim - split), network(shifts[split:], split)
    return linear, Coupling(first, second, split, dim, Affine(clamp), guard)


def _normal(rows: Rows) -> tuple[np.ndarray, np.ndarray]:
    """Return what makes residuals of standard x white, and the slopes of x by y, shrunk where rows are few."""
    arrays = rows.standard(rows.train)
    x = arrays["x"].T
    if not rows.n_observed:
        return _whitening(x, rows.n_padding), np.zeros((len(x.T), 0))
    y = arrays["y"].T
    if len(y) > ENOUGH_ROWS * y.shape[1]:
        slopes = np.linalg.lstsq(y, x, rcond=None)[0].T
    else:
        slopes = RidgeCV(np.geomspace(1e-6, 1e6, 13), fit_intercept=False).fit(y, x).coef_
    slopes[rows.dim :] = 0.0
    return _whitening(x - y @ slopes.T, rows.n_padding), slopes


def _whitening(rows: np.ndarray, n_padding: int) -> np.ndarray:
    covariance = np.atleast_2d(np.cov(rows.T)) + RIDGE * np.eye(rows.shape[1])
    matrix = np.linalg.inv(np.linalg.cholesky(covariance))
    return np.diag([matrix[0, 0], 1.0]) if n_padding else matrix


N_TRIED = 4096
# In standard deviations: a latent of a row only a little outside of the data beyond this is an explosion.
FARTHEST_LATENT = 200.0
# Nats by which a row may be less likely than under the normal law.
WORST_ROW = 60.0
# Draws farther out than so many times the reach of the data are wild.
WILD_DRAW = 5.0
# Rows moved by so many standard deviations are still where data may lie; none of them may cost so many nats more than
# under the normal law, unless the density is so narrow that most of them do.
MOVED, WORST_MOVED_ROW = 0.1, 1000.0


def is_tame(flow: Flow, rows: Rows) -> bool:
    """Return whether samples are finite and lie where data lie, so that the formulas need no guard.

    Latents out to six standard deviations must come back finite, and of ordinary draws all but one in a thousand must
    lie within the reach of the data. Forward, rows a tenth further out than the data must not be thrown to latents
    beyond any reason.
    """
    rng, x, y = np.random.default_rng(0), rows.train.x, rows.train.y
    size = (N_TRIED, flow.bijection.dim)
    noise = np.concatenate([rng.normal(size=size), rng.uniform(-6, 6, size=size)])
    drawn = flow.draw(noise, None if y is None else y[rng.integers(len(x), size=len(noise))])
    if not np.all(np.isfinite(drawn)):
        return False
    is_far = np.any(np.abs(drawn[:N_TRIED] - x.mean(axis=0)) > _reach(x), axis=1)
    if np.mean(is_far) >= 1e-3:
        return False
    some = rng.integers(len(x), size=N_TRIED)
    further = x.mean(axis=0) + 1.1 * (x[some] - x.mean(axis=0))
    density = flow.log_prob(further, None if y is None else y[some])
    return bool(np.all(density > -0.5 * FARTHEST_LATENT**2))


def not_wild(front: Sequence[Point], rows: Rows, normal: Point | None) -> list[Point]:
    """Return the points that do nothing absurd to held-out rows, to their own draws or to rows near the data.

    Densities only: given y, a law may be as narrow as the noise of y makes it, and rows far out in it are no fault.
    """
    if rows.n_observed or normal is None:
        return list(front)
    rng, x = np.random.default_rng(0), rows.train.x
    some = rng.integers(len(x), size=N_TRIED)
    moved = x[some] + MOVED * np.asarray(rows.scale.scale) * rng.normal(size=(N_TRIED, rows.dim))
    expected = normal.model.log_prob(moved)

    def is_fine(point: Point) -> bool:
        if np.any(point.held_out_rows > normal.held_out_rows + WORST_ROW):
            return False
        drawn = point.model.draw(np.random.default_rng(1).normal(size=(N_TRIED, point.model.bijection.dim)))
        if not np.all(np.abs(drawn - x.mean(axis=0)) <= WILD_DRAW * _reach(x)):
            return False
        density = point.model.log_prob(moved)
        loss = np.where(point.model.contains(moved), expected - density, 0.0)
        return bool(np.all(loss < WORST_MOVED_ROW) or np.median(loss) > WORST_ROW)

    return [point for point in front if point is normal or is_fine(point)]


def not_beaten(front: Sequence[Point], normal: Point | None) -> list[int]:
    """Return which points the normal law does not beat on held-out rows, at least the best."""
    kept = [i for i, point in enumerate(front) if not is_beaten(point, normal)]
    return kept or [int(np.argmin([point.held_out_nats for point in front]))]


def is_beaten(point: Point, normal: Point | None) -> bool:
    """Return whether there is a normal law that is better on held-out rows, by more than two standard errors."""
    if normal is None:
        return False
    gap = point.held_out_rows - normal.held_out_rows
    return not np.mean(gap) <= 2 * np.std(gap) / np.sqrt(len(gap))


def _reach(x: np.ndarray) -> np.ndarray:
    """How far from the mean data may lie: ten standard deviations or, for heavy tails, twice the range."""
    return np.maximum(10 * x.std(axis=0), 2 * np.ptp(x, axis=0)) + 1e-12


N_STEPS = 200


def mixed(members: list[Point], normals: list[Point], wide: list[Point]) -> tuple[Point, Point, Point]:
    """Return the normal law, the best member and the mixture of all, judged by the rows that each fold held out.

    Held-out rows tell the share of the normal law; the wide law, if any, is there for rows unlike all others.
    """
    good = [k for k, point in enumerate(members) if np.isfinite(point.held_out_nats)]
    order = sorted(good, key=lambda k: members[k].held_out_nats - normals[k].held_out_nats)
    trained, normal, rest = (
        np.concatenate([points[k].held_out_rows for k in good]) if points else np.zeros(0)
        for points in (members, normals, wide)
    )
    share, odds = 0.1, np.clip(trained - normal, -700, 700)
    for _ in range(N_STEPS):  # expectation and maximisation of the likelihood of held-out rows
        share = float(np.mean(share / (share + (1 - share) * np.exp(-odds))))
        share = min(max(share, DEFENCE), 0.999)
    parts, nats = [normals[order[0]], *wide[:1]], [trained, normal, *([rest] if wide else [])]
    shares = np.array([1 - share - WIDE * len(wide[:1]), share, *[WIDE] * len(wide[:1])])
    rows = -logsumexp(-np.array(nats), axis=0, b=shares[:, None])
    every = [*(members[k] for k in order), *parts]
    mixture = _mixture(every, [*[shares[0] / len(good)] * len(good), *shares[1:]], rows)
    return (
        replace(parts[0], held_out_nats=float(np.mean(normal)), held_out_rows=normal),
        replace(members[order[0]], held_out_nats=float(np.mean(trained)), held_out_rows=trained),
        replace(mixture, train_nats=float(np.mean([members[k].train_nats for k in good]))),
    )


def defended(point: Point, wide: Point) -> Point:
    """Return a flow with a little of the wide law, so that no row gets an absurd density."""
    shares = np.array([[1 - WIDE], [WIDE]])
    rows = -logsumexp([-point.held_out_rows, -wide.held_out_rows], axis=0, b=shares)
    return replace(_mixture([point, wide], shares.ravel(), rows), train_nats=point.train_nats)


def _mixture(parts: list[Point], shares: Sequence[float] | np.ndarray, rows: np.ndarray) -> Point:
    model = Ensemble.of(tuple(part.model for part in parts), shares)
    sizes = sum(part.complexity for part in parts), sum(part.n_constants for part in parts)
    return Point(model, *sizes, np.nan, float(np.mean(rows)), rows)

"""The densest point of a posterior, by the gradient of the model's own equations."""

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from scipy.optimize import minimize
from scipy.stats import chi2

from isr.bijections.flow import Flow
from isr.bijections.inputs import with_inputs
from isr.bijections.parameters import cast
from isr.bijections.programs import compiled
from isr.posterior.coordinates import Coordinates

REACH = 0.98
"""The maximum is sought in the ball of the latent that holds this share of all draws; beyond, where hardly a draw goes,
a model may have spikes that no data ever spoke against, in the corners of a box above all."""
N_STARTS = 4
# What stands for "no density here" in the search, where an infinity would end it.
NOWHERE = 1e12


class Density(Protocol):
    """What is asked of a prior here: the log-density of rows of x."""

    def log_prob(self, x: Any, /) -> Any:
        """Return the log-density of each row."""
        ...


def find_maximum(
    flow: Flow,
    y: Float[np.ndarray, "k d_y"],
    coordinates: Coordinates,
    starts: Float[np.ndarray, "m d_x"],
    prior: Density | None = None,
) -> Float[np.ndarray, " d_x"]:
    """Return the x that maximises ``Σ log p(x | y_i) + (1 - k) log p(x)``, found by L-BFGS in double precision.

    The search runs in ``coordinates``, so it never leaves the bounds. With one observation it stays within `REACH`; the
    product of several may lie anywhere in them.

    Args:
        flow: The model.
        y: Observations as rows.
        coordinates: Where to search.
        starts: Draws, the densest first; the search begins at the first few within reach, and the best end counts.
        prior: Needed where there are several observations.
    """
    points, _ = coordinates.of(starts)
    with jax.enable_x64(True):
        objective = _objective(flow, y, coordinates, prior, 1e-4 * starts.std(axis=0) + 1e-12)
        points = points[np.isfinite(points).all(axis=1)]
        radius = float(np.sqrt(chi2.ppf(REACH, points.shape[1]))) if len(y) == 1 else np.inf
        points = points[np.linalg.norm(points, axis=1) < radius][:N_STARTS]
        if not len(points):
            raise ValueError("no draw of the posterior has finite coordinates; is the model fitted?")
        found = [_climb(objective, point, radius) for point in points]
        return min(found, key=lambda end: end[0])[1]


def _climb(objective: Callable[..., Any], point: np.ndarray, radius: float) -> tuple[float, np.ndarray]:
    """Return the least value reached from ``point`` inside the ball, and its x.

    The search is free in u, with ``e = u / sqrt(1 + |u|² / radius²)``: u covers the space while e stays in the ball.
    """

    def inside(u: np.ndarray) -> tuple[np.ndarray, float]:
        shrink = 1 / np.sqrt(1 + np.sum(u**2) / radius**2)
        return u * shrink, shrink

    def value_and_slope(u: np.ndarray) -> tuple[float, np.ndarray]:
        e, shrink = inside(u)
        value, slope, _ = objective(e)
        return value, shrink * (slope - e * (e @ slope) / radius**2)

    start = point / np.sqrt(1 - np.sum(point**2) / radius**2)
    options = {"maxiter": 500, "ftol": 1e-14, "gtol": 1e-8}
    end = minimize(value_and_slope, start, jac=True, method="L-BFGS-B", options=options)
    return float(end.fun), objective(inside(end.x)[0])[2]


def _objective(
    flow: Flow, y: np.ndarray, coordinates: Coordinates, prior: Density | None, steps: np.ndarray
) -> Callable[[np.ndarray], tuple[float, np.ndarray, np.ndarray]]:
    """Minus the log-density up to a constant, its gradient and x, as functions of the coordinates."""
    is_own = coordinates.flow is flow and len(y) == 1
    model = None if is_own else cast(with_inputs(flow, np.float64), jnp.float64)
    inner = cast(with_inputs(coordinates.flow, np.float64), jnp.float64)
    at = None if coordinates.y is None else np.asarray(coordinates.y[0])
    mean, scale = coordinates.base()
    program = compiled(_value_and_slope, (model, inner))
    step = partial(program, model, inner, np.asarray(y), at, np.asarray(mean), np.asarray(scale))

    def objective(e: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        value, x, gradient = map(np.asarray, step(e, None))
        if prior is not None and len(y) > 1:
            log_prior, slope = _slope_of_prior(prior, x, steps)
            value = value + (1 - len(y)) * log_prior
            gradient = np.asarray(step(e, (1 - len(y)) * slope)[2])
        if not (np.isfinite(value) and np.isfinite(gradient).all()):
            return NOWHERE, np.zeros_like(e), x
        return -float(value), -gradient, x

    return objective


def _value_and_slope(
    flow: Flow | None, inner: Flow, y: Any, at: Any, mean: Any, scale: Any, point: Any, extra_slope: Any
) -> tuple[Any, Any, Any]:
    """``Σ log p(x | y_i)``, x, and the gradient of that sum plus ``extra_slope · x`` by the coordinates.

    Without ``flow`` the density is that of the coordinates themselves, which the inverse alone gives.
    """

    def total(point: Any) -> tuple[Any, tuple[Any, Any]]:
        x, log_det = inner.inverse_one(mean + scale * point, at)
        if flow is None:
            value = -0.5 * jnp.sum(point**2) - log_det
        else:
            value = jnp.sum(jax.vmap(flow.log_prob_one, in_axes=(None, 0))(x, y))
        return value if extra_slope is None else value + jnp.sum(extra_slope * x), (value, x)

    gradient, (value, x) = jax.grad(total, has_aux=True)(point)
    return value, x, gradient


def _slope_of_prior(prior: Density, x: np.ndarray, steps: np.ndarray) -> tuple[float, np.ndarray]:
    """A prior may be written in anything, so its gradient is a central difference; none across an edge."""
    shifts = np.diag(steps)
    values = np.asarray(prior.log_prob(np.concatenate([x[None], x + shifts, x - shifts])), dtype=float)
    above, below = values[1 : 1 + len(x)], values[1 + len(x) :]
    smooth = np.isfinite(above) & np.isfinite(below)
    slope = np.zeros(len(x))
    slope[smooth] = (above - below)[smooth] / (2 * steps[smooth])
    return float(values[0]), slope

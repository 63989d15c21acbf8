"""The densest point of a posterior where its mass is, or a sentence where it has none; and coordinates to seek it in.

In its coordinates a posterior is about standard normal, so that a search there needs no tuning, and every point stands
for an x inside the bounds. A model may have thin spikes of density at a bound that almost no draw meets. An end of the
search counts only where the draws around it are about as dense; the page of a report follows the same steps
(`report/assets/worker.js`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.special import ndtri
from scipy.stats import chi2

from isr.bijections.affine import Bounded, standardise
from isr.bijections.bijection import Chain
from isr.bijections.flow import Flow
from isr.tables.bounds import Bounds


@dataclass(frozen=True)
class Coordinates:
    """The standard-normal latent that ``flow`` gives an x at the observation ``y``, a row ``(1, d_y)`` or ``None``.

    The flow has no padding, which is a coordinate that x does not have.
    """

    flow: Flow
    y: Float[np.ndarray, "1 d_y"] | None = None

    def of(self, x: Float[np.ndarray, "n d_x"]) -> tuple[Float[np.ndarray, "n d_x"], Float[np.ndarray, " n"]]:
        """Return the coordinates of rows and the log-determinant of the map to them."""
        latent, log_det = self.flow.forward(x, self.y)
        mean, scale = self._base()
        return (latent - mean) / scale, log_det - np.log(scale).sum()

    def density(
        self, points: Float[np.ndarray, "n d_x"]
    ) -> tuple[Float[np.ndarray, "n d_x"], Float[np.ndarray, " n"]]:
        """Return the rows of x that coordinates stand for, and their log-density where the coordinates are normal."""
        mean, scale = self._base()
        x, log_det = self.flow.inverse(mean + scale * points, self.y)
        constant = 0.5 * points.shape[1] * np.log(2 * np.pi) + np.log(scale).sum()
        return x, -0.5 * np.sum(points**2, axis=1) - log_det - constant

    def _base(self) -> tuple[Float[np.ndarray, " d_x"], Float[np.ndarray, " d_x"]]:
        mean, scale = np.zeros(self.flow.dim), np.ones(self.flow.dim)
        if self.flow.n_observed and self.y is not None:
            mean[: self.flow.n_observed], scale[: self.flow.n_observed] = self.y[0], self.flow.noise
        return mean, scale


def standard_coordinates(draws: Float[np.ndarray, "n d_x"], bounds: Bounds) -> Coordinates:
    """Return coordinates in which bounds are opened to the whole line and the draws have mean 0 and deviation 1."""
    low, high = zip(*bounds.pairs(), strict=True)
    box = Bounded(low, high)
    return Coordinates(Flow(Chain((box, standardise(Flow(box).forward(draws)[0])))))


def bounds_of(flow: Flow) -> Bounds:
    """Return the box that a flow never leaves, open where it has none."""
    first = flow.steps[0]
    if not isinstance(first, Bounded):
        return Bounds.from_pairs([(None, None)] * flow.dim)
    return Bounds.from_pairs(list(zip(first.low[: flow.dim], first.high[: flow.dim], strict=True)))


Density = Callable[[Float[np.ndarray, "m d_x"]], tuple[Float[np.ndarray, "m d_x"], Float[np.ndarray, " m"]]]
"""Rows of coordinates to rows of x and their log-density."""

REACH = 0.98
"""The maximum is sought in the ball of the latent that holds this share of all draws."""
N_POINTS = 2048
# The search starts at the densest draws and, for these may all lie in one spike, at the first ones too.
N_DENSEST = 4
N_FIRST = 12
NEIGHBOURS = 0.05
"""Share of the draws, the nearest ones, that are compared with an end of the search."""
N_STEPS = 200
LONGEST_STEP = 0.5
SHIFT = 1e-4
"""Of the differences that give slopes."""
AT_BOUND = 1e-9
# A bound is named where the spike is this near to it, in widths between bounds or from the median of the draws.
NEAR_BOUND = 0.02


class SpikeWarning(UserWarning):
    """The densest point of a posterior lies in a spike that almost no draw meets, so it is not given."""


def normal_points(n: int, dim: int) -> Float[np.ndarray, "n dim"]:
    """Return fixed standard-normal rows, the same in every language: hashed counters through the normal quantile."""
    v = np.arange(1, n * dim + 1, dtype=np.uint32) * np.uint32(0x9E3779B9)
    v = (v ^ (v >> np.uint32(16))) * np.uint32(0x21F0AAAD)
    v = (v ^ (v >> np.uint32(15))) * np.uint32(0x735A2D97)
    v = v ^ (v >> np.uint32(15))
    return ndtri((v + 0.5) / 2.0**32).reshape(n, dim)


def find_maximum(
    density: Density,
    points: Float[np.ndarray, "m d_x"],
    bounds: Bounds,
    names: Sequence[str],
    radius: float = np.inf,
) -> tuple[Float[np.ndarray, " d_x"] | None, str]:
    """Return the x of highest density among the maxima that carry mass, or None; and then why there is none.

    BFGS climbs from draws in coordinates where the law is round, so it never leaves the bounds, and stays within
    ``radius`` there. An end carries mass where half of the nearest 5 % of the draws are at most `slack` less dense.
    """
    points = points[np.isfinite(points).all(axis=1)]
    x, heights = density(points)
    finite = np.isfinite(x).all(axis=1) & np.isfinite(heights)
    points, x, heights = points[finite], x[finite], heights[finite]
    inside = np.flatnonzero(np.linalg.norm(points, axis=1) < radius)
    if not len(inside):
        raise ValueError("no draw of the posterior has finite coordinates; is the model fitted?")
    densest = inside[np.argsort(-heights[inside], kind="stable")][:N_DENSEST]
    starts = dict.fromkeys([*densest.tolist(), *inside[:N_FIRST].tolist()])
    ends = np.stack([_climb(density, points[start], radius) for start in starts])
    end_x, end_heights = density(ends)
    middle = np.median(x, axis=0)
    one_open = np.minimum(middle - np.asarray(bounds.low), np.asarray(bounds.high) - middle)
    widths = np.where(np.isfinite(bounds.widths), bounds.widths, one_open)
    widths = np.where(np.isfinite(widths), widths, 0.0)
    order = np.argsort(-np.where(np.isnan(end_heights), -np.inf, end_heights), kind="stable")
    for i in order:
        distance = np.sum((points - ends[i]) ** 2, axis=1)
        nearest = np.argsort(distance, kind="stable")[: max(1, int(NEIGHBOURS * len(points)))]
        carries_mass = end_heights[i] - np.median(heights[nearest]) <= slack(points.shape[1])
        if carries_mass and not _near_bounds(end_x[i], bounds, names, AT_BOUND * widths):
            return end_x[i], ""
    where = " and ".join(_near_bounds(end_x[order[0]], bounds, names, NEAR_BOUND * widths))
    what = (
        f"the density rises towards {where}, where almost no draw falls"
        if where
        else "the density has a thin spike that almost no draw meets"
    )
    return None, f"{what}, so its densest point does not say where the mass is; quote mean and interval"


def reach(dim: int) -> float:
    """Return the radius of the ball of the latent in which one posterior is searched."""
    return float(np.sqrt(chi2.ppf(REACH, dim)))


def slack(dim: int) -> float:
    """Return by how much (nats) a maximum may be denser than the draws around it, as around a normal law's mode."""
    return float(chi2.ppf(0.5, dim) / 2)


def _near_bounds(x: np.ndarray, bounds: Bounds, names: Sequence[str], room: np.ndarray) -> list[str]:
    """The bounds that x is nearer to than ``room``."""
    found = []
    for value, name, low, high, near in zip(x, names, bounds.low, bounds.high, room, strict=True):
        if value - low < near:
            found.append(f"the lower bound of {name} ({low:.6g})")
        elif high - value < near:
            found.append(f"the upper bound of {name} ({high:.6g})")
    return found


def _climb(density: Density, point: np.ndarray, radius: float) -> np.ndarray:
    """Return the end of an ascent by BFGS from ``point`` inside the ball.

    The search is free in u, with ``e = u / sqrt(1 + |u|² / radius²)``: u covers the space while e stays in the ball.
    Steps are short and always upwards, so that the ascent does not leap into a spike elsewhere. Slopes are central
    differences, in one call.
    """
    shifts = SHIFT * np.concatenate([np.zeros((1, len(point))), np.eye(len(point)), -np.eye(len(point))])

    def inside(u: np.ndarray) -> np.ndarray:
        return u / np.sqrt(1 + np.sum(u**2, axis=-1, keepdims=True) / radius**2)

    def value_and_slope(u: np.ndarray) -> tuple[float, np.ndarray]:
        value, *others = density(inside(u + shifts))[1]
        if not np.isfinite([value, *others]).all():
            return -np.inf, np.zeros_like(u)
        return float(value), np.subtract(others[: len(u)], others[len(u) :]) / (2 * SHIFT)

    u = point / np.sqrt(1 - np.sum(point**2) / radius**2)
    value, slope = value_and_slope(u)
    inverse = np.eye(len(u))
    for _ in range(N_STEPS):
        step = inverse @ slope
        if not step @ slope > 0:
            inverse, step = np.eye(len(u)), slope
        step *= min(1.0, LONGEST_STEP / max(float(np.linalg.norm(step)), 1e-300))
        for _ in range(30):
            new_value, new_slope = value_and_slope(u + step)
            if new_value >= value + 1e-4 * (step @ slope):
                break
            step = step / 2
        else:
            break
        change, gain = slope - new_slope, new_value - value
        u, value, slope = u + step, new_value, new_slope
        if np.linalg.norm(slope) < 1e-9 or (gain < 1e-14 * (1 + abs(value)) and np.linalg.norm(step) < 1e-10):
            break
        along = step @ change
        if along > 1e-12 * np.linalg.norm(step) * np.linalg.norm(change):
            turned = inverse @ change
            inverse = (
                inverse
                + (1 + change @ turned / along) * np.outer(step, step) / along
                - (np.outer(turned, step) + np.outer(step, turned)) / along
            )
    return inside(u)

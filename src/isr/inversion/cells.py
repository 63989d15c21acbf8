"""A proposal in one to three dimensions: boxes that are split where the target has its mass, whatever its shape.

Coordinates go through the logistic distribution function onto a cube; boxes there are split by halves. Narrow targets
are approached through flattened ones, so that a thin curve or a far mode is not stepped over.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from scipy.special import log_expit, logsumexp

from isr.posterior.references import effective_size

# Boxes along an axis at first, by dimension, and points that judge a box.
START = {1: 512, 2: 40, 3: 14}
N_POINTS = {1: 1, 2: 2, 3: 2}
# No box holds a larger share of the mass than one in so many, by dimension.
FINEST = {1: 400, 2: 3000, 3: 5000}
MOST_BOXES = {1: 6000, 2: 24_000, 3: 60_000}
MOST_ROUNDS = 60
# A flattened target is spread over so many boxes at least.
SPREAD = {1: 60, 2: 200, 3: 400}
# Draws that check boxes, how often, and the effective share of them that is good enough.
N_CHECKED = {1: 500, 2: 3000, 3: 8000}
MOST_CHECKS, GOOD = 4, 0.5
# A thin ridge is seen from afar in the target to this power.
NEARBY = 0.12
# Shares of the proposal that follow the flattened target and the cube itself, which bound the weights.
FLAT, EVEN = 0.06, 0.02
# The logistic law of this scale is a little wider than the standard normal one.
SCALE = 0.72

LogDensity = Callable[[Float[np.ndarray, "n dim"]], Float[np.ndarray, " n"]]


def to_coordinates(v: np.ndarray) -> np.ndarray:
    """Return coordinates for points of the cube."""
    v = np.clip(v, 1e-300, 1 - 1e-16)
    return SCALE * (np.log(v) - np.log1p(-v))


def log_slope(u: np.ndarray) -> np.ndarray:
    """Return the log-density of the logistic law at coordinates."""
    return np.sum(log_expit(u / SCALE) + log_expit(-u / SCALE) - np.log(SCALE), axis=1)


@dataclass(frozen=True)
class Cells:
    """Boxes of the cube with their shares; uniform inside each.

    Args:
        low: Lower corner of each box.
        width: Width of each box along every axis.
        shares: Share of each box.
    """

    low: Float[np.ndarray, "n dim"]
    width: Float[np.ndarray, " n"]
    shares: Float[np.ndarray, " n"]

    def sample(
        self, n: int, rng: np.random.Generator
    ) -> tuple[Float[np.ndarray, "n dim"], Float[np.ndarray, " n"]]:
        """Return coordinates and their log-density, by systematic sampling of boxes."""
        chosen, u = self.draw(n, rng)
        density = np.log(self.shares[chosen]) - self.low.shape[1] * np.log(self.width[chosen])
        return u, density + log_slope(u)

    def draw(
        self, n: int, rng: np.random.Generator
    ) -> tuple[Int[np.ndarray, " n"], Float[np.ndarray, "n dim"]]:
        """Return the boxes of draws and their coordinates."""
        cumulative = np.cumsum(self.shares)
        positions = (np.arange(n) + rng.uniform()) / n * cumulative[-1]
        chosen = np.minimum(np.searchsorted(cumulative, positions), len(self.shares) - 1)
        chosen = rng.permutation(chosen)
        v = self.low[chosen] + self.width[chosen, None] * rng.uniform(size=(n, self.low.shape[1]))
        return chosen, to_coordinates(v)


def adapt(log_prob: LogDensity, dim: int, rng: np.random.Generator) -> Cells:
    """Return boxes fitted to a density of coordinates, which need not be normalised.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> cells = adapt(lambda u: -0.5 * ((u[:, 0] ** 2 + u[:, 1] - 1) / 0.01) ** 2 - 0.5 * np.sum(u**2, 1), 2, rng)
        >>> u, log_q = cells.sample(4000, rng)
        >>> effective_size(-0.5 * ((u[:, 0] ** 2 + u[:, 1] - 1) / 0.01) ** 2 - 0.5 * np.sum(u**2, 1) - log_q) > 2000
        True
    """
    per_axis = START[dim]
    axes = np.meshgrid(*[np.arange(per_axis) / per_axis] * dim, indexing="ij")
    low = np.stack([a.ravel() for a in axes], axis=1)
    cells = _judged(log_prob, low, np.full(len(low), 1.0 / per_axis), rng)
    cells = _split(log_prob, cells, rng)
    for _ in range(MOST_CHECKS):
        checked, share = _checked(log_prob, cells, rng)
        if share > GOOD:
            break
        cells = _split(log_prob, checked, rng)
    return cells.proposal()


@dataclass(frozen=True)
class _Judged:
    """Boxes with the log of their mean density and the number of points that it was seen at."""

    low: np.ndarray
    width: np.ndarray
    height: np.ndarray
    count: np.ndarray

    @property
    def dim(self) -> int:
        return self.low.shape[1]

    def masses(self, power: float = 1.0) -> np.ndarray:
        """Log of each box's share of the target to a power."""
        possible = self.height > -np.inf
        mass = np.where(possible, power * np.where(possible, self.height, 0.0), -np.inf)
        mass = mass + self.dim * np.log(self.width)
        total = logsumexp(mass)
        return mass - total if np.isfinite(total) else self.dim * np.log(self.width)

    def proposal(self) -> Cells:
        shares = (1 - FLAT - EVEN) * np.exp(self.masses()) + FLAT * np.exp(self.masses(0.5))
        return Cells(self.low, self.width, shares + EVEN * self.width**self.dim)

    def joined(self, other: _Judged, kept: np.ndarray) -> _Judged:
        mine = (self.low[kept], self.width[kept], self.height[kept], self.count[kept])
        yours = (other.low, other.width, other.height, other.count)
        return _Judged(*(np.concatenate(pair) for pair in zip(mine, yours, strict=True)))


def _judged(log_prob: LogDensity, low: np.ndarray, width: np.ndarray, rng: np.random.Generator) -> _Judged:
    """Boxes judged by a few random points in each."""
    (n, dim), n_points = low.shape, N_POINTS[low.shape[1]]
    v = low[:, None] + width[:, None, None] * rng.uniform(size=(n, n_points, dim))
    found = _on_cube(log_prob, to_coordinates(v.reshape(-1, dim))).reshape(n, n_points)
    return _Judged(low, width, logsumexp(found, axis=1) - np.log(n_points), np.full(n, n_points))


def _on_cube(log_prob: LogDensity, u: np.ndarray) -> np.ndarray:
    found = log_prob(u) - log_slope(u)
    return np.where(np.isnan(found), -np.inf, found)


def _split(log_prob: LogDensity, cells: _Judged, rng: np.random.Generator) -> _Judged:
    """Halve boxes along every axis until none holds too large a share of the target."""
    dim = cells.dim
    corners = np.stack(np.meshgrid(*[[0.0, 0.5]] * dim, indexing="ij"), axis=-1).reshape(-1, dim)
    power = 2.0**-40
    for _ in range(MOST_ROUNDS):
        power = _power(cells, power)
        shares = np.exp(cells.masses(power))
        if power == 1.0:  # points beside a thin ridge see little of it; a flatter target sees more
            shares = np.maximum(shares, np.exp(cells.masses(NEARBY)))
        wide = shares > 1.0 / FINEST[dim]
        if not wide.any() or len(cells.low) > MOST_BOXES[dim] or cells.width.min() < 1e-14:
            break
        parts = (cells.low[wide][:, None] + corners * cells.width[wide][:, None, None]).reshape(-1, dim)
        halves = np.repeat(0.5 * cells.width[wide], len(corners))
        cells = cells.joined(_judged(log_prob, parts, halves, rng), ~wide)
    return cells


def _checked(log_prob: LogDensity, cells: _Judged, rng: np.random.Generator) -> tuple[_Judged, float]:
    """Boxes judged by fresh draws too, for the first points may have missed what is thin; and how good they were."""
    proposal = cells.proposal()
    chosen, u = proposal.draw(N_CHECKED[cells.dim], rng)
    found = _on_cube(log_prob, u)
    log_q = np.log(proposal.shares[chosen]) - cells.dim * np.log(cells.width[chosen])
    if not np.any(found > -np.inf):
        return cells, 0.0
    top = found.max()
    with np.errstate(divide="ignore"):
        seen = np.log(np.bincount(chosen, np.exp(found - top), len(cells.low))) + top
    more = np.bincount(chosen, minlength=len(cells.low))
    height = np.logaddexp(cells.height + np.log(cells.count), seen) - np.log(cells.count + more)
    share = effective_size(found - log_q) / len(chosen)
    return _Judged(cells.low, cells.width, height, cells.count + more), share


def _power(cells: _Judged, least: float) -> float:
    """The largest power of one half, from ``least`` up to 1, that spreads the target over enough boxes."""
    power = 1.0
    while power > least and effective_size(cells.masses(power)) < SPREAD[cells.dim]:
        power /= 2
    return power

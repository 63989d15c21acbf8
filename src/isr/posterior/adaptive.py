"""Proposals adapted to a density of coordinates where the prior is about standard normal: boxes, or a mixture.

In one to three dimensions boxes of a cube are split where the target has its mass, whatever its shape. In more a
mixture of Student t laws is fitted to weighted draws, again and again. Either way narrow targets are approached through
flattened ones, so that a thin curve or a far mode is not stepped over.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from jaxtyping import Float, Int
from scipy.special import gammaln, log_expit, logsumexp

from isr.posterior.pareto import effective_size

Points = Float[np.ndarray, "n dim"]
Logs = Float[np.ndarray, " n"]
LogDensity = Callable[[Points], Logs]

# Up to so many coordinates boxes are split; beyond, a mixture is fitted.
MOST_FOR_CELLS = 3
# Boxes along an axis at first, by dimension, and points that judge a box.
START = {1: 512, 2: 40, 3: 14}
N_POINTS = {1: 1, 2: 2, 3: 2}
# No box holds a larger share of the mass than one in so many, by dimension.
FINEST = {1: 400, 2: 3000, 3: 5000}
MOST_BOXES = {1: 6000, 2: 24_000, 3: 60_000}
MOST_SPLITS = 60
# A flattened target is spread over so many boxes at least.
SPREAD = {1: 60, 2: 200, 3: 400}
# Draws that check boxes, how often, and the effective share of them that is good enough.
N_CHECKED = {1: 500, 2: 3000, 3: 8000}
MOST_CHECKS, GOOD = 4, 0.5
# A thin ridge is seen from afar in the target to this power.
NEARBY = 0.12
# Shares of the boxes that follow the flattened target and the cube itself, which bound the weights.
FLAT, EVEN = 0.06, 0.02
# The logistic law of this scale is a little wider than the standard normal one.
SCALE = 0.72

DEGREES = 8.0
# Share of the mixture that keeps coming from a law a little wider than the prior, which bounds the weights.
DEFENSIVE, DEFENSIVE_SCALE = 0.08, 1.15
N_FIRST, N_ROUND, N_FITTED = 40_000, 12_000, 6000
MOST_ROUNDS, N_MODES, N_STEPS = 40, 24, 6
# Good enough, as the effective share of the draws; and how often in a row it may fail to grow.
ENOUGH, PATIENCE = 0.45, 4
LEAST_SHARE = 0.08


class Adaptive(Protocol):
    """A law that draws are proposed from."""

    def sample(self, n: int, rng: np.random.Generator) -> tuple[Points, Logs]:
        """Return coordinates and their log-density."""
        ...


def adapt(log_prob: LogDensity, dim: int, rng: np.random.Generator) -> Adaptive:
    """Return a proposal fitted to a density of coordinates, which need not be normalised.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> def ring(u):
        ...     return -0.5 * ((u[:, 0] ** 2 + u[:, 1] - 1) / 0.01) ** 2 - 0.5 * np.sum(u**2, axis=1)
        >>> u, log_q = adapt(ring, 2, rng).sample(4000, rng)
        >>> effective_size(ring(u) - log_q) > 2000
        True
        >>> def two_modes(u):
        ...     return np.logaddexp(*(-0.5 * np.sum((u - centre) ** 2, axis=1) / 0.01 for centre in (-1, 1)))
        >>> u, log_q = adapt(two_modes, 4, rng).sample(4000, rng)
        >>> effective_size(two_modes(u) - log_q) > 2000, bool(abs(np.mean(u[:, 0] > 0) - 0.5) < 0.1)
        (True, True)
    """
    return fit_boxes(log_prob, dim, rng) if dim <= MOST_FOR_CELLS else fit_mixture(log_prob, dim, rng)


def _chosen(shares: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    """Numbers with these odds, by systematic sampling."""
    cumulative = np.cumsum(shares)
    positions = (np.arange(n) + rng.uniform()) / n * cumulative[-1]
    return rng.permutation(np.minimum(np.searchsorted(cumulative, positions), len(shares) - 1))


# Boxes ----------------------------------------------------------------------------------------------------------


def to_coordinates(v: Points) -> Points:
    """Return coordinates for points of the cube."""
    v = np.clip(v, 1e-300, 1 - 1e-16)
    return SCALE * (np.log(v) - np.log1p(-v))


def _log_slope(u: np.ndarray) -> np.ndarray:
    """The log-density of the logistic law at coordinates."""
    return np.sum(log_expit(u / SCALE) + log_expit(-u / SCALE) - np.log(SCALE), axis=1)


@dataclass(frozen=True)
class Boxes:
    """Boxes of the cube: lower corners, widths along every axis, and shares; uniform inside each."""

    low: Points
    width: Float[np.ndarray, " n"]
    shares: Float[np.ndarray, " n"]

    def sample(self, n: int, rng: np.random.Generator) -> tuple[Points, Logs]:
        """Return coordinates and their log-density."""
        chosen, u = self.draw(n, rng)
        return u, self.log_heights[chosen] + _log_slope(u)

    @property
    def log_heights(self) -> np.ndarray:
        """Log-density on the cube, box by box."""
        return np.log(self.shares) - self.low.shape[1] * np.log(self.width)

    def draw(self, n: int, rng: np.random.Generator) -> tuple[Int[np.ndarray, " n"], Points]:
        """Return the boxes of draws and their coordinates."""
        chosen = _chosen(self.shares, n, rng)
        v = self.low[chosen] + self.width[chosen, None] * rng.uniform(size=(n, self.low.shape[1]))
        return chosen, to_coordinates(v)


def fit_boxes(log_prob: LogDensity, dim: int, rng: np.random.Generator) -> Boxes:
    """Return boxes fitted to a density of coordinates."""
    per_axis = START[dim]
    axes = np.meshgrid(*[np.arange(per_axis) / per_axis] * dim, indexing="ij")
    low = np.stack([a.ravel() for a in axes], axis=1)
    boxes = _split(log_prob, _Judged.at(log_prob, low, np.full(len(low), 1.0 / per_axis), rng), rng)
    for _ in range(MOST_CHECKS):
        checked, share = _checked(log_prob, boxes, rng)
        if share > GOOD:
            break
        boxes = _split(log_prob, checked, rng)
    return boxes.proposal()


@dataclass(frozen=True)
class _Judged:
    """Boxes with the log of their mean density and the number of points that it was seen at."""

    low: np.ndarray
    width: np.ndarray
    height: np.ndarray
    count: np.ndarray

    @classmethod
    def at(
        cls, log_prob: LogDensity, low: np.ndarray, width: np.ndarray, rng: np.random.Generator
    ) -> _Judged:
        """Boxes judged by a few random points in each."""
        (n, dim), n_points = low.shape, N_POINTS[low.shape[1]]
        v = low[:, None] + width[:, None, None] * rng.uniform(size=(n, n_points, dim))
        found = _on_cube(log_prob, to_coordinates(v.reshape(-1, dim))).reshape(n, n_points)
        return cls(low, width, logsumexp(found, axis=1) - np.log(n_points), np.full(n, n_points))

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

    def proposal(self) -> Boxes:
        shares = (1 - FLAT - EVEN) * np.exp(self.masses()) + FLAT * np.exp(self.masses(0.5))
        return Boxes(self.low, self.width, shares + EVEN * self.width**self.dim)

    def joined(self, other: _Judged, kept: np.ndarray) -> _Judged:
        mine = (self.low[kept], self.width[kept], self.height[kept], self.count[kept])
        yours = (other.low, other.width, other.height, other.count)
        return _Judged(*(np.concatenate(pair) for pair in zip(mine, yours, strict=True)))


def _on_cube(log_prob: LogDensity, u: np.ndarray) -> np.ndarray:
    found = log_prob(u) - _log_slope(u)
    return np.where(np.isnan(found), -np.inf, found)


def _split(log_prob: LogDensity, boxes: _Judged, rng: np.random.Generator) -> _Judged:
    """Halve boxes along every axis until none holds too large a share of the target."""
    dim = boxes.dim
    corners = np.stack(np.meshgrid(*[[0.0, 0.5]] * dim, indexing="ij"), axis=-1).reshape(-1, dim)
    power = 2.0**-40
    for _ in range(MOST_SPLITS):
        least, power = power, 1.0  # the largest power of one half that spreads the target over enough boxes
        while power > least and effective_size(boxes.masses(power)) < SPREAD[dim]:
            power /= 2
        shares = np.exp(boxes.masses(power))
        if power == 1.0:  # points beside a thin ridge see little of it; a flatter target sees more
            shares = np.maximum(shares, np.exp(boxes.masses(NEARBY)))
        wide = shares > 1.0 / FINEST[dim]
        if not wide.any() or len(boxes.low) > MOST_BOXES[dim] or boxes.width.min() < 1e-14:
            break
        parts = (boxes.low[wide][:, None] + corners * boxes.width[wide][:, None, None]).reshape(-1, dim)
        halves = np.repeat(0.5 * boxes.width[wide], len(corners))
        boxes = boxes.joined(_Judged.at(log_prob, parts, halves, rng), ~wide)
    return boxes


def _checked(log_prob: LogDensity, boxes: _Judged, rng: np.random.Generator) -> tuple[_Judged, float]:
    """Boxes judged by fresh draws too, for the first points may have missed what is thin; and how good they were."""
    proposal = boxes.proposal()
    chosen, u = proposal.draw(N_CHECKED[boxes.dim], rng)
    found = _on_cube(log_prob, u)
    if not np.any(found > -np.inf):
        return boxes, 0.0
    top = found.max()
    with np.errstate(divide="ignore"):
        seen = np.log(np.bincount(chosen, np.exp(found - top), len(boxes.low))) + top
    count = boxes.count + np.bincount(chosen, minlength=len(boxes.low))
    height = np.logaddexp(boxes.height + np.log(boxes.count), seen) - np.log(count)
    share = effective_size(found - proposal.log_heights[chosen]) / len(chosen)
    return _Judged(boxes.low, boxes.width, height, count), share


# A mixture ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mixture:
    """A mixture of Student t laws with a share of a wide normal one: weights, centres and lower roots of the scales."""

    weights: Float[np.ndarray, " k"]
    means: Float[np.ndarray, "k dim"]
    roots: Float[np.ndarray, "k dim dim"]

    def sample(self, n: int, rng: np.random.Generator) -> tuple[Points, Logs]:
        """Return coordinates and their log-density."""
        dim, n_wide = self.means.shape[1], round(DEFENSIVE * n)
        chosen = _chosen(self.weights, n - n_wide, rng)
        z = rng.normal(size=(n - n_wide, dim)) / np.sqrt(rng.chisquare(DEGREES, (n - n_wide, 1)) / DEGREES)
        u = self.means[chosen] + np.einsum("nij,nj->ni", self.roots[chosen], z)
        u = rng.permutation(np.concatenate([DEFENSIVE_SCALE * rng.normal(size=(n_wide, dim)), u]))
        return u, self.log_prob(u)

    def log_prob(self, u: Points) -> Logs:
        """Return the log-density of coordinates."""
        own = logsumexp(self.each(self.distances(u)), axis=1)
        return np.logaddexp(np.log1p(-DEFENSIVE) + own, np.log(DEFENSIVE) + _wide(u))

    def distances(self, u: Points) -> Float[np.ndarray, "n k"]:
        """Return the squared distance of each row from each component, in units of its scale."""
        z = np.matmul(u[None] - self.means[:, None], np.linalg.inv(self.roots).transpose(0, 2, 1))
        return np.sum(z * z, axis=2).T

    def each(self, distances: Float[np.ndarray, "n k"]) -> Float[np.ndarray, "n k"]:
        """Return the log-density of each component, times its weight."""
        dim = self.means.shape[1]
        constant = (
            gammaln(0.5 * (DEGREES + dim)) - gammaln(0.5 * DEGREES) - 0.5 * dim * np.log(DEGREES * np.pi)
        )
        log_det = np.sum(np.log(np.diagonal(self.roots, axis1=1, axis2=2)), axis=1)
        tails = 0.5 * (DEGREES + dim) * np.log1p(distances / DEGREES)
        return np.log(self.weights) + constant - log_det - tails


def _wide(u: np.ndarray) -> np.ndarray:
    constant = u.shape[1] * np.log(DEFENSIVE_SCALE * np.sqrt(2 * np.pi))
    return -0.5 * np.sum((u / DEFENSIVE_SCALE) ** 2, axis=1) - constant


def fit_mixture(log_prob: LogDensity, dim: int, rng: np.random.Generator) -> Mixture:
    """Return a mixture fitted to a density of coordinates."""

    def weights(u: np.ndarray, log_q: np.ndarray) -> np.ndarray:
        log_p = log_prob(u)
        return np.where(np.isfinite(log_p), log_p - log_q, -np.inf)

    u = DEFENSIVE_SCALE * rng.normal(size=(N_FIRST, dim))
    log_w, mixture, waited = weights(u, _wide(u)), None, 0
    best = -1.0, Mixture(np.ones(1), np.zeros((1, dim)), np.eye(dim)[None])
    for _ in range(MOST_ROUNDS):
        flat, power = flattened(log_w, LEAST_SHARE * len(log_w) if mixture else 10 * N_MODES)
        mixture = _fitted(u, flat, mixture, rng)
        u, log_q = mixture.sample(N_ROUND, rng)
        log_w = weights(u, log_q)
        share = effective_size(log_w) / len(log_w) if np.any(log_w > -np.inf) else 0.0
        if share > best[0]:
            best, waited = (share, mixture), 0
        elif power == 1.0:
            waited += 1
        if share > ENOUGH or waited >= PATIENCE:
            break
    return best[1]


def flattened(log_w: Logs, wanted: float) -> tuple[Logs, float]:
    """Return weights to the largest power, up to 1, that leaves an effective size of ``wanted``, and that power."""
    possible = log_w > -np.inf
    if not possible.any():
        return np.zeros(len(log_w)), 0.0
    wanted = min(wanted, 0.5 * np.sum(possible))

    def powered(power: float) -> np.ndarray:
        return np.where(possible, power * np.where(possible, log_w, 0.0), -np.inf)

    if effective_size(log_w) >= wanted:
        return log_w, 1.0
    low, high = 0.0, 1.0
    for _ in range(25):
        power = 0.5 * (low + high)
        low, high = (power, high) if effective_size(powered(power)) >= wanted else (low, power)
    return powered(low), low


def _fitted(u: np.ndarray, log_w: np.ndarray, start: Mixture | None, rng: np.random.Generator) -> Mixture:
    """A mixture by a few steps of expectation and maximisation on resampled draws."""
    points = u[rng.choice(len(u), N_FITTED, p=np.exp(log_w - logsumexp(log_w)))]
    dim = points.shape[1]
    spread = np.cov(points.T) + 1e-9 * np.eye(dim)
    floor = 1e-4 * spread + 1e-14 * np.trace(spread) * np.eye(dim)
    least = 1e-12 * np.eye(dim) * np.trace(spread) + 1e-3 * floor
    if start is None:
        means = points[rng.choice(len(points), N_MODES, replace=False)]
        roots = np.repeat(np.linalg.cholesky(spread / 4)[None], N_MODES, axis=0)
        start = Mixture(np.full(N_MODES, 1 / N_MODES), means, roots)
    for _ in range(N_STEPS):
        distances = start.distances(points)
        log_r = start.each(distances)
        r = np.exp(log_r - logsumexp(log_r, axis=1, keepdims=True))
        # Points far out count less for centre and scale, as maximum likelihood of a t law has it.
        pull = r * (DEGREES + dim) / (DEGREES + distances)
        weights = np.maximum(r.mean(axis=0), 1e-6)
        means = (pull.T @ points) / np.maximum(pull.sum(axis=0), 1e-12)[:, None]
        apart = points[None] - means[:, None]
        scatter = np.matmul((pull.T[:, :, None] * apart).transpose(0, 2, 1), apart)
        n_own = np.maximum(r.sum(axis=0), 1e-12)[:, None, None]
        roots = np.linalg.cholesky((scatter + 5 * floor) / (n_own + 5) + least)
        start = Mixture(weights / weights.sum(), means, roots)
    return start

"""Coordinates in which a posterior is about standard normal, so that a search there needs no tuning.

Every point of them stands for an x inside the bounds.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from isr.bijections.affine import Bounded, standardise
from isr.bijections.chain import Chain
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

    def back(self, points: Float[np.ndarray, "n d_x"]) -> Float[np.ndarray, "n d_x"]:
        """Return the rows of x that coordinates stand for."""
        return self.density(points)[0]

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

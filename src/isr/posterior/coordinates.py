"""Coordinates in which a posterior is round: its own latent, so that a search there needs no tuning.

Every point of them stands for an x inside the bounds.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from isr.bijections.affine import Bounded, standardise
from isr.bijections.bijection import AbstractBijection
from isr.bijections.chain import Chain
from isr.bijections.flow import Flow


@dataclass(frozen=True)
class Coordinates:
    """The standard-normal latent that ``flow`` gives an x at the observation ``y``.

    Args:
        flow: Without padding, for padding is a coordinate that x does not have.
        y: One observation as a row ``(1, d_y)``, or ``None``.
    """

    flow: Flow
    y: Float[np.ndarray, "1 d_y"] | None

    def of(self, x: Float[np.ndarray, "n d_x"]) -> tuple[Float[np.ndarray, "n d_x"], Float[np.ndarray, " n"]]:
        """Return the coordinates of rows and the log-determinant of the map to them."""
        latent, log_det = self.flow.forward(x, self.y)
        mean, scale = self.base()
        return (latent - mean) / scale, log_det - np.log(scale).sum()

    def back(self, points: Float[np.ndarray, "n d_x"]) -> Float[np.ndarray, "n d_x"]:
        """Return the rows of x that coordinates stand for."""
        mean, scale = self.base()
        return self.flow.inverse(mean + scale * points, self.y)[0]

    def density(
        self, points: Float[np.ndarray, "n d_x"]
    ) -> tuple[Float[np.ndarray, "n d_x"], Float[np.ndarray, " n"]]:
        """Return the rows of x that coordinates stand for, and their log-density where the coordinates are normal."""
        mean, scale = self.base()
        x, log_det = self.flow.inverse(mean + scale * points, self.y)
        constant = 0.5 * points.shape[1] * np.log(2 * np.pi) + np.log(scale).sum()
        return x, -0.5 * np.sum(points**2, axis=1) - log_det - constant

    def base(self) -> tuple[Float[np.ndarray, " d_x"], Float[np.ndarray, " d_x"]]:
        """Return mean and standard deviation of the flow's latent, which make it standard normal."""
        mean, scale = np.zeros(self.flow.dim), np.ones(self.flow.dim)
        if self.flow.n_observed and self.y is not None:
            mean[: self.flow.n_observed], scale[: self.flow.n_observed] = self.y[0], self.flow.noise
        return mean, scale


def coordinates_of(
    flow: Flow, y: Float[np.ndarray, "1 d_y"], draws: Float[np.ndarray, "n d_x"]
) -> Coordinates:
    """Return coordinates in which the posterior at ``y`` is standard normal.

    A single variable, which the flow pads, is opened to the whole line and standardised by ``draws`` instead.
    """
    if not flow.n_padding:
        return Coordinates(flow, y)
    steps: list[AbstractBijection] = []
    first = flow.steps[0]
    if isinstance(first, Bounded):
        steps.append(Bounded(first.low[: flow.dim], first.high[: flow.dim]))
        draws = Flow(steps[0]).forward(draws)[0]
    return Coordinates(Flow(Chain((*steps, standardise(draws)))), None)

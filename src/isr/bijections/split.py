"""Split: a closed-form chart for a variable with two modes."""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import log_ndtr, ndtr, ndtri
from jaxtyping import Array, Float

from isr.bijections.affine import LOG_SQRT_2PI
from isr.bijections.arrays import on_device
from isr.bijections.bijection import AbstractBijection, Mapped, Scalar, Vector

# Probabilities are held above this, so that the far tails have a finite image (|u| <= 11.5).
LOWEST = 1e-30


class Split(AbstractBijection):
    """Maps a variable with a mode on each side of ``cut`` to one normal variable.

    With ``p = Phi(balance)`` the weight of the left side and ``Phi`` the normal distribution function:
    below the cut ``u = Phi^-1(p * Phi(a) / Phi(a_cut))`` with ``a = (x - left) * exp(-log_left)``,
    above it ``u = -Phi^-1((1 - p) * Phi(-b) / Phi(-b_cut))`` with ``b = (x - right) * exp(-log_right)``;
    ``a_cut`` and ``b_cut`` are their values at the cut. Each side is a normal distribution that ends there.

    Args:
        balance: Normal quantile of the left side's weight.
        centres: Modes ``(left, right)``.
        log_widths: Logarithms of the two sides' standard deviations.
        cut: Where the sides meet, fixed.
        variable: Which variable.
        dim: Number of variables in all.
    """

    balance: Float[Array, ""]
    centres: Float[Array, " 2"]
    log_widths: Float[Array, " 2"]
    cut: float = eqx.field(static=True)
    variable: int = eqx.field(static=True)
    dim: int = eqx.field(static=True)

    def __check_init__(self) -> None:
        if not 0 <= self.variable < self.dim:
            raise ValueError(f"variable must lie in 0..{self.dim - 1}, got {self.variable}")
        if not np.isfinite(self.cut):
            raise ValueError(f"the cut must be finite, got {self.cut}")

    def forward_and_log_det(self, x: Vector, condition: Vector | None = None) -> Mapped:
        value, i = x[self.variable], self.variable
        side = self._side(value < self.cut)
        t = side.sign * (value - side.centre) * jnp.exp(-side.log_width)
        u = side.sign * ndtri(jnp.maximum(jnp.exp(side.log_share) * ndtr(t), LOWEST))
        return x.at[i].set(u), side.log_share - side.log_width + 0.5 * (u * u - t * t)

    def inverse_and_log_det(self, z: Vector, condition: Vector | None = None) -> Mapped:
        u, i = z[self.variable], self.variable
        side = self._side(u < self.balance)
        share = jnp.exp(-side.log_share) * ndtr(side.sign * u)
        t = ndtri(jnp.clip(share, LOWEST, ndtr(side.t_cut)))
        x = side.centre + side.sign * jnp.exp(side.log_width) * t
        return z.at[i].set(x), side.log_width - side.log_share - 0.5 * (u * u - t * t)

    def _side(self, left: Array) -> _Side:
        """Return the constants of the side a value lies on; both are read from the cut outwards."""
        signs = jnp.asarray([1.0, -1.0], self.centres.dtype)
        cuts = signs * (self.cut - self.centres) * jnp.exp(-self.log_widths)
        shares = log_ndtr(signs * self.balance) - log_ndtr(cuts)
        pairs = (signs, self.centres, self.log_widths, cuts, shares)
        return _Side(*(jnp.where(left, pair[0], pair[1]) for pair in pairs))


class _Side(NamedTuple):
    """Constants of one side; ``share`` is its weight over the part of its normal distribution before the cut."""

    sign: Scalar
    centre: Scalar
    log_width: Scalar
    t_cut: Scalar
    log_share: Scalar


def split_of(rows: Float[np.ndarray, "n dim"], variable: int) -> Split:
    """Return the split that the data suggest: the cut of least variance within the sides (Otsu's rule)."""
    values = np.sort(rows[:, variable])
    n = len(values)
    k = np.arange(1, n)
    total, squares = np.cumsum(values)[:-1], np.cumsum(values**2)[:-1]
    within = squares - total**2 / k
    within += (np.sum(values**2) - squares) - (np.sum(values) - total) ** 2 / (n - k)
    place = int(np.argmin(within[n // 50 : n - n // 50 - 1])) + n // 50
    cut = float(0.5 * (values[place] + values[place + 1]))
    low, high = values[: place + 1], values[place + 1 :]
    weight = np.clip(len(low) / n, 0.01, 0.99)
    widths = np.log([max(np.std(side), 1e-3 * np.std(values) + 1e-12) for side in (low, high)])
    return Split(
        balance=on_device(float(ndtri(jnp.asarray(weight)))),
        centres=on_device([np.mean(low), np.mean(high)]),
        log_widths=on_device(widths),
        cut=cut,
        variable=variable,
        dim=rows.shape[1],
    )


def gain_of_split(rows: Float[np.ndarray, "n dim"], variable: int) -> float:
    """Return how many nats a row a split beats one normal distribution by on that variable."""
    values = rows[:, variable]
    chart = split_of(rows, variable)
    p = float(ndtr(chart.balance))
    left = values < chart.cut
    centres, widths = np.asarray(chart.centres), np.exp(np.asarray(chart.log_widths))
    side = np.where(left, 0, 1)
    standard = (values - centres[side]) / widths[side]
    density = np.log(np.where(left, p, 1 - p)) - np.log(widths[side]) - 0.5 * standard**2 - LOG_SQRT_2PI
    single = -np.log(np.std(values)) - 0.5 - LOG_SQRT_2PI
    return float(np.mean(density) - single)

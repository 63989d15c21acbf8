"""Split: a closed-form chart for a variable with two modes."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import log_ndtr, ndtr, ndtri
from jaxtyping import Array, Float

from isr.model.affine import LOG_SQRT_2PI
from isr.model.bijection import AbstractBijection, Mapped, Scalar, Vector

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
        a, b = (value - self.centres) * jnp.exp(-self.log_widths)
        a_cut, b_cut = self._cuts()
        below = ndtri(jnp.maximum(ndtr(self.balance) * ndtr(jnp.minimum(a, a_cut)) / ndtr(a_cut), LOWEST))
        above = -ndtri(
            jnp.maximum(ndtr(-self.balance) * ndtr(jnp.minimum(-b, -b_cut)) / ndtr(-b_cut), LOWEST)
        )
        left = value < self.cut
        u = jnp.where(left, below, above)
        return x.at[i].set(u), self._log_slope(left, a, b, u)

    def inverse_and_log_det(self, z: Vector, condition: Vector | None = None) -> Mapped:
        u, i = z[self.variable], self.variable
        a_cut, b_cut = self._cuts()
        left = u < self.balance
        a = ndtri(jnp.clip(ndtr(u) * ndtr(a_cut) / ndtr(self.balance), LOWEST, ndtr(a_cut)))
        b = -ndtri(jnp.clip(ndtr(-u) * ndtr(-b_cut) / ndtr(-self.balance), LOWEST, ndtr(-b_cut)))
        standard = jnp.where(left, a, b)
        side = jnp.where(left, 0, 1)
        x = self.centres[side] + jnp.exp(self.log_widths[side]) * standard
        return z.at[i].set(x), -self._log_slope(left, a, b, u)

    def _cuts(self) -> tuple[Scalar, Scalar]:
        a_cut, b_cut = (self.cut - self.centres) * jnp.exp(-self.log_widths)
        return a_cut, b_cut

    def _log_slope(self, left: Array, a: Scalar, b: Scalar, u: Scalar) -> Scalar:
        a_cut, b_cut = self._cuts()
        below = log_ndtr(self.balance) - log_ndtr(a_cut) - 0.5 * a * a - self.log_widths[0]
        above = log_ndtr(-self.balance) - log_ndtr(-b_cut) - 0.5 * b * b - self.log_widths[1]
        return jnp.where(left, below, above) + 0.5 * u * u


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
        balance=jnp.asarray(float(ndtri(jnp.asarray(weight)))),
        centres=jnp.asarray([np.mean(low), np.mean(high)]),
        log_widths=jnp.asarray(widths),
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

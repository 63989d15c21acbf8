"""Closed-form charts beyond affine maps: polar coordinates, spirals, and the split of two modes."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name
from jax.scipy.special import log_ndtr
from jaxtyping import Array, Float

from isr.bijections.affine import LOG_SQRT_2PI, Shift, Standardise, probit
from isr.bijections.bijection import AbstractBijection, Mapped, Scalar, Vector
from isr.bijections.parameters import on_device
from isr.bijections.primitives import ndtr, ndtri


class Polar(AbstractBijection):
    """Maps two variables to their radius, or its logarithm, and their angle, or its normal quantile.

    With ``r`` and ``theta`` the polar coordinates of ``(x_i - a, x_j - b)``: ``u_i = log(r)``, or ``r`` if ``plain``,
    and ``u_j = Phi^-1(1/2 + theta / (2 pi))``, which makes a uniform angle exactly normal; ``theta`` itself, counted
    from ``cut`` on, where there is a cut.

    Args:
        centre: The learned centre ``(a, b)``.
        pair: Which two variables.
        dim: Number of variables in all.
        cut: Where angles start; None for normal quantiles of angles from ``-pi`` on.
        plain: Whether the radius stays as it is.
    """

    centre: Float[Array, "2"]
    pair: tuple[int, int] = eqx.field(static=True)
    dim: int = eqx.field(static=True)
    cut: float | None = eqx.field(static=True, default=None)
    plain: bool = eqx.field(static=True, default=False)

    part: ClassVar[str] = "polar"

    def __check_init__(self) -> None:
        i, j = self.pair
        if not (0 <= i < self.dim and 0 <= j < self.dim and i != j):
            raise ValueError(f"pair must name two different variables of {self.dim}, got {self.pair}")

    def forward_and_log_det(self, x: Vector, condition: Vector | None = None) -> Mapped:
        i, j = self.pair
        a, b = checkpoint_name(x[i] - self.centre[0], "dx"), checkpoint_name(x[j] - self.centre[1], "dy")
        log_radius = checkpoint_name(0.5 * jnp.log(a * a + b * b), "rho")
        angle, log_det = jnp.arctan2(b, a), -log_radius if self.plain else -2 * log_radius
        if self.cut is None:
            u = checkpoint_name(probit(0.5 + angle / (2 * math.pi)), "angle")
            log_det = log_det - math.log(2 * math.pi) + LOG_SQRT_2PI + 0.5 * u * u
        else:
            turns = jnp.floor((angle - self.cut) / (2 * math.pi)) if self.cut != -math.pi else 0.0
            u = checkpoint_name(angle - 2 * math.pi * turns, "turn")
        radius = checkpoint_name(jnp.sqrt(a * a + b * b), "r") if self.plain else log_radius
        return x.at[i].set(radius).at[j].set(u), log_det

    def inverse_and_log_det(self, z: Vector, condition: Vector | None = None) -> Mapped:
        i, j = self.pair
        if self.plain:
            radius = checkpoint_name(z[i], "r")
            log_det = jnp.log(jnp.abs(radius))
        else:
            log_radius = checkpoint_name(jnp.clip(z[i], -80.0, 80.0), "rho")
            radius, log_det = jnp.exp(log_radius), 2 * log_radius
        if self.cut is None:
            u = checkpoint_name(z[j], "angle")
            angle = checkpoint_name(2 * math.pi * (ndtr(u) - 0.5), "turn")
            log_det = log_det + math.log(2 * math.pi) - LOG_SQRT_2PI - 0.5 * u * u
        else:
            angle = checkpoint_name(z[j], "turn")
        a = checkpoint_name(self.centre[0] + radius * jnp.cos(angle), "px")
        b = checkpoint_name(self.centre[1] + radius * jnp.sin(angle), "py")
        return z.at[i].set(a).at[j].set(b), log_det

    def after(self, scale: Standardise) -> tuple[list[AbstractBijection], Any]:
        """Return the same around a centre in raw units, where both variables have one scale."""
        pair = np.array(self.pair)
        shift, width = jnp.asarray(scale.shift), jnp.asarray(scale.scale)
        if self.plain or np.ptp(np.array(scale.scale)[pair]):
            return super().after(scale)
        offset = jnp.zeros(self.dim).at[self.pair[0]].set(jnp.log(width[self.pair[0]]))
        return [replace(self, centre=shift[pair] + width[pair] * self.centre), Shift(offset)], None


class Spiral(AbstractBijection):
    """Maps two variables to the turn along a spiral and the distance from it, measured along the radius.

    With ``r`` and ``theta`` the polar coordinates of ``(x_i - a, x_j - b)``: ``t = theta + 2 pi k`` for the whole k
    whose arm ``start + pitch t`` is nearest to r, and ``q = r - start - pitch t``.

    Args:
        centre: The learned centre ``(a, b)``.
        start: Radius of the arm at ``t = 0``.
        pitch: How much the radius grows per radian, negative for a spiral that winds the other way.
        pair: Which two variables.
        dim: Number of variables in all.
    """

    centre: Float[Array, "2"]
    start: Float[Array, ""]
    pitch: Float[Array, ""]
    pair: tuple[int, int] = eqx.field(static=True)
    dim: int = eqx.field(static=True)

    part: ClassVar[str] = "spiral"

    def forward_and_log_det(self, x: Vector, condition: Vector | None = None) -> Mapped:
        i, j = self.pair
        a, b = checkpoint_name(x[i] - self.centre[0], "dx"), checkpoint_name(x[j] - self.centre[1], "dy")
        radius = checkpoint_name(jnp.sqrt(a * a + b * b), "r")
        angle = checkpoint_name(jnp.arctan2(b, a), "theta")
        turns = jnp.floor((radius - self.start - self.pitch * angle) / (2 * math.pi * self.pitch) + 0.5)
        t = checkpoint_name(angle + 2 * math.pi * turns, "turn")
        q = checkpoint_name(radius - self.start - self.pitch * t, "off")
        return x.at[i].set(t).at[j].set(q), -jnp.log(radius)

    def inverse_and_log_det(self, z: Vector, condition: Vector | None = None) -> Mapped:
        i, j = self.pair
        t, q = checkpoint_name(z[i], "turn"), checkpoint_name(z[j], "off")
        radius = checkpoint_name(self.start + self.pitch * t + q, "r")
        a, b = self.centre[0] + radius * jnp.cos(t), self.centre[1] + radius * jnp.sin(t)
        return z.at[i].set(a).at[j].set(b), jnp.log(jnp.abs(radius))


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

    part: ClassVar[str] = "split"

    def __check_init__(self) -> None:
        if not 0 <= self.variable < self.dim:
            raise ValueError(f"variable must lie in 0..{self.dim - 1}, got {self.variable}")
        if not np.isfinite(self.cut):
            raise ValueError(f"the cut must be finite, got {self.cut}")

    def forward_and_log_det(self, x: Vector, condition: Vector | None = None) -> Mapped:
        i, (left, right) = self.variable, self._sides()
        value = checkpoint_name(x[i], f"q_{i + 1}")
        a = checkpoint_name((value - left.centre) * jnp.exp(-left.log_width), f"a_{i + 1}")
        b = checkpoint_name((value - right.centre) * jnp.exp(-right.log_width), f"b_{i + 1}")
        below = ndtri(jnp.maximum(jnp.exp(left.log_share) * ndtr(jnp.minimum(a, left.at_cut)), LOWEST))
        above = -ndtri(jnp.maximum(jnp.exp(right.log_share) * ndtr(jnp.minimum(-b, right.at_cut)), LOWEST))
        u = checkpoint_name(jnp.where(value < self.cut, below, above), f"u_{i + 1}")
        slope = jnp.where(value < self.cut, left.log_slope(a), right.log_slope(b))
        return x.at[i].set(u), slope + 0.5 * u * u

    def inverse_and_log_det(self, z: Vector, condition: Vector | None = None) -> Mapped:
        i, (left, right) = self.variable, self._sides()
        u = checkpoint_name(z[i], f"u_{i + 1}")
        is_left = u < self.balance
        share = jnp.exp(-left.log_share) * ndtr(u)
        a = checkpoint_name(ndtri(jnp.clip(share, LOWEST, ndtr(left.at_cut))), f"a_{i + 1}")
        share = jnp.exp(-right.log_share) * ndtr(-u)
        b = checkpoint_name(-ndtri(jnp.clip(share, LOWEST, ndtr(right.at_cut))), f"b_{i + 1}")
        below, above = left.centre + jnp.exp(left.log_width) * a, right.centre + jnp.exp(right.log_width) * b
        x = checkpoint_name(jnp.where(is_left, below, above), f"q_{i + 1}")
        return z.at[i].set(x), -(jnp.where(is_left, left.log_slope(a), right.log_slope(b)) + 0.5 * u * u)

    def after(self, scale: Standardise) -> tuple[list[AbstractBijection], Standardise]:
        """Return the same in raw units; the other variables are left to standardise."""
        i = self.variable
        shift, width = scale.shift[i], scale.scale[i]
        centres, log_widths = shift + width * self.centres, self.log_widths + math.log(width)
        raw = replace(self, centres=centres, log_widths=log_widths, cut=shift + width * self.cut)
        rest = Standardise(
            (*scale.shift[:i], 0.0, *scale.shift[i + 1 :]), (*scale.scale[:i], 1.0, *scale.scale[i + 1 :])
        )
        return [raw], rest

    def _sides(self) -> tuple[_Side, _Side]:
        """Return the constants of both sides, each read from its far end towards the cut."""
        sides = []
        for sign, centre, log_width in zip((1.0, -1.0), self.centres, self.log_widths, strict=True):
            at_cut = sign * (self.cut - centre) * jnp.exp(-log_width)
            sides.append(_Side(centre, log_width, at_cut, log_ndtr(sign * self.balance) - log_ndtr(at_cut)))
        return sides[0], sides[1]


class _Side(NamedTuple):
    """Constants of one side; ``log_share`` is its weight over the part of its normal distribution before the cut."""

    centre: Scalar
    log_width: Scalar
    at_cut: Scalar
    log_share: Scalar

    def log_slope(self, standard: Scalar) -> Scalar:
        """Return the logarithm of the slope, but for what the image adds to it."""
        return self.log_share - self.log_width - 0.5 * standard * standard


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
    """Return how many nats per row a split beats one normal distribution by on that variable."""
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

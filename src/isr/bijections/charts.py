"""Closed-form charts beyond affine maps: polar coordinates, spirals, the split of two modes, and mixtures."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import reduce
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
from isr.bijections.shapes import mixture_number, mixture_quantile


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
        if not 0 <= self.variable < self.dim or not np.isfinite(self.cut):
            raise ValueError(
                f"variable must lie in 0..{self.dim - 1} and the cut be finite, got {self.variable}, {self.cut}"
            )

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


def split_of(rows: Float[np.ndarray, "n dim"], variable: int) -> tuple[Split, float]:
    """Return the split that the data suggest, with the cut of least variance within the sides (Otsu's rule), and how
    many nats per row it beats one normal distribution by on that variable.
    """
    values = np.sort(rows[:, variable])
    n = len(values)
    k = np.arange(1, n)
    total, squares = np.cumsum(values)[:-1], np.cumsum(values**2)[:-1]
    within = squares - total**2 / k
    within += (np.sum(values**2) - squares) - (np.sum(values) - total) ** 2 / (n - k)
    place = int(np.argmin(within[n // 50 : n - n // 50 - 1])) + n // 50
    cut = float(0.5 * (values[place] + values[place + 1]))
    low, high = values[: place + 1], values[place + 1 :]
    weight, sd = np.clip(len(low) / n, 0.01, 0.99), np.std(values)
    centres = np.array([np.mean(low), np.mean(high)])
    widths = np.array([max(np.std(side), 1e-3 * sd + 1e-12) for side in (low, high)])
    balance = on_device(float(ndtri(jnp.asarray(weight))))
    chart = Split(balance, on_device(centres), on_device(np.log(widths)), cut, variable, rows.shape[1])
    side = np.where(values < cut, 0, 1)
    shares = np.array([weight, 1 - weight])[side]
    gains = np.log(shares / widths[side]) - 0.5 * ((values - centres[side]) / widths[side]) ** 2
    return chart, float(np.mean(gains) + np.log(sd) + 0.5)


class Mixture(AbstractBijection):
    """Maps variables that follow a mixture of k normal laws to independent normal ones, in the order of ``variables``.

    ``z_i = Phi^-1(sum_k r_k Phi(a_k))`` with ``a_k = (x_i - m_ki - sum_j c_kij (x_j - m_kj)) / s_ki`` over variables j
    before i, and ``r_k`` the odds of component k given these. Arrays of one row, or column, serve all of them.

    Args:
        log_odds: Logarithms of the other components' weights against that of the first.
        means: One row per component.
        log_scales: Logarithms of the scales ``s``.
        slopes: The ``c``, row by row of their triangle; no rows where variables of a component are independent.
        variables: Which variables.
        dim: Number of variables in all.
    """

    log_odds: Float[Array, " others"]
    means: Float[Array, "k n"]
    log_scales: Float[Array, "k_or_1 n_or_1"]
    slopes: Float[Array, "k_or_1_or_0 pairs"]
    variables: tuple[int, ...] = eqx.field(static=True)
    dim: int = eqx.field(static=True)
    part: ClassVar[str] = "mixture"

    def __check_init__(self) -> None:
        k, n = self.means.shape
        if len(self.log_odds) != k - 1 or n != len(self.variables):
            raise ValueError(
                f"{k} components of {n} variables need {k - 1} odds and as many variables, got "
                f"{len(self.log_odds)} and {self.variables}"
            )
        if len(set(self.variables)) < n or not all(0 <= i < self.dim for i in self.variables):
            raise ValueError(f"variables must be different ones of {self.dim}, got {self.variables}")

    def forward_and_log_det(self, x: Vector, condition: Vector | None = None) -> Mapped:
        x_before, log_r, log_det = [], self._log_odds(), jnp.zeros((), x.dtype)
        for i, variable in enumerate(self.variables):
            log_scale = self._scale(i)
            a = (x[variable] - self._centres(i, x_before)) * jnp.exp(-log_scale)
            a = checkpoint_name(a, f"a{variable + 1}")
            shares = self._shares(log_r, i)
            u = checkpoint_name(mixture_number(*shares, *a), f"u_{variable + 1}")
            x_before.append(x[variable])
            x = x.at[variable].set(u)
            log_r, log_density = _updated(log_r, a, log_scale)
            log_det = log_det + log_density + 0.5 * u * u
        return x, log_det

    def inverse_and_log_det(self, z: Vector, condition: Vector | None = None) -> Mapped:
        x_before, log_r, log_det = [], self._log_odds(), jnp.zeros((), z.dtype)
        for i, variable in enumerate(self.variables):
            u = checkpoint_name(z[variable], f"u_{variable + 1}")
            shares, centres, log_scale = self._shares(log_r, i), self._centres(i, x_before), self._scale(i)
            value = mixture_quantile(u, *shares, *centres, *jnp.exp(log_scale))
            value = checkpoint_name(value, f"q_{variable + 1}")
            log_r, log_density = _updated(log_r, (value - centres) * jnp.exp(-log_scale), log_scale)
            x_before.append(value)
            z = z.at[variable].set(value)
            log_det = log_det - log_density - 0.5 * u * u
        return z, log_det

    def _log_odds(self) -> Array:
        return jnp.concatenate([jnp.zeros(1, self.means.dtype), self.log_odds])

    def _shares(self, log_r: Array, i: int) -> Array:
        shares = jnp.exp(log_r - _log_sum(log_r))
        return shares if i == 0 else checkpoint_name(shares, f"r{self.variables[i] + 1}")

    def _scale(self, i: int) -> Array:
        column = self.log_scales[:, i if self.log_scales.shape[1] > 1 else 0]
        return jnp.broadcast_to(column, self.means.shape[:1])

    def _centres(self, i: int, before: list[Any]) -> Array:
        centres, first = self.means[:, i], i * (i - 1) // 2
        if self.slopes.shape[0]:
            for j in range(i):
                centres = centres + self.slopes[:, first + j] * (before[j] - self.means[:, j])
        return centres


def _updated(log_r: Array, a: Array, log_scale: Array) -> tuple[Array, Array]:
    """Log-odds of components once a variable is known, and its log-density given those before, but for a constant."""
    joint = log_r - 0.5 * a * a - (log_scale - log_scale[0])
    return joint, _log_sum(joint) - _log_sum(log_r) - log_scale[0]


def _log_sum(values: Array) -> Array:
    return reduce(jnp.logaddexp, list(values))


def mixture_of(
    weights: Float[np.ndarray, " k"],
    means: Float[np.ndarray, "k n"],
    covariances: Float[np.ndarray, "k n n"],
    *,
    variables: tuple[int, ...],
    dim: int,
) -> Mixture:
    """Return the bijection of a mixture with these weights, means and covariances."""
    roots = np.linalg.cholesky(np.asarray(covariances))
    scales = np.diagonal(roots, axis1=1, axis2=2)
    unit = roots / scales[:, None, :]  # x - m = unit @ (scale * z): slopes are rows of 1 - unit^-1
    slopes = np.eye(roots.shape[1]) - np.linalg.inv(unit)
    lower = slopes[:, *np.tril_indices(roots.shape[1], -1)]
    weights = np.asarray(weights)
    return Mixture(
        on_device(np.log(weights[1:] / weights[0])), on_device(means), on_device(np.log(scales)),
        on_device(lower if np.any(lower) else lower[:0]), variables, dim,
    )  # fmt: skip

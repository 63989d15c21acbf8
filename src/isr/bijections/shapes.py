"""Shapes: one variable by itself becomes normal, by closed forms of tails, skewness and well-known laws."""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name
from jax.scipy import special
from jax.scipy.special import log_ndtr
from jaxtyping import Array, Float

from isr.bijections.affine import LARGEST_EXPONENT, LOG_SQRT_2PI
from isr.bijections.bijection import AbstractBijection, Mapped, Vector, told
from isr.bijections.primitives import log_cosh, ndtr, ndtri, probit_of

Pair = tuple[Any, Any]


# Equations know the next six by name and keep them whole; all are exact in both tails.
@jax.jit
def mixture_number(*parts: Float[Array, "..."]) -> Float[Array, "..."]:
    """Return the normal number with the probability ``sum_k r_k Phi(a_k)``, exact in both tails; ``parts`` are r, a."""
    shares, a = jnp.split(jnp.stack(jnp.broadcast_arrays(*parts)), 2)
    below, above = jnp.sum(shares * special.ndtr(a), axis=0), jnp.sum(shares * special.ndtr(-a), axis=0)
    # Where probabilities leave the range of numbers their logarithms do not.
    sign, least = jnp.where(below < above, 1.0, -1.0).astype(a.dtype), jnp.finfo(a.dtype).tiny
    log_p = special.logsumexp(jnp.log(jnp.maximum(shares, least)) + log_ndtr(sign[None] * a), axis=0)
    size = jnp.sqrt(jnp.maximum(-2 * log_p, 1.0))
    for _ in range(4):
        size = jnp.sqrt(jnp.maximum(-2 * (log_p + LOG_SQRT_2PI + jnp.log(size) + size**-2), 1.0))
    return jnp.where(jnp.minimum(below, above) < 1e3 * least, -sign * size, probit_of(below, above))


@jax.jit
def mixture_quantile(u: Float[Array, "..."], *parts: Float[Array, "..."]) -> Float[Array, "..."]:
    """Return the x that a mixture of normal laws takes to u; ``parts`` are its shares, centres and scales."""
    u, *parts = jnp.broadcast_arrays(u, *parts)
    shares, centres, scales = jnp.split(jnp.stack(parts), 3)
    sign, places = jnp.where(u < 0, 1.0, -1.0).astype(centres.dtype), centres + scales * u[None]
    wanted = special.ndtr(sign * u)

    def halved(_: Any, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        middle = 0.5 * (ends[0] + ends[1])
        reached = jnp.sum(shares * special.ndtr(sign[None] * (middle[None] - centres) / scales), axis=0)
        is_right = sign * (reached - wanted) > 0  # the probability below (u < 0) or above the middle decides
        return jnp.where(is_right, ends[0], middle), jnp.where(is_right, middle, ends[1])

    start = jax.lax.stop_gradient((jnp.min(places, axis=0), jnp.max(places, axis=0)))
    ends = jax.lax.fori_loop(0, 64, lambda i, e: jax.lax.stop_gradient(halved(i, e)), start)
    x = jax.lax.stop_gradient(0.5 * (ends[0] + ends[1]))
    a = (x[None] - centres) / scales
    gap = mixture_number(*shares, *a) - u
    density = jnp.sum(shares * jnp.exp(-0.5 * a * a) / scales, axis=0)
    slope = jnp.maximum(density * jnp.exp(0.5 * u * u), jnp.finfo(a.dtype).tiny)
    # Adds zero; the derivative is that of the root.
    return x - (gap - jax.lax.stop_gradient(gap)) / jax.lax.stop_gradient(slope)


@jax.jit
def number_of_logistic(w: Float[Array, "..."]) -> Float[Array, "..."]:
    """Return ``Phi^-1(sigmoid(w))``."""
    return probit_of(jax.nn.sigmoid(w), jax.nn.sigmoid(-w))


@jax.jit
def number_of_gumbel(w: Float[Array, "..."]) -> Float[Array, "..."]:
    """Return ``Phi^-1(exp(-exp(-w)))``."""
    t = jnp.exp(-w)
    return probit_of(jnp.exp(-t), -jnp.expm1(-t))


@jax.jit
def gumbel_of_number(u: Float[Array, "..."]) -> Float[Array, "..."]:
    """Return ``-log(-log(Phi(u)))``."""
    below = special.log_ndtr(jnp.minimum(u, 0.0))
    return -jnp.log(-jnp.where(u < 0, below, jnp.log1p(-special.ndtr(-jnp.maximum(u, 0.0)))))


@jax.jit
def number_of_laplace(w: Float[Array, "..."]) -> Float[Array, "..."]:
    """Return the normal number of a Laplace one: ``Phi^-1(exp(w) / 2)`` below 0, and its mirror image above."""
    half = 0.5 * jnp.exp(-jnp.abs(w))
    return jnp.sign(w) * -special.ndtri(jnp.maximum(half, jnp.finfo(half.dtype).tiny))


class Shape(NamedTuple):
    """A monotone map of ``w, tail, skew`` to a normal number and the logarithm of its slope; back to ``w`` alone."""

    forward: Callable[[Any, Any, Any], Pair]
    inverse: Callable[[Any, Any, Any], Any]


def _sinh_arcsinh(w: Any, tail: Any, skew: Any) -> Pair:
    v = checkpoint_name(jnp.exp(tail) * jnp.arcsinh(w) - skew, "w")
    return jnp.sinh(v), tail + log_cosh(v) - 0.5 * jnp.log1p(w * w)


def _johnson(w: Any, tail: Any, skew: Any) -> Pair:
    return jnp.exp(tail) * jnp.arcsinh(w) - skew, tail - 0.5 * jnp.log1p(w * w)


def _from_johnson(v: Any, tail: Any, skew: Any) -> Any:
    return jnp.sinh(jnp.exp(-tail) * (v + skew))


def _by_quantile(u: Any, log_density: Any) -> Pair:
    return u, log_density + 0.5 * u * u + LOG_SQRT_2PI


def _logistic(w: Any, tail: Any, skew: Any) -> Pair:
    return _by_quantile(number_of_logistic(w), -2 * log_cosh(0.5 * w) - math.log(4))


def _power_tails(w: Any, tail: Any, skew: Any) -> Pair:
    v, slope = _johnson(w, tail, skew)
    u, rest = _logistic(v, tail, skew)
    return u, slope + rest


def _from_logistic(u: Any) -> Any:
    return log_ndtr(u) - log_ndtr(-u)


def _gumbel(w: Any, tail: Any, skew: Any) -> Pair:
    return _by_quantile(number_of_gumbel(w), -w - jnp.exp(-w))


def _gumbel_low(w: Any, tail: Any, skew: Any) -> Pair:
    u, slope = _gumbel(-w, tail, skew)
    return -u, slope


def _laplace(w: Any, tail: Any, skew: Any) -> Pair:
    return _by_quantile(number_of_laplace(w), -jnp.abs(w) - math.log(2))


SHAPES: dict[str, Shape] = {
    "normal": Shape(lambda w, tail, skew: (w, jnp.zeros_like(w)), lambda u, tail, skew: u),
    "logistic": Shape(_logistic, lambda u, tail, skew: _from_logistic(u)),
    "laplace": Shape(_laplace, lambda u, tail, skew: jnp.sign(u) * -(math.log(2) + log_ndtr(-jnp.abs(u)))),
    "gumbel": Shape(_gumbel, lambda u, tail, skew: gumbel_of_number(u)),
    "gumbel_low": Shape(_gumbel_low, lambda u, tail, skew: -gumbel_of_number(-u)),
    "johnson": Shape(_johnson, _from_johnson),
    "sinh_arcsinh": Shape(_sinh_arcsinh, lambda u, tail, skew: _from_johnson(jnp.arcsinh(u), tail, skew)),
    "power_tails": Shape(_power_tails, lambda u, tail, skew: _from_johnson(_from_logistic(u), tail, skew)),
}
"""Every shape by name. Logistic, Gumbel and Laplace laws go by their distribution function; ``"johnson"`` and
``"sinh_arcsinh"`` bend tails and lean; ``"power_tails"`` are those of ``sigmoid(exp(tail) asinh(w) - skew)``, which is
nearly Student's law, and exactly that of two degrees of freedom."""


class Shapes(AbstractBijection):
    """Maps each variable to ``T(w; tail, skew)`` with ``w = (x - location) / exp(log_scale)`` and ``T`` by its kind.

    Args:
        location, log_scale, tail, skew: Of each variable; some shapes read neither tail nor skew.
        kinds: Name of each variable's shape.
    """

    location: Float[Array, " dim"]
    log_scale: Float[Array, " dim"]
    tail: Float[Array, " dim"]
    skew: Float[Array, " dim"]
    kinds: tuple[str, ...] = eqx.field(static=True)
    part: ClassVar[str] = "shapes"

    def __check_init__(self) -> None:
        unknown = [kind for kind in self.kinds if kind not in SHAPES]
        if unknown:
            raise ValueError(f"unknown shape {unknown[0]!r}; known: {', '.join(SHAPES)}")
        if len(self.kinds) != len(self.location):
            raise ValueError(f"{len(self.location)} variables need as many kinds, got {self.kinds}")

    dim = told("How many variables it maps.", lambda self: len(self.kinds))

    def forward_and_log_det(self, x: Vector, condition: Vector | None = None) -> Mapped:
        images, log_det = [], jnp.zeros((), x.dtype)
        for i, kind in enumerate(self.kinds):
            w = (x[i] - self.location[i]) * jnp.exp(-self.log_scale[i])
            w = checkpoint_name(w, f"w_{i + 1}") if kind != "normal" else w
            u, slope = SHAPES[kind].forward(w, self.tail[i], self.skew[i])
            images.append(checkpoint_name(u, f"q_{i + 1}"))
            log_det = log_det + slope - self.log_scale[i]
        return jnp.stack(images), log_det

    def inverse_and_log_det(self, z: Vector, condition: Vector | None = None) -> Mapped:
        images, log_det = [], jnp.zeros((), z.dtype)
        for i, kind in enumerate(self.kinds):
            u = checkpoint_name(z[i], f"q_{i + 1}")
            w = SHAPES[kind].inverse(u, self.tail[i], self.skew[i])
            w = checkpoint_name(w, f"w_{i + 1}") if kind != "normal" else w
            slope = SHAPES[kind].forward(w, self.tail[i], self.skew[i])[1]
            images.append(self.location[i] + jnp.exp(self.log_scale[i]) * w)
            log_det = log_det - slope + self.log_scale[i]
        return jnp.stack(images), log_det


class Edges(AbstractBijection):
    """Opens ends where rows stop at once, and lets a few lie beyond: log-densities fall in a straight line there.

    With ``r`` the distance from the end: ``log(r)`` where ``r`` is above ``softness``, and its tangent there below.
    Between two ends, ``Phi^-1(r)`` of the share ``r`` of the way, and its tangents within ``softness`` of each.

    Args:
        ends: The end of each variable, the lower one of two; 0 where it is open.
        log_widths: Logarithm of the distance between two ends.
        sides: Which ends each variable has: ``""``, ``"low"``, ``"high"`` or ``"both"``.
        softness: Of each variable, fixed.
    """

    ends: Float[Array, " dim"]
    log_widths: Float[Array, " dim"]
    sides: tuple[str, ...] = eqx.field(static=True)
    softness: tuple[float, ...] = eqx.field(static=True)
    part: ClassVar[str] = "edges"

    def __check_init__(self) -> None:
        if not len(self.ends) == len(self.log_widths) == len(self.sides) == len(self.softness):
            raise ValueError(f"{len(self.ends)} variables need as many widths, sides and softnesses")
        for side, soft in zip(self.sides, self.softness, strict=True):
            most = {"": np.inf, "low": np.inf, "high": np.inf, "both": 0.5}.get(side, 0.0)
            if not (0 < soft < most or (side == "" and soft <= 0)):
                raise ValueError(
                    f"an edge is low, high or both, with a small positive softness, got {side!r}, {soft}"
                )

    dim = told("How many variables it maps.", lambda self: len(self.sides))

    def contains(self, rows: Float[np.ndarray, "n dim"]) -> np.ndarray:
        """Return whether each row lies inside of all ends."""
        share = (rows[:, : self.dim] - np.asarray(self.ends)) * np.exp(-np.asarray(self.log_widths))
        has_low, has_high = (np.array([s in (side, "both") for s in self.sides]) for side in ("low", "high"))
        most = np.array([1.0 if s == "both" else 0.0 for s in self.sides])
        return np.all((~has_low | (share >= 0)) & (~has_high | (share <= most)), axis=1)

    def forward_and_log_det(self, x: Vector, condition: Vector | None = None) -> Mapped:
        images, log_det = [], jnp.zeros((), x.dtype)
        for i, (side, soft) in enumerate(zip(self.sides, self.softness, strict=True)):
            sign = -1.0 if side == "high" else 1.0
            r = sign * (x[i] - self.ends[i]) * jnp.exp(-self.log_widths[i])
            r = checkpoint_name(r, f"r_{i + 1}") if side else r
            if side == "both":
                inner = checkpoint_name(jnp.clip(r, soft, 1 - soft), f"m_{i + 1}")
                u = ndtri(inner)
                slope = LOG_SQRT_2PI + 0.5 * u * u - self.log_widths[i]
                u = u + (r - inner) / _bell(soft)
            elif side:
                inner = checkpoint_name(jnp.maximum(r, soft), f"m_{i + 1}")
                u, slope = sign * (jnp.log(inner) + (r - inner) / soft), -jnp.log(inner) - self.log_widths[i]
            else:
                u, slope = x[i], 0.0
            images.append(checkpoint_name(u, f"w_{i + 1}") if side else u)
            log_det = log_det + slope
        return jnp.stack(images), log_det

    def inverse_and_log_det(self, z: Vector, condition: Vector | None = None) -> Mapped:
        images, log_det = [], jnp.zeros((), z.dtype)
        for i, (side, soft) in enumerate(zip(self.sides, self.softness, strict=True)):
            u, sign = checkpoint_name(z[i], f"w_{i + 1}") if side else z[i], -1.0 if side == "high" else 1.0
            if side == "both":
                inner = jnp.clip(u, ndtri(jnp.asarray(soft, z.dtype)), -ndtri(jnp.asarray(soft, z.dtype)))
                r = ndtr(inner) + (u - inner) * _bell(soft)
                slope = self.log_widths[i] - LOG_SQRT_2PI - 0.5 * inner * inner
            elif side:
                inner = checkpoint_name(jnp.clip(sign * u, math.log(soft), LARGEST_EXPONENT), f"m_{i + 1}")
                r = jnp.exp(inner) + jnp.minimum(sign * u - inner, 0.0) * soft
                slope = inner + self.log_widths[i]
            else:
                r, slope = u, 0.0
            images.append(self.ends[i] + sign * jnp.exp(self.log_widths[i]) * r if side else r)
            log_det = log_det + slope
        return jnp.stack(images), log_det


def _bell(p: float) -> float:
    """The normal density at the quantile of p."""
    return math.exp(-0.5 * NormalDist().inv_cdf(p) ** 2 - LOG_SQRT_2PI)


class SinhArcsinh(AbstractBijection):
    """Maps each variable to ``sinh(exp(log_tail) * asinh(x) - skew)``: tails and skewness in closed form.

    Args:
        log_tail: Positive lightens, negative fattens the tails that a normal latent gives x.
        skew: Positive pulls x's mass to the right.
    """

    log_tail: Float[Array, " dim"]
    skew: Float[Array, " dim"]
    part: ClassVar[str] = "tails"
    dim = told("How many variables it maps.", lambda self: self.log_tail.shape[0])

    def forward_and_log_det(self, x: Vector, condition: Vector | None = None) -> Mapped:
        z, slopes = _sinh_arcsinh(checkpoint_name(x, "a"), self.log_tail, self.skew)
        return checkpoint_name(z, "q"), jnp.sum(slopes)

    def inverse_and_log_det(self, z: Vector, condition: Vector | None = None) -> Mapped:
        z, skew = checkpoint_name(z, "a"), -self.skew * jnp.exp(-self.log_tail)
        x, slopes = _sinh_arcsinh(z, -self.log_tail, skew)
        return checkpoint_name(x, "q"), jnp.sum(slopes)


class Tails(AbstractBijection):
    """Maps the first variables to themselves up to ``start``, and beyond to ``±(start + log(1 + |x| - start))``.

    Behind a model that is not exact it keeps the density of rows far out from being absurd.
    """

    dim: int = eqx.field(static=True)
    n_changed: int = eqx.field(static=True)
    start: float = eqx.field(static=True, default=3.5)
    part: ClassVar[str] = "tails"

    def forward_and_log_det(self, x: Vector, condition: Vector | None = None) -> Mapped:
        x, rest = checkpoint_name(x[: self.n_changed], "a"), x[self.n_changed :]
        inner = jnp.clip(x, -self.start, self.start)
        beyond = jnp.log1p(jnp.abs(x - inner))
        z = checkpoint_name(inner + jnp.sign(x) * beyond, "q")
        return jnp.concatenate([z, rest]), -jnp.sum(beyond)

    def inverse_and_log_det(self, z: Vector, condition: Vector | None = None) -> Mapped:
        z, rest = checkpoint_name(z[: self.n_changed], "a"), z[self.n_changed :]
        inner = jnp.clip(z, -self.start, self.start)
        beyond = jnp.minimum(jnp.abs(z - inner), LARGEST_EXPONENT)
        x = checkpoint_name(inner + jnp.sign(z) * jnp.expm1(beyond), "q")
        return jnp.concatenate([x, rest]), jnp.sum(beyond)

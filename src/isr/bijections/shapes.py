"""Shapes: one variable by itself becomes normal, by closed forms of tails, skewness and well-known laws."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jax.scipy.special import log_ndtr
from jaxtyping import Array, Float

from isr.bijections.affine import LOG_SQRT_2PI
from isr.bijections.bijection import AbstractBijection, Mapped, Vector
from isr.bijections.primitives import log_cosh
from isr.bijections.probits import gumbel_of_number, number_of_gumbel, number_of_laplace, number_of_logistic

Pair = tuple[Any, Any]


class Shape(NamedTuple):
    """A monotone map of a standard variable to a normal one, and back; each with the logarithm of its slope.

    Args:
        forward: Takes ``w``, ``tail`` and ``skew``.
        inverse: Takes ``u``, ``tail`` and ``skew``; gives ``w`` alone.
        n_shape: How many of tail and skew it reads.
    """

    forward: Callable[[Any, Any, Any], Pair]
    inverse: Callable[[Any, Any, Any], Any]
    n_shape: int = 0


def _sinh_arcsinh(w: Any, tail: Any, skew: Any) -> Pair:
    v = jnp.exp(tail) * jnp.arcsinh(w) - skew
    return jnp.sinh(v), tail + log_cosh(v) - 0.5 * jnp.log1p(w * w)


def _johnson(w: Any, tail: Any, skew: Any) -> Pair:
    return jnp.exp(tail) * jnp.arcsinh(w) - skew, tail - 0.5 * jnp.log1p(w * w)


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


def _from_laplace(u: Any) -> Any:
    return jnp.sign(u) * -(math.log(2) + log_ndtr(-jnp.abs(u)))


SHAPES: dict[str, Shape] = {
    "normal": Shape(lambda w, tail, skew: (w, jnp.zeros_like(w)), lambda u, tail, skew: u),
    "logistic": Shape(_logistic, lambda u, tail, skew: _from_logistic(u)),
    "laplace": Shape(_laplace, lambda u, tail, skew: _from_laplace(u)),
    "gumbel": Shape(_gumbel, lambda u, tail, skew: gumbel_of_number(u)),
    "gumbel_low": Shape(_gumbel_low, lambda u, tail, skew: -gumbel_of_number(-u)),
    "johnson": Shape(_johnson, lambda u, tail, skew: jnp.sinh(jnp.exp(-tail) * (u + skew)), 2),
    "sinh_arcsinh": Shape(
        _sinh_arcsinh, lambda u, tail, skew: jnp.sinh(jnp.exp(-tail) * (jnp.arcsinh(u) + skew)), 2
    ),
    "power_tails": Shape(
        _power_tails, lambda u, tail, skew: jnp.sinh(jnp.exp(-tail) * (_from_logistic(u) + skew)), 2
    ),
}
"""Every shape by name. Logistic, Gumbel and Laplace laws go by their distribution function; ``"johnson"`` and
``"sinh_arcsinh"`` bend tails and lean; ``"power_tails"`` are those of ``sigmoid(exp(tail) asinh(w) - skew)``, which is
nearly Student's law, and exactly that of two degrees of freedom."""


class Shapes(AbstractBijection):
    """Maps each variable to ``T(w; tail, skew)`` with ``w = (x - location) / exp(log_scale)`` and ``T`` by its kind.

    Args:
        location: Of each variable.
        log_scale: Logarithm of its scale.
        tail: First number of a shape that has any.
        skew: Second one.
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

    @property
    def dim(self) -> int:
        """How many variables it maps."""
        return len(self.kinds)

    def forward_and_log_det(self, x: Vector, condition: Vector | None = None) -> Mapped:
        images, log_det = [], jnp.zeros((), x.dtype)
        for i, kind in enumerate(self.kinds):
            w = (x[i] - self.location[i]) * jnp.exp(-self.log_scale[i])
            u, slope = SHAPES[kind].forward(
                checkpoint_name(w, f"w_{i + 1}") if kind != "normal" else w, self.tail[i], self.skew[i]
            )
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

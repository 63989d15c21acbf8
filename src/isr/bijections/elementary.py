"""Elementary functions that equations keep whole, known to their reader by name.


XLA calls the C library for sine and arctangent, one number at a time; a polynomial runs in vector registers, ten times
as fast.
The coefficients interpolate at Chebyshev nodes; the error is about one unit in the last place of the precision at hand.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax.scipy import special
from jaxtyping import Array, Float

# sin(2 pi a) / a in powers of a^2, for a up to 1/4.
_SINE = {
    "float32": (6.2831852801544065, -41.341680613346515, 81.60247636892518, -76.581172644278724, 39.759827085319101),
    "float64": (
        6.2831853071795865, -41.341702240399757, 81.605249276073615, -76.705859752824919, 42.058693925428682,
        -15.0946416761179, 3.8199280942271642, -0.71773379214134533, 0.10089695501646811,
    ),
}  # fmt: skip
# (atan(c) / c - 1) / c^2 in powers of c^2, for c up to tan(pi / 8).
_ARCTANGENT = {
    "float32": (-0.333333317611685, 0.1999954048364896, -0.1426395559798464, 0.1074373149079108, -0.0645192820812175),
    "float64": (
        -0.33333333333333333, 0.19999999999999805, -0.14285714285659828, 0.11111111105155447, -0.090909087535008768,
        0.076922963750321424, -0.066664248857382553, 0.058789289978347751, -0.052304542706502445,
        0.045515932206265492, -0.034570561981427747, 0.016285756855221028,
    ),
}  # fmt: skip
_TAN_OF_AN_EIGHTH = math.tan(math.pi / 8)


@jax.jit
def sin2pi(g: Float[Array, "..."]) -> Float[Array, "..."]:
    """Return ``sin(2 pi g)``; whole turns are taken off exactly."""
    return _sin2pi(g)


@jax.custom_jvp
def _sin2pi(g: Float[Array, "..."]) -> Float[Array, "..."]:
    g = jnp.asarray(g)
    rest = g - jnp.round(g)
    a = 0.25 - jnp.abs(jnp.abs(rest) - 0.25)
    return jnp.copysign(a * _horner(_SINE[g.dtype.name], a * a), rest)


@_sin2pi.defjvp
def _(primals, tangents):
    (g,), (dg,) = primals, tangents
    return sin2pi(g), 2 * math.pi * sin2pi(g + 0.25) * dg


@jax.jit
def sin(g: Float[Array, "..."]) -> Float[Array, "..."]:
    """Return the sine of ``g`` (radians)."""
    return sin2pi(g / (2 * math.pi))


@jax.jit
def cos(g: Float[Array, "..."]) -> Float[Array, "..."]:
    """Return the cosine of ``g`` (radians)."""
    return sin2pi(g / (2 * math.pi) + 0.25)


@jax.jit
def arctan(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """Return the arctangent of ``x`` (radians)."""
    return _arctan(x)


@jax.custom_jvp
def _arctan(x: Float[Array, "..."]) -> Float[Array, "..."]:
    x = jnp.asarray(x)
    a = jnp.abs(x)
    middle, far = a > _TAN_OF_AN_EIGHTH, a > 1 / _TAN_OF_AN_EIGHTH
    c = jnp.where(far, -1.0, jnp.where(middle, a - 1, a)) / jnp.where(far, a, jnp.where(middle, a + 1, 1.0))
    turned = jnp.where(far, math.pi / 2, jnp.where(middle, math.pi / 4, 0.0))
    square = c * c
    angle = turned + (c + c * square * _horner(_ARCTANGENT[x.dtype.name], square))
    return jnp.copysign(angle, x)


@_arctan.defjvp
def _(primals, tangents):
    (x,), (dx,) = primals, tangents
    return arctan(x), dx / (1 + x * x)


def _horner(coefficients: tuple[float, ...], z: Float[Array, "..."]) -> Float[Array, "..."]:
    value = jnp.full_like(z, coefficients[-1])
    for c in coefficients[-2::-1]:
        value = value * z + c
    return value


@jax.jit
def ndtr(u: Float[Array, "..."]) -> Float[Array, "..."]:
    """Return the normal distribution function."""
    return special.ndtr(u)


@jax.jit
def ndtri(p: Float[Array, "..."]) -> Float[Array, "..."]:
    """Return the normal quantile."""
    return special.ndtri(p)


@jax.jit
def log_cosh(w: Float[Array, "..."]) -> Float[Array, "..."]:
    """Return the logarithm of the hyperbolic cosine."""
    return jnp.logaddexp(w, -w) - math.log(2)


@jax.jit
def soft_clamp(s: Float[Array, "..."], bound: float) -> Float[Array, "..."]:
    """Return ``s`` held smoothly inside ``±bound``: ``bound * 2/pi * atan(s / bound)``."""
    return bound * (2 / math.pi) * arctan(s / bound)


@jax.jit
def inside(x: Float[Array, "..."], low: float, high: float) -> Float[Array, "..."]:
    """Return ``x`` held inside the bounds of the variable it is; equations state them beside, not in each formula."""
    return jnp.clip(x, low, high)

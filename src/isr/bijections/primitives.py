"""Primitives: the elementary functions that networks are made of.

A primitive is written once, in JAX; equations read it from there, the limits of its safe domain included. Functions
that equations keep whole are known to their reader by name.

XLA calls the C library for sine and arctangent, one number at a time; a polynomial runs in vector registers, ten times
as fast. The coefficients interpolate at Chebyshev nodes; the error is about one unit in the last place.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
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


def probit_of(below: Float[Array, "..."], above: Float[Array, "..."]) -> Float[Array, "..."]:
    """Normal quantile of a probability that is given together with what it lacks to 1."""
    smaller = jnp.maximum(jnp.minimum(below, above), jnp.finfo(below.dtype).tiny)
    return jnp.where(below < above, 1.0, -1.0).astype(below.dtype) * special.ndtri(smaller)


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


_marked: ContextVar[frozenset[str]] = ContextVar("marked_primitives", default=frozenset())


@contextmanager
def marked_primitives(names: Iterable[str]) -> Iterator[None]:
    """Record these primitives as calls under their names inside."""
    token = _marked.set(frozenset(names))
    try:
        yield
    finally:
        _marked.reset(token)


__all__ = ["PAPER_LIBRARY", "PRIMITIVES", "Primitive", "lookup", "parse_library", "register_primitive"]


@dataclass(frozen=True)
class Primitive:
    """An elementary function, elementwise on JAX arrays; its arguments are those of `register_primitive`, an arity
    of 0 marks the constant.

    Example:
        >>> PRIMITIVES["square"].apply(jax.numpy.array(3.0)).item()
        9.0
    """

    name: str
    arity: int
    array: Callable[..., Any]
    cost: int = 1
    domain: tuple[float | None, float | None] = (None, None)

    def apply(self, *arguments: jax.Array) -> jax.Array:
        """Return the function at ``arguments``, each held inside the safe domain."""

        def held(*arguments: jax.Array) -> jax.Array:
            low, high = self.domain
            if low is not None or high is not None:
                arguments = tuple(jnp.clip(a, low, high) for a in arguments)
            return self.array(*arguments)

        if self.name not in _marked.get():
            return held(*arguments)
        held.__name__ = f"primitive {self.name}"  # which the reader of equations knows
        return jax.jit(held)(*arguments)


# The limits: below 1e-6 a logarithm or a square root has slopes no optimiser survives; above 15 an
# exponential squared twice leaves single precision; a pole nearer than 0.01 turns one sample into a wild one.
_BUILT_IN = (
    Primitive("constant", 0, jnp.ones_like, 1),
    Primitive("id", 1, lambda g: g, 1),
    Primitive("square", 1, jnp.square, 2),
    Primitive("cube", 1, lambda g: g * g * g, 3),
    Primitive("sin2pi", 1, sin2pi, 4),
    Primitive("sin", 1, sin, 4),
    Primitive("cos", 1, cos, 4),
    Primitive("exp", 1, jnp.exp, 4, (None, 15.0)),
    Primitive("log", 1, jnp.log, 4, (1e-6, None)),
    Primitive("sqrt", 1, jnp.sqrt, 3, (1e-6, None)),
    Primitive("reciprocal", 1, jnp.reciprocal, 3, (0.01, None)),
    Primitive("sigmoid", 1, jax.nn.sigmoid, 4),
    Primitive("tanh", 1, jnp.tanh, 4),
    Primitive("product", 2, jnp.multiply, 2),
)

PRIMITIVES: dict[str, Primitive] = {p.name: p for p in _BUILT_IN}
"""Every primitive known by name."""

PAPER_LIBRARY: dict[str, int] = {
    "constant": 1, "id": 1, "square": 4, "sin2pi": 1, "sigmoid": 1, "product": 1,
}  # fmt: skip
"""The library of the paper: name and how many units of it a layer holds."""


def lookup(name: str) -> Primitive:
    """Return the primitive called ``name``."""
    if name not in PRIMITIVES:
        known = ", ".join(sorted(PRIMITIVES))
        raise ValueError(
            f"unknown primitive {name!r}; known primitives: {known}; add one by register_primitive"
        )
    return PRIMITIVES[name]


def is_built_in(name: str) -> bool:
    """Return whether ``name`` is a primitive of this package, not one of a user."""
    return PRIMITIVES.get(name) in _BUILT_IN


def parse_library(library: Mapping[str, int] | Sequence[str]) -> tuple[tuple[str, int], ...]:
    """Return a library as (name, multiplicity) pairs in a fixed order, checked.

    Args:
        library: Names with multiplicities, or a sequence of names in which repeats count.
    """
    counts: dict[str, int] = {}
    if isinstance(library, str):
        raise TypeError(f"a library is a mapping or a sequence of names, got the string {library!r}")
    for name, count in library.items() if isinstance(library, Mapping) else ((name, 1) for name in library):
        lookup(name)
        if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 0:
            raise ValueError(f"the multiplicity of {name!r} must be a whole number from 0 up, got {count!r}")
        counts[name] = counts.get(name, 0) + int(count)
    if not any(count and lookup(name).arity for name, count in counts.items()):
        raise ValueError(
            "the library holds no function; name at least one besides the constant, such as 'id'"
        )
    places = {primitive.name: place for place, primitive in enumerate(_BUILT_IN)}
    pairs = [(name, count) for name, count in counts.items() if count]
    return tuple(sorted(pairs, key=lambda pair: (places.get(pair[0], len(places)), pair[0])))


def register_primitive(
    name: str,
    array: Callable[..., Any],
    *,
    arity: int = 1,
    cost: int = 4,
    domain: tuple[float | None, float | None] = (None, None),
) -> Primitive:
    """Add a primitive of your own and return it.

    Args:
        name: A lower-case identifier, not yet taken.
        array: The function, elementwise, written with functions of JAX; equations are read from it.
        arity: 1 or 2 arguments.
        cost: What one use adds to the complexity of an equation.
        domain: Limits inside which arguments are held.

    Example:
        >>> import jax.numpy as jnp
        >>> bump = register_primitive("bump", lambda g: jnp.exp(-g * g))
        >>> bump.apply(jnp.zeros(())).item()
        1.0
        >>> del PRIMITIVES["bump"]
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise ValueError(f"a primitive's name must be a lower-case identifier, got {name!r}")
    if name in PRIMITIVES:
        raise ValueError(f"a primitive called {name!r} exists already; choose another name")
    if arity not in (1, 2):
        raise ValueError(f"a primitive takes 1 or 2 arguments, got arity={arity!r}")
    if isinstance(cost, bool) or not isinstance(cost, int | np.integer) or cost < 1:
        raise ValueError(f"the cost of a primitive is a whole number from 1 up, got {cost!r}")
    low, high = domain
    if not (-np.inf if low is None else low) < (np.inf if high is None else high):
        raise ValueError(f"the domain of a primitive must have low < high, got {domain!r}")
    primitive = Primitive(name, arity, array, int(cost), domain)
    points = np.random.default_rng(0).normal(scale=3.0, size=(arity, 64))
    with jax.enable_x64(True):
        found = np.asarray(primitive.apply(*jnp.asarray(points)))
    if found.shape != points.shape[1:]:
        raise ValueError(f"{name!r} must be elementwise; it made {found.shape} of {points.shape[1:]}")
    if not np.all(np.isfinite(found)):
        where = points[:, ~np.isfinite(found)][:, 0]
        raise ValueError(f"{name!r} is not finite at {where.tolist()}; narrow its domain")
    PRIMITIVES[name] = primitive
    return primitive

"""Primitives: the elementary functions that networks are made of.

A primitive is written once, in JAX; equations read it from there, the limits of its safe domain included.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from isr.bijections import elementary
from isr.bijections.marks import marked

__all__ = ["PAPER_LIBRARY", "PRIMITIVES", "Primitive", "lookup", "parse_library", "register_primitive"]


@dataclass(frozen=True)
class Primitive:
    """An elementary function.

    Args:
        name: How the library and saved files call it.
        arity: Number of arguments; 0 marks the constant, 1 a function, 2 a product-like operation.
        array: The function on JAX arrays, elementwise.
        cost: What one use adds to the complexity of an equation.
        domain: Arguments are held inside these limits; ``None`` leaves an end open.
        symbol: The same function on SymPy expressions, for a nicer print than its JAX program gives; None to read that.

    Example:
        >>> PRIMITIVES["square"].apply(jax.numpy.array(3.0)).item()
        9.0
    """

    name: str
    arity: int
    array: Callable[..., Any]
    cost: int = 1
    domain: tuple[float | None, float | None] = (None, None)
    symbol: Callable[..., Any] | None = None

    def apply(self, *arguments: jax.Array) -> jax.Array:
        """Return the function at ``arguments``, each held inside the safe domain."""
        return marked(self.name, self._held)(*arguments)

    def _held(self, *arguments: jax.Array) -> jax.Array:
        low, high = self.domain
        if low is not None or high is not None:
            arguments = tuple(jnp.clip(a, low, high) for a in arguments)
        return self.array(*arguments)


# The limits: below 1e-6 a logarithm or a square root has slopes no optimiser survives; above 15 an
# exponential squared twice leaves single precision; a pole nearer than 0.01 turns one sample into a wild one.
_BUILT_IN = (
    Primitive("constant", 0, jnp.ones_like, 1),
    Primitive("id", 1, lambda g: g, 1),
    Primitive("square", 1, jnp.square, 2),
    Primitive("cube", 1, lambda g: g * g * g, 3),
    Primitive("sin2pi", 1, elementary.sin2pi, 4),
    Primitive("sin", 1, elementary.sin, 4),
    Primitive("cos", 1, elementary.cos, 4),
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
    pairs = library.items() if isinstance(library, Mapping) else ((name, 1) for name in library)
    for name, count in pairs:
        lookup(name)
        if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 0:
            raise ValueError(f"the multiplicity of {name!r} must be a whole number from 0 up, got {count!r}")
        counts[name] = counts.get(name, 0) + int(count)
    units = {name: count for name, count in counts.items() if count and lookup(name).arity}
    if not units:
        raise ValueError(
            "the library holds no function; name at least one besides the constant, such as 'id'"
        )
    return tuple(sorted(((n, c) for n, c in counts.items() if c), key=lambda pair: _order(pair[0])))


def _order(name: str) -> tuple[int, str]:
    names = [p.name for p in _BUILT_IN]
    return (names.index(name) if name in names else len(names), name)


def register_primitive(
    name: str,
    array: Callable[..., Any],
    symbol: Callable[..., Any] | None = None,
    *,
    arity: int = 1,
    cost: int = 4,
    domain: tuple[float | None, float | None] = (None, None),
) -> Primitive:
    """Add a primitive of your own and return it.

    Args:
        name: A lower-case identifier, not yet taken.
        array: The function, elementwise, written with functions of JAX.
        symbol: The same function on SymPy expressions, for a nicer print; equations are read from ``array`` without it.
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
    primitive = Primitive(name, arity, array, int(cost), domain, symbol)
    _refuse_unless_usable(primitive)
    PRIMITIVES[name] = primitive
    return primitive


def _refuse_unless_usable(primitive: Primitive) -> None:
    """Refuse what is not elementwise and finite, and a symbol form that means another number."""
    low, high = primitive.domain
    points = np.random.default_rng(0).normal(scale=3.0, size=(primitive.arity, 64))
    with jax.enable_x64(True):
        found = np.asarray(primitive.apply(*jnp.asarray(points)))
    if found.shape != points.shape[1:]:
        raise ValueError(
            f"the array form of {primitive.name!r} must be elementwise; it made {found.shape} of {points.shape[1:]}"
        )
    if not np.all(np.isfinite(found)):
        where = points[:, ~np.isfinite(found)][:, 0]
        raise ValueError(
            f"the array form of {primitive.name!r} is not finite at {where.tolist()}; narrow its domain"
        )
    if primitive.symbol is None:
        return
    held = np.clip(points, low if low is not None else -np.inf, high if high is not None else np.inf)
    try:
        expected = np.array([complex(primitive.symbol(*map(_float, p)).evalf(17)) for p in held.T])
    except (TypeError, ValueError, AttributeError) as error:
        raise ValueError(
            f"the symbol form of {primitive.name!r} must take and return SymPy expressions; it raised: {error}"
        ) from error
    error = np.abs(found - expected) / (1 + np.abs(expected))
    if not np.all(error < 1e-9):
        worst = int(np.argmax(error))
        raise ValueError(
            f"array and symbol form of {primitive.name!r} disagree at {points[:, worst].tolist()}: "
            f"{found[worst]:.9g} against {expected[worst]:.9g}; both must mean the same number"
        )


def _float(value: float) -> Any:
    import sympy

    return sympy.Float(value, 17)

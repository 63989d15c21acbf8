"""Dictionary: terms that a rate may be a sum of, products of states, of functions of them and of parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
import sympy
from jaxtyping import Float

from isr.motion.system import compiled

MOST_TERMS = 900


@dataclass(frozen=True)
class Library:
    """What rates are sought in.

    Args:
        degree: Highest power of states in a term, all together.
        functions: Functions of one state that count as one power.
        inverse: Whether a power may be negative, where a state or a parameter never vanishes.
        ratio: Whether the rate may be a ratio of two sums.
    """

    degree: int = 2
    functions: tuple[str, ...] = ()
    inverse: bool = False
    ratio: bool = False


LADDER = (
    Library(2),
    Library(3, inverse=True),
    Library(2, functions=("sin", "cos"), inverse=True),
    Library(3, ratio=True),
    Library(3, functions=("sin", "cos"), inverse=True),
)


def terms(
    library: Library, states: Sequence[sympy.Symbol], parameters: Sequence[sympy.Symbol],
    whole: Sequence[bool], whole_parameters: Sequence[bool],
) -> list[sympy.Expr]:  # fmt: skip
    """Return the terms of a library, simple ones first.

    Args:
        library: What to build.
        states: Symbols of the channels.
        parameters: Symbols of the parameters.
        whole: Which states keep their sign.
        whole_parameters: Which parameters do.

    Example:
        >>> a, b, k = sympy.symbols("a b k", real=True)
        >>> terms(Library(1), [a, b], [k], [True, True], [True])
        [1, a, b, k, a*k, b*k]
    """
    atoms = list(states)
    atoms += [1 / s for s, fixed in zip(states, whole, strict=True) if library.inverse and fixed]
    atoms += [getattr(sympy, f)(s) for f in library.functions for s in states]
    atoms += [
        getattr(sympy, f)(s)
        for f in library.functions[:1] and ("tan", "cot")
        for s in states
        if library.inverse
    ]
    products = _products(atoms, library.degree)
    products = [p for p in products if not any(_is_redundant(p, s) for s in states)]
    factors = list(parameters)
    if library.inverse or library.ratio:
        factors += [1 / s for s, fixed in zip(parameters, whole_parameters, strict=True) if fixed]
    powers = _products(factors, 2 if library.inverse or library.ratio else 1)
    found = {p * f: None for f in powers for p in products}
    if len(found) > MOST_TERMS:
        found = {p * f: None for f in _products(factors, 1) for p in products}
    return list(found)[:MOST_TERMS]


def _is_redundant(product: sympy.Expr, s: sympy.Symbol) -> bool:
    """Whether a product of functions of a state is another term, or a sum of others."""
    sin, cos, tan, cot = (product.has(f(s)) for f in (sympy.sin, sympy.cos, sympy.tan, sympy.cot))
    twice = any(product.has(sympy.cos(s) ** k) for k in (2, 3))
    return twice or (tan and (cos or cot)) or (cot and sin)


def _products(atoms: Sequence[sympy.Expr], degree: int) -> list[sympy.Expr]:
    found: dict[Any, None] = {sympy.Integer(1): None}
    for d in range(1, degree + 1):
        for chosen in combinations_with_replacement(atoms, d):
            product = sympy.Mul(*chosen)
            if not (d > 1 and product.is_number):
                found[product] = None
    return list(found)


def columns(
    expressions: Sequence[sympy.Expr], states: Sequence[sympy.Symbol], parameters: Sequence[sympy.Symbol],
    values: Float[np.ndarray, "n g c"], x: Float[np.ndarray, "n d"],
) -> Float[np.ndarray, "m n g"]:  # fmt: skip
    """Return the value of each expression on a grid of each trajectory."""
    function = compiled([*states, *parameters], expressions)
    given = [*np.moveaxis(values, 2, 0), *(v[:, None] for v in x.T)]
    with np.errstate(all="ignore"):
        found = np.stack([np.broadcast_to(np.asarray(v, float), values.shape[:2]) for v in function(*given)])
    return np.nan_to_num(found, nan=0.0, posinf=0.0, neginf=0.0)

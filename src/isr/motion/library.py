"""Library: terms that a rate may be a sum of, products of states, of functions of them and of parameters."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement

import numpy as np
import sympy
from jaxtyping import Float
from sympy import cos, cot, sin, tan

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
    Library(1, inverse=True),
    Library(3, inverse=True),
    Library(2, functions=("sin", "cos"), inverse=True),
    Library(3, ratio=True),
    Library(3, functions=("sin", "cos"), inverse=True),
)


def terms(
    library: Library, states: Sequence[sympy.Symbol], parameters: Sequence[sympy.Symbol],
    signed: Collection[sympy.Symbol],
) -> list[sympy.Expr]:  # fmt: skip
    """Return the terms of a library, simple ones first; ``signed`` are the symbols that never vanish."""
    atoms = [*states, *(1 / s for s in states if library.inverse and s in signed)]
    atoms += [getattr(sympy, f)(s) for f in library.functions for s in states]
    if library.functions and library.inverse:
        atoms += [f(s) for f in (tan, cot) for s in states]
    products = [p for p in _products(atoms, library.degree) if not any(_is_redundant(p, s) for s in states)]
    divides = library.inverse or library.ratio
    factors = [*parameters, *(1 / s for s in parameters if divides and s in signed)]
    found: dict[sympy.Expr, None] = {}
    for degree in (2, 1) if divides else (1,):
        found = {p * f: None for f in _products(factors, degree) for p in products}
        if len(found) <= MOST_TERMS:
            break
    return list(found)[:MOST_TERMS]


def _is_redundant(product: sympy.Expr, s: sympy.Symbol) -> bool:
    """Whether a product of functions of a state is another term, or a sum of others."""
    twice = any(product.has(cos(s) ** k) for k in (2, 3))
    pairs = ((tan, cos), (tan, cot), (cot, sin))
    return twice or any(product.has(f(s)) and product.has(g(s)) for f, g in pairs)


def _products(atoms: Sequence[sympy.Expr], degree: int) -> list[sympy.Expr]:
    found: dict[sympy.Expr, None] = {sympy.Integer(1): None}
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

"""Library: terms that a rate may be a sum of, products of states, of functions of them and of parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement, islice

import numpy as np
import sympy
from jaxtyping import Float
from sympy import cos, cot, sin, tan

from isr.motion.clock import keep_time
from isr.motion.system import compiled

MOST_TERMS = 900


@dataclass(frozen=True)
class Library:
    """What rates are sought in.

    Args:
        degree: Highest power of states in a term, all together.
        functions: Functions of one state that count as one power; logarithms of positive ones, and of parameters.
        inverse: Whether a power may be negative, where a state or a parameter never vanishes.
        ratio: Whether the rate may be a ratio of two sums.
    """

    degree: int = 2
    functions: tuple[str, ...] = ()
    inverse: bool = False
    ratio: bool = False

    def __str__(self) -> str:
        powers = f"products of up to {self.degree} channels" if self.degree > 1 else "linear terms"
        more = [*(["their inverses"] if self.inverse else []), *self.functions]
        return ("ratios of sums of " if self.ratio else "sums of ") + ", ".join([powers, *more])


LADDER = (
    Library(2),
    Library(1, inverse=True),
    Library(2, functions=("log",), inverse=True),
    Library(3, inverse=True),
    Library(2, functions=("sin", "cos"), inverse=True),
    Library(3, ratio=True),
    Library(3, functions=("sin", "cos"), inverse=True),
)


def terms(
    library: Library, states: Sequence[sympy.Symbol], parameters: Sequence[sympy.Symbol],
    signed: Mapping[sympy.Symbol, int],
) -> list[sympy.Expr]:  # fmt: skip
    """Return the terms of a library, simple ones first; ``signed`` gives the sign of symbols that never vanish."""
    atoms = [*states, *(1 / s for s in states if library.inverse and s in signed)]
    atoms += [
        getattr(sympy, f)(s) for f in library.functions for s in states if f != "log" or signed.get(s) == 1
    ]
    if "sin" in library.functions and library.inverse:
        atoms += [f(s) for f in (tan, cot) for s in states]
    products = [p for p in _products(atoms, library.degree) if not any(_is_redundant(p, s) for s in states)]
    divides = library.inverse or library.ratio
    factors = [*parameters, *(1 / s for s in parameters if divides and s in signed)]
    factors += [sympy.log(s) for s in parameters if "log" in library.functions and signed.get(s) == 1]
    scales = _products(factors, 2 if divides else 1)
    if len(scales) * len(products) > MOST_TERMS:
        scales = _products(factors, 1)
    pairs = ((f, p) for f in scales for p in products)
    return [p * f for f, p in islice(pairs, MOST_TERMS)]


def _is_redundant(product: sympy.Expr, s: sympy.Symbol) -> bool:
    """Whether a product of functions of a state is another term, or a sum of others."""
    twice = any(product.has(cos(s) ** k) for k in (2, 3))
    pairs = ((tan, cos), (tan, cot), (cot, sin))
    return twice or any(product.has(f(s)) and product.has(g(s)) for f, g in pairs)


def _products(atoms: Sequence[sympy.Expr], degree: int) -> list[sympy.Expr]:
    found: dict[sympy.Expr, None] = {sympy.Integer(1): None}
    for d in range(1, degree + 1):
        for chosen in combinations_with_replacement(atoms, d):
            keep_time()
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

"""Subsets: which few columns explain another one, by a beam search on one Gram matrix."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

BEAM = 24
KEPT = 3
# What is left of a column once others are taken out, below which it is one of them.
COLLINEAR = 1e-9


@dataclass(frozen=True)
class Subset:
    """Some columns.

    Args:
        columns: Their numbers, sorted.
        left: Sum of squares that they leave, relative to all.
    """

    columns: tuple[int, ...]
    left: float


def best_subsets(
    gram: Float[np.ndarray, "m m"], product: Float[np.ndarray, " m"], square: float, largest: int,
    *, first: tuple[int, ...] = (), n: int | None = None,
) -> list[list[Subset]]:  # fmt: skip
    """Return for each size the best few subsets.

    Args:
        gram: Products of the columns.
        product: Products of the columns with what is to be explained.
        square: Sum of squares of what is to be explained.
        largest: Most columns of a subset, those of ``first`` not counted.
        first: Columns that every subset holds.
        n: How many columns, from the first, may join; all when left out.

    Example:
        >>> a = np.random.default_rng(0).normal(size=(50, 6))
        >>> b = 2 * a[:, 1] - a[:, 4]
        >>> best_subsets(a.T @ a, a.T @ b, b @ b, 2)[1][0].columns
        (1, 4)
    """
    scale = np.sqrt(np.maximum(np.diag(gram), 1e-300))
    g, p = gram / np.outer(scale, scale), product / scale / np.sqrt(max(square, 1e-300))
    beam, found, n = {first: 1.0}, [], len(p) if n is None else n
    for _ in range(min(largest, len(p))):
        grown: dict[tuple[int, ...], float] = {}
        for columns in beam:
            gains, left = _gains(g, p, columns)
            for j in np.argsort(-gains[:n])[:BEAM]:
                if gains[j] > 0:
                    grown[tuple(sorted((*columns, int(j))))] = left - gains[j]
        beam = dict(sorted(grown.items(), key=lambda item: item[1])[:BEAM])
        if not beam:
            break
        found.append([Subset(columns, max(left, 0.0)) for columns, left in beam.items()][:KEPT])
    return found


def _gains(g: np.ndarray, p: np.ndarray, columns: tuple[int, ...]) -> tuple[np.ndarray, float]:
    """How much each further column explains, and what these leave."""
    s = list(columns)
    if not s:
        return p**2, 1.0
    solved = np.linalg.lstsq(g[np.ix_(s, s)], np.column_stack([g[s], p[s]]), rcond=1e-12)[0]
    own = 1.0 - np.einsum("sm,sm->m", g[s], solved[:, :-1])
    rest = p - g[:, s] @ solved[:, -1]
    gains = np.where(own > COLLINEAR, rest**2 / np.maximum(own, COLLINEAR), 0.0)
    gains[s] = 0.0
    return gains, float(1.0 - p[s] @ solved[:, -1])

"""Columns that have no joint density: constant, discrete, or following from others."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from isr.tables.names import quoted

# Of a column with at least twenty rows for each of its values, and no more values than this, the rows lie on points.
MOST_LEVELS = 50
# Rows that are looked through for different values: more would cost seconds and tell nothing new.
MOST_ROWS = 100_000
# Smallest eigenvalue of a correlation matrix: columns that agree to five digits look the same in single precision.
LEAST_EIGENVALUE = 1e-10


class DegenerateDataWarning(UserWarning):
    """Rows that lie on a set of lower dimension, where no density exists; the message names the columns."""


def warn_if_degenerate(values: Float[np.ndarray, "n d"], names: Sequence[str], *, what: str = "x") -> None:
    """Issue a `DegenerateDataWarning` where finite rows have no density."""
    found = degeneracies(values, names)
    if found:
        warnings.warn(
            f"{what} has no density: {'; '.join(found)}. The fit goes on as far as single precision goes; leave such "
            "columns out, or add the noise that was rounded away",
            DegenerateDataWarning,
            stacklevel=4,
        )


def degeneracies(values: Float[np.ndarray, "n d"], names: Sequence[str]) -> list[str]:
    """Return a sentence for each way in which finite rows have no density.

    Example:
        >>> rows = np.random.default_rng(0).normal(size=(100, 2))
        >>> degeneracies(np.column_stack([rows, 2 * rows[:, 0]]), ["a", "b", "c"])
        ["the columns 'a', 'c' follow from each other"]
    """
    constant = np.ptp(values, axis=0) <= 1e-12 * np.max(np.abs(values), axis=0, initial=0.0)
    some = values[:: -(-len(values) // MOST_ROWS)]
    n_levels = np.array([len(np.unique(column)) for column in some.T])
    together = np.zeros(len(names), dtype=bool)
    together[~constant] = _is_collinear(values[:, ~constant])
    ways = {
        "are constant": constant,
        "take few different values": ~constant & (n_levels <= min(MOST_LEVELS, len(some) // 20)),
        "follow from each other": together,
    }
    return [
        f"the columns {quoted([n for n, is_one in zip(names, which, strict=True) if is_one])} {way}"
        for way, which in ways.items()
        if which.any()
    ]


def _is_collinear(values: np.ndarray) -> np.ndarray:
    """Which columns take part in a linear relation; none where there are too few rows to tell."""
    n_rows, n_columns = values.shape
    if n_columns < 2 or n_rows <= n_columns:
        return np.zeros(n_columns, dtype=bool)
    scaled = values / np.max(
        np.abs(values), axis=0
    )  # squares of large and tiny numbers leave the range of doubles
    eigenvalues, vectors = np.linalg.eigh(np.corrcoef(scaled.T))
    return np.any(np.abs(vectors[:, eigenvalues < LEAST_EIGENVALUE]) > 0.1, axis=1)

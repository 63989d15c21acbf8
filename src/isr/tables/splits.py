"""Splits of rows into training and held-out rows: deterministic for a given seed, and independent of the data."""

from __future__ import annotations

import numbers
from typing import NamedTuple

import numpy as np
from jaxtyping import Int


class Split(NamedTuple):
    """Row numbers of the two parts of a table, each in rising order."""

    train: Int[np.ndarray, " train"]
    held_out: Int[np.ndarray, " held_out"]


def split_rows(n_rows: int, *, held_out: float | int = 0.1, random_state: int | np.random.Generator) -> Split:
    """Return a random split of ``n_rows`` rows into training and held-out rows.

    Args:
        n_rows: Rows in all, at least two.
        held_out: Share of the rows to hold out, strictly between 0 and 1, or a whole number of rows. Both parts get
            at least one row.
        random_state: Seed or generator.

    Example:
        >>> split_rows(5, held_out=2, random_state=0)
        Split(train=array([0, 1, 3]), held_out=array([2, 4]))
    """
    if isinstance(n_rows, bool) or not isinstance(n_rows, numbers.Integral):
        raise TypeError(f"n_rows must be a whole number, got {n_rows!r}")
    if n_rows < 2:
        raise ValueError(f"n_rows must be at least 2, got {n_rows}")
    n_held_out = _n_held_out(n_rows, held_out)
    order = np.random.default_rng(random_state).permutation(n_rows)
    return Split(train=np.sort(order[n_held_out:]), held_out=np.sort(order[:n_held_out]))


def _n_held_out(n_rows: int, held_out: float | int) -> int:
    if isinstance(held_out, bool) or not isinstance(held_out, numbers.Real):
        raise TypeError(f"held_out must be a share or a number of rows, got {held_out!r}")
    if isinstance(held_out, numbers.Integral):
        if not 0 < held_out < n_rows:
            raise ValueError(
                f"held_out must leave rows on both sides: between 1 and {n_rows - 1}, got {held_out}"
            )
        return int(held_out)
    if not 0 < held_out < 1:
        raise ValueError(f"held_out as a share must lie strictly between 0 and 1, got {held_out}")
    return min(max(round(n_rows * float(held_out)), 1), n_rows - 1)

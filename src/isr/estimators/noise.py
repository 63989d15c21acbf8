"""Observation noise: what the user says of it, as one standard deviation a column of y."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from isr.tables.tables import Table

# Share of a column's spread that "auto" takes as its noise.
AUTO = 0.01


def observation_noise(noise: Any, y: Table) -> np.ndarray:
    """Return the standard deviation of the noise to add to each column of ``y``.

    ``noise`` is ``"auto"``, a number, one number per column, or a mapping by name (columns left out get none).

    Example:
        >>> from isr.tables.tables import read_table
        >>> y = read_table([[0.0, 1.0], [2.0, 5.0]], names=["p", "q"])
        >>> observation_noise({"q": 0.5}, y).tolist()
        [0.0, 0.5]
        >>> observation_noise("auto", y).tolist()
        [0.01, 0.02]
    """
    if isinstance(noise, str):
        if noise != "auto":
            raise ValueError(f'noise must be "auto", a number, a list or a mapping by name, got {noise!r}')
        return AUTO * np.std(y.values, axis=0)
    if isinstance(noise, Mapping):
        unknown = sorted(set(noise) - set(y.names))
        if unknown:
            raise ValueError(
                f"noise names {unknown}, which are no columns of y; its columns are {list(y.names)}"
            )
        noise = [noise.get(name, 0.0) for name in y.names]
    values = np.asarray(noise, dtype=float)
    if values.ndim > 1 or values.size not in (1, y.n_columns):
        raise ValueError(
            f"noise must be one number or one for each of the {y.n_columns} columns of y, got {values.size}"
        )
    if not np.all(np.isfinite(values) & (values >= 0)):
        raise ValueError(f"noise must be finite and not negative, got {values.tolist()}")
    return np.broadcast_to(values, y.n_columns).copy()

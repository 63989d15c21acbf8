"""Which columns are read as logarithms or inverse hyperbolic sines: those that are skewed or span decades."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from isr.bijections.affine import Spread, Standardise, changed, standardise

# Nats per row by which a changed column must be closer to normal than the column itself.
LEAST_GAIN = 0.1


def spread(rows: Float[np.ndarray, "n d"], may_change: np.ndarray) -> Standardise | Spread:
    """Return what standardises rows, after a change of those columns that it brings closer to normal.

    Judged by the second half of the rows: the likelihood of each column under the normal law of the first half.
    """
    offsets, widths = np.zeros(rows.shape[1]), [None] * rows.shape[1]
    for i in np.flatnonzero(may_change):
        options = _options(rows[:, i])
        nats = [_nats(rows[:, i], *option) for option in options]
        best = int(np.argmin(nats))
        if nats[best] < nats[0] - LEAST_GAIN:
            offsets[i], widths[i] = options[best]
    if all(width is None for width in widths):
        return standardise(rows)
    none = Standardise((0.0,) * len(widths), (1.0,) * len(widths))
    plain = Spread(none, tuple(offsets.tolist()), tuple(widths))
    return Spread(standardise(plain.columns(rows)), plain.offsets, plain.widths)


def _options(column: np.ndarray) -> list[tuple[float, float | None]]:
    """Return offset and width of each way to change a column, the first of them not at all."""
    low, middle, high = np.quantile(column, (0.25, 0.5, 0.75))
    options: list[tuple[float, float | None]] = [(0.0, None)]
    if high > low:
        options.append((float(middle), float(high - low)))
    if np.min(column) > 0:
        options.append((0.0, 0.0))
    elif np.min(column) == 0:  # counts: half of the smallest beside nothing
        options.append((float(np.min(column[column > 0], initial=1.0)) / 2, 0.0))
    return options


def _nats(column: np.ndarray, offset: float, width: float | None) -> float:
    values = changed(column, offset, width, np)
    slopes = {None: np.ones_like(column), 0.0: 1 / np.maximum(column + offset, 1e-30)}
    slope = slopes[width] if width in slopes else 1 / np.hypot(column - offset, width)
    first, second = np.split(np.arange(len(column)), [len(column) // 2])
    mean, sd = np.mean(values[first]), np.std(values[first]) + 1e-12
    z = (values[second] - mean) / sd
    return float(np.mean(0.5 * z**2 + np.log(sd) - np.log(slope[second])))

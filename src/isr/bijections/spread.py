"""Spread: columns that are skewed or span decades, as their logarithm or inverse hyperbolic sine."""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from isr.bijections.affine import Standardise, standardise
from isr.bijections.bijection import AbstractBijection, Mapped, Vector

# Nats per row by which a changed column must be closer to normal than the column itself.
LEAST_GAIN = 0.1


class Spread(AbstractBijection):
    """Maps ``y`` to ``(g(y) - shift) / scale``, ``g`` by column: itself, ``log(y + a)`` or ``asinh((y - a) / b)``.

    Only ever read, it has no log-determinant.

    Args:
        standardise: Shift and scale after the change.
        offsets: ``a`` of each column.
        widths: ``b`` of each column; 0 for the logarithm, None where a column stays as it is.

    Example:
        >>> from isr.bijections.affine import Standardise
        >>> skewed = Spread(Standardise((0.0, 0.0), (1.0, 2.0)), (0.0, 0.0), (0.0, None))
        >>> skewed.forward_and_log_det(jnp.array([1.0, 3.0]))[0].tolist()
        [0.0, 1.5]
        >>> skewed.columns(np.array([[1.0, 3.0]]))
        array([[0., 3.]])
        >>> skewed.dim, skewed.shift, skewed.scale, skewed.inverse_and_log_det(jnp.array([0.0, 1.5]))[0].tolist()
        (2, (0.0, 0.0), (1.0, 2.0), [1.0, 3.0])
    """

    standardise: Standardise
    offsets: tuple[float, ...] = eqx.field(static=True)
    widths: tuple[float | None, ...] = eqx.field(static=True)

    part: ClassVar[str] = "standardise"

    @property
    def dim(self) -> int:
        """How many variables it maps."""
        return len(self.offsets)

    @property
    def shift(self) -> tuple[float, ...]:
        """Mean of each changed column."""
        return self.standardise.shift

    @property
    def scale(self) -> tuple[float, ...]:
        """Standard deviation of each changed column."""
        return self.standardise.scale

    def forward_and_log_det(self, x: Vector, condition: Vector | None = None) -> Mapped:
        parts = zip(self.offsets, self.widths, strict=True)
        columns = jnp.stack([_changed(x[i], a, b, jnp) for i, (a, b) in enumerate(parts)])
        return self.standardise.forward_and_log_det(columns)[0], jnp.zeros((), x.dtype)

    def inverse_and_log_det(self, z: Vector, condition: Vector | None = None) -> Mapped:
        values = self.standardise.inverse_and_log_det(z)[0]
        back = [
            v if b is None else jnp.exp(v) - a if b == 0 else a + b * jnp.sinh(v)
            for v, a, b in zip(values, self.offsets, self.widths, strict=True)
        ]
        return jnp.stack(back), jnp.zeros((), z.dtype)

    def columns(self, rows: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
        """Return rows with each column changed, not standardised."""
        parts = zip(rows.T, self.offsets, self.widths, strict=True)
        return np.stack([_changed(column, a, b, np) for column, a, b in parts], axis=1)


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
    values = _changed(column, offset, width, np)
    slopes = {None: np.ones_like(column), 0.0: 1 / np.maximum(column + offset, 1e-30)}
    slope = slopes[width] if width in slopes else 1 / np.hypot(column - offset, width)
    first, second = np.split(np.arange(len(column)), [len(column) // 2])
    mean, sd = np.mean(values[first]), np.std(values[first]) + 1e-12
    z = (values[second] - mean) / sd
    return float(np.mean(0.5 * z**2 + np.log(sd) - np.log(slope[second])))


def _changed(values: Any, offset: float, width: float | None, xp: Any) -> Any:
    if width is None:
        return values
    if width == 0:  # what is smaller than all that was seen stays finite
        return xp.log(xp.maximum(values + offset, 1e-30))
    return xp.arcsinh((values - offset) / width)

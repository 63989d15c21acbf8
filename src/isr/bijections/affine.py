"""Affine maps, fixed and learned, permutations, what skewed columns are read as, and charts of bounds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name
from jax.scipy.linalg import lu_solve
from jaxtyping import Array, Float

from isr.bijections.bijection import AbstractBijection, Mapped, Vector, told
from isr.bijections.primitives import inside, ndtr, ndtri

# Probabilities are held this far from 0 and 1, so that a point on the bound has a finite image (|u| <= 7.04).
EDGE = 1e-12
# A distance to a single bound is held above this, for the same reason (log >= -69.1).
NEAREST = 1e-30
# Above this argument an exponential leaves single precision.
LARGEST_EXPONENT = 80.0
LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)


class Standardise(AbstractBijection):
    """Maps ``x`` to ``(x - shift) / scale`` with fixed numbers, positive scales."""

    # Not static, nor are bounds below, so that models of other data share their compiled programs.
    shift: tuple[float, ...]
    scale: tuple[float, ...]
    part: ClassVar[str] = "standardise"

    def __check_init__(self) -> None:
        if len(self.shift) != len(self.scale):
            raise ValueError(f"shift and scale differ in length: {len(self.shift)} and {len(self.scale)}")
        if not all(np.isfinite(s) and s > 0 for s in self.scale) or not all(np.isfinite(self.shift)):
            raise ValueError(
                f"scales must be positive and shifts finite, got scale={self.scale}, shift={self.shift}"
            )

    dim = told("How many variables it maps.", lambda self: len(self.shift))

    def forward_and_log_det(self, x: Vector, condition: Vector | None = None) -> Mapped:
        shift, scale = jnp.asarray(self.shift, x.dtype), jnp.asarray(self.scale, x.dtype)
        return (x - shift) / scale, -jnp.sum(jnp.log(scale))

    def inverse_and_log_det(self, z: Vector, condition: Vector | None = None) -> Mapped:
        shift, scale = jnp.asarray(self.shift, z.dtype), jnp.asarray(self.scale, z.dtype)
        return shift + scale * z, jnp.sum(jnp.log(scale))


def standardise(rows: Float[np.ndarray, "n dim"]) -> Standardise:
    """Return the map that gives each column of ``rows`` mean 0 and standard deviation 1.

    A constant column keeps scale 1.
    """
    # Squares of very large or very small numbers leave the range of doubles; powers of two change no digit.
    size = np.ldexp(1.0, np.frexp(np.max(np.abs(rows), axis=0))[1] - 1)
    scaled = rows / size
    mean, sd = np.mean(scaled, axis=0), np.std(scaled, axis=0)
    tiny = sd <= 1e-12 * np.max(np.abs(scaled), axis=0)
    return Standardise(tuple((size * mean).tolist()), tuple(np.where(tiny, 1.0, size * sd).tolist()))


class Spread(AbstractBijection):
    """Maps ``y`` to ``(g(y) - shift) / scale``, ``g`` by column: itself, ``log(y + a)`` or ``asinh((y - a) / b)``.

    Only ever read, it has no log-determinant.

    Args:
        standardise: Shift and scale after the change.
        offsets: ``a`` of each column.
        widths: ``b`` of each column; 0 for the logarithm, None where a column stays as it is.
    """

    standardise: Standardise
    offsets: tuple[float, ...] = eqx.field(static=True)
    widths: tuple[float | None, ...] = eqx.field(static=True)
    part: ClassVar[str] = "standardise"
    dim = told("How many variables it maps.", lambda self: len(self.offsets))
    shift = told("Mean of each changed column.", lambda self: self.standardise.shift)
    scale = told("Standard deviation of each changed column.", lambda self: self.standardise.scale)

    def forward_and_log_det(self, x: Vector, condition: Vector | None = None) -> Mapped:
        parts = zip(self.offsets, self.widths, strict=True)
        columns = jnp.stack([changed(x[i], a, b, jnp) for i, (a, b) in enumerate(parts)])
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
        return np.stack([changed(column, a, b, np) for column, a, b in parts], axis=1)


def changed(values: Any, offset: float, width: float | None, xp: Any) -> Any:
    """Return a column changed as `Spread` does, by NumPy or JAX."""
    if width is None:
        return values
    if width == 0:  # what is smaller than all that was seen stays finite
        return xp.log(xp.maximum(values + offset, 1e-30))
    return xp.arcsinh((values - offset) / width)


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


class Bounded(AbstractBijection):
    """Opens each variable's bounds to the whole line, so that no inverse ever leaves them.

    Both bounds: ``u = Phi^-1((x - low) / (high - low))``, which makes a uniform prior exactly normal.
    Only ``low``: ``u = log(x - low)``. Only ``high``: ``u = -log(high - x)``. None: ``u = x``.

    Args:
        low: Lower bounds, ``None`` where open.
        high: Upper bounds, ``None`` where open.
    """

    low: tuple[float | None, ...]
    high: tuple[float | None, ...]
    part: ClassVar[str] = "bounds"

    def __check_init__(self) -> None:
        if len(self.low) != len(self.high):
            raise ValueError(f"low and high differ in length: {len(self.low)} and {len(self.high)}")
        for i, (low, high) in enumerate(zip(self.low, self.high, strict=True)):
            if low is not None and high is not None and not low < high:
                raise ValueError(f"bounds of variable {i} must have low < high, got ({low}, {high})")

    dim = told("How many variables it maps.", lambda self: len(self.low))

    def contains(self, rows: Float[np.ndarray, "n dim"]) -> np.ndarray:
        """Return whether each row lies inside; an end that is bounded alone is open, a box is closed."""
        inside = np.ones(len(rows), dtype=bool)
        for column, low, high in zip(rows.T, self.low, self.high, strict=False):
            if low is not None:
                inside &= column >= low if high is not None else column > low
            if high is not None:
                inside &= column <= high if low is not None else column < high
        return inside

    def forward_and_log_det(self, x: Vector, condition: Vector | None = None) -> Mapped:
        images, log_dets = [], []
        for i, (value, low, high) in enumerate(zip(x, self.low, self.high, strict=True)):
            name, u = f"w_{i + 1}", value
            if low is not None and high is not None:
                u = checkpoint_name(probit((value - low) / (high - low)), name)
                log_dets.append(LOG_SQRT_2PI + 0.5 * u * u - jnp.log(high - low))
            elif low is not None:
                u = checkpoint_name(jnp.log(jnp.maximum(value - low, NEAREST)), name)
                log_dets.append(-u)
            elif high is not None:
                u = checkpoint_name(-jnp.log(jnp.maximum(high - value, NEAREST)), name)
                log_dets.append(u)
            images.append(u)
        return jnp.stack(images), sum(log_dets, jnp.zeros((), x.dtype))

    def inverse_and_log_det(self, z: Vector, condition: Vector | None = None) -> Mapped:
        images, log_dets = [], []
        for i, (u, low, high) in enumerate(zip(z, self.low, self.high, strict=True)):
            name, x = f"w_{i + 1}", u
            if low is not None and high is not None:
                u = checkpoint_name(u, name)
                x = inside(low + (high - low) * ndtr(u), *_ends(low, high, x.dtype))
                log_dets.append(jnp.log(high - low) - 0.5 * u * u - LOG_SQRT_2PI)
            elif low is not None or high is not None:
                log_distance = checkpoint_name(jnp.minimum(-u if low is None else u, LARGEST_EXPONENT), name)
                gap = jnp.exp(log_distance)
                x = inside(low + gap if high is None else high - gap, *_ends(low, high, x.dtype))
                log_dets.append(log_distance)
            images.append(x)
        return jnp.stack(images), sum(log_dets, jnp.zeros((), z.dtype))


def _ends(low: Any, high: Any, dtype: Any) -> tuple[Any, Any]:
    """Return bounds to hold a variable in: in single precision, where they are rounded, the next numbers inwards."""
    low, high = (-np.inf if low is None else low), (np.inf if high is None else high)
    if dtype != jnp.float32:
        return low, high
    low, high = jnp.asarray(low, dtype), jnp.asarray(high, dtype)
    return jnp.nextafter(low, jnp.inf), jnp.nextafter(high, -jnp.inf)


def probit(p: Float[Array, ""]) -> Float[Array, ""]:
    """Return the normal quantile of ``p``, held off 0 and 1 by a hair."""
    return ndtri(jnp.clip(p, EDGE, 1 - max(EDGE, float(jnp.finfo(p.dtype).eps))))


class Shift(AbstractBijection):
    """Maps ``x`` to ``x - offset`` with learned offsets."""

    offset: Float[Array, " dim"]
    dim = told("How many variables it maps.", lambda self: self.offset.shape[0])

    def forward_and_log_det(self, x: Vector, condition: Vector | None = None) -> Mapped:
        return x - self.offset, jnp.zeros((), x.dtype)

    def inverse_and_log_det(self, z: Vector, condition: Vector | None = None) -> Mapped:
        return z + self.offset, jnp.zeros((), z.dtype)


class Linear(AbstractBijection):
    """Maps ``x`` to ``A x`` with a learned matrix; the inverse holds the numbers of ``A^-1``."""

    matrix: Float[Array, "dim dim"]
    dim = told("How many variables it maps.", lambda self: self.matrix.shape[0])

    def forward_and_log_det(self, x: Vector, condition: Vector | None = None) -> Mapped:
        return self.matrix @ x, inverse_and_log_det(self.matrix)[1]

    def inverse_and_log_det(self, z: Vector, condition: Vector | None = None) -> Mapped:
        inverse, log_det = inverse_and_log_det(self.matrix)
        return inverse @ z, -log_det

    def after(self, scale: Standardise) -> tuple[list[AbstractBijection], None]:
        matrix = self.matrix / jnp.asarray(scale.scale)[None, :]
        return [Shift(jnp.asarray(scale.shift)), Linear(matrix)], None


@jax.custom_jvp
def inverse_and_log_det(matrix: Float[Array, "dim dim"]) -> tuple[Float[Array, "dim dim"], Float[Array, ""]]:
    """Return the inverse of a matrix and the logarithm of its determinant's absolute value."""
    factors, pivots, _ = jax.lax.linalg.lu(matrix)  # once for both
    inverse = lu_solve((factors, pivots), jnp.eye(len(matrix), dtype=matrix.dtype))
    return inverse, jnp.sum(jnp.log(jnp.abs(jnp.diagonal(factors))))


# The inverse is at hand, so its derivative needs no further system of equations solved.
@inverse_and_log_det.defjvp
def _(primals: tuple[Array], tangents: tuple[Array]) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    (matrix,), (change,) = primals, tangents
    inverse, log_det = inverse_and_log_det(matrix)
    return (inverse, log_det), (-inverse @ change @ inverse, jnp.sum(inverse.T * change))


class Inverted(AbstractBijection):
    """The inverse of another bijection, as a bijection."""

    bijection: AbstractBijection
    dim = told("How many variables it maps.", lambda self: self.bijection.dim)

    def forward_and_log_det(self, x: Vector, condition: Vector | None = None) -> Mapped:
        return self.bijection.inverse_and_log_det(x, condition)

    def inverse_and_log_det(self, z: Vector, condition: Vector | None = None) -> Mapped:
        return self.bijection.forward_and_log_det(z, condition)


def bounded(low: Sequence[float | None], high: Sequence[float | None]) -> Bounded:
    """Return the chart of a prior box; infinite ends count as open."""

    def end(value: float | None) -> float | None:
        return None if value is None or np.isinf(value) else float(value)

    return Bounded(tuple(end(v) for v in low), tuple(end(v) for v in high))


class Permutation(AbstractBijection):
    """Maps ``x`` to ``x[order]``: which input stands at each place of the output."""

    order: tuple[int, ...] = eqx.field(static=True)

    def __check_init__(self) -> None:
        if sorted(self.order) != list(range(len(self.order))):
            raise ValueError(f"order must hold each of 0..{len(self.order) - 1} once, got {self.order}")

    dim = told("How many variables it maps.", lambda self: len(self.order))
    back = told("The order that undoes this one.", lambda self: tuple(int(i) for i in np.argsort(self.order)))

    def forward_and_log_det(self, x: Vector, condition: Vector | None = None) -> Mapped:
        return _in_order(x, self.order), jnp.zeros((), x.dtype)

    def inverse_and_log_det(self, z: Vector, condition: Vector | None = None) -> Mapped:
        return _in_order(z, self.back), jnp.zeros((), z.dtype)


# More variables than this take longer to compile one by one than an index.
MOST_CUTS = 8


def _in_order(x: Vector, order: tuple[int, ...]) -> Vector:
    if len(order) > MOST_CUTS:
        return x[np.array(order)]
    # Cut and put together, the gradient is the same backwards; that of an index would be a scatter.
    parts = jnp.split(x, len(order))
    return jnp.concatenate([parts[i] for i in order])

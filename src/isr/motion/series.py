"""Series: trajectories measured at times of their own, with the parameters that each was made with."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float

# A positive channel is followed on a log scale where it spans this ratio.
LEAST_RATIO = 4.0
# Unless noise is so much larger, relatively, where the channel is low; that takes so many times to see.
MUCH_ROUGHER, ENOUGH_FOR_ROUGHNESS = 3.0, 16


@dataclass(frozen=True, eq=False)
class Series:
    """Trajectories; what was not measured is NaN.

    Args:
        times: When each row of a trajectory was measured, increasing.
        values: What was measured.
        x: Parameters of each trajectory; no columns where there are none.
        names: Names of the channels.
        x_names: Names of the parameters, identifiers.

    Example:
        >>> t = np.linspace(0, 1, 5)
        >>> series = Series(t[None], np.exp(-3 * t)[None, :, None], np.zeros((1, 0)), ("decay",), ())
        >>> series.logs, series.n_values, series.segments(3).values.shape
        ((True,), 5, (2, 3, 1))
    """

    times: Float[np.ndarray, "n t"]
    values: Float[np.ndarray, "n t c"]
    x: Float[np.ndarray, "n d"]
    names: tuple[str, ...]
    x_names: tuple[str, ...]
    kinds: tuple[str, ...] = ()
    origin: Any = None

    def __post_init__(self) -> None:
        if not self.kinds:
            object.__setattr__(self, "kinds", tuple("lognormal" if log else "normal" for log in self.logs))

    @cached_property
    def logs(self) -> tuple[bool, ...]:
        """Which channels are positive, span a wide range and are no rougher, relatively, where they are low."""
        return tuple(_is_relative(self.values[..., c], self.seen[..., c]) for c in range(len(self.names)))

    @cached_property
    def seen(self) -> np.ndarray:
        """Which values were measured."""
        return np.isfinite(self.values)

    @property
    def n_values(self) -> int:
        """How many numbers were measured."""
        return int(self.seen.sum())

    def take(self, rows: Any) -> Series:
        """Return some of the trajectories."""
        return replace(
            self,
            times=self.times[rows],
            values=self.values[rows],
            x=self.x[rows],
            origin=None if self.origin is None else self.origin[rows],
        )

    def segments(self, length: int) -> Series:
        """Return the same measurements as trajectories of ``length`` points, whose ends touch."""
        n, n_times = self.times.shape
        if length >= n_times:
            return self
        starts = np.arange(0, n_times - 1, length - 1)
        index = starts[:, None] + np.arange(length)
        inside = index < n_times
        index = np.minimum(index, n_times - 1)
        step = np.where(inside, 0.0, 1e-9) * np.arange(length)
        times = self.times[:, index] + step
        values = np.where(inside[..., None], self.values[:, index], np.nan)
        many = replace(
            self, times=times.reshape(-1, length), values=values.reshape(-1, length, len(self.names)),
            x=np.repeat(self.x, len(starts), axis=0), origin=np.repeat(np.arange(n), len(starts)),
        )  # fmt: skip
        return many.take(many.seen.all(axis=2).sum(axis=1) >= 2)


def _is_relative(v: np.ndarray, seen: np.ndarray) -> bool:
    if not np.all(v[seen] > 0) or np.max(v[seen]) <= LEAST_RATIO * np.min(v[seen]):
        return False
    if v.shape[1] < ENOUGH_FOR_ROUGHNESS:
        return True
    rough, level = np.abs(np.diff(np.log(v), 4, axis=1)), np.log(v)[:, 2:-2]
    known = np.isfinite(rough)
    low = level < np.quantile(level[known], 0.25)
    return bool(np.median(rough[known & low]) < MUCH_ROUGHER * np.median(rough[known & ~low]))

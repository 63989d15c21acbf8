"""Series: trajectories measured at times of their own, with the parameters that each was made with.

They are read from arrays, lists of arrays or a long table, and checked once; what is wrong is said in a sentence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import sympy
from jaxtyping import Float

from isr.motion.noise import Noise
from isr.search.evaluate import symbol
from isr.tables.names import check_names, symbol_names

LEAST_POINTS = 4
# Squares of values are numbers, and those of one over them.
LARGEST = 1e75
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
        noises: Noise of each channel; normal on the scale of the channel where left out.
        origin: Of which trajectory each is a segment; None where they are whole.

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
    noises: tuple[Noise, ...] = ()
    origin: Float[np.ndarray, " n"] | None = None

    def __post_init__(self) -> None:
        if not self.noises:
            noises = tuple(Noise("lognormal" if log else "normal") for log in self.logs)
            object.__setattr__(self, "noises", noises)

    @cached_property
    def logs(self) -> tuple[bool, ...]:
        """Which channels are positive, span a wide range and are no rougher, relatively, where they are low."""
        return tuple(_is_relative(self.values[..., c], self.seen[..., c]) for c in range(len(self.names)))

    @cached_property
    def seen(self) -> np.ndarray:
        """Which values were measured."""
        return np.isfinite(self.values)

    @property
    def states(self) -> tuple[sympy.Symbol, ...]:
        """Symbols of the channels."""
        return tuple(map(symbol, self.names))

    @property
    def parameters(self) -> tuple[sympy.Symbol, ...]:
        """Symbols of the parameters."""
        return tuple(map(symbol, self.x_names))

    @property
    def n_values(self) -> int:
        """How many numbers were measured."""
        return int(self.seen.sum())

    @property
    def n_times(self) -> int:
        """How many rows the longest trajectory has."""
        return self.times.shape[1]

    def take(self, rows: Any) -> Series:
        """Return some of the trajectories."""
        origin = None if self.origin is None else self.origin[rows]
        return replace(self, times=self.times[rows], values=self.values[rows], x=self.x[rows], origin=origin)

    def segments(self, length: int) -> Series:
        """Return the same measurements as trajectories of ``length`` points, whose ends touch."""
        if length >= self.n_times:
            return self
        starts = np.arange(0, self.n_times - 1, length - 1)
        index = starts[:, None] + np.arange(length)
        inside = index < self.n_times
        index = np.minimum(index, self.n_times - 1)
        times = self.times[:, index] + np.where(inside, 0.0, 1e-9) * np.arange(length)
        values = np.where(inside[..., None], self.values[:, index], np.nan)
        many = replace(
            self, times=times.reshape(-1, length), values=values.reshape(-1, length, len(self.names)),
            x=np.repeat(self.x, len(starts), axis=0), origin=np.repeat(np.arange(len(self.x)), len(starts)),
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


def read_series(
    times: Any, values: Any, x: Any = None, *, names: Sequence[str] | None = None,
    x_names: Sequence[str] | None = None,
) -> Series:  # fmt: skip
    """Return trajectories as one object, from what `MotionRegressor.fit` takes.

    Example:
        >>> series = read_series([0, 1, 2, 3, 4], [[1.0], [0.5], [np.nan], [0.1], [0.1]], names=["mass"])
        >>> series.values.shape, series.n_values
        ((1, 5, 1), 4)
        >>> read_series([0.0, 2.0, 1.0, 3.0], [[1.0], [0.5], [0.2], [0.1]])
        Traceback (most recent call last):
        ...
        ValueError: times of trajectory 1 do not increase: 1 comes after 2; sort its rows
    """
    runs = [v[:, None] if v.ndim == 1 else v for v in _each(values, 2)]
    own, n_channels = _each(times, 1), runs[0].shape[-1]
    own = own * len(runs) if len(own) == 1 else own
    if not n_channels:
        raise ValueError("the values have no columns; give one for each channel")
    if len(own) != len(runs):
        raise ValueError(
            f"there are times of {len(own)} trajectories but values of {len(runs)}; give times for each"
        )
    for i, (t, v) in enumerate(zip(own, runs, strict=True)):
        _check_run(f"trajectory {i + 1}", t, v, n_channels)
    longest = max(map(len, own))
    grid, table = np.empty((len(runs), longest)), np.full((len(runs), longest, n_channels), np.nan)
    for i, (t, v) in enumerate(zip(own, runs, strict=True)):
        grid[i] = np.concatenate([t, t[-1] + 1e-9 * (1 + np.arange(longest - len(t)))])
        table[i, : len(v)] = v
    parameters = (
        np.zeros((len(runs), 0)) if x is None else np.ma.filled(np.ma.asarray(x, dtype=float), np.nan)
    )
    if parameters.ndim != 2 or len(parameters) != len(runs):
        raise ValueError(
            f"x has the shape {parameters.shape}, but there are {len(runs)} trajectories; give a row for each"
        )
    if not np.isfinite(parameters).all():
        raise ValueError("x holds NaN or infinity; leave those trajectories out")
    given = check_names(names or [f"y{i + 1}" for i in range(n_channels)], what="channels")
    of_x = check_names(x_names or [f"x{i + 1}" for i in range(parameters.shape[1])], what="x")
    known = symbol_names([*given, *of_x], taken=("t",))
    _check_channels(table, given)
    return Series(grid, table, parameters, known[:n_channels], known[n_channels:])


def from_long(
    frame: Any, time: str, run: str | None = None
) -> tuple[list[np.ndarray], list[np.ndarray], list[str]]:
    """Return times, values and names of the channels of a long table, with a column of times and one of runs."""
    if not hasattr(frame, "columns"):
        raise TypeError("give times and values, or a long table (a pandas frame) alone")
    wanted = [time] if run is None else [time, run]
    missing = [name for name in wanted if name not in frame.columns]
    if missing:
        raise ValueError(f"the table has no column {missing[0]!r}; it has {[str(c) for c in frame.columns]}")
    names = [c for c in frame.columns if c not in wanted]
    parts = [frame] if run is None else [part for _, part in frame.groupby(run, sort=False)]
    times = [part[time].to_numpy() for part in parts]
    return times, [part[names].to_numpy(dtype=float) for part in parts], [str(c) for c in names]


def _each(given: Any, n_axes: int) -> list[np.ndarray]:
    """An array of ``n_axes`` axes for each trajectory, from one array, several as one, or a list of them."""
    several = isinstance(given, list | tuple) and len(given) and np.ndim(given[0]) == n_axes
    # What a mask hides was not measured.
    arrays = [
        np.ma.filled(v.astype(float), np.nan) if np.ma.is_masked(v) else np.asarray(v)
        for v in (given if several else [given])
    ]
    if any(v.dtype.kind not in "bif" for v in arrays):
        kinds = ", ".join(sorted({str(v.dtype) for v in arrays}))
        raise TypeError(
            f"times and values are real numbers, got {kinds}; give dates as days, or in another unit"
        )
    return [
        np.asarray(v, dtype=float) for v in (arrays if several or arrays[0].ndim <= n_axes else arrays[0])
    ]


def _check_run(name: str, t: np.ndarray, v: np.ndarray, n_channels: int) -> None:
    back = np.flatnonzero(np.diff(t) <= 0) if t.ndim else []
    problem = ""
    if t.ndim != 1 or v.ndim != 2 or v.shape[1] != n_channels or len(t) != len(v):
        problem = (
            f"{name} has {len(t)} times and values of the shape {v.shape}; it needs a row for each time and "
            f"{n_channels} columns"
        )
    elif len(t) < LEAST_POINTS:
        problem = (
            f"{name} has {len(t)} point{'s' * (len(t) != 1)}; a law of motion needs at least {LEAST_POINTS} of each "
            "trajectory: measure more often, or leave it out"
        )
    elif not np.isfinite(t).all():
        problem = f"times of {name} hold NaN or infinity; leave those rows out"
    elif len(back):
        first = back[0]
        problem = f"times of {name} do not increase: {t[first + 1]:g} comes after {t[first]:g}; sort its rows"
    elif np.isinf(v).any():
        problem = (
            f"{name} holds infinite values, as where a simulation blew up; cut it before that, or give NaN where "
            "nothing was measured"
        )
    if problem:
        raise ValueError(problem)


def _check_channels(table: np.ndarray, names: Sequence[str]) -> None:
    for c, name in enumerate(names):
        v = table[..., c]
        per_run = np.isfinite(v).sum(axis=1)
        if per_run.min() < LEAST_POINTS:
            raise ValueError(
                f"channel {name!r} of trajectory {int(per_run.argmin()) + 1} has {per_run.min()} measured values; the "
                f"gaps (NaN) must leave at least {LEAST_POINTS}: leave out the trajectory or the channel"
            )
        largest = np.nanmax(np.abs(v))
        if largest != 0 and not 1 / LARGEST < largest < LARGEST:
            raise ValueError(f"channel {name!r} has values up to {largest:g}; give it in another unit")
        if np.nanstd(v) <= 1e-12 * np.nanmax(np.abs(v)):
            raise ValueError(
                f"channel {name!r} never changes, it is always {np.nanmin(v):g}; leave it out, it needs no law"
            )

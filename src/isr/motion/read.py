"""Reading series: arrays, lists of arrays or a long table, checked once; what is wrong is said in a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from isr.motion.series import Series
from isr.tables.names import check_names, symbol_names

LEAST_POINTS = 4


def read_series(
    times: Any,
    values: Any,
    x: Any = None,
    *,
    names: Sequence[str] | None = None,
    x_names: Sequence[str] | None = None,
) -> Series:
    """Return trajectories as one object.

    Args:
        times: Of one trajectory, the same for all, or a list with those of each.
        values: Rows of one trajectory, an array of several (trajectory, time, channel), or a list with those of each.
        x: Parameters of each trajectory as rows; None without.
        names: Names of the channels.
        x_names: Names of the parameters.

    Example:
        >>> series = read_series([0, 1, 2, 3, 4], [[1.0], [0.5], [np.nan], [0.1], [0.1]], names=["mass"])
        >>> series.values.shape, series.n_values
        ((1, 5, 1), 4)
        >>> read_series([0.0, 2.0, 1.0, 3.0], [[1.0], [0.5], [0.2], [0.1]])
        Traceback (most recent call last):
        ...
        ValueError: times of trajectory 1 do not increase: 1 comes after 2; sort its rows
    """
    runs = _runs(values)
    own = _times(times, len(runs))
    n_channels = runs[0].shape[1]
    for i, (t, v) in enumerate(zip(own, runs, strict=True)):
        _check_run(i + 1, t, v, n_channels)
    longest = max(len(t) for t in own)
    grid, table = np.empty((len(runs), longest)), np.full((len(runs), longest, n_channels), np.nan)
    for i, (t, v) in enumerate(zip(own, runs, strict=True)):
        grid[i] = np.concatenate([t, t[-1] + 1e-9 * (1 + np.arange(longest - len(t)))])
        table[i, : len(v)] = v
    parameters = np.zeros((len(runs), 0)) if x is None else np.asarray(x, dtype=float)
    if parameters.ndim != 2 or len(parameters) != len(runs):
        raise ValueError(
            f"x has the shape {parameters.shape}, but there are {len(runs)} trajectories; give a row for each"
        )
    given = check_names(names or [f"y{i + 1}" for i in range(n_channels)], what="channels")
    of_x = check_names(x_names or [f"x{i + 1}" for i in range(parameters.shape[1])], what="x")
    known = symbol_names([*given, *of_x], taken=("t",))
    _check_channels(table, given)
    return Series(grid, table, parameters, known[:n_channels], known[n_channels:])


def from_long(
    frame: Any, time: str, run: str | None = None
) -> tuple[list[np.ndarray], list[np.ndarray], list[str]]:
    """Return times, values and names of the channels of a long table, a row for each time.

    Args:
        frame: The table, a pandas frame.
        time: Its column of times.
        run: Its column that tells which trajectory a row belongs to; None where all are one.

    Example:
        >>> import pandas as pd
        >>> frame = pd.DataFrame({"run": [1, 1, 2, 2], "day": [0, 1, 0, 1], "n": [5.0, 6.0, 7.0, 8.0]})
        >>> from_long(frame, "day", "run")[1:]
        ([array([[5.],
           [6.]]), array([[7.],
           [8.]])], ['n'])
    """
    wanted = [time] if run is None else [time, run]
    missing = [name for name in wanted if name not in frame.columns]
    if missing:
        raise ValueError(f"the table has no column {missing[0]!r}; it has {[str(c) for c in frame.columns]}")
    names = [c for c in frame.columns if c not in wanted]
    parts = [frame] if run is None else [part for _, part in frame.groupby(run, sort=False)]
    return (
        [part[time].to_numpy(dtype=float) for part in parts], [part[names].to_numpy(dtype=float) for part in parts],
        [str(c) for c in names],
    )  # fmt: skip


def _runs(values: Any) -> list[np.ndarray]:
    if isinstance(values, list | tuple) and len(values) and np.ndim(values[0]) == 2:
        return [np.asarray(v, dtype=float) for v in values]
    array = np.asarray(values, dtype=float)
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim not in (2, 3) or array.size == 0:
        raise ValueError(
            f"a series has a row for each time and a column for each channel, got the shape {array.shape}; several are "
            "an array (trajectory, time, channel) or a list"
        )
    return [array] if array.ndim == 2 else list(array)


def _times(times: Any, n: int) -> list[np.ndarray]:
    several = isinstance(times, list | tuple) and len(times) and np.ndim(times[0]) == 1
    array = None if several else np.asarray(times, dtype=float)
    if array is not None and array.ndim == 1:
        return [array] * n
    found = [np.asarray(t, dtype=float) for t in (times if array is None else array)]
    if len(found) != n:
        raise ValueError(
            f"there are times of {len(found)} trajectories but values of {n}; give times for each"
        )
    return found


def _check_run(number: int, t: np.ndarray, v: np.ndarray, n_channels: int) -> None:
    if v.ndim != 2 or v.shape[1] != n_channels or len(t) != len(v):
        raise ValueError(
            f"trajectory {number} has {len(t)} times and values of the shape {v.shape}; it needs a row for each "
            f"time and {n_channels} columns"
        )
    if len(t) < LEAST_POINTS:
        raise ValueError(
            f"trajectory {number} has {len(t)} point{'s' * (len(t) != 1)}; a law of motion needs at least "
            f"{LEAST_POINTS} of each trajectory: measure more often, or leave it out"
        )
    if not np.isfinite(t).all():
        raise ValueError(f"times of trajectory {number} hold NaN or infinity; leave those rows out")
    back = np.flatnonzero(np.diff(t) <= 0)
    if len(back):
        raise ValueError(
            f"times of trajectory {number} do not increase: {t[back[0] + 1]:g} comes after {t[back[0]]:g}; "
            "sort its rows"
        )
    if np.isinf(v).any():
        raise ValueError(
            f"trajectory {number} holds infinite values, as where a simulation blew up; cut it before that, or give "
            "NaN where nothing was measured"
        )


def _check_channels(table: np.ndarray, names: Sequence[str]) -> None:
    for c, name in enumerate(names):
        v = table[..., c]
        per_run = np.isfinite(v).sum(axis=1)
        if per_run.min() < LEAST_POINTS:
            raise ValueError(
                f"channel {name!r} of trajectory {int(per_run.argmin()) + 1} has {per_run.min()} measured values; the "
                f"gaps (NaN) must leave at least {LEAST_POINTS}: leave out the trajectory or the channel"
            )
        if np.nanstd(v) <= 1e-12 * np.nanmax(np.abs(v)):
            raise ValueError(
                f"channel {name!r} never changes, it is always {np.nanmin(v):g}; leave it out, it needs no law"
            )

"""The law of y where columns of y are a series: how `Inversion` finds a law of motion."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from isr.inversion.screen import Features, depends, normal_scores
from isr.motion.find import FoundMotion, find_motion
from isr.motion.law import MotionLaw
from isr.motion.noise import Noise
from isr.motion.refit import Start
from isr.motion.series import Series, read_series
from isr.tables.names import did_you_mean
from isr.tables.tables import Table

# A first value that is a parameter has this squared correlation with it, at least.
SAME = 0.9
NO_NOISE = (
    "the series hold no noise: say what an observation has, noise=0.1 or by channel, before any posterior"
)


def find_series_law(
    x: Table, y: Table, symbols: Sequence[str], series: Mapping[str, Sequence[Any]], times: Any, noise: Any,
    say: Callable[[str], None],
) -> FoundMotion:  # fmt: skip
    """Return the law of motion of the channels that columns of y are; see `Inversion` for series, times and noise."""
    places = {str(name): tuple(_place(column, y) for column in columns) for name, columns in series.items()}
    grid = _grid(times, places)
    values = np.stack([y.values[:, columns] for columns in places.values()], axis=2)
    found = read_series(grid, values, x.values, names=list(places), x_names=list(symbols))
    said = {name: noise.get(name) if isinstance(noise, Mapping) else noise for name in places}
    found = replace(found, noises=_noises(said, found))
    result = find_motion(found, _modes(found.values[:, 0], x.values, list(places)), say=say)
    columns = [*places.values(), ()]  # a hidden channel has none
    scales = [float(s) if isinstance(s, int | float) and s > 0 else None for s in [*said.values(), None]]
    channels = tuple(
        replace(c, columns=k, scale=c.scale if s is None else s)
        for c, k, s in zip(result.law.channels, columns, scales, strict=False)
    )
    law = replace(result.law, channels=channels, times=tuple(grid), y_names=y.names)
    tests = {} if result.is_exact else _tests(law, x.values, y.values)
    notes = () if all(c.scale for c in channels if c.columns) else (NO_NOISE,)
    return replace(result, law=law, tests={**result.tests, **tests}, notes=(*result.notes, *notes))


def _place(column: Any, y: Table) -> int:
    if isinstance(column, str):
        if column not in y.names:
            raise ValueError(
                f"series names the column {column!r}, which y has not{did_you_mean(column, y.names)}"
            )
        return y.names.index(column)
    if not -y.n_columns <= int(column) < y.n_columns:
        raise ValueError(f"series names column {column}, but y has {y.n_columns} columns, numbered from 0")
    return int(column) % y.n_columns


def _grid(times: Any, places: Mapping[str, Sequence[int]]) -> np.ndarray:
    lengths = {name: len(columns) for name, columns in places.items()}
    if times is None:
        raise ValueError("series needs times=..., when its columns were measured, a number for each")
    grid = np.asarray(times, dtype=float)
    if grid.ndim != 1 or set(lengths.values()) != {len(grid)}:
        raise ValueError(
            f"there are {grid.size} times, but the channels have {lengths} columns; give as many of each"
        )
    return grid


def _noises(said: Mapping[str, Any], found: Series) -> tuple[Noise, ...]:
    """The noise that is said of each channel; else counted where all values are whole, or as the series says."""
    whole = (np.nanmin(found.values, axis=(0, 1)) >= 0) & np.all(found.values % 1 == 0, axis=(0, 1))
    noises = []
    for (name, noise), counted, likely in zip(said.items(), whole, found.noises, strict=True):
        if noise is None or (isinstance(noise, str) and noise == "auto"):
            noises.append(Noise("poisson") if counted else likely)
        else:
            noises.append(Noise.read(noise if isinstance(noise, str) else "normal", name))
    return tuple(noises)


def _modes(first: np.ndarray, x: np.ndarray, names: Sequence[str]) -> list[Start]:
    """Where each channel begins: at a parameter, at one value for all, or nobody knows where."""
    modes: list[Start] = []
    features = Features(x)
    for name, v in zip(names, first.T, strict=True):
        with np.errstate(all="ignore"):
            left = np.nanmean((v[:, None] - x) ** 2, axis=0) / max(np.nanvar(v), 1e-300)
        if left.min() < 1 - SAME:
            modes.append(int(left.argmin()))
        elif np.nanstd(v) == 0 or not depends(features, v):
            modes.append("shared")
        else:
            raise ValueError(
                f"channel {name!r} begins at values that depend on x and are no column of it; give the first values as "
                "columns of x"
            )
    return modes


def _tests(law: MotionLaw, x: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """Whether what the law leaves of any column still depends on x, by channel."""
    features, residuals, found = Features(x), law.scores(x, y, np.random.default_rng(0)), {}
    place = {m.index: i for i, m in enumerate(law.columns)}
    for channel in law.channels:
        if channel.columns:
            rows = [residuals[place[j]] for j in channel.columns]
            least = min(features.p_value(normal_scores(r)) for r in rows if np.std(r) > 0)
            found[f"{channel.name}: residuals depend on x"] = float(min(1.0, len(rows) * least))
    return found

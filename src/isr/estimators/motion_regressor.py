"""MotionRegressor: the differential equation that trajectories follow; and the law of motion of an `Inversion`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from jaxtyping import Float
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from isr.estimators.equation_model import Shown
from isr.inversion.screen import Features, depends
from isr.motion.find import FoundMotion, find_motion
from isr.motion.library import LADDER, Library
from isr.motion.noise import Noise
from isr.motion.record import SavedMotion, of_motion
from isr.motion.refit import Start
from isr.motion.refute import lack_of_fit
from isr.motion.series import Series, from_long, read_series
from isr.storage import Bundle
from isr.tables.names import did_you_mean, quoted
from isr.tables.tables import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Seconds that a law of motion is sought for.
MAX_TIME = 120.0
# A first value that is a parameter has this squared correlation with it, at least.
SAME = 0.9
NO_NOISE = (
    "the series hold no noise: say what an observation has, noise=0.1 or by channel, before any posterior"
)


@dataclass(eq=False, repr=False)
class MotionRegressor(Shown, BaseEstimator):
    """Finds ẏ = F(y, x) as short formulas, from trajectories y(t) alone, whose derivatives nobody measured.

    Args:
        library: Where rates are sought, small libraries first; ``isr.motion.library.LADDER`` when None.
        max_time: Seconds after which the best law so far is kept, and ``verdict_`` says so.
        verbose: Whether progress is shown; None for only when standard error is a terminal.

    Attributes:
        law_: The law; printed, a line for each channel. ``law_.code("c")`` is a program.
        tests_: What the law was tested for, with p-values.
        verdict_: What was found, in a sentence.

    Example:
        >>> t = np.linspace(0, 4, 40)
        >>> runs = np.stack([1 + 3 * np.exp(-2 * t), 2 + np.exp(-2 * t)])[:, :, None]
        >>> model = MotionRegressor(library=[Library(1)]).fit(t, runs - [[[1]], [[2]]], names=["charge"])
        >>> print(model.law_)
        charge' = -2*charge
        >>> model.predict([0.0, 1.0], [1.0]).round(4).tolist()
        [[1.0], [0.1353]]
        >>> model.score(t, runs[0] - 1) > 0.999, len(model.plot(t, runs[0] - 1).axes), model.to_bundle().kind
        (True, 1, 'MotionRegressor')
        >>> import isr, pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "law.isr"
        >>> model.save(path)
        >>> isr.load(path).predict([0.0, 1.0], [1.0]).shape
        (2, 1)
    """

    library: Sequence[Library] | None = None
    _: KW_ONLY
    max_time: float = MAX_TIME
    verbose: bool | None = None

    def fit(
        self, times: Any, values: Any = None, x: Any = None, *, names: Sequence[str] | None = None,
        x_names: Sequence[str] | None = None, time: str = "time", run: str | None = None,
    ) -> Self:  # fmt: skip
        """Learn from trajectories; NaN stands where nothing was measured.

        Args:
            times: Of one trajectory, the same for all, or a list with those of each; or a long table (a pandas frame).
            values: Rows of one trajectory, an array (trajectory, time, channel), or a list; None with a long table.
            x: What each trajectory was made with, as rows; None without.
            names: Names of the channels.
            x_names: Names of the columns of x.
            time: Column of times of a long table.
            run: Column of a long table that tells which trajectory a row belongs to.
        """
        check_seconds(self.max_time)
        if values is None:
            times, values, names = from_long(times, time, run)
        names = names or list(getattr(values, "columns", ())) or None
        series = read_series(times, values, x, names=names, x_names=x_names)
        modes = ("free",) * len(series.names)
        ladder = self.library or LADDER
        found = find_motion(series, modes, ladder=ladder, max_time=self.max_time, say=self._say)
        self.law_, self.tests_, self.verdict_ = found.law, dict(found.tests), _verdict(found)
        self.n_features_in_ = len(series.names)
        if not found.passed:
            warnings.warn(self.verdict_, ConvergenceWarning, stacklevel=2)
        return self

    def predict(
        self, times: Float[np.ndarray, " t"], start: Float[np.ndarray, " c"], x: Any = None
    ) -> Float[np.ndarray, "t c"]:
        """Return the trajectory from ``start``, its values at the first of the times, made with ``x``."""
        check_is_fitted(self, "law_")
        return self.law_.trajectory(times, start, x)

    def score(self, times: Any, values: Any, x: Any = None) -> float:
        """Return the least share of variance, over the channels, that trajectories explain, each begun at its best."""
        series = self._read(times, values, x)
        left = np.nansum((series.values - self.law_.followed(series)) ** 2, axis=(0, 1))
        whole = np.nansum((series.values - np.nanmean(series.values, (0, 1))) ** 2, (0, 1))
        return float(1 - np.max(left / whole))

    def plot(self, times: Any, values: Any, x: Any = None) -> Figure:  # type: ignore[override]
        """Return a figure of what was measured, and of the law begun where it follows each trajectory best."""
        return self.to_bundle().plot(times, values, x)

    def to_bundle(self) -> Bundle:
        """Return what a file of this model holds."""
        check_is_fitted(self, "law_")
        names = tuple(c.name for c in self.law_.channels)
        known = {"verdict": self.verdict_, "tests": dict(self.tests_)}
        model = SavedMotion(of_motion(self.law_))
        return Bundle(model, self.law_.x_names, names, kind="MotionRegressor", metadata=known)

    def _read(self, times: Any, values: Any, x: Any) -> Series:
        check_is_fitted(self, "law_")
        return self.law_.read(times, values, x)


def check_seconds(max_time: Any) -> None:
    """Raise unless this is a number of seconds."""
    if not (isinstance(max_time, int | float) and max_time > 0):
        raise ValueError(f"max_time is a number of seconds above 0, got {max_time!r}")


def _verdict(found: FoundMotion) -> str:
    notes = "".join(f"; {note}" for note in found.notes)
    what = f"a law of motion with {found.law.n_constants} constants"
    if found.is_exact:
        return f"{what} leaves nothing but rounding{notes}"
    worst = min(found.tests, key=lambda name: found.tests[name])
    p = found.tests[worst]
    if found.passed:
        return f"{what} explains the series; no test refutes it, least p = {p:.2g}{notes}"
    return f"the law of motion found is refuted (p = {p:.1g}, {worst}); no short one was found{notes}"


def find_series_law(
    x: Table, y: Table, symbols: Sequence[str], series: Mapping[str, Sequence[Any]], times: Any, noise: Any,
    say: Callable[[str], None], max_time: float = MAX_TIME,
) -> FoundMotion:  # fmt: skip
    """Return the law of motion of the channels that columns of y are; see `Inversion` for series, times and noise."""
    if not isinstance(series, Mapping):
        raise TypeError(f"series maps the name of a channel to its columns of y, got {type(series).__name__}")
    places = {str(name): tuple(_place(column, y) for column in columns) for name, columns in series.items()}
    if times is None:
        raise ValueError("series needs times=..., when its columns were measured, a number for each")
    try:
        grid = np.asarray(times, dtype=float)
    except (TypeError, ValueError) as error:
        raise ValueError(f"times are numbers, one for each column of a channel: {error}") from None
    lengths = {name: len(columns) for name, columns in places.items()}
    if grid.ndim != 1 or set(lengths.values()) != {len(grid)}:
        raise ValueError(
            f"there are {grid.size} times, but the channels have {lengths} columns; give as many of each"
        )
    used = [column for columns in places.values() for column in columns]
    twice = sorted({y.names[column] for column in used if used.count(column) > 1})
    if twice:
        raise ValueError(
            f"series has columns more than once: {quoted(twice)}; each is one channel at one time"
        )
    values = np.stack([y.values[:, columns] for columns in places.values()], axis=2)
    found = read_series(grid, values, x.values, names=list(places), x_names=list(symbols))
    said = {name: noise.get(name) if isinstance(noise, Mapping) else noise for name in places}
    # Values that are all whole are counts, unless their noise is said.
    whole = (np.nanmin(found.values, axis=(0, 1)) >= 0) & np.all(
        (found.values % 1 == 0) | ~found.seen, axis=(0, 1)
    )
    noises = []
    for (name, given), is_counted, likely in zip(said.items(), whole, found.noises, strict=True):
        if given is None or (isinstance(given, str) and given == "auto"):
            noises.append(Noise("poisson") if is_counted else likely)
        else:
            noises.append(Noise.read(given if isinstance(given, str) else "normal", name))
    found = replace(found, noises=tuple(noises))
    modes = _modes(found.values[:, 0], x.values, list(places))
    result = find_motion(
        found, modes, max_time=max_time, test=lambda fit: lack_of_fit(fit, Features), say=say
    )
    columns = [*places.values(), ()]  # a hidden channel has none
    scales = [float(s) if isinstance(s, int | float) and s > 0 else None for s in [*said.values(), None]]
    channels = tuple(
        replace(c, columns=k, scale=c.scale if s is None else s)
        for c, k, s in zip(result.law.channels, columns, scales, strict=False)
    )
    law = replace(result.law, channels=channels, times=tuple(grid), y_names=y.names)
    notes = () if all(c.scale for c in channels if c.columns) else (NO_NOISE,)
    return replace(result, law=law, notes=(*result.notes, *notes))


def _place(column: Any, y: Table) -> int:
    if isinstance(column, str):
        if column in y.names:
            return y.names.index(column)
        raise ValueError(
            f"series names the column {column!r}, which y has not{did_you_mean(column, y.names)}"
        )
    if not -y.n_columns <= int(column) < y.n_columns:
        raise ValueError(f"series names column {column}, but y has {y.n_columns} columns, numbered from 0")
    return int(column) % y.n_columns


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

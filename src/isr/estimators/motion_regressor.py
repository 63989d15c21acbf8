"""MotionRegressor: the differential equation that measured trajectories follow."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
from jaxtyping import Float
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from isr.motion.dictionary import LADDER, Library
from isr.motion.find import find_motion
from isr.motion.read import from_long, read_series


@dataclass(eq=False, repr=False)
class MotionRegressor(BaseEstimator):
    """Finds ẏ = F(y, x) as short formulas, from trajectories y(t) alone, whose derivatives nobody measured.

    Args:
        library: Where rates are sought, small libraries first; ``isr.motion.dictionary.LADDER`` when None.
        verbose: Whether progress is shown; None for only when standard error is a terminal.

    Attributes:
        law_: The law; printed, a line for each channel.
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
        >>> model.score(t, runs[0] - 1) > 0.999
        True
    """

    library: Sequence[Library] | None = None
    _: KW_ONLY
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
        if values is None:
            times, values, names = from_long(times, time, run)
        series = read_series(times, values, x, names=names, x_names=x_names)
        found = find_motion(
            series, ("free",) * len(series.names), ladder=self.library or LADDER, say=self._say
        )
        self.law_, self.tests_ = found.law, dict(found.tests)
        self.n_features_in_ = len(series.names)
        self.verdict_ = _verdict(found)
        if not found.passed:
            warnings.warn(self.verdict_, ConvergenceWarning, stacklevel=2)
        return self

    def predict(
        self,
        times: Float[np.ndarray, " t"],
        start: Float[np.ndarray, " c"],
        x: Float[np.ndarray, " d"] | None = None,
    ) -> Float[np.ndarray, "t c"]:
        """Return the trajectory from ``start``, its values at the first of the times."""
        check_is_fitted(self, "law_")
        grid, begun = np.asarray(times, dtype=float), np.asarray(start, dtype=float)
        parameters = np.zeros((1, 0)) if x is None else np.asarray(x, dtype=float)[None]
        if begun.shape != (len(self.law_.channels),) or parameters.shape[1] != len(self.law_.x_names):
            raise ValueError(
                f"start has {begun.size} values and x {parameters.shape[1]}; the law needs "
                f"{len(self.law_.channels)} and {len(self.law_.x_names)}"
            )
        return self.law_.converged(grid[None], begun[None], parameters)[0]

    def score(self, times: Any, values: Any, x: Any = None) -> float:
        """Return the least share of variance, over the channels, that trajectories from the first values explain."""
        check_is_fitted(self, "law_")
        series = read_series(times, values, x)
        found = self.law_.converged(series.times, series.values[:, 0], series.x)
        left = np.nansum((series.values - found) ** 2, axis=(0, 1))
        return float(
            1 - np.max(left / np.nansum((series.values - np.nanmean(series.values, (0, 1))) ** 2, (0, 1)))
        )

    def _say(self, line: str) -> None:
        if sys.stderr.isatty() if self.verbose is None else self.verbose:
            print(line, file=sys.stderr, flush=True)


def _verdict(found: Any) -> str:
    law: Mapping[str, float] = found.tests
    notes = "".join(f"; {note}" for note in found.notes)
    if found.is_exact:
        return f"a law of motion with {found.law.n_constants} constants leaves nothing but rounding{notes}"
    worst = min(law, key=lambda name: law[name])
    if found.passed:
        return (
            f"a law of motion with {found.law.n_constants} constants explains the series; no test refutes it, "
            f"least p = {law[worst]:.2g}{notes}"
        )
    return (
        f"the law of motion found is refuted (p = {law[worst]:.1g}, {worst}); no short one was found{notes}"
    )

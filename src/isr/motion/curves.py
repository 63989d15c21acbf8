"""Curves through trajectories, and the weak form: what a rate leaves when it is multiplied by bumps and integrated.

No derivative of what was measured is taken. Between measurements a spline is followed, smoothed where there are enough.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.interpolate import CubicSpline, make_interp_spline, make_smoothing_spline

from isr.motion.clock import keep_time
from isr.motion.series import Series

# Steps of the grid between two measurements.
N_INSIDE = 8
ENOUGH_TO_SMOOTH = 16
# Of a bump, in measurements.
WIDTHS = (2, 4, 8, 16)
MOST_ROWS, LEAST_TRAJECTORIES = 6000, 100


@dataclass(frozen=True, eq=False)
class Curves:
    """Trajectories on a fine grid of times: states, logarithms where a channel is on a log scale, and their slopes."""

    times: Float[np.ndarray, "n g"]
    states: Float[np.ndarray, "n g c"]
    slopes: Float[np.ndarray, "n g c"]

    def take(self, rows: Any) -> Curves:
        """Return those of some of the trajectories."""
        return Curves(self.times[rows], self.states[rows], self.slopes[rows])


def curves_through(series: Series) -> Curves:
    """Return a curve for each channel of each trajectory."""
    grid = np.arange((series.n_times - 1) * N_INSIDE + 1) / N_INSIDE
    times = np.stack([np.interp(grid, np.arange(series.n_times), t) for t in series.times])
    states = np.empty((*times.shape, len(series.names)))
    slopes = np.empty_like(states)
    for c, log in enumerate(series.logs):
        with np.errstate(all="ignore"):
            v = np.log(series.values[..., c]) if log else series.values[..., c]
        for i, ok in enumerate(np.isfinite(v)):
            keep_time()
            curve = _curve(series.times[i, ok], v[i, ok])
            states[i, :, c], slopes[i, :, c] = curve(times[i]), curve(times[i], 1)
    return Curves(times, states, slopes)


def _curve(t: np.ndarray, v: np.ndarray) -> Any:
    if len(t) < 4:
        return make_interp_spline(t, v, k=min(1, len(t) - 1)) if len(t) > 1 else CubicSpline([0, 1], [0, 0])
    if len(t) < ENOUGH_TO_SMOOTH:
        return CubicSpline(t, v)
    rough = np.diff(v, 5) / np.sqrt(252.0)
    if np.sqrt(np.median(rough**2)) < 1e-4 * np.std(v):  # as smooth as numbers without noise are
        return make_interp_spline(t, v, k=5)
    return make_smoothing_spline(t, v)


def n_telling(curves: Curves) -> int:
    """Return of how many trajectories bumps are drawn: of so many that there are twice as many bumps as are drawn."""
    g = curves.times.shape[1]
    each = sum(len(range(0, g - w * N_INSIDE, max(N_INSIDE, w * N_INSIDE // 4))) for w in WIDTHS)
    return max(LEAST_TRAJECTORIES, 2 * MOST_ROWS // max(each, 1))


def weak_rows(
    curves: Curves, columns: Float[np.ndarray, "m n g"], channel: int, rng: np.random.Generator
) -> tuple[Float[np.ndarray, "r m"], Float[np.ndarray, " r"]]:
    """Return integrals of bumps times columns, and of bumps times the channel's rate, by parts."""
    n, g = curves.times.shape
    spans = [w * N_INSIDE for w in WIDTHS if w * N_INSIDE < g]
    places = [(i, s, k) for k in spans for i in range(n) for s in range(0, g - k, max(N_INSIDE, k // 4))]
    places = [places[i] for i in rng.permutation(len(places))[:MOST_ROWS]]
    bumps = {k: (1 - np.linspace(-1, 1, k + 1) ** 2) ** 2 for k in spans}
    a, b = np.empty((len(places), len(columns))), np.empty(len(places))
    for r, (i, s, k) in enumerate(places):
        keep_time()
        inside = slice(s, s + k + 1)
        t, u = curves.times[i, inside], curves.states[i, inside, channel]
        weight = bumps[k] * np.gradient(t)
        size = 1 / np.sqrt(np.sum(weight * bumps[k]) * (t[-1] - t[0]))
        a[r] = size * (columns[:, i, inside] @ weight)
        b[r] = -size * np.sum(0.5 * (u[1:] + u[:-1]) * np.diff(bumps[k]))
    return a, b

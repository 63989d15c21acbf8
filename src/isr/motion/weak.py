"""Weak form: what a rate leaves when it is multiplied by bumps and integrated, so that no derivative is taken.

Between measurements a spline is followed, smoothed where there are enough of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.interpolate import CubicSpline, make_interp_spline, make_smoothing_spline

from isr.motion.series import Series

N_INSIDE = 8
ENOUGH_TO_SMOOTH = 16
WIDTHS = (2, 4, 8, 16)
MOST_ROWS = 6000


@dataclass(frozen=True, eq=False)
class Smooth:
    """Trajectories on a fine grid.

    Args:
        times: Of the grid, from the first to the last point that was measured.
        states: On it, channels last; logarithms where a channel is on a log scale.
        slopes: Their derivatives.
        x: Parameters.
        measured: How many steps of the grid lie between two points.
    """

    times: Float[np.ndarray, "n g"]
    states: Float[np.ndarray, "n g c"]
    slopes: Float[np.ndarray, "n g c"]
    x: Float[np.ndarray, "n d"]
    measured: int = N_INSIDE


def smooth(series: Series) -> Smooth:
    """Return a curve for each channel of each trajectory."""
    n, n_times = series.times.shape
    grid = np.arange((n_times - 1) * N_INSIDE + 1) / N_INSIDE
    whole = np.arange(n_times)
    times = np.stack([np.interp(grid, whole, t) for t in series.times])
    states, slopes = np.empty((*times.shape, len(series.names))), np.empty((*times.shape, len(series.names)))
    for c, log in enumerate(series.logs):
        with np.errstate(all="ignore"):
            v = np.log(series.values[..., c]) if log else series.values[..., c]
        if (
            series.seen[..., c].all()
            and n_times < ENOUGH_TO_SMOOTH
            and np.ptp(series.times, axis=0).max() == 0
        ):
            curve = CubicSpline(series.times[0], v, axis=1)
            states[..., c], slopes[..., c] = curve(times[0]), curve(times[0], 1)
            continue
        for i in range(n):
            ok = np.isfinite(v[i])
            curve = _curve(series.times[i, ok], v[i, ok])
            states[i, :, c], slopes[i, :, c] = curve(times[i]), curve(times[i], 1)
    return Smooth(times, states, slopes, series.x)


def _curve(t: np.ndarray, v: np.ndarray):
    if len(t) < 4:
        return make_interp_spline(t, v, k=min(1, len(t) - 1)) if len(t) > 1 else CubicSpline([0, 1], [0, 0])
    if len(t) < ENOUGH_TO_SMOOTH:
        return CubicSpline(t, v)
    rough = np.diff(v, 5) / np.sqrt(252.0)
    if np.sqrt(np.median(rough**2)) < 1e-4 * np.std(v):  # as smooth as numbers without noise are
        return make_interp_spline(t, v, k=5)
    return make_smoothing_spline(t, v)


def weak_rows(
    curves: Smooth, columns: Float[np.ndarray, "m n g"], channel: int, rng: np.random.Generator
) -> tuple[Float[np.ndarray, "r m"], Float[np.ndarray, " r"]]:
    """Return integrals of bumps times columns, and of bumps times the channel's rate, by parts.

    Args:
        curves: Trajectories.
        columns: Values of each term on the grid.
        channel: Whose rate is asked for.
        rng: Chooses bumps where there are many.
    """
    n, g = curves.times.shape
    places = []
    for width in WIDTHS:
        span = width * curves.measured
        if span <= g - 1:
            step = max(curves.measured, span // 4)
            places += [(i, s, span) for i in range(n) for s in range(0, g - span, step)]
    if len(places) > MOST_ROWS:
        places = [places[i] for i in rng.permutation(len(places))[:MOST_ROWS]]
    a, b = np.empty((len(places), len(columns))), np.empty(len(places))
    tau = {span: np.linspace(-1, 1, span + 1) for span in {p[2] for p in places}}
    for r, (i, s, span) in enumerate(places):
        t, u = curves.times[i, s : s + span + 1], curves.states[i, s : s + span + 1, channel]
        bump = (1 - tau[span] ** 2) ** 2
        weight = bump * np.gradient(t)
        size = 1 / np.sqrt(np.sum(weight * bump) * (t[-1] - t[0]))
        a[r] = size * (columns[:, i, s : s + span + 1] @ weight)
        mid = 0.5 * (u[1:] + u[:-1])
        b[r] = -size * np.sum(mid * np.diff(bump))
    return a, b

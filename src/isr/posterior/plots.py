"""Figures: the pair plot of draws, and predictions beside what was observed."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy.ndimage import gaussian_filter

from isr.tables.extras import need
from isr.tables.names import quoted

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_VARIABLES = 8
CONTENTS = (0.94, 0.5)
COLOUR = "tab:blue"


def pair_plot(
    draws: Float[np.ndarray, "n d"],
    names: Sequence[str],
    *,
    units: Mapping[str, str] | None = None,
    truth: ArrayLike | Mapping[str, float] | None = None,
    prior: ArrayLike | None = None,
    shown: Sequence[str] | None = None,
    title: str = "",
) -> "Figure":
    """Return a figure of finite draws: histograms on the diagonal, points with 50 % and 94 % regions below.

    The truth, one row or some values by name, is drawn as dashed red lines, rows of a prior in grey. Names to be shown
    are the first eight where there are more, and the title then says so.
    """
    unknown = [name for name in shown or () if name not in names]
    if unknown or (shown is not None and not shown):
        raise ValueError(f"names must be some of {quoted(list(names))}, got {quoted(unknown) or 'none'}")
    chosen = [list(names).index(name) for name in (names[:MAX_VARIABLES] if shown is None else shown)]
    if isinstance(truth, Mapping):
        unknown = [str(name) for name in truth if name not in names]
        if unknown:
            raise ValueError(f"the truth names {quoted(unknown)}; the variables are {quoted(list(names))}")
        truth = [float(truth.get(name, np.nan)) for name in names]
    n, samples = len(chosen), draws[:, chosen]
    red = _rows(None if truth is None else np.atleast_2d(truth), names, "truth")[:, chosen]
    grey = _rows(prior, names, "prior")[:, chosen]
    limits = _limits(samples, red, grey)
    size = (max(3.2, 1.9 * n), max(2.8, 1.9 * n))
    figure, grid = need("matplotlib.pyplot").subplots(n, n, figsize=size, squeeze=False)
    line: dict[str, Any] = {"color": "red", "linestyle": "--", "linewidth": 1, "zorder": 3}
    dots: dict[str, Any] = {"markersize": 1.5, "rasterized": True}
    for i, j in np.ndindex(n, n):
        ax = grid[i, j]
        if j > i:
            ax.set_axis_off()
            continue
        if i == j:
            _marginal(ax, samples[:, i], grey[:, i], limits[i])
        else:
            ax.plot(*grey[:2000, [j, i]].T, ".", color="0.8", zorder=0, **dots)
            ax.plot(*samples[:4000, [j, i]].T, ".", color=COLOUR, alpha=0.35, zorder=1, **dots)
            _contour(ax, samples[:, [j, i]])
            ax.set(xlim=limits[j], ylim=limits[i])
        for row in red:
            ax.axvline(row[j], **line)
            if i != j:
                ax.axhline(row[i], **line)
    _label(grid, [names[i] for i in chosen], units or {})
    if n < len(names):
        which, hint = ("first ", "; choose others by names=[...]") if shown is None else ("", "")
        title = f"{title}\n{which}{n} of {len(names)} variables{hint}".strip()
    if title:
        figure.suptitle(title.replace("$", r"\$"), fontsize="medium")
    figure.align_labels()
    figure.tight_layout()
    return figure


def fit_plot(
    x: Float[np.ndarray, "n d"],
    observed: Float[np.ndarray, "n c"],
    predicted: Float[np.ndarray, "n c"],
    x_names: Sequence[str],
    y_names: Sequence[str],
) -> "Figure":
    """Return a figure with a row for each output: predictions, and what they leave against each variable of x."""
    across, down = min(len(x_names), MAX_VARIABLES), min(len(y_names), MAX_VARIABLES)
    size = (2.6 * (across + 1), 2.4 * down)
    figure, grid = need("matplotlib.pyplot").subplots(down, across + 1, figsize=size, squeeze=False)
    dots: dict[str, Any] = {"markersize": 2, "alpha": 0.5, "rasterized": True}
    for (first, *others), name, seen, said in zip(grid, y_names, observed.T, predicted.T, strict=False):
        ends = [np.nanmin(seen), np.nanmax(seen)]
        first.plot(ends, ends, color="0.5", linewidth=1)
        first.plot(said, seen, ".", **dots)
        first.set(xlabel="predicted", ylabel=name.replace("$", r"\$"))
        for ax, x_name, column in zip(others, x_names, x.T, strict=False):
            ax.axhline(0.0, color="0.5", linewidth=1)
            ax.plot(column, seen - said, ".", **dots)
            ax.set(
                xlabel=x_name.replace("$", r"\$"), ylabel="observed − predicted" if ax is others[0] else ""
            )
    figure.tight_layout()
    return figure


def trajectory_plot(
    names: Sequence[str],
    times: Float[np.ndarray, "n t"],
    measured: Float[np.ndarray, "n t c"],
    followed: Float[np.ndarray, "n t c"],
) -> "Figure":
    """Return a figure with a row for each channel: what was measured, of the first trajectories, and the law."""
    shape: dict[str, Any] = {"sharex": True, "squeeze": False, "figsize": (6.4, 2.2 * len(names))}
    figure, axes = need("matplotlib.pyplot").subplots(len(names), 1, **shape)
    for c, (ax, name) in enumerate(zip(axes[:, 0], names, strict=True)):
        for i, (t, values) in enumerate(zip(times[:MAX_VARIABLES], measured[..., c], strict=False)):
            seen = np.isfinite(values)
            ax.plot(t[seen], values[seen], ".", color=f"C{i}", markersize=3)
            ax.plot(t[seen], followed[i, seen, c], color=f"C{i}", linewidth=1)
        ax.set_ylabel(name.replace("$", r"\$"))
    axes[-1, 0].set_xlabel("time")
    figure.tight_layout()
    return figure


def _rows(values: ArrayLike | None, names: Sequence[str], what: str) -> np.ndarray:
    rows = np.empty((0, len(names))) if values is None else np.asarray(values, dtype=float)
    if rows.ndim != 2 or rows.shape[1] != len(names):
        raise ValueError(f"{what} must have {len(names)} values per row, got shape {rows.shape}")
    return rows


def _limits(samples: np.ndarray, truth: np.ndarray, prior: np.ndarray) -> np.ndarray:
    parts = [np.quantile(samples, [0.001, 0.999], axis=0), truth]
    if len(prior):
        parts.append(np.quantile(prior, [0.005, 0.995], axis=0))
    low, high = np.nanmin(np.concatenate(parts), axis=0), np.nanmax(np.concatenate(parts), axis=0)
    margin = 0.05 * (high - low) + 1e-12 + 1e-6 * np.maximum(np.abs(low), np.abs(high))
    return np.stack([low - margin, high + margin], axis=1)


def _marginal(ax: "Axes", samples: np.ndarray, prior: np.ndarray, limits: np.ndarray) -> None:
    options: dict[str, Any] = {"bins": _n_bins(samples), "density": True, "histtype": "stepfilled"}
    if len(prior):
        ax.hist(prior, range=tuple(limits), color="0.8", zorder=0, **options)
    inner = (float(samples.min()), float(samples.max()))
    inner = inner if inner[0] < inner[1] else tuple(limits)
    ax.hist(samples, range=inner, color=COLOUR, alpha=0.75, zorder=1, **options)
    ax.set(xlim=limits, yticks=[])


def _n_bins(samples: np.ndarray) -> int:
    return int(np.clip(np.sqrt(len(samples)) * 0.7, 10, 50))


def _contour(ax: "Axes", samples: np.ndarray) -> None:
    """Regions of a smoothed histogram that hold the wanted shares of the draws."""
    low, high = np.quantile(samples, [0.001, 0.999], axis=0)
    width = high - low
    if not np.all(width > 0):
        return
    box = np.stack([low - 0.15 * width, high + 0.15 * width], axis=1)
    counts, *edges = np.histogram2d(*samples.T, bins=2 * _n_bins(samples), range=box.tolist())
    smooth = gaussian_filter(counts, 2.0)
    cells = [
        np.clip(np.searchsorted(edge, column) - 1, 0, len(edge) - 2)
        for edge, column in zip(edges, samples.T, strict=True)
    ]
    levels = np.quantile(smooth[cells[0], cells[1]], [1 - content for content in CONTENTS])
    if levels[0] < levels[1]:
        middles = [0.5 * (edge[1:] + edge[:-1]) for edge in edges]
        ax.contour(*middles, smooth.T, levels=levels, colors=[COLOUR], linewidths=[0.8, 1.4], zorder=2)


def _label(grid: np.ndarray, names: Sequence[str], units: Mapping[str, str]) -> None:
    # A dollar sign would start a formula.
    labels = [(f"{n} ({units[n]})" if n in units else n).replace("$", r"\$") for n in names]
    for (i, j), ax in np.ndenumerate(grid):
        if j > i:
            continue
        ax.tick_params(labelsize="small")
        ax.locator_params(axis="x", nbins=3)
        if i < len(names) - 1:
            ax.set_xticklabels([])
        else:
            ax.set_xlabel(labels[j])
            ax.tick_params(axis="x", rotation=45)
        if i != j:
            ax.locator_params(axis="y", nbins=3)
            if j:
                ax.set_yticklabels([])
            else:
                ax.set_ylabel(labels[i])

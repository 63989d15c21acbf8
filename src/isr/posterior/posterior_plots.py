"""Pair plots of draws: marginals on the diagonal, pairs below it."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy.ndimage import gaussian_filter

from isr.tables.names import quoted

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_VARIABLES = 8
CONTENTS = (0.94, 0.5)


def pair_plot(
    draws: Float[np.ndarray, "n d"],
    names: Sequence[str],
    *,
    units: Mapping[str, str] | None = None,
    truth: ArrayLike | None = None,
    prior: ArrayLike | None = None,
    shown: Sequence[str] | None = None,
    colour: str = "tab:blue",
) -> "Figure":
    """Return a figure of finite draws: histograms on the diagonal, points with 50 % and 94 % regions below.

    Args:
        draws: One a row.
        names: Of all columns.
        units: Unit by name.
        truth: One row of all columns, drawn as dashed red lines.
        prior: Rows of all columns, drawn in grey.
        shown: Names to show; the first eight where there are more, and the title then says so.
        colour: Of the draws.
    """
    import matplotlib.pyplot as plt

    columns = _chosen(names, shown)
    samples = draws[:, columns]
    true_row = None if truth is None else _as_rows(truth, len(names), "truth")[0][columns]
    prior_rows = None if prior is None else _as_rows(prior, len(names), "prior")[:, columns]
    labels = [_label(names[i], units or {}) for i in columns]
    limits = _limits(samples, true_row, prior_rows)
    n = len(columns)
    figure, grid = plt.subplots(n, n, figsize=(max(3.2, 1.9 * n), max(2.8, 1.9 * n)), squeeze=False)
    for i in range(n):
        for j in range(n):
            ax = grid[i, j]
            if j > i:
                ax.set_axis_off()
                continue
            if i == j:
                _marginal(
                    ax,
                    samples[:, i],
                    prior_rows if prior_rows is None else prior_rows[:, i],
                    limits[i],
                    colour,
                )
            else:
                _pair(ax, samples[:, [j, i]], prior_rows, (j, i), (limits[j], limits[i]), colour)
            _mark(ax, true_row, i, j)
            _dress(ax, labels, i, j, n)
    if len(columns) < len(names):
        which = f"first {n}" if shown is None else str(n)
        hint = "; choose others by names=[...]" if shown is None else ""
        figure.suptitle(f"{which} of {len(names)} variables{hint}", fontsize="medium")
    figure.align_labels()
    figure.tight_layout()
    return figure


def _chosen(names: Sequence[str], shown: Sequence[str] | None) -> list[int]:
    if shown is None:
        return list(range(min(len(names), MAX_VARIABLES)))
    unknown = [name for name in shown if name not in names]
    if unknown or not shown:
        raise ValueError(f"names must be some of {quoted(list(names))}, got {quoted(unknown) or 'none'}")
    return [list(names).index(name) for name in shown]


def _as_rows(values: ArrayLike, width: int, what: str) -> np.ndarray:
    rows = np.asarray(values, dtype=float)
    rows = rows.reshape(1, -1) if what == "truth" else rows
    if rows.ndim != 2 or rows.shape[1] != width:
        raise ValueError(f"{what} must have {width} values a row, got shape {np.shape(values)}")
    return rows


def _label(name: str, units: Mapping[str, str]) -> str:
    # A dollar sign would start a formula.
    text = f"{name} ({units[name]})" if name in units else name
    return text.replace("$", r"\$")


def _limits(
    samples: np.ndarray, truth: np.ndarray | None, prior: np.ndarray | None
) -> list[tuple[float, float]]:
    ends = np.quantile(samples, [0.001, 0.999], axis=0)
    for other in ([] if truth is None else [truth[None]]) + (
        [] if prior is None else [np.quantile(prior, [0.005, 0.995], axis=0)]
    ):
        ends = np.stack([np.minimum(ends[0], other.min(axis=0)), np.maximum(ends[1], other.max(axis=0))])
    margin = 0.05 * (ends[1] - ends[0]) + 1e-12 + 1e-6 * np.abs(ends).max(axis=0)
    return list(zip((ends[0] - margin).tolist(), (ends[1] + margin).tolist(), strict=True))


def _marginal(
    ax: "Axes", samples: np.ndarray, prior: np.ndarray | None, limits: tuple[float, float], colour: str
) -> None:
    options: dict[str, Any] = {"bins": _n_bins(samples), "density": True, "histtype": "stepfilled"}
    inner = (float(samples.min()), float(samples.max()))
    if prior is not None:
        ax.hist(prior, range=limits, color="0.8", zorder=0, **options)
    ax.hist(
        samples, range=inner if inner[0] < inner[1] else limits, color=colour, alpha=0.75, zorder=1, **options
    )
    ax.set(xlim=limits, yticks=[])


def _pair(
    ax: "Axes",
    samples: np.ndarray,
    prior: np.ndarray | None,
    columns: tuple[int, int],
    limits: tuple[tuple[float, float], tuple[float, float]],
    colour: str,
) -> None:
    if prior is not None:
        ax.plot(*prior[:2000, columns].T, ".", color="0.8", markersize=1.5, zorder=0, rasterized=True)
    ax.plot(*samples[:4000].T, ".", color=colour, markersize=1.5, alpha=0.35, zorder=1, rasterized=True)
    _contour(ax, samples, colour)
    ax.set(xlim=limits[0], ylim=limits[1])


def _n_bins(samples: np.ndarray) -> int:
    return int(np.clip(np.sqrt(len(samples)) * 0.7, 10, 50))


def _contour(ax: "Axes", samples: np.ndarray, colour: str) -> None:
    """Regions of a smoothed histogram that hold the wanted shares of the draws."""
    ends = np.quantile(samples, [0.001, 0.999], axis=0)
    width = ends[1] - ends[0]
    if not np.all(width > 0):
        return
    box = np.stack([ends[0] - 0.15 * width, ends[1] + 0.15 * width]).T
    counts, first, second = np.histogram2d(*samples.T, bins=2 * _n_bins(samples), range=box.tolist())
    smooth = gaussian_filter(counts, 2.0)
    middles = [0.5 * (edges[1:] + edges[:-1]) for edges in (first, second)]
    nearest = [
        np.abs(column[:, None] - middle).argmin(axis=1)
        for column, middle in zip(samples.T, middles, strict=True)
    ]
    levels = np.quantile(smooth[nearest[0], nearest[1]], [1 - content for content in CONTENTS])
    if levels[0] < levels[1]:
        ax.contour(*middles, smooth.T, levels=levels, colors=[colour], linewidths=[0.8, 1.4], zorder=2)


def _mark(ax: "Axes", truth: np.ndarray | None, i: int, j: int) -> None:
    if truth is not None:
        ax.axvline(truth[j], color="red", linestyle="--", linewidth=1, zorder=3)
        if i != j:
            ax.axhline(truth[i], color="red", linestyle="--", linewidth=1, zorder=3)


def _dress(ax: "Axes", labels: Sequence[str], i: int, j: int, n: int) -> None:
    ax.tick_params(labelsize="small")
    ax.locator_params(axis="x", nbins=3)
    if i != j:
        ax.locator_params(axis="y", nbins=3)
    if i == n - 1:
        ax.set_xlabel(labels[j])
        ax.tick_params(axis="x", rotation=45)
    else:
        ax.set_xticklabels([])
    if j == 0 and i > 0:
        ax.set_ylabel(labels[i])
    elif i != j:
        ax.set_yticklabels([])

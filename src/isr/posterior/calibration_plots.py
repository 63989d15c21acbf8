"""Figures of the calibration checks, each drawn on given axes."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from isr.posterior.calibration import Coverage, Tarp, ecdf_band

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_ranks(
    ax: "Axes", ranks: ArrayLike, n_draws: int, *, n_bins: int = 20, label: str | None = None
) -> None:
    """Draw the histogram of one parameter's ranks with the 99 % range of a uniform count.

    Example:
        >>> import matplotlib.pyplot as plt
        >>> figure, ax = plt.subplots()
        >>> plot_ranks(ax, np.arange(100) % 10, 9, n_bins=10)
        >>> plt.close(figure)
    """
    position = (np.asarray(ranks) + 0.5) / (n_draws + 1)
    low, high = stats.binom.ppf([0.005, 0.995], len(position), 1 / n_bins)
    ax.axhspan(low, high, color="0.85", zorder=0, label="99 % if uniform")
    ax.hist(position, bins=n_bins, range=(0, 1), color="tab:blue", alpha=0.8, zorder=1)
    ax.axhline(len(position) / n_bins, color="0.4", linewidth=1, zorder=2)
    ax.set(xlabel="rank / number of draws", ylabel="count", xlim=(0, 1), title=label or "")


def plot_ecdf(
    ax: "Axes", ranks: ArrayLike, n_draws: int, *, names: Sequence[str] | None = None, prob: float = 0.95
) -> None:
    """Draw the ECDF of ranks minus the diagonal, one line a parameter, with the simultaneous band.

    Example:
        >>> import matplotlib.pyplot as plt
        >>> figure, ax = plt.subplots()
        >>> plot_ecdf(ax, np.arange(100)[:, None] % 10, 9, names=["depth"])
        >>> plt.close(figure)
    """
    table = np.atleast_2d(np.asarray(ranks).T)
    steps = np.unique(np.linspace(1, n_draws, min(n_draws, 100)).astype(int))
    grid = steps / (n_draws + 1)
    low, high = ecdf_band(table.shape[1], grid, prob=prob)
    ax.fill_between(grid, low - grid, high - grid, color="0.85", label=f"{prob:.0%} band", zorder=0)
    for i, column in enumerate(table):
        ecdf = np.searchsorted(np.sort(column), steps, side="left") / len(column)
        ax.plot(grid, ecdf - grid, linewidth=1.5, label=names[i] if names else f"x{i}")
    ax.axhline(0.0, color="0.4", linewidth=1)
    ax.set(xlabel="rank / number of draws", ylabel="ECDF − uniform", xlim=(0, 1))
    ax.legend(fontsize="small")


def plot_coverage(
    ax: "Axes", coverage: Coverage, *, names: Sequence[str] | None = None, prob: float = 0.95
) -> None:
    """Draw coverage against credible level, with the band of an exact posterior.

    Example:
        >>> import matplotlib.pyplot as plt
        >>> from isr.posterior.calibration import marginal_coverage
        >>> rng = np.random.default_rng(0)
        >>> found = marginal_coverage(rng.normal(size=(50, 1)), rng.normal(size=(50, 20, 1)))
        >>> figure, ax = plt.subplots()
        >>> plot_coverage(ax, found, names=["depth"])
        >>> plt.close(figure)
    """
    _diagonal(ax, coverage.n, prob)
    curves = coverage.coverage.reshape(len(coverage.levels), -1).T
    for i, curve in enumerate(curves):
        label = names[i] if names else (f"x{i}" if len(curves) > 1 else "highest density")
        ax.plot(coverage.levels, curve, "o-", markersize=3, linewidth=1.5, label=label)
    ax.legend(fontsize="small")


def plot_tarp(ax: "Axes", result: Tarp, *, prob: float = 0.95) -> None:
    """Draw the TARP curve with the band of an exact posterior and its p-value.

    Example:
        >>> import matplotlib.pyplot as plt
        >>> from isr.posterior.calibration import tarp
        >>> rng = np.random.default_rng(0)
        >>> figure, ax = plt.subplots()
        >>> plot_tarp(ax, tarp(rng.normal(size=(50, 1)), rng.normal(size=(50, 20, 1))))
        >>> plt.close(figure)
    """
    _diagonal(ax, result.n, prob)
    ax.plot(result.levels, result.coverage, linewidth=1.5, label=f"TARP, p = {result.p_value:.2g}")
    ax.legend(fontsize="small")


def _diagonal(ax: "Axes", n: int, prob: float) -> None:
    grid = np.linspace(0.01, 0.99, 99)
    low, high = ecdf_band(n, grid, prob=prob)
    ax.fill_between(grid, low, high, color="0.85", label=f"{prob:.0%} band", zorder=0)
    ax.plot([0, 1], [0, 1], color="0.4", linewidth=1, zorder=1)
    ax.set(xlabel="credible level", ylabel="expected coverage", xlim=(0, 1), ylim=(0, 1), aspect="equal")

"""The figures of a report: the front, training curves, data beside samples, calibration."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from isr.posterior.calibration import Coverage, Tarp, ecdf_band, rank_curves
from isr.report.contents import Calibration, FrontPoint
from isr.report.svg import BOTTOM, TOP, Axis, Chart, axis_of

if TYPE_CHECKING:
    import pandas as pd

MOST_DOTS = 1200
MOST_MARGINALS = 8
MOST_PAIRS = 6
# Columns of a training history: what they are called, and in which colour they are drawn.
CURVES = {
    "held_out_median": ("held out, median member", "faint"),
    "train": ("training, best member", "s1"),
    "held_out": ("held out, best member", "s2"),
}


@dataclass(frozen=True)
class Figure:
    """A chart with its caption, and class and name of each series in its legend."""

    svg: str
    caption: str = ""
    legend: tuple[tuple[str, str], ...] = ()


def front_figure(points: Sequence[FrontPoint], picked: int) -> Figure:
    """Return the front with a point to choose for every model."""
    complexity, loss = (np.array([getattr(p, name) for p in points]) for name in ("complexity", "loss"))
    chart = Chart(
        axis_of(
            complexity, "complexity of the equations", log=max(complexity) > 20 * max(1, min(complexity))
        ),
        axis_of(loss, "held-out loss (nats per row)", margin=0.12),
        width=560,
        height=320,
    )
    marks = []
    for i, (point, a, b) in enumerate(zip(points, *chart.at(complexity, loss), strict=True)):
        words = html.escape(
            f"complexity {point.complexity:g}, loss {point.loss:.4g} nats, {point.n_constants} constants"
            + (", the model of this report" if point.chosen else "")
        )
        marks.append(
            f'<g class="choice{" chosen" if point.chosen else ""}" role="radio" data-point="{i}" '
            f'tabindex="{0 if i == picked else -1}" aria-checked="{"true" if i == picked else "false"}" '
            f'aria-label="{words}"><title>{words}</title><circle class="reach" cx="{a:.1f}" cy="{b:.1f}" r="16"/>'
            f'<circle class="mark" cx="{a:.1f}" cy="{b:.1f}" r="6.5"/></g>'
        )
    group = f'<g role="radiogroup" aria-label="Models of the front">{"".join(marks)}</g>'
    line = chart.line(complexity, loss, "line faint")
    return Figure(chart.svg([line, group], "Held-out loss against complexity", interactive=True))


def history_figure(history: pd.DataFrame) -> Figure | None:
    """Return the training curves, phase by phase."""
    curves = {name: history[name].to_numpy(float) for name in CURVES if name in history}
    judged = [v[np.isfinite(v)] for name, v in curves.items() if name != "held_out_median"]
    values = np.concatenate([np.empty(0), *judged])
    if not len(values) or len(history) < 2:
        return None
    epochs = history["epoch"].to_numpy(float) if "epoch" in history else np.arange(1.0, len(history) + 1)
    # The first epochs of a bad start would flatten everything else.
    most = np.quantile(values, 0.9)
    high = min(values.max(), most + 2 * (most - values.min()))
    chart = Chart(Axis(epochs[0], epochs[-1], "epoch"), axis_of([values.min(), high], "loss"), 900, 320)
    inside, legend = _phases(chart, history, epochs), []
    for name, curve in curves.items():
        shown = curve <= chart.y.high
        if shown.sum() > 1:
            label, css = CURVES[name]
            inside.append(chart.line(epochs[shown], curve[shown], f"line {css}"))
            legend.append((css, label))
    return Figure(chart.svg(inside, f"Loss over {len(history)} epochs"), legend=tuple(legend))


def _phases(chart: Chart, history: pd.DataFrame, epochs: np.ndarray) -> list[str]:
    if "phase" not in history:
        return []
    names = [str(p) for p in history["phase"]]
    starts = [i for i in range(len(names)) if i == 0 or names[i] != names[i - 1]]
    marks, written = [], -np.inf
    for i in starts:
        across = float(chart.at(epochs[i], chart.y.low)[0])
        marks.append(
            f'<line class="phase" x1="{across:.1f}" x2="{across:.1f}" y1="{TOP}" y2="{chart.height - BOTTOM}"/>'
        )
        if across > written:
            marks.append(chart.text(across + 4, TOP + 11, names[i], "tick"))
            written = across + 8 + 7 * len(names[i])
    return marks


def marginal_figures(
    names: Sequence[str], data: np.ndarray | None, samples: np.ndarray, n_bins: int = 36
) -> list[Figure]:
    """Return a histogram for each variable, of data and of samples."""
    figures = []
    for i, name in enumerate(names[:MOST_MARGINALS]):
        columns = [c[np.isfinite(c[:, i]), i] for c in (data, samples) if c is not None]
        axis = _robust(np.concatenate(columns), name)
        edges = np.linspace(axis.low, axis.high, n_bins + 1)
        counts = [np.histogram(c, bins=edges)[0] / (max(1, len(c)) * (edges[1] - edges[0])) for c in columns]
        chart = Chart(axis, Axis(0.0, 1.12 * max(float(c.max()) for c in counts) or 1.0, "density"), 290, 200)
        styles = ("bars", "outline") if data is not None else ("outline",)
        inside = [chart.steps(edges, c, css) for c, css in zip(counts, styles, strict=True)]
        figures.append(Figure(chart.svg(inside, f"Distribution of {name}")))
    return figures


def pair_figures(
    names: Sequence[str], data: np.ndarray | None, samples: np.ndarray
) -> list[tuple[Figure, ...]]:
    """Return scatter plots of pairs of variables: data and samples side by side."""
    tables = {"model": samples[:MOST_DOTS]}
    if data is not None:
        tables = {"data": data[:MOST_DOTS], **tables}
    both = np.concatenate(list(tables.values()))
    rows = []
    for i, j in list(combinations(range(min(len(names), MOST_MARGINALS)), 2))[:MOST_PAIRS]:
        chart = Chart(_robust(both[:, i], names[i]), _robust(both[:, j], names[j]), 280, 230)
        words = f"{names[i]} and {names[j]}"
        rows.append(
            tuple(
                Figure(
                    chart.svg([chart.dots(t[:, i], t[:, j], f"dots {w}")], f"{words}, {len(t)} rows, {w}"), w
                )
                for w, t in tables.items()
            )
        )
    return rows


def fit_figure(name: str, observed: np.ndarray, predicted: np.ndarray) -> Figure:
    """Return predictions against observations of one output."""
    axis = axis_of(np.concatenate([observed, predicted]))
    chart = Chart(
        Axis(axis.low, axis.high, f"{name}, observed"),
        Axis(axis.low, axis.high, f"{name}, predicted"),
        360,
        320,
    )
    ends = [axis.low, axis.high]
    dots = chart.dots(observed[:MOST_DOTS], predicted[:MOST_DOTS], "dots model")
    return Figure(
        chart.svg([chart.line(ends, ends, "line faint"), dots], f"Predicted against observed {name}")
    )


def _robust(values: np.ndarray, label: str) -> Axis:
    values = values[np.isfinite(values)]
    if not len(values):
        return Axis(0.0, 1.0, label)
    low, high = np.quantile(values, [0.002, 0.998])
    return axis_of([low, high], label, margin=0.08)


def calibration_figures(result: Calibration, names: Sequence[str]) -> list[Figure]:
    """Return the figures of the calibration checks that were given."""
    figures = []
    if result.ranks is not None and result.n_draws:
        grid, curves, low, high = rank_curves(result.ranks, result.n_draws, n_points=80)
        reach = 1.15 * max(float(np.max(np.abs([low, high, *curves]))), 1e-3)
        chart = Chart(
            Axis(0.0, 1.0, "rank / number of draws"), Axis(-reach, reach, "ECDF − uniform"), 380, 300
        )
        back = [chart.band(grid, low, high, "band"), chart.line([0, 1], [0, 0], "line faint")]
        figures.append(_curves(chart, back, grid, curves, names, "Ranks of the truth"))
    if result.coverage is not None:
        one = result.coverage.coverage.ndim == 1
        figures.append(
            _coverage(result.coverage, ["highest density"] if one else names, "Coverage of intervals")
        )
    if result.tarp is not None:
        words = [f"TARP, p = {result.tarp.p_value:.2g}"]
        figures.append(_coverage(result.tarp, words, "All parameters at once (TARP)"))
    return figures


def _coverage(found: Coverage | Tarp, names: Sequence[str], caption: str) -> Figure:
    grid = np.linspace(0.01, 0.99, 99)
    chart = Chart(Axis(0.0, 1.0, "credible level"), Axis(0.0, 1.0, "share of truths inside"), 380, 300)
    back = [chart.band(grid, *ecdf_band(found.n, grid), "band"), chart.line([0, 1], [0, 1], "line faint")]
    curves = found.coverage.reshape(len(found.levels), -1).T
    return _curves(chart, back, found.levels, curves, names, caption)


def _curves(
    chart: Chart,
    back: list[str],
    x: np.ndarray,
    curves: Iterable[np.ndarray],
    names: Sequence[str],
    caption: str,
) -> Figure:
    lines = [chart.line(x, c, f"line s{i % 6 + 1}") for i, c in enumerate(curves)]
    legend = tuple((f"s{i % 6 + 1}", name) for i, name in enumerate(names))
    return Figure(chart.svg([*back, *lines], caption), caption, legend)

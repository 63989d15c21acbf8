"""The figures of a report, as plain SVG: the front, training curves, data beside samples, calibration.

Colours come from the page's style sheet by class.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from isr.formulas.front import Point
from isr.posterior.calibration import Calibration, Coverage, ecdf_band

LEFT, RIGHT, TOP, BOTTOM = 62, 10, 10, 40
"""Room around the plotting area, for tick labels and the names of the axes."""


@dataclass(frozen=True)
class Axis:
    """One axis: the range it covers, and what it is called."""

    low: float
    high: float
    label: str = ""
    log: bool = False

    def share(self, values: np.ndarray | float) -> np.ndarray:
        """Return how far along the axis values lie, from 0 to 1."""
        low, high, v = self.low, self.high, np.asarray(values, dtype=float)
        if self.log:
            low, high, v = math.log(low), math.log(high), np.log(v)
        return (v - low) / (high - low)

    def ticks(self, n: int = 5) -> list[float]:
        """Return about ``n`` round values."""
        if self.log:
            first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
            factors = (1, 2, 5) if last - first <= 3 else (1,)
            found = [f * 10.0**p for p in range(first, last + 1) for f in factors]
            return [v for v in found if self.low <= v <= self.high]
        found = self._multiples(n)
        # One value alone would not tell the scale.
        return found if len(found) > 1 else self._multiples(2 * n)

    def _multiples(self, n: int) -> list[float]:
        rough = (self.high - self.low) / n
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(f * power for f in (1, 2, 5, 10) if f * power >= rough * 0.999)
        found = (k * step for k in range(math.ceil(self.low / step), math.floor(self.high / step) + 1))
        return [v for v in found if self.low <= v <= self.high]


def axis_of(values: Iterable[float], label: str = "", *, margin: float = 0.06, log: bool = False) -> Axis:
    """Return an axis that covers the finite ones of ``values`` with some room at both ends."""
    finite = np.asarray([v for v in values if math.isfinite(v) and (v > 0 or not log)], dtype=float)
    if not len(finite):
        return Axis(0.1 if log else 0.0, 1.0, label, log)
    low, high = float(finite.min()), float(finite.max())
    if log:
        return Axis(low / 1.3, high * 1.3, label, log)
    room = margin * (high - low) if high > low else 0.5 * abs(low) + 0.5
    return Axis(low - room, high + room, label)


def tick_text(value: float) -> str:
    """Return a tick's label."""
    text = f"{value + 0.0:.6g}" if value else "0"
    return text.replace("e-0", "e-").replace("e+0", "e").replace("-", "−")


@dataclass(frozen=True)
class Chart:
    """A plotting area with its axes, in a chart of a size; the methods return SVG for things inside it."""

    x: Axis
    y: Axis
    width: int = 480
    height: int = 300

    def at(self, x: np.ndarray | float, y: np.ndarray | float) -> tuple[np.ndarray, np.ndarray]:
        """Return where points lie, in pixels."""
        across = LEFT + self.x.share(x) * (self.width - LEFT - RIGHT)
        down = self.height - BOTTOM - self.y.share(y) * (self.height - TOP - BOTTOM)
        return across, down

    def line(self, x: Sequence[float] | np.ndarray, y: Sequence[float] | np.ndarray, css: str) -> str:
        """Return a line through the finite points."""
        across, down = self.at(np.asarray(x, dtype=float), np.clip(y, self.y.low, self.y.high))
        points = [f"{a:.1f},{b:.1f}" for a, b in zip(across, down, strict=True) if math.isfinite(a + b)]
        return f'<polyline class="{css}" points="{" ".join(points)}"/>'

    def dots(self, x: np.ndarray, y: np.ndarray, css: str) -> str:
        """Return dots for the points inside the area, as one path."""
        across, down = self.at(x, y)
        inside = (np.abs(self.x.share(x) - 0.5) <= 0.5) & (np.abs(self.y.share(y) - 0.5) <= 0.5)
        path = "".join(f"M{a:.1f} {b:.1f}h0" for a, b in zip(across[inside], down[inside], strict=True))
        return f'<path class="{css}" d="{path}"/>'

    def band(self, x: np.ndarray, low: np.ndarray, high: np.ndarray, css: str) -> str:
        """Return the area between two curves."""
        across, bottom = self.at(x, np.clip(low, self.y.low, self.y.high))
        _, top = self.at(x, np.clip(high, self.y.low, self.y.high))
        edge = [*zip(across, bottom, strict=True), *zip(across[::-1], top[::-1], strict=True)]
        return f'<polygon class="{css}" points="{" ".join(f"{a:.1f},{b:.1f}" for a, b in edge)}"/>'

    def steps(self, edges: np.ndarray, heights: np.ndarray, css: str) -> str:
        """Return a histogram's outline."""
        x = np.repeat(edges, 2)[1:-1]
        return self.band(x, np.full(len(x), self.y.low), np.repeat(heights, 2), css)

    def text(self, x: float, y: float, words: str, css: str = "", anchor: str = "start") -> str:
        """Return words at a place given in pixels."""
        return (
            f'<text class="{css}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{html.escape(words)}</text>'
        )

    def svg(self, inside: Sequence[str], description: str, *, interactive: bool = False) -> str:
        """Return the chart with its axes, and inside it things from back to front, some of them to be chosen or none.

        The description is for readers who cannot see it.
        """
        role = "group" if interactive else "img"
        return (
            f'<svg viewBox="0 0 {self.width} {self.height}" style="max-width:{1.25 * self.width:.0f}px" '
            f'role="{role}" aria-label="{html.escape(description)}">'
            f"{self._grid()}{''.join(inside)}</svg>"
        )

    def _grid(self) -> str:
        right, bottom = self.width - RIGHT, self.height - BOTTOM
        parts = []
        for value in self.y.ticks(max(2, round((bottom - TOP) / 50))):
            down = float(self.at(self.x.low, value)[1])
            parts.append(f'<line class="grid" x1="{LEFT}" x2="{right}" y1="{down:.1f}" y2="{down:.1f}"/>')
            parts.append(self.text(LEFT - 6, down + 4, tick_text(value), "tick", "end"))
        for value in self.x.ticks(max(2, round((right - LEFT) / 70))):
            across = float(self.at(value, self.y.low)[0])
            parts.append(
                f'<line class="axis" x1="{across:.1f}" x2="{across:.1f}" y1="{bottom}" y2="{bottom + 4}"/>'
            )
            parts.append(self.text(across, bottom + 17, tick_text(value), "tick", "middle"))
        parts.append(f'<line class="axis" x1="{LEFT}" x2="{right}" y1="{bottom}" y2="{bottom}"/>')
        parts.append(self.text((LEFT + right) / 2, self.height - 6, self.x.label, "name", "middle"))
        middle = (TOP + bottom) / 2
        parts.append(
            f'<text class="name" transform="translate(13 {middle:.1f}) rotate(-90)" text-anchor="middle">'
            f"{html.escape(self.y.label)}</text>"
        )
        return "".join(parts)


MOST_DOTS = 1200
MOST_MARGINALS = 8


@dataclass(frozen=True)
class Figure:
    """A chart with its caption, and class and name of each series in its legend."""

    svg: str
    caption: str = ""
    legend: tuple[tuple[str, str], ...] = ()


def front_figure(points: Sequence[Point], chosen: int | None, picked: int) -> Figure:
    """Return the front with a point to choose for every model."""
    complexity, loss = (
        np.array([getattr(p, name) for p in points]) for name in ("complexity", "held_out_nats")
    )
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
            f"complexity {point.complexity:g}, loss {point.held_out_nats:.4g} nats, {point.n_constants} constants"
            + (", the model of this report" if i == chosen else "")
        )
        marks.append(
            f'<g class="choice{" chosen" if i == chosen else ""}" role="radio" data-point="{i}" '
            f'tabindex="{0 if i == picked else -1}" aria-checked="{"true" if i == picked else "false"}" '
            f'aria-label="{words}"><title>{words}</title><circle class="reach" cx="{a:.1f}" cy="{b:.1f}" r="16"/>'
            f'<circle class="mark" cx="{a:.1f}" cy="{b:.1f}" r="6.5"/></g>'
        )
    group = f'<g role="radiogroup" aria-label="Models of the front">{"".join(marks)}</g>'
    line = chart.line(complexity, loss, "line faint")
    return Figure(chart.svg([line, group], "Held-out loss against complexity", interactive=True))


N_BINS = 36


def marginal_figures(
    names: Sequence[str],
    data: np.ndarray | None,
    samples: np.ndarray,
    *,
    zoom: bool = False,
    seen: np.ndarray | None = None,
) -> list[Figure]:
    """Return a histogram of data and samples for each variable, and a line where rows of ``seen`` lie.

    ``zoom`` shows samples alone where they are narrow.
    """
    figures = []
    for i, name in enumerate(names[:MOST_MARGINALS]):
        columns = [c[np.isfinite(c[:, i]), i] for c in (data, samples) if c is not None]
        marks = [] if seen is None else seen[:, i]
        axis, own = _robust(np.concatenate(columns), name), _robust(columns[-1], name)
        if len(marks):
            axis = axis_of([axis.low, axis.high, *marks], name, margin=0.02)
        if zoom and own.high - own.low < 0.3 * (axis.high - axis.low):
            axis = axis_of([own.low, own.high], name, margin=0.5)
        counts = [_density(c, axis) for c in columns]
        chart = Chart(
            axis, Axis(0.0, 1.12 * max(float(c.max()) for _, c in counts) or 1.0, "density"), 290, 200
        )
        styles = ("bars", "outline") if data is not None else ("outline",)
        inside = [chart.steps(edges, c, css) for (edges, c), css in zip(counts, styles, strict=True)]
        inside += [chart.line([v, v], [0.0, chart.y.high], "line truth") for v in marks]
        figures.append(Figure(chart.svg(inside, f"Distribution of {name}")))
    return figures


def _density(values: np.ndarray, axis: Axis) -> tuple[np.ndarray, np.ndarray]:
    """A histogram inside an axis; its bins end where the values do, so that none is half empty at a bound."""
    low, high = max(axis.low, values.min(initial=np.inf)), min(axis.high, values.max(initial=-np.inf))
    edges = np.linspace(*((low, high) if low < high else (axis.low, axis.high)), N_BINS + 1)
    return edges, np.histogram(values, bins=edges)[0] / (max(1, len(values)) * (edges[1] - edges[0]))


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


def trajectory_figures(
    names: Sequence[str], times: np.ndarray, measured: np.ndarray, followed: np.ndarray
) -> list[Figure]:
    """Return a figure for each channel: what was measured (trajectory, time, channel), and the law that follows it."""
    figures = []
    for c, name in enumerate(names):
        seen, law = measured[..., c], followed[..., c]
        chart = Chart(axis_of(times[np.isfinite(seen)], "time"), axis_of(seen.ravel(), name), 480, 300)
        inside = [chart.dots(t, v, "dots") for t, v in zip(times, seen, strict=True)]
        inside += [
            chart.line(t, np.where(np.isfinite(v), u, np.nan), "line model")
            for t, v, u in zip(times, seen, law, strict=True)
        ]
        figures.append(Figure(chart.svg(inside, f"{name} over time, measured and as the law says")))
    return figures


def residual_figures(name: str, left: np.ndarray, x_names: Sequence[str], x: np.ndarray) -> list[Figure]:
    """Return what is left of one output against each variable of x: a pattern is something the formula lacks."""
    figures = []
    for i, x_name in enumerate(x_names[:MOST_MARGINALS]):
        across, up = axis_of(x[:, i], x_name), axis_of(left, f"{name}, observed − predicted")
        chart = Chart(across, up, 290, 220)
        zero = chart.line([across.low, across.high], [0.0, 0.0], "line faint")
        dots = chart.dots(x[:MOST_DOTS, i], left[:MOST_DOTS], "dots model")
        figures.append(Figure(chart.svg([zero, dots], f"Residuals of {name} against {x_name}")))
    return figures


def _robust(values: np.ndarray, label: str) -> Axis:
    values = values[np.isfinite(values)]
    if not len(values):
        return Axis(0.0, 1.0, label)
    low, high = np.quantile(values, [0.002, 0.998])
    return axis_of([low, high], label, margin=0.08)


def calibration_figures(result: Calibration, names: Sequence[str]) -> list[Figure]:
    """Return the figures of the calibration checks."""
    steps = np.unique(np.linspace(1, result.n_draws, min(result.n_draws, 80)).astype(int))
    grid = steps / (result.n_draws + 1)
    curves = [np.searchsorted(np.sort(c), steps) / len(c) - grid for c in result.ranks.T]
    low, high = (end - grid for end in ecdf_band(len(result.ranks), grid))
    reach = 1.15 * max(float(np.max(np.abs([low, high, *curves]))), 1e-3)
    chart = Chart(Axis(0.0, 1.0, "rank / number of draws"), Axis(-reach, reach, "ECDF − uniform"), 380, 300)
    back = [chart.band(grid, low, high, "band"), chart.line([0, 1], [0, 0], "line faint")]
    return [
        _curves(chart, back, grid, curves, names, "Ranks of the truth"),
        _coverage(result.coverage, names, "Coverage of intervals"),
        _coverage(result.tarp, [f"TARP, p = {result.tarp.p_value:.2g}"], "All parameters at once (TARP)"),
    ]


def _coverage(found: Coverage, names: Sequence[str], caption: str) -> Figure:
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

"""Plain SVG charts: axes with round ticks, lines, dots and bars. Colours come from the page's style sheet by class."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

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

"""A picture of an environment."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from isr.ocean.environment import Environment, HalfSpace
from isr.tables.extras import need

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_FILLS = ("#dcecf7", "#e9d8b4", "#d2b48c", "#b89b72", "#9c8465")


def plot_environment(environment: Environment, max_depth: float | None = None) -> tuple[Axes, Axes]:
    """Draw the sound-speed profile beside the layers, the source and the array; return both axes."""
    plt = need("matplotlib.pyplot")

    layers = list(environment.layers)
    if max_depth is None:
        shown = layers[-1].top if len(layers) > 1 else layers[-1].bottom
        max_depth = 1.12 * max(shown, *environment.array.depths)
    _, (left, right) = plt.subplots(
        1, 2, figsize=(8.5, 4.6), sharey=True, width_ratios=(1, 2), layout="constrained"
    )
    slowest, fastest = np.inf, 0.0
    for index, layer in enumerate(layers):
        if layer.top >= max_depth:
            continue
        seen = np.append([z for z in layer.depths if z < max_depth], min(layer.bottom, max_depth))
        speeds = np.interp(seen, layer.depths, layer.speeds)
        left.plot(speeds, seen, color="#1f4e79", lw=1.6)
        slowest, fastest = min(slowest, speeds.min()), max(fastest, speeds.max())
        for axes in (left, right):
            axes.axhspan(layer.top, layer.bottom, color=_FILLS[min(index, len(_FILLS) - 2)], lw=0, zorder=-2)
        bottom = min(layer.bottom, max_depth)
        details = f"{layer.density:g} g/cm³"
        if layer.attenuation.value > 0:
            details += f", {layer.attenuation.value:g} {layer.attenuation.unit}"
        break_line = "\n" if bottom - layer.top > 0.09 * max_depth else ", "
        _label(right, 0.5 * (layer.top + bottom), layer.name + break_line + details)
    for upper, lower in pairwise(layers):
        if lower.top < max_depth:
            left.plot([upper.speeds[-1], lower.speeds[0]], [lower.top] * 2, color="#1f4e79", lw=1.6, ls=":")
            right.axhline(lower.top, color="#5b4a32", lw=0.8)
            left.axhline(lower.top, color="#5b4a32", lw=0.8, zorder=-1)
    if isinstance(environment.bottom, HalfSpace) and layers[-1].bottom < max_depth:
        for axes in (left, right):
            axes.axhspan(layers[-1].bottom, max_depth, color=_FILLS[-1], lw=0, zorder=-2)
        under = environment.bottom
        text = f"half-space, {under.speed:g} m/s, {under.density:g} g/cm³"
        _label(right, 0.5 * (layers[-1].bottom + max_depth), text)
    array = environment.array
    right.plot(array.ranges / 1000, array.depths, color="0.35", lw=0.8, zorder=1)
    right.plot(
        array.ranges / 1000, array.depths, "o", ms=3.5, color="#1b7f3b", label=_array_label(array.tilt)
    )
    right.plot(0, environment.source_depth, "*", ms=13, color="#c0392b", label="source", clip_on=False)
    pad = 0.04 * (fastest - slowest)
    left.set(xlim=(slowest - pad - 1, fastest + pad + 1), xlabel="sound speed (m/s)", ylabel="depth (m)")
    right.set(xlim=(0, 1.08 * array.ranges.max() / 1000), ylim=(max_depth, 0), xlabel="range (km)")
    right.legend(loc="center left", frameon=True, fontsize=9)
    return left, right


def _label(axes: Axes, depth: float, text: str) -> None:
    axes.text(0.5, depth, text, transform=axes.get_yaxis_transform(), ha="center", va="center", fontsize=9)


def _array_label(tilt: float) -> str:
    return "hydrophones" if tilt == 0 else f"hydrophones, tilt {tilt:g}°"

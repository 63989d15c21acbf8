"""The figures of the geoacoustic tasks: marginal posteriors, the truth as a dashed red line."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from isr.ocean import tasks
from isr.ocean.swellex import prior
from isr.tables.extras import need

LABELS = {
    "water_depth_m": "water depth (m)", "sediment_speed_m_s": "sediment speed (m/s)", "tilt_deg": "tilt (degrees)",
    "sediment_thickness_m": "sediment thickness (m)",
}  # fmt: skip
HYDROPHONE_MODELS = ("INN", "cINN", "ISR", "cISR", "cISR condensed")
ARRAY_STAGES = {"array": "amortised", "refined": "refined", "refined linear": "refined, linear features"}


def draw_figures(folder: Path, task: int, out: Path) -> None:
    """Draw what the stages found in ``folder`` left behind."""
    kept = {}
    for path in sorted(folder.glob("draws-*-seed-*.npz")):
        with np.load(path) as draws:
            kept.setdefault(
                path.name.split("-seed-")[0].removeprefix("draws-").replace("-", " "), dict(draws)
            )
    pooled = {name: kept[name]["pooled"] for name in HYDROPHONE_MODELS if name in kept}
    if pooled:
        _marginals(pooled, task, out / f"geoacoustics-task-{task}-hydrophones.png", whole=True)
    together = {
        f"{name}, product of hydrophones": kept[name]["product"] for name in ("cINN", "cISR") if name in kept
    }
    array = {
        f"cISR, array, {name}": kept[stage][stage] for stage, name in ARRAY_STAGES.items() if stage in kept
    }
    exact = (
        {"exact, array": next(kept[stage]["exact"] for stage in ARRAY_STAGES if stage in kept)}
        if array
        else {}
    )
    if array:
        _marginals(
            {**together, **array, **exact}, task, out / f"geoacoustics-task-{task}-array.png", whole=False
        )


def _marginals(draws: Mapping[str, np.ndarray], task: int, path: Path, *, whole: bool) -> None:
    """One row a model, one column a parameter; over the whole prior, or near the truth."""
    need("matplotlib").use("agg")
    plt = need("matplotlib.pyplot")

    names, truth = prior(task).names, tasks.truth(task)
    low, high = np.array(prior(task).bounds).T
    last = list(draws.values())[-1]
    if not whole:
        low, high = (
            np.maximum(low, truth - 12 * last.std(axis=0)),
            np.minimum(high, truth + 12 * last.std(axis=0)),
        )
    fig, axes = plt.subplots(
        len(draws),
        len(names),
        figsize=(2.9 * len(names) + 0.8, 1.25 * len(draws) + 0.7),
        squeeze=False,
        sharex="col",
    )
    for row, (label, x) in enumerate(draws.items()):
        for column, name in enumerate(names):
            ax = axes[row][column]
            bins = np.linspace(low[column], high[column], 61)
            colour = "0.35" if label.startswith("exact") else f"C{row}"
            shown = x[(x[:, column] >= bins[0]) & (x[:, column] <= bins[-1]), column]
            if len(shown):
                ax.hist(shown, bins=list(bins), density=True, color=colour, alpha=0.75)
            ax.axvline(truth[column], color="red", ls="--", lw=1)
            ax.set(yticks=[], xlim=(low[column], high[column]))
            if column == 0:
                ax.set_title(label, loc="left", fontsize=9)
            if row == len(draws) - 1:
                ax.set_xlabel(LABELS[name])
    fig.tight_layout()
    fig.savefig(path, dpi=130)
    plt.close(fig)

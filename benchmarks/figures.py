"""Figures of the page of benchmarks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from targets import matching

Row = dict[str, Any]
OURS, PEERS = "#d1495b", "#7a8b99"
# About what exact draws score, from one seed to the next: dotted, and nothing is drawn below.
EXACT = {"err_post": 1e-4, "c2st": 0.5}


def steps(rows: list[Row], path: Path) -> bool:
    """Bars: milliseconds a step, one core, batch 100 and 1,000."""
    found = [r for r in matching(rows, part="step", cores=1) if not r.get("variant")]
    return bool(found) and _figure(
        path, lambda plt: _bars(plt, found, "batch_size", (100, 1000), "cpu_ms_best", "ms a step")
    )


def sampling(rows: list[Row], path: Path) -> bool:
    """Bars: seconds a million draws and densities, one core."""
    found = matching(rows, cores=1)
    return bool(found) and _figure(
        path,
        lambda plt: _bars(plt, found, "what", ("sample", "log_prob"), "million_cpu_seconds", "s a million"),
    )


def _bars(plt: Any, rows: list[Row], by: str, values: tuple, field: str, label: str) -> Any:
    values = tuple(value for value in values if matching(rows, **{by: value}))
    figure, axes = _side_by_side(plt, len(values), 4.5, 3.6)
    for axis, value in zip(axes, values, strict=True):
        mine = sorted(matching(rows, **{by: value}), key=lambda r: -r[field])
        names = [r["flow"] for r in mine]
        colours = [OURS if n.startswith("isr") else PEERS for n in names]
        bars = axis.barh(names, [r[field] for r in mine], color=colours)
        axis.bar_label(bars, fmt="%.3g", padding=3, fontsize=8)
        axis.set_xscale("log")
        axis.margins(x=0.2)
        axis.set(xlabel=label, title=f"{by.replace('_', ' ')} {value}")
        axis.tick_params(labelsize=8)
    return figure


def errors(rows: list[Row], path: Path) -> bool:
    """Error against time for each problem, and for the arm against the number of constants."""
    found = matching(rows)
    problems = list(dict.fromkeys(r["problem"] for r in found))
    if not found:
        return False

    def draw(plt: Any) -> Any:
        arm = matching(found, problem="arm")
        figure, axes = _side_by_side(plt, len(problems) + bool(arm), 4.6, 3.6)
        for axis, problem in zip(axes, problems, strict=False):
            field = "err_post" if problem == "arm" else "c2st"
            for name in dict.fromkeys(r["flow"] for r in found):
                mine = sorted(matching(found, problem=problem, flow=name), key=lambda r: r["budget"])
                points = [(r["train_cpu_seconds"], max(r[field], EXACT[field])) for r in mine]
                if points:
                    axis.plot(*zip(*points, strict=True), "o-", ms=4, lw=1.2, label=name)
            axis.set(
                xscale="log", yscale="log" if problem == "arm" else "linear", xlabel="seconds", title=problem
            )
            budgets = sorted({r["budget"] for r in matching(found, problem=problem)})
            axis.set_xticks(budgets, [f"{b:.0f}" for b in budgets])
            axis.set_xticks([], minor=True)
            axis.axhline(EXACT[field], color="0.7", lw=0.8, ls=":")
            axis.set_ylabel({"err_post": "Err_post", "c2st": "C2ST"}[field])
        axes[0].legend(frameon=False, fontsize=7)
        if arm:
            against_constants(axes[-1], arm)
        return figure

    return _figure(path, draw)


def against_constants(axis: Any, rows: list[Row]) -> None:
    """Error against the number of constants, after the longest time that every flow was given."""
    flows = {r["flow"] for r in rows}
    shared = [
        b for b in {r["budget"] for r in rows} if {r["flow"] for r in matching(rows, budget=b)} == flows
    ]
    budget = max(shared, default=min(r["budget"] for r in rows))
    for name in dict.fromkeys(r["flow"] for r in rows):
        for row in matching(rows, flow=name, budget=budget):
            error = max(row["err_post"], EXACT["err_post"])
            axis.plot(row["n_parameters"], error, "o", ms=5)
            place = (4, -9) if name.startswith("isr") else (4, 4)
            axis.annotate(name, (row["n_parameters"], error), place, textcoords="offset points", fontsize=7)
    axis.set(
        xscale="log", yscale="log", xlabel="constants", ylabel="Err_post", title=f"arm, after {budget:.0f} s"
    )
    axis.margins(x=0.25, y=0.15)


def growth(rows: list[Row], path: Path) -> bool:
    """Time and memory against each size, on logarithmic axes."""
    found = matching(rows)
    kinds = list(dict.fromkeys(r["along"] for r in found))
    if not found:
        return False

    def draw(plt: Any) -> Any:
        figure, axes = _side_by_side(plt, len(kinds), 3.4, 3.2)
        for axis, along in zip(axes, kinds, strict=True):
            mine = sorted(matching(found, along=along), key=lambda r: r["size"])
            time = "fit_cpu_seconds" if along == "rows" else "cpu_ms"
            axis.loglog([r["size"] for r in mine], [r[time] for r in mine], "o-", color=OURS)
            axis.set(xlabel=along, ylabel="s a fit" if along == "rows" else "ms a step")
            memory = axis.twinx()
            memory.loglog([r["size"] for r in mine], [r["peak_mb"] for r in mine], "s--", color=PEERS, ms=4)
            memory.set_ylabel("peak memory (MB)", color=PEERS)
        return figure

    return _figure(path, draw)


def _side_by_side(plt: Any, n: int, width: float, height: float) -> tuple[Any, Any]:
    figure, axes = plt.subplots(1, n, figsize=(width * n, height), layout="constrained", squeeze=False)
    return figure, axes[0]


def _figure(path: Path, draw: Callable[[Any], Any]) -> bool:
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    figure = draw(plt)
    figure.savefig(path, dpi=110)
    plt.close(figure)
    return True

"""Figures of the page of benchmarks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fronts import EXACT, of_all_sizes, over_seeds
from targets import matching

Row = dict[str, Any]
OURS, PEERS = "#d1495b", "#7a8b99"


def steps(rows: list[Row], path: Path) -> bool:
    """Bars: milliseconds a step, one core, batch 100 and 1,000."""
    found = [r for r in matching(rows, part="step", cores=1) if not r.get("variant")]
    return bool(found) and saved_figure(
        path, lambda plt: _bars(plt, found, "batch_size", (100, 1000), "cpu_ms_best", "ms a step")
    )


def sampling(rows: list[Row], path: Path) -> bool:
    """Bars: seconds a million draws and densities, one core."""
    found = matching(rows, cores=1)
    return bool(found) and saved_figure(
        path,
        lambda plt: _bars(plt, found, "what", ("sample", "log_prob"), "million_cpu_seconds", "s a million"),
    )


def _bars(plt: Any, rows: list[Row], by: str, values: tuple, field: str, label: str) -> Any:
    values = tuple(value for value in values if matching(rows, **{by: value}))
    figure, axes = side_by_side(plt, len(values), 4.5, 3.6)
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
    """Error against time for each problem; what exact draws score is dotted, and nothing is drawn below it."""
    found = over_seeds(matching(rows))
    problems = list(dict.fromkeys(r["problem"] for r in found))
    if not found:
        return False

    def draw(plt: Any) -> Any:
        figure, axes = side_by_side(plt, len(problems), 4.6, 3.6)
        for axis, problem in zip(axes, problems, strict=True):
            field = "err_post" if problem == "arm" else "c2st"
            for name in dict.fromkeys(r["flow"] for r in found):
                mine = sorted(matching(found, problem=problem, flow=name), key=lambda r: r["budget"])
                points = [(r["train_cpu_seconds"], max(r[field], EXACT[field])) for r in mine]
                if points:
                    axis.plot(*zip(*points, strict=True), "o-", ms=4, lw=1.2, label=name)
            axis.set(
                xscale="log",
                yscale="log" if problem == "arm" else "linear",
                xlabel="seconds",
                title=problem.replace("_", " "),
            )
            budgets = sorted({r["budget"] for r in matching(found, problem=problem)})
            axis.set_xticks(budgets, [f"{b:.0f}" for b in budgets])
            axis.set_xticks([], minor=True)
            axis.axhline(EXACT[field], color="0.7", lw=0.8, ls=":")
            axis.set_ylabel({"err_post": "Err_post", "c2st": "C2ST"}[field])
        figure.legend(
            *axes[0].get_legend_handles_labels(), loc="outside right center", frameon=False, fontsize=8
        )
        return figure

    return saved_figure(path, draw)


def constants(rows: list[Row], path: Path) -> bool:
    """Error against the number of constants, a line for each kind of flow."""
    found = of_all_sizes(rows)
    if not matching(found, benchmark="constants"):
        return False

    def draw(plt: Any) -> Any:
        figure, (axis,) = side_by_side(plt, 1, 6.0, 3.8)
        for name in dict.fromkeys(r["flow"] for r in found):
            mine = sorted(matching(found, flow=name), key=lambda r: r["n_parameters"])
            points = [(r["n_parameters"], max(r["err_post"], EXACT["err_post"])) for r in mine]
            axis.plot(*zip(*points, strict=True), "o-", ms=4, lw=1.2, label=name)
        axis.set(xscale="log", yscale="log", xlabel="constants", ylabel="Err_post")
        axis.axhline(EXACT["err_post"], color="0.7", lw=0.8, ls=":")
        axis.legend(frameon=False, fontsize=7)
        return figure

    return saved_figure(path, draw)


def growth(rows: list[Row], path: Path) -> bool:
    """Time and memory against each size, on logarithmic axes."""
    found = matching(rows)
    kinds = list(dict.fromkeys(r["along"] for r in found))
    if not kinds:
        return False

    def draw(plt: Any) -> Any:
        from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

        figure, (above, below) = plt.subplots(
            2, len(kinds), figsize=(3.2 * len(kinds), 4.6), layout="constrained", squeeze=False, sharex="col"
        )
        for time_axis, memory_axis, along in zip(above, below, kinds, strict=True):
            mine = sorted(matching(found, along=along), key=lambda r: r["size"])
            sizes, of_fits = [r["size"] for r in mine], along.startswith("rows")
            time = "fit_cpu_seconds" if of_fits else "cpu_ms"
            time_axis.loglog(sizes, [r[time] for r in mine], "o-", color=OURS)
            time_axis.set_ylabel("s a fit" if of_fits else "ms a step")
            time_axis.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            time_axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            time_axis.yaxis.set_minor_locator(NullLocator())
            memory_axis.plot(sizes, [r["peak_mb"] for r in mine], "s-", color=PEERS, ms=4)
            memory_axis.set(
                xlabel=along, ylabel="peak memory (MB)", ylim=(0, 1.2 * max(r["peak_mb"] for r in mine))
            )
            memory_axis.set_xticks(
                sizes, [f"$10^{{{len(str(n)) - 1}}}$" if of_fits else str(n) for n in sizes]
            )
            memory_axis.xaxis.set_minor_locator(NullLocator())
        return figure

    return saved_figure(path, draw)


def side_by_side(plt: Any, n: int, width: float, height: float) -> tuple[Any, Any]:
    figure, axes = plt.subplots(1, n, figsize=(width * n, height), layout="constrained", squeeze=False)
    return figure, axes[0]


def saved_figure(path: Path, draw: Callable[[Any], Any]) -> bool:
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    figure = draw(plt)
    figure.savefig(path, dpi=110)
    plt.close(figure)
    return True

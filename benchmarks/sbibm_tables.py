"""Tables and figures of sbibm's tasks: C2ST against simulations, ours and published."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from figures import saved_figure, side_by_side
from sbibm import BUDGETS, published
from tables import table

Row = dict[str, Any]
SHOWN = (
    "NPE",
    "SNPE",
    "NLE",
    "SNLE",
    "NPE-PFN",
    "TSNPE-PFN",
    "GenSBI score matching",
    "GenSBI flow matching",
)


def scores(rows: list[Row]) -> dict[tuple[str, str], list[float | None]]:
    """Return the mean C2ST of each method and task for each budget; None where there is none."""
    found = {}
    for case in dict.fromkeys((r["method"], r["problem"]) for r in rows if "c2st" in r):
        mine = [r for r in rows if (r["method"], r["problem"]) == case and "c2st" in r]
        by_budget = [[r["c2st"] for r in mine if r["budget"] == n] for n in BUDGETS]
        found[case] = [float(np.mean(some)) if some else None for some in by_budget]
    return found


def sbibm(rows: list[Row]) -> str:
    """Return a table of all methods and tasks, with how many seeds and observations each of ours is the mean of."""
    lines = []
    for (method, task), values in [*scores(rows).items(), *published().items()]:
        mine = [r for r in rows if (r["method"], r["problem"]) == (method, task) and "c2st" in r]
        if mine or method in SHOWN:
            how = ", ".join(_how(mine, n) for n in BUDGETS if any(r["budget"] == n for r in mine))
            lines.append([task, method, *values, how if mine else "published"])
    heads = ["task", "method", *(f"{n:,}" for n in BUDGETS), "seeds × observations"]
    return table(heads, sorted(lines, key=lambda line: line[0]))


def _how(rows: list[Row], budget: int) -> str:
    mine = [r for r in rows if r["budget"] == budget]
    return f"{len({r['seed'] for r in mine})} × {min(len(r['c2st_each']) for r in mine)}"


def draw_sbibm(rows: list[Row], path: Path) -> bool:
    """Draw C2ST against simulations, a panel per task."""
    found = scores(rows)
    tasks = list(dict.fromkeys(task for _, task in found))

    def draw(plt: Any) -> Any:
        drawing, axes = side_by_side(plt, len(tasks), 2.6, 3.0)
        for axis, task in zip(np.ravel(axes), tasks, strict=True):
            known = {method: v for (method, t), v in published().items() if t == task and method in SHOWN[:2]}
            ours = {method: v for (method, t), v in found.items() if t == task}
            for method, values in (ours | known).items():
                axis.plot(BUDGETS, [np.nan if v is None else v for v in values], marker="o", label=method)
            axis.set(xscale="log", ylim=(0.48, 1.02), title=task, xlabel="simulations")
        np.ravel(axes)[0].set_ylabel("C2ST")
        np.ravel(axes)[0].legend(fontsize="x-small")
        return drawing

    return bool(tasks) and saved_figure(path, draw)

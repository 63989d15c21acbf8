"""Sections of the page on errors: after the same time, and against the number of constants, with their fronts."""

from __future__ import annotations

from typing import Any

from tables import table
from targets import matching

Row = dict[str, Any]
# What exact draws score, from one seed to the next: nobody is better.
EXACT = {"err_post": 1e-4, "c2st": 0.5}


def equal_time(rows: list[Row]) -> str:
    """Errors by problem, budget and flow."""
    parts = []
    for problem in dict.fromkeys(r["problem"] for r in matching(rows)):
        mine = over_seeds(matching(rows, problem=problem))
        errors = ["err_post", "err_resim", "err_resim_median"] if problem == "arm" else ["c2st"]
        lines = [
            [
                r["budget"],
                r["flow"],
                r["n_parameters"],
                r["n_steps"],
                *(r[e] for e in errors),
                r["n_seeds"],
                r["range"],
            ]
            for r in sorted(mine, key=lambda r: (r["budget"], r[errors[0]]))
        ]
        names = {
            "err_post": "Err_post",
            "err_resim": "Err_resim",
            "err_resim_median": "its median",
            "c2st": "C2ST (0.5 is perfect)",
        }
        heads = [
            "seconds",
            "flow",
            "parameters",
            "steps",
            *(names[e] for e in errors),
            "seeds",
            "least and largest",
        ]
        parts.append(f"**{problem.replace('_', ' ')}**\n\n{table(heads, lines)}")
        parts += [
            ahead(matching(mine, budget=b), errors[0], names[errors[0]], b)
            for b in sorted({r["budget"] for r in mine})
        ]
        parts.append(f"On the front of error against time: {_told(front(mine, 'budget', errors[0]))}.")
    return "\n\n".join(part for part in parts if part)


def over_seeds(rows: list[Row], fields: tuple[str, ...] = ("problem", "flow", "budget")) -> list[Row]:
    """Return one row for each combination of fields: errors are means over seeds, the range the first one's."""
    cases: dict[tuple, list[Row]] = {}
    for row in rows:
        cases.setdefault(tuple(row[f] for f in fields), []).append(row)
    merged = []
    for same in cases.values():
        errors = [e for e in ("err_post", "c2st", "err_resim", "err_resim_median") if e in same[0]]
        values = [row[errors[0]] for row in same]
        told = f"{min(values):.2g}, {max(values):.2g}" if len(same) > 1 else ""
        means = {e: sum(row[e] for row in same) / len(same) for e in errors}
        merged.append(same[0] | means | {"n_seeds": len(same), "range": told})
    return merged


def constants(rows: list[Row]) -> str:
    """Errors by number of constants, flows of all sizes after the same time."""
    found = sorted(of_all_sizes(rows), key=lambda r: r["n_parameters"])
    best = front(found, "n_parameters", "err_post")
    lines = [
        [r["n_parameters"], r["flow"], size_of(r), r["n_steps"], r["err_post"], r["range"], r["err_resim_median"],
         "yes" if any(r is b for b in best) else ""]
        for r in found
    ]  # fmt: skip
    heads = [
        "constants",
        "flow",
        "size",
        "steps",
        "Err_post",
        "of several",
        "median Err_resim",
        "on the front",
    ]
    others = [r for r in best if r["flow"] != "isr cISR"]
    told = "isr's cISR is alone on the front."
    if others:
        named = ", ".join(f"{r['flow']} with {r['n_parameters']} constants" for r in others)
        told = f"Beside isr's cISR there stand on the front: {named}."
    by_numbers = [r for r in front(found, "n_parameters", "err_post", bare=True) if r["flow"] != "isr cISR"]
    if by_numbers != others:
        named = ", ".join(
            f"{r['flow']} with {r['n_parameters']} constants ({r['err_post']:.1g})" for r in by_numbers
        )
        told += f" It is that rule which decides: by the bare numbers there would stand beside it {named}."
    return f"{table(heads, lines)}\n\n{told}"


def of_all_sizes(rows: list[Row]) -> list[Row]:
    """Return flows made smaller and, trained as long on the same problem, those of the comparison at equal time.

    Flows of one kind and size are one, their errors means.
    """
    smaller = matching(rows, benchmark="constants")
    budgets = {r["budget"] for r in smaller}
    usual = [
        r | {"flow": r["flow"].split(",")[0]}
        for r in matching(rows, benchmark="equal_time", problem="arm")
        if r["budget"] in budgets
    ]
    return over_seeds([*smaller, *usual], ("flow", "n_parameters"))


def size_of(row: Row) -> str:
    """Return the size of a flow in words."""
    if row["benchmark"] == "equal_time":
        return "as above"
    units = "half the functions" if row["flow"] == "isr cISR" else f"{row['width']} units"
    return f"{row['n_blocks']} blocks, {row['n_layers']} layers, {units}"


def front(rows: list[Row], cost: str, error: str, *, bare: bool = False) -> list[Row]:
    """Return the rows that none beats: no other has less error at the same cost or a lower one, by rising cost.

    Errors that exact draws have too (`EXACT`) are all the same, unless the ``bare`` numbers are to count.
    """

    def size(row: Row) -> float:
        return row[error] if bare else max(row[error], EXACT[error])

    best = [
        r
        for r in rows
        if not any(o[cost] <= r[cost] and (size(o), o[cost]) < (size(r), r[cost]) for o in rows)
    ]
    return sorted(best, key=lambda r: r[cost])


def _told(rows: list[Row]) -> str:
    found: dict[str, list[str]] = {}
    for row in rows:
        found.setdefault(row["flow"], []).append(f"{row['budget']:.0f}")
    return ", ".join(f"{name} ({', '.join(times)} s)" for name, times in found.items())


def ahead(rows: list[Row], error: str, name: str, budget: float) -> str:
    """Return which flows are more accurate than the cISR after some time; nothing where none is."""
    own = next((r[error] for r in rows if r["flow"] == "isr cISR"), None)
    better = [f"{r['flow']} ({r[error]:.2g})" for r in rows if own is not None and r[error] < own]
    if not better:
        return ""
    return f"More accurate than isr's cISR after {budget:.0f} s, by {name} ({own:.2g}): {', '.join(better)}."

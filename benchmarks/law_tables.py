"""Tables of the laws that symbolic regression finds: counts by list, noise and method, and each formula."""

from __future__ import annotations

from typing import Any

import numpy as np

from tables import table
from targets import matching

Row = dict[str, Any]
OURS = "isr LawRegressor"
LONGEST = 110


def laws(rows: list[Row]) -> str:
    """Return how many formulas each method finds and at what cost, then which ones."""
    parts = [
        table(
            ["list", "noise", "method", "strict", "SRBench", "R² > 0.999", "median s", "most s", "failed"],
            [_counts(rows, *case) for case in _cases(rows)],
        )
    ]
    for name in dict.fromkeys(row["family"] for row in rows):
        parts += [
            f"Each formula of *{name}*, by noise: ✓ strict, (✓) by SRBench's rule alone, – neither:",
            _each(rows, name),
        ]
    missed = [
        [
            row["family"],
            row["formula"],
            row["noise"],
            row.get("r2"),
            _short(row.get("found") or row.get("failure")),
        ]
        for row in rows
        if row["method"] == OURS and not row.get("strict") and row["noise"] <= 0.01
    ]
    if missed:
        heads = ["list", "formula", "noise", "R²", "found"]
        parts += [f"What {OURS} finds instead, at noise up to 0.01:", table(heads, missed)]
    return "\n\n".join(parts)


def _cases(rows: list[Row]) -> list[tuple[str, float, str]]:
    order = {name: i for i, name in enumerate(dict.fromkeys(row["family"] for row in rows))}
    cases = {(row["family"], row["noise"], row["method"]) for row in rows}
    return sorted(cases, key=lambda case: (order[case[0]], case[1], case[2] != OURS, case[2]))


def _counts(rows: list[Row], family: str, noise: float, method: str) -> list[Any]:
    mine = [r for r in rows if (r["family"], r["noise"], r["method"]) == (family, noise, method)]
    cpu = [r["fit_cpu_seconds"] for r in matching(mine)]
    n = len(mine)
    found = [f"{sum(bool(r.get(key)) for r in mine)} of {n}" for key in ("strict", "symbolic")]
    return [
        family, f"{noise:g}", method, *found,
        f"{sum((r.get('r2') or 0) > 0.999 for r in mine)} of {n}", float(np.median(cpu)) if cpu else None,
        max(cpu, default=None), n - len(cpu),
    ]  # fmt: skip


def _each(rows: list[Row], family: str) -> str:
    mine = [row for row in rows if row["family"] == family]
    columns = sorted({(r["method"] != OURS, r["method"], r["noise"]) for r in mine})
    lines = []
    for formula in dict.fromkeys(row["formula"] for row in mine):
        marks = [
            _mark([r for r in mine if (r["formula"], r["method"], r["noise"]) == (formula, *c[1:])])
            for c in columns
        ]
        lines.append([formula, *marks])
    return table(
        ["formula", *(f"{method.removeprefix('isr ')}, {noise:g}" for _, method, noise in columns)], lines
    )


def _mark(rows: list[Row]) -> str | None:
    marks = ["✓" if r.get("strict") else "(✓)" if r.get("symbolic") else "–" for r in rows]
    return " ".join(marks) or None


def _short(text: str | None) -> str:
    text = " ".join(str(text).split())
    return f"`{text if len(text) <= LONGEST else text[:LONGEST] + '…'}`"

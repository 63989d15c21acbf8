"""One page out of the rows of all benchmarks: targets and verdicts, tables and figures.

    python benchmarks/page.py [--rows results/benchmarks] [--out docs/benchmarks.md] [--figures docs/figures]

A case that was run several times counts once, by its last row; a full run counts before a quick one.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from isr.paper import records
from sections import SECTIONS
from targets import TARGETS

Row = dict[str, Any]
# What tells cases apart; whatever else a row holds was measured.
CASE = (
    "benchmark", "part", "flow", "variant", "cores", "batch_size", "cache", "mixing", "model", "what", "problem",
    "budget", "method", "family", "formula", "noise", "along", "size", "n_blocks", "n_layers", "width", "measure",
    "mesh", "threads", "engine", "seed",
)  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the page."""
    root = Path(__file__).resolve().parent.parent
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--rows", type=Path, default=root / "results" / "benchmarks", help="folder of *.jsonl"
    )
    parser.add_argument("--out", type=Path, default=root / "docs" / "benchmarks.md")
    parser.add_argument("--figures", type=Path, help="folder for figures; beside the page when left out")
    given = parser.parse_args(arguments)
    figures = given.figures or given.out.parent / "figures"
    rows = read_rows(given.rows)
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(render(rows, figures, os.path.relpath(figures, given.out.parent)))
    print(f"{given.out}: {len(rows)} cases")


def read_rows(folder: Path) -> list[Row]:
    """Return one row for each case of all files in a folder."""
    return chosen(row for path in sorted(folder.glob("*.jsonl")) for row in records.read(path))


def chosen(rows: Iterable[Row]) -> list[Row]:
    """Return the last row of every case, a full one before a quick one and a measurement before a failure."""
    best: dict[tuple, Row] = {}
    for row in rows:
        case = tuple(str(row.get(field)) for field in CASE)
        if case not in best or _rank(row) >= _rank(best[case]):
            best[case] = row
    measured = {_without_batch(row) for row in best.values() if "failure" not in row}

    def counts(row: Row) -> bool:
        return "failure" not in row or row.get("formula") is not None or _without_batch(row) not in measured

    return [row for row in best.values() if counts(row)]


def _rank(row: Row) -> tuple[bool, bool]:
    return "failure" not in row, not row.get("quick", False)


def _without_batch(row: Row) -> tuple[str, ...]:
    # A case that fails as a whole knows neither batch nor formula.
    return tuple(str(row.get(f)) for f in CASE if f not in {"batch_size", "what", "formula", "cache"})


def render(rows: list[Row], figures: Path, link: str) -> str:
    """Return the page as Markdown; figures are drawn into their folder."""
    parts = [
        "# Benchmarks: isr beside its peers",
        "Written by `benchmarks/page.py` from the rows that `benchmarks/run.py` (or `make bench`) left in "
        "`results/benchmarks`. Each peer is installed from PyPI and used as its documentation advises, on the same "
        "machine and rows. Times are *processor time* of all threads, which other programs disturb far less than wall "
        "time, for steps the least of many short calls; on two cores they are the least *wall time* instead. "
        "Compilation is told apart. Rows hold both times, with seed, commit, versions and machine.",
        about(rows),
        "## Targets",
        targets(rows),
    ]
    for section in SECTIONS:
        mine = [row for row in rows if row["benchmark"] in section.benchmarks]
        body = section.body(mine) if any("failure" not in row for row in mine) else "Not measured yet."
        parts += [f"## {section.title}", section.text, body]
        if section.draw is not None and any("failure" not in row for row in mine):
            figures.mkdir(parents=True, exist_ok=True)
            name = f"benchmark-{section.benchmarks[0].replace('_', '-')}.png"
            if section.draw(mine, figures / name):
                parts.append(f"![{section.title}]({link}/{name})")
        parts.append(failures(mine))
    return "\n\n".join(part for part in parts if part) + "\n"


def about(rows: list[Row]) -> str:
    """Return where and when the rows come from, and how busy the machine was."""
    if not rows:
        return "No row has been measured yet: run `make bench`."
    machines = sorted({_machine(row) for row in rows})
    commits = sorted({str(row.get("commit")) for row in rows})
    versions: dict[str, str] = {}
    for row in rows:
        versions |= row.get("versions", {}) | row.get("peer_versions", {})
    busy = [row["others_cores"] for row in rows if row.get("others_cores") is not None]
    lines = [
        f"- Machine: {'; '.join(machines)}.", f"- Commits: {', '.join(commits)}.",
        f"- Versions: {', '.join(f'{name} {version}' for name, version in sorted(versions.items()))}.",
    ]  # fmt: skip
    if busy and max(busy) > 0.2:
        lines.append(
            f"- **The machine was not quiet**: while cases ran, other programs used {min(busy):.1f} to "
            f"{max(busy):.1f} cores. Wall times mean little then; processor times, which shared caches and cores "
            "lengthen, differ by up to a half from run to run, and so do their ratios."
        )
    n_quick = sum(bool(row.get("quick")) for row in rows)
    lines.append(f"- {len(rows)} cases, {n_quick} of them by the quick form only (few repeats, small sizes).")
    return "\n".join(lines)


def _machine(row: Row) -> str:
    machine = row.get("machine")
    if not isinstance(machine, dict):
        return str(machine)
    return f"{machine['cpu']}, {machine['n_cpus']} cores, Python {machine['python']}"


def targets(rows: list[Row]) -> str:
    """Return what isr aims at, what was measured, and where it falls short and why."""
    lines = ["| what | target | measured | verdict |", "|---|---|---|---|"]
    for target in TARGETS:
        goal, found, verdict = target.judged(rows)
        lines.append(f"| {target.claim} | {goal} | {found} | {verdict} |")
    return "\n".join(lines)


def failures(rows: list[Row]) -> str:
    """Return what could not be measured, with the reason."""
    failed = [row for row in rows if "failure" in row]
    if not failed:
        return ""
    fields = ("flow", "method", "engine", "part", "problem", "family", "formula", "budget", "along", "size")
    lines = ["Not measured:", ""]
    for row in failed:
        name = ", ".join(str(row[f]) for f in fields if row.get(f) is not None)
        lines.append(f"- {name or row['benchmark']}: {' '.join(str(row['failure']).split())}")
    return "\n".join(dict.fromkeys(lines))


if __name__ == "__main__":
    main()

"""Run the long checks of robustness and keep what each test gave as a JSON row, with a table of them all.

    python scripts/long_checks.py [kills interrupts cluster ...] [--cases 17000] [--seed 0] [--only words]

Every check is a set of tests. A row holds test, outcome, seconds, what the test recorded (kills, cases, memory),
command, seed, commit, versions and machine. The table counts the last row of every test.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from isr.paper.records import append, latest, provenance, read

ROOT = Path(__file__).parent.parent
CHECKS: dict[str, tuple[str, ...]] = {
    "kills": ("tests/faults/test_kills.py", "-m", "slow"),
    "full and read-only disks": ("tests/faults/test_whole_files.py",),
    "interrupts": ("tests/cli/test_interrupts.py", "tests/cli/test_fit.py", "tests/estimators/test_symbolic_flow.py",
                   "-k", "signal or terminated or running_out_of_time or fitted_saved_and_shown"),
    "cluster": ("tests/cluster",),
    "numerics": ("tests/estimators/test_numerics.py",),
    "fuzz": ("tests/fuzz",),
    "guided fuzz": ("scripts/fuzz_readers.py",),
}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checks", nargs="*", help=f"some of: {', '.join(CHECKS)}; all when none is named")
    parser.add_argument(
        "--cases", type=int, default=17_000, help="of a cheap fuzz test; 6.2 times as many in all"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the fuzz cases; all other seeds are fixed")
    parser.add_argument("--only", default="", help="words of the names of the tests to run, as pytest's -k")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "robustness.jsonl")
    arguments = parser.parse_args()
    unknown = set(arguments.checks) - set(CHECKS)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(CHECKS)}")
    n_failed = 0
    for check in arguments.checks or CHECKS:
        for row in run(check, arguments.only, arguments.cases, arguments.seed, arguments.workers):
            append(arguments.out, row)
            n_failed += row["outcome"] == "failed"
    arguments.out.with_suffix(".md").write_text(table(read(arguments.out)), encoding="utf-8")
    return 1 if n_failed else 0


def run(check: str, only: str, cases: int, seed: int, workers: int) -> list[dict[str, Any]]:
    """Run the tests of a check and return a row for each."""
    again = f"python scripts/long_checks.py {check!r}" + (f" --cases {cases}" if "fuzz" in check else "")
    about = {"check": check, "command": again, "seed": seed, "commit": provenance()["commit"]}
    if check == "guided fuzz":
        return [about | guided(cases, seed)]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        options = ["-v", f"--junit-xml={report}", "-o", "junit_family=xunit1"]
        options += ["-n", str(workers)] if workers > 1 else []
        options += ["-k", only] if only else []
        environment = dict(os.environ)
        if check == "fuzz":
            options += [f"--hypothesis-seed={seed}", "--hypothesis-show-statistics"]
            environment |= {"ISR_FUZZ_EXAMPLES": str(cases), "ISR_FUZZ_SEED": str(seed)}
        output, _ = told("-m", "pytest", *CHECKS[check], *options, env=environment)
        tried = cases_tried(output)
        rows = outcomes(report)
    return [about | row | ({"cases": tried[row["test"]]} if row["test"] in tried else {}) for row in rows]


def guided(cases: int, seed: int) -> dict[str, Any]:
    """Return the row of a search that is guided by coverage; it needs Atheris."""
    row: dict[str, Any] = {"file": "fuzz_readers", "test": "search", "seconds": 0.0}
    if importlib.util.find_spec("atheris") is None:
        return row | {"outcome": "skipped"}
    with tempfile.TemporaryDirectory() as folder:
        # LibFuzzer takes a seed of 0 for none.
        options = (f"-runs={cases}", f"-seed={seed + 1}", f"-artifact_prefix={folder}/")
        output, code = told(*CHECKS["guided fuzz"], *options, stderr=subprocess.STDOUT)
    done = re.search(r"Done (\d+) runs in (\d+) second", output)
    if done:
        row |= {"cases": int(done[1]), "seconds": float(done[2])}
    return row | {"outcome": "failed" if code or not done else "passed"}


def told(*arguments: str, **options: Any) -> tuple[str, int]:
    """Run Python, show what it prints as it comes, and return that and the exit code."""
    lines = []
    with subprocess.Popen(
        [sys.executable, *arguments], cwd=ROOT, text=True, stdout=subprocess.PIPE, **options
    ) as process:
        for line in process.stdout or ():
            print(line, end="", flush=True)
            lines.append(line)
    return "".join(lines), process.returncode


def outcomes(report: Path) -> list[dict[str, Any]]:
    """Return name, outcome, seconds and recorded properties of every test in a JUnit report."""
    return [
        {
            "file": case.get("classname", "").rpartition(".")[2],
            "test": case.get("name", ""),
            "outcome": next((o for tag, o in _OUTCOMES.items() if case.find(tag) is not None), "passed"),
            "seconds": float(case.get("time", 0)),
            **{p.get("name", ""): float(p.get("value", "nan")) for p in case.iter("property")},
        }
        for case in ElementTree.parse(report).iter("testcase")
    ]


_OUTCOMES = {"failure": "failed", "error": "failed", "skipped": "skipped"}


def cases_tried(output: str) -> dict[str, int]:
    """Return how many valid cases Hypothesis says it tried in each test."""
    found: dict[str, int] = {}
    test = ""
    for line in output.splitlines():
        head = re.match(r"\S+::(\S+):$", line)
        count = re.match(r"\s+- (\d+) passing(?: examples)?, (\d+) failing", line)
        if head:
            test = head[1]
        elif count:
            found[test] = found.get(test, 0) + int(count[1]) + int(count[2])
    return found


def table(rows: list[dict[str, Any]]) -> str:
    """Return a Markdown table with a line for each check."""
    lines = [
        "| check | tests | passed | skipped | failed | what was tried | minutes | commit |",
        "|---|" + "---|" * 7,
    ]
    last = latest(rows, "check", "file", "test")
    for check in dict.fromkeys(row["check"] for row in last):
        own = [row for row in last if row["check"] == check]
        counts = [
            sum(row["outcome"] == outcome for row in own) for outcome in ("passed", "skipped", "failed")
        ]
        minutes = sum(row["seconds"] for row in own) / 60
        commits = ", ".join(dict.fromkeys(row["commit"] for row in own))
        cells = [check, len(own), *counts, _tried(own), f"{minutes:.0f}", commits]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines) + "\n"


def _tried(rows: Iterable[dict[str, Any]]) -> str:
    """What the tests counted, added up."""
    sums: dict[str, float] = {}
    for row in rows:
        for name in ("cases", "kills"):
            sums[name] = sums.get(name, 0) + row.get(name, 0)
    return ", ".join(f"{n:,.0f} {name}" for name, n in sums.items() if n)


if __name__ == "__main__":
    sys.exit(main())

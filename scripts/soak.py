"""Fit, sample, save, load and report in a loop, and watch what stays behind: memory, files, processes, threads.

    python scripts/soak.py [--minutes 120] [--out soak.jsonl]

Every round brings a model of another of twelve shapes, which is compiled anew as only the last few programs are kept,
and another law for those that search; some are pruned to equations. All shapes come in each quarter, so that these
can be compared. Prints one JSON row per round (its number is its seed), keeps one in ten in the file,
and ends with a summary that names commit and machine. Fails if memory grows: the last quarter of the rounds may use at
most 5 % or 50 MB more than the second quarter (the first one compiles and fills caches), and no file, process or thread
may be left over.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import isr
from isr.estimators.settings import Effort
from isr.paper.records import provenance
from isr.report import write_report

# Of the rows, one in so many is kept.
KEPT = 10
LIBRARIES = (
    {"constant": 1, "id": 1, "square": 2},
    {"constant": 1, "id": 2, "sin": 1},
    {"constant": 1, "id": 1, "tanh": 2},
)
LAWS: tuple[Callable[..., np.ndarray], ...] = (
    lambda a, b: a * b**2,
    lambda a, b: np.sin(a) + b,
    lambda a, b: a / (1 + b**2),
    lambda a, b: np.exp(-a) * b,
)
PLAIN = isr.Training(Effort(100, 0, 0), n_restarts=2, penalty=None, verbose=False)
PRUNED = isr.Training(Effort(100, 100, 100), n_restarts=2, verbose=False)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=120.0)
    parser.add_argument("--out", type=Path, help="append the rows to this file")
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    about = provenance()
    end = time.monotonic() + 60 * arguments.minutes
    with tempfile.TemporaryDirectory() as folder:
        while not rows or time.monotonic() < end:
            begun = time.monotonic()
            one_round(Path(folder), seed=len(rows))
            rows.append(
                {"round": len(rows), "seconds": round(time.monotonic() - begun, 2), **left_over(Path(folder))}
            )
            tell(rows[-1], arguments.out if rows[-1]["round"] % KEPT == 0 else None)
    faults = judged(rows)
    tell(
        {
            "rounds": len(rows),
            "minutes": arguments.minutes,
            "faults": faults,
            **about,
        },
        arguments.out,
    )
    return 1 if faults else 0


def one_round(folder: Path, seed: int) -> None:
    """Everything a user does with a model, with a density and an inverse problem in turn."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(400, 2)) @ np.array([[1.0, 0.5], [0.0, 1.0]])
    path = folder / "model.isr"
    options = {
        "training": replace(PRUNED if seed % 9 == 4 else PLAIN, checkpoint=folder / "part"),
        "random_state": seed,
        "n_blocks": 1 + seed % 4,
        "n_layers": 1 + seed // 2 % 2,
        "library": LIBRARIES[seed % 3],
    }
    if seed % 2:
        model = isr.ConditionalISR(**options)
        model.fit(x, x[:, 0] - x[:, 1])
        model.posterior([0.1]).sample(200)
    else:
        model = isr.SymbolicFlow(**options).fit(x)
        model.sample(200)
    kept(model, path)
    x = rng.uniform(1, 3, size=(60, 2))
    y = LAWS[seed % len(LAWS)](x[:, 0], x[:, 1]) + 0.05 * rng.normal(size=len(x))
    inversion = isr.Inversion(random_state=seed).fit(x, y)
    inversion.posterior([float(np.median(y))]).sample(200)
    kept(inversion, path)
    regressor = isr.LawRegressor(max_time=5, random_state=seed).fit(x, y)
    regressor.predict(x)
    kept(regressor, path)
    (folder / "part").unlink()


def kept(model: Any, path: Path) -> None:
    """Save a model, load it again, write its page, and clear both away."""
    model.save(path)
    if not str(isr.load(path).expressions):
        raise AssertionError("the loaded model has no equations")
    page = path.with_suffix(".html")
    write_report(model, page)
    path.unlink()
    page.unlink()


def left_over(folder: Path) -> dict[str, int]:
    """Memory in use, and files, threads and child processes that are still there."""
    gc.collect()
    status = dict(
        line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":" in line
    )
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    return {
        "memory_mb": int(status["VmRSS"].split()[0]) // 1024,
        "open_files": len(os.listdir("/proc/self/fd")),
        "threads": threading.active_count(),
        "processes": len(children.read_text().split()) if children.exists() else 0,
        "files": len(list(folder.rglob("*"))),
    }


def judged(rows: list[dict[str, Any]]) -> list[str]:
    """Return a sentence for everything that grew."""
    if len(rows) < 8:
        return []
    quarter = len(rows) // 4
    early, late = rows[quarter : 2 * quarter], rows[-quarter:]
    faults = []
    before, after = (float(np.median([row["memory_mb"] for row in part])) for part in (early, late))
    if after > max(1.05 * before, before + 50):
        faults.append(f"memory grew from {before:.0f} to {after:.0f} MB")
    for what in ("open_files", "threads", "processes", "files"):
        before, after = (max(row[what] for row in part) for part in (early, late))
        if after > before:
            faults.append(f"{what} grew from {before} to {after}")
    return faults


def tell(row: dict[str, Any], out: Path | None) -> None:
    print(json.dumps(row), flush=True)
    if out is not None:
        with out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    sys.exit(main())

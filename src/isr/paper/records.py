"""Records: one JSON row a run, with everything needed to make it again."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from isr import __version__

PACKAGES = ("jax", "numpy", "sympy")


def provenance() -> dict[str, Any]:
    """Return commit, versions and machine of this run."""
    return {
        "commit": _commit(),
        "versions": {"isr": __version__, **{name: version(name) for name in PACKAGES}},
        "machine": {"cpu": _cpu(), "n_cpus": os.cpu_count(), "python": platform.python_version()},
    }


def append(path: Path, row: dict[str, Any]) -> None:
    """Add one row to a file of JSON rows; a commit that it names already stays, for work goes on during long runs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps({**row, **provenance(), **_own_commit(row)}, default=_plain) + "\n")


def _own_commit(row: dict[str, Any]) -> dict[str, Any]:
    return {"commit": row["commit"]} if "commit" in row else {}


def read(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a file; none where there is no file."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines() if line]


def latest(rows: list[dict[str, Any]], *fields: str) -> list[dict[str, Any]]:
    """Return the last row of every combination of ``fields``: a case that was run again counts once."""
    return list({tuple(row[f] for f in fields): row for row in rows}.values())


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    return str(value)


def _commit() -> str:
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=Path(__file__).parent
    )
    return done.stdout.strip() or "unknown"


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or "unknown"

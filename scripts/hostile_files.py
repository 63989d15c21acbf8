"""Try very many hostile files, and keep what became of them as a JSON row.

    python scripts/hostile_files.py models --cases 1000000 [--first 0] [--seed 0] [--out results/robustness.jsonl]
    python scripts/hostile_files.py tables --cases 100000

Models are forged with a right checksum (`tests/fuzz/forgeries.py`), tables are odd text and damaged files of every
kind (`tests/fuzz/hostile_tables.py`). Each must be refused in a sentence, shown or read. A worker that crashes, or
needs more than two seconds of processor time for a file, is a fault; it is told with the number of the file, and the
next worker begins after it.
"""

from __future__ import annotations

import argparse
import json
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))

TOO_LONG = 2.0
# A worker is begun anew after so many files: JAX keeps something of every program it has traced.
PER_WORKER = 20_000
MOST_MEMORY = 6 << 30


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kind", choices=("models", "tables"))
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0, help="number of the first file, to go on later")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop after so many")
    parser.add_argument("--out", type=Path, help="append the row to this file")
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        work(arguments.kind, arguments.seed, arguments.first, arguments.cases, arguments.worker)
        return 0
    row = run(arguments.kind, arguments.cases, arguments.first, arguments.seed, arguments.minutes)
    print(json.dumps(row))
    if arguments.out:
        from isr.paper.records import append

        append(arguments.out, row)
    return 1 if row["faults"] else 0


def run(
    kind: str, cases: int, first: int = 0, seed: int = 0, minutes: float = float("inf")
) -> dict[str, Any]:
    """Try files from the number ``first`` on and return the row."""
    from isr.paper.records import provenance

    begun, at, end = time.monotonic(), first, first + cases
    commit = provenance()["commit"]
    counts: dict[str, int] = {}
    slowest, faults = 0.0, []
    with tempfile.TemporaryDirectory() as folder:
        while at < end and time.monotonic() - begun < 60 * minutes:
            n, told = min(PER_WORKER, end - at), Path(folder) / "told.json"
            told.unlink(missing_ok=True)
            command = [sys.executable, __file__, kind, f"--seed={seed}", f"--first={at}", f"--cases={n}"]
            code = subprocess.run([*command, f"--worker={told}"], check=False).returncode
            nothing = {"at": at - 1, "counts": {}, "slowest": 0, "faults": []}
            found = json.loads(told.read_text()) if told.exists() else nothing
            faults += found["faults"]
            if code:
                found["at"] += 1
                what = "hangs" if code == -signal.SIGPROF else f"ends the process ({code})"
                faults.append(f"{found['at']}: {what}")
            at, slowest = found["at"] + 1, max(slowest, found["slowest"])
            counts = {
                what: counts.get(what, 0) + found["counts"].get(what, 0)
                for what in {**counts, **found["counts"]}
            }
            print(
                f"{at:,} of {end:,}, {time.monotonic() - begun:.0f} s, {counts}, {len(faults)} faults",
                *found["faults"], file=sys.stderr, sep="\n",
            )  # fmt: skip
    return {
        "check": f"hostile {kind}", "file": "hostile_files", "test": f"{kind} {first}", "seed": seed,
        "command": f"python scripts/hostile_files.py {kind} --cases {at - first} --first {first} --seed {seed}",
        "outcome": "failed" if faults else "passed", "seconds": round(time.monotonic() - begun), "cases": at - first,
        **counts, "slowest": slowest, "faults": faults[:50], "n_faults": len(faults), "commit": commit,
    }  # fmt: skip


def work(kind: str, seed: int, first: int, cases: int, told: Path) -> None:
    """Try some files in this process; how far it came stands in a file, whatever becomes of the process."""
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    with tempfile.TemporaryDirectory() as folder:
        attempt = (models if kind == "models" else tables)(Path(folder))
        counts: dict[str, int] = {}
        slowest, faults, hidden = 0.0, [], Path(folder) / "told.json"
        for i in range(first, first + cases):
            # Ends the process, even in the middle of C; a Python signal handler would never be called there.
            signal.setitimer(signal.ITIMER_PROF, 2 * TOO_LONG)
            begun = time.process_time()
            try:
                what = attempt(i, np.random.default_rng([seed, i]))
            except (Exception, SystemExit) as error:
                what = "fault"
                faults.append(f"{i}: {type(error).__name__}: {str(error)[:300]}")
            seconds = time.process_time() - begun
            if seconds > TOO_LONG:
                faults.append(f"{i}: takes {seconds:.1f} s")
            counts[what], slowest = counts.get(what, 0) + 1, max(slowest, seconds)
            hidden.write_text(json.dumps({"at": i, "counts": counts, "slowest": slowest, "faults": faults}))
            hidden.replace(told)
        signal.setitimer(signal.ITIMER_PROF, 0)


def models(folder: Path) -> Callable[[int, np.random.Generator], str]:
    """Return what forges a model and shows it, one in a hundred by the whole command line."""
    from fuzz.forgeries import Forger, judged, whole_models

    wholes = whole_models()
    for data in wholes:  # compiles what is needed, and imports
        judged(data)
    forge = Forger(wholes)
    return lambda i, rng: judged(forge(rng), folder / "forged.isr" if i % 100 == 0 else None)[0]


def tables(folder: Path) -> Callable[[int, np.random.Generator], str]:
    """Return what writes a hostile table and reads it."""
    from fuzz.hostile_tables import hostile_table, read_all, whole_tables

    wholes = whole_tables()

    def attempt(i: int, rng: np.random.Generator) -> str:
        data, ending = hostile_table(rng, wholes)
        path = folder / f"rows.{ending}"
        path.write_bytes(data)
        return "read" if read_all(path) else "refused"

    for data, ending in wholes:
        path = folder / f"whole.{ending}"
        path.write_bytes(data)
        read_all(path)
    return attempt


if __name__ == "__main__":
    sys.exit(main())

"""Cases in, rows out: each case is measured in a process of its own and leaves a row, also when it fails.

A benchmark is a script that lists its cases and says how one is measured; `main` does the rest. A row holds what
was measured, the options of its case, seed, commit, versions and machine, and how busy the machine was: ``load``,
and ``others_cores``, the cores that other programs had while the case ran. Time comes twice, as wall time and as
processor time of all threads (``cpu``), which other programs disturb far less. Compilation is never part of a run.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Any

from isr.paper import records

Row = dict[str, Any]
Measure = Callable[..., Iterable[Row]]
LONGEST_REASON = 300
WALL_FACTOR = 20


@dataclass(frozen=True)
class Case:
    """One thing to measure.

    Args:
        options: What tells it apart from others: part of its rows, and given to ``measure`` by keyword.
        needs: Distributions it imports besides isr's own dependencies.
        cores: How many cores it may use.
        timeout: Seconds of processor time after which it counts as failed; `WALL_FACTOR` times as much wall time
            ends it as well, so that a case that waits for nothing does not wait for ever.
    """

    options: Row
    needs: tuple[str, ...] = ()
    cores: int = 1
    timeout: float = 900.0


@dataclass
class Timing:
    """What one call takes, compilation apart; all in seconds.

    Args:
        compile: The first call, which compiles and warms caches.
        compile_cpu: The same in processor time.
        wall: Wall time of each later call.
        cpu: Processor time of each later call, all threads.
    """

    compile: float
    compile_cpu: float
    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def as_row(self, n: int = 1) -> Row:
        """Return the fields of a row, where a call does ``n`` things of which one is to be told.

        What a later call takes is taken off the first one, so that ``compile`` holds compilation alone.
        """
        scale = 1e3 / n
        return {
            "compile_seconds": round(max(0.0, self.compile - min(self.wall)), 3),
            "compile_cpu_seconds": round(max(0.0, self.compile_cpu - min(self.cpu)), 3),
            "run_seconds": round(sum(self.wall), 3),
            "wall_ms": scale * median(self.wall), "wall_ms_best": scale * min(self.wall),
            "cpu_ms": scale * median(self.cpu), "cpu_ms_best": scale * min(self.cpu), "n_calls": len(self.wall),
        }  # fmt: skip


def time_calls(call: Callable[[], Any], *, seconds: float, least: int = 3, most: int = 1000) -> Timing:
    """Call once to compile, then until so many seconds of processor time are spent, and return the times.

    ``call`` must wait for its result. Ten times ``seconds`` of wall time end it too, on a machine that is busy.
    """
    timing = Timing(*_once(call))
    began = time.perf_counter()
    while len(timing.wall) < most:
        wall, cpu = _once(call)
        timing.wall.append(wall)
        timing.cpu.append(cpu)
        spent = sum(timing.cpu) >= seconds or time.perf_counter() - began >= 10 * seconds
        if spent and len(timing.wall) >= least:
            break
    return timing


def _once(call: Callable[[], Any]) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    call()
    return time.perf_counter() - wall, time.process_time() - cpu


def main(
    name: str,
    cases: Callable[[bool], Sequence[Case]],
    measure: Measure,
    *,
    arguments: Sequence[str] | None = None,
) -> list[Row]:
    """Run a benchmark from the command line and return its rows.

    Args:
        name: Of the benchmark.
        cases: Lists what to measure; told whether the quick form is wanted.
        measure: Yields rows for the options of a case; its keyword ``quick`` tells the form.
        arguments: Those of the command line when left out.
    """
    script = sys.modules[measure.__module__]
    parser = argparse.ArgumentParser(
        description=script.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a short look at few cases")
    parser.add_argument("--out", type=Path, help="append the rows to this file")
    parser.add_argument("--only", default="", help="run only cases whose options contain this text")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--one-case", help=argparse.SUPPRESS)
    parser.add_argument("--rows-to", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.one_case is not None:
        run_here(measure, json.loads(given.one_case), given.rows_to)
        return []
    rows: list[Row] = []
    for case in cases(given.quick):
        if given.only and given.only.lower() not in json.dumps(case.options).lower():
            continue
        for row in run_case(name, Path(str(script.__file__)), case, quick=given.quick, seed=given.seed):
            rows.append(row)
            print(told(row), flush=True)
            if given.out:
                records.append(given.out, row)
    return rows


def run_case(name: str, script: Path, case: Case, *, quick: bool, seed: int) -> list[Row]:
    """Return the rows of one case, measured by ``script`` in a new process; a failure is a row with its reason."""
    common = {"benchmark": name, **case.options, "cores": case.cores, "seed": seed, "quick": quick}
    lacking = missing(case.needs)
    if lacking:
        return [
            common | {"failure": f"not installed: {', '.join(lacking)}; `make bench` installs every peer"}
        ]
    with tempfile.TemporaryDirectory() as folder:
        rows_to = Path(folder) / "rows.jsonl"
        order = {
            "options": case.options | {"quick": quick, "seed": seed}, "cores": case.cores, "timeout": case.timeout
        }  # fmt: skip
        command = [sys.executable, str(script), "--one-case", json.dumps(order), "--rows-to", str(rows_to)]
        began, busy = time.perf_counter(), _Busy()
        failure = _run(command, case)
        about = {
            "case_seconds": round(time.perf_counter() - began, 2), "case_cpu_seconds": busy.own_since(),
            "load": round(os.getloadavg()[0], 2),
            "others_cores": busy.others(), "peer_versions": {name: version(name) for name in case.needs},
        }  # fmt: skip
        rows = [common | row | about for row in records.read(rows_to)]
    return rows if failure is None else [*rows, common | about | {"failure": failure}]


def _run(command: list[str], case: Case) -> str | None:
    """Run a command and return why it failed, or None."""
    settings = os.environ | {name: str(case.cores) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
    try:
        done = subprocess.run(
            command,
            env=settings,
            capture_output=True,
            text=True,
            timeout=WALL_FACTOR * case.timeout,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"not done after {WALL_FACTOR * case.timeout:.0f} s"
    if done.returncode == 0:
        return None
    if hasattr(signal, "SIGXCPU") and done.returncode == -signal.SIGXCPU:
        return f"not done after {case.timeout:.0f} s of processor time"
    last = (done.stderr.strip().splitlines() or [f"left with code {done.returncode}"])[-1]
    return last[:LONGEST_REASON]


def run_here(measure: Measure, order: Row, rows_to: Path) -> None:
    """Measure one case in this process, on the cores it may use, and write its rows one by one."""
    pin(order["cores"])
    with contextlib.suppress(ImportError):  # not every system can limit processor time
        import resource

        resource.setrlimit(resource.RLIMIT_CPU, (max(1, round(order["timeout"])), resource.RLIM_INFINITY))
    for row in measure(**order["options"]):
        with rows_to.open("a") as file:
            file.write(json.dumps(row, default=float) + "\n")


def pin(n_cores: int) -> None:
    """Keep this process on the last ``n_cores`` cores, where the system can; before any library starts threads."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[-n_cores:]))


def available_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def missing(distributions: Iterable[str]) -> list[str]:
    """Return those of the distributions that are not installed."""

    def is_installed(name: str) -> bool:
        try:
            version(name)
        except PackageNotFoundError:
            return False
        return True

    return [name for name in distributions if not is_installed(name)]


def told(row: Row) -> str:
    """Return a row as one short line for the terminal."""
    left_out = {
        "benchmark", "seed", "quick", "peer_versions", "load", "others_cores", "run_seconds", "wall_ms_best",
        "cpu_ms_best", "n_calls", "case_seconds", "case_cpu_seconds",
    }  # fmt: skip
    shown = {key: value for key, value in row.items() if key not in left_out}
    return f"{row['benchmark']}: " + ", ".join(f"{key} {_short(value)}" for key, value in shown.items())


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


class _Busy:
    """The processor time that others and this program with its children had since this was made."""

    def __init__(self) -> None:
        self.began, self.all, self.own = time.perf_counter(), _all_seconds(), _own_seconds()

    def own_since(self) -> float:
        """Return seconds of this program and of its children that have ended."""
        return round(_own_seconds() - self.own, 2)

    def others(self) -> float | None:
        """Return how many cores others had on average; None where the system does not tell."""
        now = _all_seconds()
        if self.all is None or now is None:
            return None
        used = now - self.all - (_own_seconds() - self.own)
        return round(max(used, 0.0) / (time.perf_counter() - self.began), 2)


def _all_seconds() -> float | None:
    stat = Path("/proc/stat")
    if not stat.exists():
        return None
    user, nice, system, _, _, irq, softirq = map(int, stat.read_text().splitlines()[0].split()[1:8])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def _own_seconds() -> float:
    return sum(os.times()[:4])

"""Accuracy and rate of the normal-mode engine on SWellEx-96, beside KRAKEN's and pykrak's.

    python benchmarks/normal_modes.py [--quick] [--out rows.jsonl] [--figures docs/figures]

Writes one JSON row per measurement: commit, machine, seed, seconds to compile and to run apart, metrics. Accuracy is
against the stored KRAKEN pressures (120 points per wavelength) and against a mesh so fine that it counts as exact;
the rate is wall time and CPU time per environment of seven frequencies, on one thread and on all cores. KRAKEN's rate
is measured where its programs are on PATH, else the figure measured when the reference was made (60 ms of CPU) stands
in. pykrak, which keeps nothing it compiled, is measured in the full form where it is installed and runs: up to 3.0.1
that takes NumPy before 2.4. The time to compile is that of the first call in a new process, with Numba's cache empty
(warm under --quick).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np

from isr.ocean import (
    FREQUENCIES,
    TASK_2,
    TRUTH,
    Environment,
    Mesh,
    kraken_reference,
    modes,
    pressure,
    swellex96,
)

MESHES = {
    "no extrapolation, 20 points": Mesh(20, (1,)),
    "default, 10 and 20 points": Mesh(),
    "20 and 40 points": Mesh(20, (1, 2)),
    "10, 20 and 30 points": Mesh(10, (1, 2, 3)),
}
EXACT = Mesh(20, (1, 2, 3, 4), decay=16)
KRAKEN_CPU_MS = 60.0
# KRAKEN's usual density, and one at which pykrak comes about as close as our default mesh.
PYKRAK_POINTS = (20, 60)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer environments; ends within a minute")
    parser.add_argument("--out", type=Path, help="append the rows to this file")
    parser.add_argument(
        "--figures", type=Path, help="draw the figures of docs/geoacoustics.md into this folder"
    )
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    compile_seconds = first_call_seconds(fresh=not arguments.quick)
    pressure(swellex96(), FREQUENCIES, n_jobs=1)
    common = {
        "benchmark": "normal_modes",
        "commit": _commit(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "seed": arguments.seed,
        "compile_seconds": round(compile_seconds, 3),
    }
    n = 200 if arguments.quick else 4000
    rows = [*accuracy_rows(), *environment_rows(), *rate_rows(n, arguments.seed), kraken_row()]
    rows += pykrak_rows(10, arguments.seed, quick=arguments.quick)
    for row in rows:
        line = json.dumps(common | row)
        print(line, flush=True)
        if arguments.out:
            arguments.out.parent.mkdir(parents=True, exist_ok=True)
            with arguments.out.open("a") as file:
                file.write(line + "\n")
    if arguments.figures:
        draw(arguments.figures)


def first_call_seconds(fresh: bool) -> float:
    """Return how long the first pressures take in a new process."""
    program = (
        "import time; from isr.ocean import FREQUENCIES, pressure, swellex96; t = "
        "time.perf_counter();pressure(swellex96(), FREQUENCIES, n_jobs=1); print(time.perf_counter() - t)"
    )
    with tempfile.TemporaryDirectory() as cache:
        settings = os.environ | ({"NUMBA_CACHE_DIR": cache} if fresh else {})
        done = subprocess.run(
            [sys.executable, "-c", program], env=settings, capture_output=True, text=True, check=True
        )
    return float(done.stdout)


def accuracy_rows() -> list[dict]:
    """Relative L2 errors of the four reference environments, for several meshes."""
    environments, kraken, exact = references()
    rows = []
    for name, mesh in MESHES.items():
        seconds, found = _timed(lambda mesh=mesh: pressure(environments, FREQUENCIES, mesh=mesh, n_jobs=1))
        row = {"measure": "accuracy", "mesh": name, "run_seconds": round(seconds, 4)}
        rows.append(row | _errors(found, kraken, exact))
    return rows


def references() -> tuple[list[Environment], np.ndarray, np.ndarray]:
    """The four reference environments with KRAKEN's pressures and those of a mesh that counts as exact."""
    table = kraken_reference()
    parameters = list(dict.fromkeys(map(tuple, table[:, :4])))
    kraken = (table[:, 6] + 1j * table[:, 7]).reshape(len(parameters), len(FREQUENCIES), -1)
    environments = [swellex96(*row) for row in parameters]
    return environments, kraken, pressure(environments, FREQUENCIES, mesh=EXACT)


def environment_rows() -> list[dict]:
    """Worst relative error at a frequency, in ten environments, against what KRAKEN and KRAKENC gave, and times.

    The originals' pressures are those kept beside the tests; where the programs are on PATH they run again, for their
    time and for how far they are from what was kept.
    """
    sys.path.append(str(Path(__file__).parents[1] / "tests"))
    from isr.ocean.kraken import find_programs, kraken_pressure
    from ocean.waveguides import CASES, frozen

    kept = {program: frozen(program) for program in ("kraken", "krakenc")}
    rows = []
    for name, (environment, tones) in CASES.items():
        full, first = (environment.replace(loss=loss) for loss in ("full", "first order"))
        kraken, krakenc = kept["kraken"][name], kept["krakenc"][name]
        pressure(full, tones, n_jobs=1)
        begun = _processor()
        found = pressure(full, tones, n_jobs=1)
        spent = _processor() - begun
        row = {
            "measure": "environment", "environment": name, "frequencies": list(tones),
            "full_against_krakenc": _worst(found, krakenc),
            "full_20_points_against_krakenc": _worst(pressure(full, tones, mesh=Mesh(20)), krakenc),
            "kraken_against_krakenc": _worst(kraken, krakenc),
            "first_order_against_kraken": _worst(pressure(first, tones, mesh=Mesh(20)), kraken),
            "cpu_ms_per_frequency": round(1e3 * spent / len(tones), 3),
        }  # fmt: skip
        if find_programs() and find_programs("full"):
            for one, program, before in ((first, "kraken", kraken), (full, "krakenc", krakenc)):
                begun = _processor()
                again = kraken_pressure(one, tones, points_per_wavelength=40)
                spent = _processor() - begun
                row[f"{program}_cpu_ms_per_frequency"] = round(1e3 * spent / len(tones), 1)
                row[f"{program}_against_kept"] = _worst(again, before)
        rows.append(row)
    return rows


def _processor() -> float:
    """Seconds of processor time of this process and of programs it ran."""
    return time.process_time() + sum(os.times()[2:4])


def _worst(found: np.ndarray, expected: np.ndarray) -> float:
    """The relative error over the hydrophones, at the worst of the frequencies."""
    return float((np.linalg.norm(found - expected, axis=1) / np.linalg.norm(expected, axis=1)).max())


def rate_rows(n: int, seed: int) -> list[dict]:
    """Time per environment drawn from the prior of task 2, building of the environments included."""
    parameters = TASK_2.sample(n, np.random.default_rng(seed))
    rows = []
    for threads in sorted({1, os.cpu_count() or 1}):
        before = time.process_time()
        seconds, found = _timed(
            lambda threads=threads: pressure([swellex96(*p) for p in parameters], FREQUENCIES, n_jobs=threads)
        )
        cpu = time.process_time() - before
        rows.append(
            {
                "measure": "rate",
                "threads": threads,
                "environments": n,
                "failures": int((~np.isfinite(found).all(axis=(1, 2))).sum()),
                "run_seconds": round(seconds, 3),
                "wall_ms_per_environment": round(1e3 * seconds / n, 4),
                "cpu_ms_per_environment": round(1e3 * cpu / n, 4),
                "minutes_for_100000": round(1e5 * seconds / n / 60, 2),
                "times_kraken_per_core": round(KRAKEN_CPU_MS / (1e3 * cpu / n), 1),
            }
        )
    return rows


def kraken_row() -> dict:
    """KRAKEN's own time, where it is installed."""
    from isr.ocean.kraken import find_programs

    row = {"measure": "baseline", "engine": "kraken", "assumed_cpu_ms_per_environment": KRAKEN_CPU_MS}
    if find_programs() is None:
        return row | {"skipped": "kraken.exe and field.exe are not on PATH"}
    seconds, _ = _timed(lambda: pressure(swellex96(), FREQUENCIES, engine="kraken", mesh=Mesh(20)))
    return row | {"wall_ms_per_environment": round(1e3 * seconds, 3)}


def pykrak_rows(n: int, seed: int, *, quick: bool) -> list[dict]:
    """Accuracy and rate of pykrak for two meshes, or one row that says why there are none."""
    row: dict = {"measure": "baseline", "engine": "pykrak"}
    try:
        row["peer_versions"] = {"pykrak": version("pykrak")}
    except PackageNotFoundError:
        return [row | {"skipped": "it is not installed"}]
    row["numpy"] = np.__version__
    if quick:
        return [row | {"skipped": "it compiles for some 20 s in every process; run without --quick"}]
    try:
        return [row | _pykrak(points, n, seed) for points in PYKRAK_POINTS]
    except Exception as error:  # what it raises with versions it does not know is the answer
        reason = str(error).strip().partition("\n")[0]
        return [row | {"skipped": f"{type(error).__name__}: {reason}"}]


def _pykrak(points: int, n: int, seed: int) -> dict:
    from peers import pykrak_modes

    def solve(environments):
        return np.array(
            [pykrak_modes.pressure(e, FREQUENCIES, points_per_wavelength=points) for e in environments]
        )

    environments, kraken, exact = references()
    parameters = TASK_2.sample(n, np.random.default_rng(seed))
    first, _ = _timed(lambda: solve(swellex96(*p) for p in parameters))
    before = time.process_time()
    seconds, found = _timed(lambda: solve(swellex96(*p) for p in parameters))
    cpu = time.process_time() - before
    return {
        "mesh": f"{points} points per wavelength",
        "threads": 1,
        "environments": n,
        "failures": int((~np.isfinite(found).all(axis=(1, 2))).sum()),
        "compile_seconds": round(max(first - seconds, 0.0), 3),
        "run_seconds": round(seconds, 3),
        "wall_ms_per_environment": round(1e3 * seconds / n, 4),
        "cpu_ms_per_environment": round(1e3 * cpu / n, 4),
        "times_kraken_per_core": round(KRAKEN_CPU_MS / (1e3 * cpu / n), 3),
        **_errors(solve(environments), kraken, exact),
    }


def draw(folder: Path) -> None:
    """Draw the environment, the error against mesh density, and a few modes."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    folder.mkdir(parents=True, exist_ok=True)
    left, _ = swellex96(*TRUTH).plot()
    plt.figure(left.figure.number)  # type: ignore[union-attr]
    plt.savefig(folder / "geoacoustics_environment.png", dpi=110)

    exact = pressure(swellex96(), FREQUENCIES, mesh=EXACT)
    points = np.array([10, 14, 20, 28, 40, 56, 80])
    figure, axes = plt.subplots(figsize=(5.6, 3.8), layout="constrained")
    for refinements in ((1,), (1, 2), (1, 2, 3)):
        errors = [
            _relative(pressure(swellex96(), FREQUENCIES, mesh=Mesh(p, refinements, 16)) - exact, exact)
            for p in points
        ]
        axes.loglog(
            points, errors, "o-", ms=4, label=f"{len(refinements)} mesh{'es' * (len(refinements) > 1)}"
        )
    axes.axhline(10 ** (-15 / 20), color="0.5", ls=":", lw=1)
    axes.text(
        points[-1], 0.8 * 10 ** (-15 / 20), "noise at 15 dB", ha="right", va="top", color="0.4", fontsize=9
    )
    axes.set(xlabel="points per wavelength, coarsest mesh", ylabel="relative error of the pressure")
    axes.set_xticks(points, [str(p) for p in points], minor=False)
    axes.set_xticks([], minor=True)
    axes.legend(frameon=False)
    figure.savefig(folder / "geoacoustics_convergence.png", dpi=110)

    depths = np.linspace(0, 290, 600)
    found = modes(swellex96(), 112.0, depths)
    figure, axes = plt.subplots(figsize=(7.2, 3.8), layout="constrained")
    for column, m in enumerate((0, 1, 2, 4, 8, 14)):
        shape = found.shapes[m] / np.abs(found.shapes[m]).max()
        axes.plot(column + 0.42 * shape, depths, lw=1.2)
        axes.text(
            column, -6, f"{m + 1}\n{found.phase_speeds[m]:.0f} m/s", ha="center", va="bottom", fontsize=8
        )
    for depth in (216.5, 240.0):
        axes.axhline(depth, color="#5b4a32", lw=0.8)
    axes.set(ylim=(290, 0), ylabel="depth (m)", xticks=[])
    figure.savefig(folder / "geoacoustics_modes.png", dpi=110)


def _errors(found: np.ndarray, kraken: np.ndarray, exact: np.ndarray) -> dict[str, float]:
    return {
        "worst_error_against_kraken": float(max(map(_relative, found - kraken, kraken))),
        "worst_error_against_kraken_one_frequency": _worst_by_frequency(found - kraken, kraken),
        "worst_error_against_fine_mesh": float(max(map(_relative, found - exact, exact))),
    }


def _worst_by_frequency(error: np.ndarray, truth: np.ndarray) -> float:
    return float((np.linalg.norm(error, axis=-1) / np.linalg.norm(truth, axis=-1)).max())


def _relative(error: np.ndarray, truth: np.ndarray) -> float:
    return float(np.linalg.norm(error) / np.linalg.norm(truth))


def _timed(call):
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def _commit() -> str:
    here = Path(__file__).resolve().parent
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=here, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or "unknown"


if __name__ == "__main__":
    main()

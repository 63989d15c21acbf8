"""The ten tasks of sbibm: C2ST of posteriors against its reference draws, beside the published figures.

    python benchmarks/sbibm.py [--quick] [--out rows.jsonl] [--task two_moons sir] [--simulations 1000 10000]
                               [--observation 1 2 3] [--seeds 0 1] [--method "isr accurate"] [--draws 10000] [--folds 5]
                               [--sbc 300]

One row per task, number of simulations, seed and method: the C2ST of each observation, of so many draws against as many
reference draws, processor time, and the share of draws outside of the prior; with ``--sbc`` also the least p-value of
uniform ranks of so many fresh truths, times the number of parameters and tests. `sbibm_tasks` has the tasks,
`peers.inference` the methods, ``lists/sbibm.txt`` what others published (the mean of ten observations).
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

# Before any library starts threads.
os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")

import numpy as np

from c2st import N_FOLDS, c2st
from harness import Row, missing, told
from isr.paper import records
from isr.posterior.calibration import sbc_ranks, uniformity
from peers.inference import METHODS
from sbibm_tasks import TASKS, Task

BUDGETS = (1000, 10_000, 100_000)
OURS = "isr accurate"
N_RANKED = 200
PUBLISHED = Path(__file__).with_name("lists") / "sbibm.txt"


def main(arguments: Sequence[str] | None = None) -> list[Row]:
    """Run what the command line asks for, and return the rows."""
    given = _parser().parse_args(arguments)
    if given.quick:
        given.task, given.simulations, given.observation = ["two_moons"], [300], [1]
        given.draws, given.folds = 500, 1
    rows: list[Row] = []
    for row in run(given):
        rows.append(row)
        print(told(row), flush=True)
        if given.out:
            records.append(given.out, row)
    return rows


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="one easy task, few simulations and draws")
    parser.add_argument("--out", type=Path, help="append the rows to this file")
    parser.add_argument("--task", nargs="+", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--simulations", nargs="+", type=int, default=list(BUDGETS))
    parser.add_argument(
        "--observation", nargs="+", type=int, default=list(range(1, 11)), choices=range(1, 11)
    )
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--method", nargs="+", default=[OURS], choices=list(METHODS))
    parser.add_argument(
        "--draws", type=int, default=10_000, help="draws and reference draws of each observation"
    )
    parser.add_argument("--folds", type=int, default=N_FOLDS, help="folds of the C2ST that count, of five")
    parser.add_argument("--sbc", type=int, default=0, help="fresh truths for simulation-based calibration")
    return parser


def run(given: argparse.Namespace) -> Iterator[Row]:
    """Yield a row for each case."""
    for method in given.method:
        lacking = missing(METHODS[method][1])
        versions = {name: version(name) for name in METHODS[method][1] if name not in lacking}
        for task in (TASKS[name] for name in given.task):
            for n, seed in ((n, seed) for n in given.simulations for seed in given.seeds):
                row: Row = {
                    "benchmark": "sbibm", "problem": task.name, "budget": n, "method": method, "seed": seed,
                    "draws": given.draws, "folds": given.folds, "quick": given.quick, "peer_versions": versions,
                }  # fmt: skip
                if lacking:
                    yield row | {"failure": f"not installed: {', '.join(lacking)}"}
                    continue
                try:
                    yield row | measured(method, task, n, seed, given)
                except Exception as error:  # a method's own failure is a result of it
                    yield row | {"failure": f"{type(error).__name__}: {error}"[:300]}


def measured(method: str, task: Task, n: int, seed: int, given: argparse.Namespace) -> Row:
    """Return what one fit gives for all observations."""
    x, y = task.pairs(n, np.random.default_rng([seed, n]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        began = time.process_time()
        model = METHODS[method][0](task, x, y, seed)
        fitted = time.process_time()
        drawn = {
            k: np.asarray(model.posterior(task.observation(k)).sample(given.draws)) for k in given.observation
        }
    sampled = time.process_time()
    scores = {k: c2st(task.reference(k)[: given.draws], d, n_folds=given.folds) for k, d in drawn.items()}
    return {
        "c2st": float(np.mean(list(scores.values()))), "c2st_each": scores,
        "share_outside": float(np.mean([outside(task, d) for d in drawn.values()])),
        "fit_cpu_seconds": round(fitted - began, 2), "sample_cpu_seconds": round(sampled - fitted, 2),
        "judge_cpu_seconds": round(time.process_time() - sampled, 2),
    } | about(model) | (calibration(model, task, given.sbc, seed) if given.sbc else {})  # fmt: skip


def calibration(model: Any, task: Task, n: int, seed: int) -> Row:
    """Return the least p-value of uniform ranks over all parameters, by Bonferroni, and whether it passes at 1 %."""
    x, y = task.pairs(n, np.random.default_rng([seed, n, 1]))
    drawn = np.stack([np.asarray(model.posterior(row).sample(N_RANKED)) for row in y])
    found = uniformity(sbc_ranks(x, drawn), N_RANKED).select_dtypes("number")
    least = min(1.0, float(found.to_numpy().min()) * found.size)
    return {"n_sbc": n, "sbc_p": least, "sbc_passed": least > 0.01}


def outside(task: Task, x: np.ndarray) -> float:
    """Return the share of rows outside of the prior."""
    low, high = np.array([marginal.support() for marginal in task.marginals]).T
    return float(np.mean(np.any((x < low) | (x > high), axis=1)))


def about(model: Any) -> Row:
    """Return what a fit says of itself: status, verdict, losses, constants."""
    found = {n: str(getattr(model, f"{n}_")) for n in ("status", "verdict") if hasattr(model, f"{n}_")}
    front = getattr(model, "front_", None)
    if front is None:
        return found
    chosen = front[front["chosen"]].iloc[0]
    return found | {
        name: float(chosen[name]) for name in ("nll", "nll_train", "n_constants") if name in chosen
    }


def published() -> dict[tuple[str, str], list[float | None]]:
    """Return the published figures of each method and task, at a thousand, ten thousand and 100,000 simulations."""
    lines = (line.split("|") for line in PUBLISHED.read_text("utf-8").splitlines() if "|" in line)
    return {
        (method.strip(), task.strip()): [None if f == "-" else float(f) for f in figures.split()]
        for method, task, figures in lines
    }


if __name__ == "__main__":
    main()

"""How often symbolic regression finds a law: `isr.LawRegressor` beside gplearn, pyoperon, pykan and PySR.

    python benchmarks/laws.py [--quick] [--out rows.jsonl] [--list feynman strogatz] [--only I.6] [--rows 1500]
                              [--noise 0 0.001 0.01 0.1] [--seeds 0 1] [--method "isr LawRegressor"] [--max-time 60]
                              [--resume] [--as-long-as rows.jsonl]

One row per formula, seed, noise level (in units of y's standard deviation, normal) and method: processor time, R² on
held-out rows without noise, what was found, and whether it is the formula, by SRBench's rule and by our stricter one
(`recovery`). `formulas` tells what is in a list. Every method has the same time, or the processor time that ours took
for the formula in the rows given, and runs on one core. The method "isr LawRegressor, named" is told which functions
the formula calls. Fits share a
process, so that imports, and what is compiled for all, are not part of their times; `--apart` gives each its own.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import time
import warnings
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

# Before any library starts threads, here and in the processes that inherit it.
os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_multi_thread_eigen=false"

import numpy as np
import sympy as sp

from formulas import Formula, family
from harness import Row, missing, pin, told
from isr.paper import records
from peers.regressors import REGRESSORS
from recovery import Verdict, judge
from worker import Ended, Worker

OURS = "isr LawRegressor"
NAMED = f"{OURS}, named"
LISTS = ("feynman", "strogatz", "arm", "kim")
NOISE = (0.0, 0.001, 0.01, 0.1)
QUICK = {"feynman": ("I.12.1", "I.25.13"), "strogatz": ("vdp2",)}
N_TEST = 1000
# What a peer has at least where it has the time that ours took.
LEAST_SECONDS = 1.0
# What tells a row apart from others.
CASE = ("family", "formula", "method", "noise", "seed", "rows")
# Wall time after which a fit is ended, in units of the time it was told to take.
PATIENCE, LEAST_PATIENCE = 4.0, 60.0


def main(arguments: Sequence[str] | None = None) -> list[Row]:
    """Run what the command line asks for, and return the rows."""
    given = _parser().parse_args(arguments)
    if given.quick:
        given.list, given.noise, given.max_time = list(QUICK), [0.0], min(given.max_time, 10.0)
    pin(1)
    rows: list[Row] = []
    for method in REGRESSORS if given.method == ["all"] else given.method:
        for row in run(method, given):
            rows.append(row)
            print(told(row), flush=True)
            if given.out:
                records.append(given.out, row)
    print(summary(rows))
    return rows


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a few easy formulas without noise")
    parser.add_argument("--out", type=Path, help="append the rows to this file")
    parser.add_argument("--resume", action="store_true", help="leave out what stands in that file")
    parser.add_argument(
        "--list", nargs="+", default=list(LISTS), help=f"families; {', '.join(LISTS)} if left out"
    )
    parser.add_argument("--only", default="", help="only formulas whose name contains this text")
    parser.add_argument("--rows", type=int, default=1500, help="rows to learn from; trajectories have 400")
    parser.add_argument("--noise", nargs="+", type=float, default=list(NOISE), help="in units of y's spread")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--method", nargs="+", default=[OURS], choices=["all", *REGRESSORS])
    parser.add_argument("--max-time", type=float, default=60.0, help="seconds that a fit may take")
    parser.add_argument("--as-long-as", type=Path, help="rows of ours whose processor time fits may take")
    parser.add_argument("--apart", action="store_true", help="give every fit a process of its own")
    return parser


def run(method: str, given: argparse.Namespace) -> Iterator[Row]:
    """Yield the rows of a method."""
    needs = REGRESSORS[method][1]
    lacking = missing(needs)
    done = records.read(given.out) if given.resume else []
    known = {tuple(row.get(key) for key in CASE) for row in done}
    taken = (
        [row for row in records.read(given.as_long_as) if row["method"] == OURS] if given.as_long_as else []
    )
    spent = {
        tuple(row[key] for key in CASE if key != "method"): row.get("fit_cpu_seconds", 0.0) for row in taken
    }
    with Worker(_quiet) as fitting, Worker(_quiet) as simplifying:
        for name, formula, seed, noise in _cases(given):
            row: Row = {
                "benchmark": "laws", "family": name, "formula": formula.name, "method": method, "noise": noise,
                "seed": seed, "rows": given.rows, "max_time": given.max_time, "quick": given.quick,
                "peer_versions": {need: version(need) for need in needs if need not in lacking},
            }  # fmt: skip
            if tuple(row[key] for key in CASE) in known:
                continue
            if spent:
                seconds = spent.get(tuple(row[key] for key in CASE if key != "method"))
                if seconds is None:
                    continue
                row["max_time"] = max(seconds, LEAST_SECONDS)
            if lacking:
                yield row | {
                    "failure": f"not installed: {', '.join(lacking)}; `make bench` installs every peer"
                }
                continue
            yield row | measured(method, formula, row, fitting, simplifying)
            if given.apart:
                fitting.close()


def _cases(given: argparse.Namespace) -> Iterator[tuple[str, Formula, int, float]]:
    for name in given.list:
        for formula in family(name).values():
            chosen = not given.quick or formula.name in QUICK.get(name, (formula.name,))
            if chosen and given.only in formula.name:
                yield from ((name, formula, seed, noise) for seed in given.seeds for noise in given.noise)


def measured(method: str, formula: Formula, case: Row, fitting: Worker, simplifying: Worker) -> Row:
    """Return what one fit shows; a method's own failure is a result of it."""
    x, y = data(formula, case["rows"], case["seed"], case["noise"])
    x_test, truth = formula.rows(N_TEST, case["seed"] + 10_000, test=True)
    patience = max(PATIENCE * case["max_time"], LEAST_PATIENCE)
    options = {"seed": case["seed"], "max_time": case["max_time"]}
    if method == NAMED:
        options["library"] = called(formula.expression)
    try:
        found, predicted, costs = fitting.call(fit, method, x, y, x_test, options, seconds=patience)
    except (Ended, RuntimeError) as error:
        return {"failure": str(error)[:300], "symbolic": False, "strict": False}
    verdict = _judged(found, formula, simplifying)
    return costs | {
        "r2": r_squared(predicted, truth), "symbolic": verdict.symbolic, "strict": verdict.strict,
        "reason": verdict.reason, "n_operations": int(sp.count_ops(found)), "found": str(found)[:600],
    }  # fmt: skip


def data(formula: Formula, n: int, seed: int, noise: float) -> tuple[np.ndarray, np.ndarray]:
    """Return rows to learn from, with normal noise of so many standard deviations of y."""
    x, y = formula.rows(n, seed)
    return x, y + noise * np.std(y) * np.random.default_rng((seed, 1)).standard_normal(len(y))


def called(law: sp.Expr) -> list[str]:
    """Return the names of the functions that a law calls, roots and reciprocals among them."""
    names = {type(part).__name__.lower() for part in law.atoms(sp.Function)}
    powers = {part.exp for part in law.atoms(sp.Pow)}
    names |= {"sqrt"} if any(not p.is_Integer for p in powers) else set()
    return sorted(names | ({"reciprocal"} if any(p.is_negative for p in powers) else set()))


def r_squared(predicted: np.ndarray, truth: np.ndarray) -> float | None:
    """Return the share of variance that predictions explain, or None where they are not finite."""
    score = 1 - np.mean((predicted - truth) ** 2) / np.var(truth)
    return float(score) if np.isfinite(score) else None


def _judged(found: sp.Expr, formula: Formula, simplifying: Worker) -> Verdict:
    try:
        return judge(found, formula, worker=simplifying)
    except Exception as error:  # what cannot be evaluated is not the formula
        return Verdict(False, False, f"not comparable: {type(error).__name__}: {error}"[:200])


def fit(
    method: str, x: np.ndarray, y: np.ndarray, x_test: np.ndarray, options: Row
) -> tuple[sp.Expr, Any, Row]:
    """Return what a method finds, what it predicts, and what it cost."""
    wall, cpu = time.perf_counter(), _cpu_seconds()
    more = {"library": options["library"]} if "library" in options else {}
    found, predict = REGRESSORS[method][0](
        x, y, family="laws", seed=options["seed"], quick=False, seconds=options["max_time"], **more
    )
    costs = {
        "fit_seconds": round(time.perf_counter() - wall, 3), "fit_cpu_seconds": round(_cpu_seconds() - cpu, 3),
        "memory_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }  # fmt: skip
    return sp.sympify(found), np.asarray(predict(x_test), dtype=float).reshape(-1), costs


def _cpu_seconds() -> float:
    return sum(os.times()[:4])


def _quiet() -> None:
    pin(1)
    warnings.simplefilter("ignore")


def summary(rows: list[Row]) -> str:
    """Return how many formulas were found, by method, family and noise."""
    lines = []
    for method, name, noise in dict.fromkeys((r["method"], r["family"], r["noise"]) for r in rows):
        mine = [r for r in rows if (r["method"], r["family"], r["noise"]) == (method, name, noise)]
        cpu = [r["fit_cpu_seconds"] for r in mine if "fit_cpu_seconds" in r]
        lines.append(
            json.dumps(
                {
                    "method": method, "family": name, "noise": noise, "fits": len(mine),
                    "symbolic": sum(bool(r.get("symbolic")) for r in mine),
                    "strict": sum(bool(r.get("strict")) for r in mine),
                    "median_cpu": round(median(cpu), 2) if cpu else None, "most_cpu": max(cpu, default=None),
                    "failed": sum("failure" in r for r in mine),
                }
            )
        )  # fmt: skip
    return "\n".join(lines)


if __name__ == "__main__":
    main()

"""Laws of motion from trajectories: the seven Strogatz systems, and ten of ``lists/motion.txt`` from their parameters.

    python benchmarks/motion.py [--quick] [--out rows.jsonl] [--family strogatz systems] [--only lv] [--noise 0 0.01]
                                [--simulations 1000] [--seeds 0] [--max-time 120] [--list systems.txt]

One row per system, noise and seed: which rates are the truth (`recovery.judge`: with constants within 2 %), the law in
words, its verdict, processor time. Noise is additive, relative to the standard deviation of each channel.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import sympy as sp
from scipy.integrate import solve_ivp

import isr
from formulas import LISTS, N_TIMES, STEP, Formula, family
from harness import Row, told
from isr.paper import records
from isr.search.evaluate import symbol
from recovery import judge


@dataclass(frozen=True)
class Motion:
    """A system of the list.

    Args:
        name: Of the system.
        channels: Names of its channels.
        ranges: Low and high of each parameter, by name.
        rates: Of each channel.
        starts: Of each channel, a number or a parameter.
        times: When it is measured.
    """

    name: str
    channels: tuple[str, ...]
    ranges: dict[str, tuple[float, float]]
    rates: tuple[sp.Expr, ...]
    starts: tuple[sp.Expr, ...]
    times: np.ndarray

    def simulate(self, n: int, seed: int, noise: float) -> tuple[np.ndarray, np.ndarray]:
        """Return rows of parameters and values (row, time, channel)."""
        rng = np.random.default_rng(seed)
        x = np.column_stack([rng.uniform(low, high, n) for low, high in self.ranges.values()])
        names = [symbol(p) for p in self.ranges]
        rate = sp.lambdify([[symbol(c) for c in self.channels], names], self.rates)
        start = sp.lambdify([names], self.starts)
        span = (0, self.times[-1])
        runs = [
            solve_ivp(
                lambda _, y, p=p: rate(y, p), span, start(p), "LSODA", self.times, rtol=1e-8, atol=1e-10
            ).y.T
            for p in x
        ]
        y = np.array(runs)
        return x, y + noise * y.std(axis=(0, 1)) * rng.normal(size=y.shape)


def systems(path: Path = LISTS / "motion.txt") -> list[Motion]:
    """Return the systems of a list.

    Example:
        >>> [m.name for m in systems()][:2]
        ['vanderpol', 'fitzhugh']
    """
    found = []
    for line in path.read_text("utf-8").splitlines():
        if line.startswith("#"):
            continue
        name, channels, parameters, rates, starts, end, n = line.split("|")
        ranges = {p.split()[0]: (float(p.split()[1]), float(p.split()[2])) for p in parameters.split(";")}
        known = {v: symbol(v) for v in (*channels.split(), *ranges)}
        read = [[sp.sympify(t, locals=known) for t in part.split(";")] for part in (rates, starts)]
        times = np.linspace(0, float(end), int(n))
        found.append(Motion(name, tuple(channels.split()), ranges, tuple(read[0]), tuple(read[1]), times))
    return found


def main(arguments: Sequence[str] | None = None) -> list[Row]:
    """Run what the command line asks for, and return the rows."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="one system without noise")
    parser.add_argument("--out", type=Path, help="append the rows to this file")
    parser.add_argument(
        "--family", nargs="+", default=["strogatz", "systems"], choices=["strogatz", "systems"]
    )
    parser.add_argument("--list", type=Path, default=LISTS / "motion.txt", help="another list of systems")
    parser.add_argument("--only", nargs="+", default=[], help="names of systems")
    parser.add_argument(
        "--noise", nargs="+", type=float, help="default 0 and 0.01 for Strogatz, 0.02 for systems"
    )
    parser.add_argument("--simulations", type=int, default=1000)
    parser.add_argument("--max-time", type=float, default=120.0, help="seconds per system")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    given = parser.parse_args(arguments)
    if given.quick:
        given.family, given.only, given.noise = ["strogatz"], ["lv"], [0.0]
    rows: list[Row] = []
    for row in run(given):
        rows.append(row)
        print(told(row), flush=True)
        if given.out:
            records.append(given.out, row)
    return rows


def run(given: argparse.Namespace) -> Iterator[Row]:
    """Yield a row for each case."""
    for seed in given.seeds:
        for noise in given.noise or ([0.0, 0.01] if "strogatz" in given.family else []):
            truths = family("strogatz").values() if "strogatz" in given.family else []
            for name in dict.fromkeys(f.name[:-1] for f in truths):
                if not given.only or name in given.only:
                    yield _row("strogatz", name, noise, seed, given, strogatz)
        for noise in given.noise or [0.02]:
            for motion in systems(given.list) if "systems" in given.family else []:
                if not given.only or motion.name in given.only:
                    yield _row("systems", motion.name, noise, seed, given, simulated)


def _row(kind: str, name: str, noise: float, seed: int, given: argparse.Namespace, measure: Any) -> Row:
    row: Row = {
        "benchmark": "motion", "family": kind, "problem": name, "noise": noise, "seed": seed,
        "simulations": given.simulations, "quick": given.quick,
    }  # fmt: skip
    try:
        return row | measure(name, noise, seed, given)
    except Exception as error:  # a failure is a result
        return row | {"failure": f"{type(error).__name__}: {error}"[:300]}


def strogatz(name: str, noise: float, seed: int, given: argparse.Namespace) -> Row:
    """Return what the trajectories of one of Strogatz's systems give."""
    truths = [family("strogatz")[f"{name}{i}"] for i in (1, 2)]
    runs = truths[0].path[0].reshape(-1, N_TIMES, 2)
    noisy = runs + noise * runs.std(axis=(0, 1)) * np.random.default_rng(seed).normal(size=runs.shape)
    model, seconds = _timed(
        lambda: isr.MotionRegressor(max_time=given.max_time).fit(
            np.arange(N_TIMES) * STEP, noisy, names=["x0", "x1"]
        )
    )
    return _judged(model, truths, seconds)


def simulated(name: str, noise: float, seed: int, given: argparse.Namespace) -> Row:
    """Return what simulations of a system of the list give."""
    motion = next(m for m in systems(given.list) if m.name == name)
    x, y = motion.simulate(given.simulations, seed, noise)
    n_times = len(motion.times)
    columns = {c: range(i * n_times, (i + 1) * n_times) for i, c in enumerate(motion.channels)}
    wide = y.transpose(0, 2, 1).reshape(len(y), -1)
    names = [*motion.channels, *motion.ranges]
    model, seconds = _timed(
        lambda: isr.Inversion(
            series=columns, times=motion.times, fallback=False, max_time=given.max_time
        ).fit(pd.DataFrame(x, columns=list(motion.ranges)), wide)
    )
    low, high = y.min(axis=(0, 1)), y.max(axis=(0, 1))
    ranges = (*zip(low, high, strict=True), *motion.ranges.values())
    inputs = sp.symbols(f"x0:{len(names)}", real=True)
    table = dict(zip(map(symbol, names), inputs, strict=True))
    truths = [
        Formula(c, r.xreplace(table), ranges, ranges)
        for c, r in zip(motion.channels, motion.rates, strict=True)
    ]
    said = [*(c.name for c in model.law_.channels[: len(motion.channels)]), *model.law_.x_names]
    return _judged(model, truths, seconds, dict(zip(map(symbol, said), inputs, strict=True)))


def _timed(learn: Any) -> tuple[Any, float]:
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = learn()
    return model, time.process_time() - began


def _judged(model: Any, truths: Sequence[Formula], seconds: float, table: dict | None = None) -> Row:
    found = [c.slope.xreplace(table or {}) for c in model.law_.channels]
    verdicts = [judge(f, t) for f, t in zip(found, truths, strict=False)]
    return {
        "exact": [v.strict for v in verdicts], "symbolic": [v.symbolic for v in verdicts],
        "reasons": [v.reason for v in verdicts], "law": str(model.law_), "verdict": model.verdict_,
        "fit_cpu_seconds": round(seconds, 1),
    }  # fmt: skip


if __name__ == "__main__":
    main()

"""Error against time: every flow trains for the same time on the same rows, and is judged by exact posteriors.

    python benchmarks/equal_time.py [--quick] [--out rows.jsonl] [--only two_moons]

Problems: the planar arm (Err_post, the squared maximum mean discrepancy from exact posterior draws, and Err_resim),
two moons and the Gaussian mixture (C2ST, the accuracy of a classifier that tells draws from exact ones; 0.5 is
perfect). Time is processor time on one core, building and compilation included, imports not: on a quiet core that
is wall time, and on a busy one it still is fair. Every budget is a training of its own, with Adam from 2e-3 down to
zero by a cosine over the budget, 100 rows per step, noise of y in the rows. There are a million rows of the arm, so
that no flow goes through them often enough to learn them by heart, and 100,000 of the others. ``BayesFlow`` and
``sbi`` train their default networks, sbi's by the same loop, BayesFlow's by its own.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np

from harness import Case, Row, main
from isr.paper.kinematics import WIDER
from isr.posterior.metrics import c2st, mmd2, resimulation_error
from isr.problems import kinematics
from isr.problems.toys import TOYS
from peers import FLOWS, build
from shape import ARM, Shape

PEAK = 2e-3
BATCH = 100
PROBLEMS = ("arm", *TOYS)
N_ROWS = {"arm": 1_000_000} | dict.fromkeys(TOYS, 100_000)
QUICK_ROWS = 50_000
# The cISR with half the functions in each layer, a third of the constants.
SMALL, HALF = "isr cISR, small", {name: max(1, count // 2) for name, count in WIDER.items()}
NAMES = (
    "isr cISR",
    SMALL,
    "isr cINN",
    "FrEIA cINN",
    "FlowJAX coupling",
    "FlowJAX spline",
    "sbi MAF",
    "BayesFlow",
)
QUICK_NAMES = ("isr cISR", "FlowJAX coupling")
BUDGETS = (60.0, 180.0, 600.0)
QUICK_BUDGETS = (15.0,)


def cases(quick: bool) -> list[Case]:
    """Return every flow on every problem and budget; a quick look has two flows, one problem, one budget."""
    return [
        Case({"problem": problem, "flow": name, "budget": budget}, _needs(name), timeout=120 + 2 * budget)
        for problem in (("two_moons",) if quick else PROBLEMS)
        for budget in (QUICK_BUDGETS if quick else BUDGETS)
        for name in (QUICK_NAMES if quick else NAMES)
    ]


def _needs(name: str) -> tuple[str, ...]:
    return ("bayesflow", "torch") if name == "BayesFlow" else FLOWS[kind_of(name)].needs


def kind_of(name: str) -> str:
    """Return the name of a flow without its size."""
    return name.split(",")[0]


def measure(problem: str, flow: str, budget: float, *, quick: bool, seed: int) -> Iterator[Row]:
    """Yield the error after one budget."""
    library = HALF if flow == SMALL else WIDER
    yield trained_row(problem, flow, budget, quick=quick, seed=seed, library=library)


def trained_row(
    problem: str, flow: str, budget: float, *, quick: bool, seed: int, shape: Shape = ARM,
    library: Mapping[str, int] = WIDER,
) -> Row:  # fmt: skip
    """Return the error of a flow of some size after one budget; ``library`` is that of a cISR."""
    n_rows = QUICK_ROWS if quick else N_ROWS[problem]
    x, y = rows(problem, n_rows, seed)
    scales = [(v.mean(axis=0), v.std(axis=0)) for v in (x, y)]
    x_rows, y_rows = (((v - m) / s).astype(np.float32) for v, (m, s) in zip((x, y), scales, strict=True))
    module = import_module(
        f"peers.{'bayesflow_flows' if flow == 'BayesFlow' else FLOWS[kind_of(flow)].module}"
    )
    clock = Clock(budget)
    if flow == "BayesFlow":
        sample, n_steps, n_parameters = module.train(x_rows, y_rows, clock, seed=seed)
    else:
        sample, n_steps, n_parameters = train_flow(flow, x_rows, y_rows, clock, seed, shape, library)

    def draw(observed: np.ndarray, n: int) -> np.ndarray:
        (x_mean, x_scale), (y_mean, y_scale) = scales
        return sample((np.atleast_2d(observed) - y_mean) / y_scale, n) * x_scale + x_mean

    return {
        "n_rows": n_rows, "n_steps": n_steps, "n_parameters": n_parameters, "train_cpu_seconds": clock.spent(),
        "train_seconds": clock.wall(), **errors(problem, draw, seed, quick=quick),
    }  # fmt: skip


class Clock:
    """A budget of processor time, running since this was made."""

    def __init__(self, budget: float) -> None:
        self.budget, self._cpu, self._wall = budget, time.process_time(), time.perf_counter()

    def spent(self) -> float:
        return time.process_time() - self._cpu

    def wall(self) -> float:
        return time.perf_counter() - self._wall

    def rate(self) -> float:
        """Return the learning rate that is due: a cosine from the peak to zero over the budget."""
        return PEAK * 0.5 * (1 + math.cos(math.pi * min(1.0, self.spent() / self.budget)))


def train_flow(
    name: str, x: np.ndarray, y: np.ndarray, clock: Clock, seed: int, shape: Shape, library: Mapping[str, int]
) -> tuple[Callable[[np.ndarray, int], np.ndarray], int, int]:
    """Train until the budget is spent; return what draws, the number of steps and of parameters."""
    shape = replace(shape, dim=x.shape[1], condition_dim=y.shape[1])
    own = {
        # Rows are shuffled at every call of isr's program, as at every pass of its fits, which are longer.
        "isr": {"backward": 1.0, "mixing": "linear", "library": library, "steps_a_call": 250},
        "FlowJAX": {"scheduled": True},
    }
    more: dict[str, Any] = own.get(name.split()[0], {})
    flow = build(kind_of(name), shape, x, y, batch_size=BATCH, seed=seed, **more)
    n_steps, at_once = 0, more.get("steps_a_call", 50)
    while clock.spent() < clock.budget:
        flow.train(at_once, rate=clock.rate())
        n_steps += at_once
    return flow.sample, n_steps, flow.n_parameters


def rows(problem: str, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return parameters and noisy observations."""
    return (
        kinematics.sample(n, random_state=seed)
        if problem == "arm"
        else TOYS[problem].sample(n, random_state=seed)
    )


def errors(problem: str, draw: Callable[[np.ndarray, int], np.ndarray], seed: int, *, quick: bool) -> Row:
    """Return the errors over targets from the prior predictive, no draw removed."""
    n_targets, n_draws = (3, 500) if quick else (50 if problem == "arm" else 10, 1000)
    _, targets = rows(problem, n_targets, 12_345 + seed)
    drawn = np.stack([draw(y, n_draws) for y in targets]).astype(float)
    n_bad = int((~np.isfinite(drawn).all(axis=-1)).sum())
    found: Row = {"n_targets": n_targets, "n_draws": n_draws, "n_not_finite": n_bad}
    if n_bad:
        return found | {"failure": f"{n_bad} of {drawn[..., 0].size} draws are not finite"}
    if problem == "arm":
        exact = kinematics.sample_posteriors(targets, n_draws, random_state=seed)
        resimulated = resimulation_error(drawn, targets, kinematics.forward)
        return found | {
            "err_post": float(np.mean(mmd2(drawn, exact))), "err_resim": float(np.mean(resimulated)),
            "err_resim_median": float(np.median(resimulated)),
        }  # fmt: skip
    scores = [
        c2st(TOYS[problem].sample_posterior(y, n_draws, random_state=seed), d, random_state=seed)
        for y, d in zip(targets, drawn, strict=True)
    ]
    return found | {"c2st": float(np.mean(scores))}


if __name__ == "__main__":
    main("equal_time", cases, measure)

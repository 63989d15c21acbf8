"""Further inverse problems with exact posteriors: ballistics, a Gaussian mixture, two moons; cISR beside cINN."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from isr.estimators.inverse import ConditionalISR
from isr.estimators.settings import Effort, Training
from isr.paper import records
from isr.paper.kinematics import LIBRARY
from isr.posterior.calibration import check_calibration
from isr.posterior.metrics import c2st
from isr.problems import ballistics, toys

N_TRAIN, N_DRAWS = 100_000, 1000
COMMON: dict[str, Any] = {
    "n_blocks": 6, "n_layers": 3, "library": LIBRARY,
    "training": Training(
        Effort(30_000, 30_000, 0, peak=2e-3), n_restarts=1, penalty=None, batch_size=100, selection="accuracy",
        verbose=False,
    ),
}  # fmt: skip
MODELS: dict[str, dict[str, Any]] = {"cISR": {}, "cINN": {"subnet": "mlp"}}


@dataclass(frozen=True)
class Problem:
    """An inverse problem with exact posterior draws.

    Args:
        sample: Pairs (x, y) for a number and a seed.
        sample_posterior: Exact draws for one y, a number and a seed.
        options: What the estimator must be told: noise to add and bounds of the prior.
    """

    sample: Callable[[int, int], tuple[np.ndarray, np.ndarray]]
    sample_posterior: Callable[[np.ndarray, int, int], np.ndarray]
    options: dict[str, Any]


def _spread(x: np.ndarray, seed: int) -> np.ndarray:
    """Return launches with their whole-numbered speed spread over a unit, so that it has a density."""
    x = x.copy()
    x[:, 3] += np.random.default_rng([seed, 7]).uniform(-0.5, 0.5, len(x))
    return x


def _sample_ballistics(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    x, y = ballistics.sample(n, random_state=seed)
    return _spread(x, seed), y


def _toy(toy: toys.Toy) -> Problem:
    return Problem(
        lambda n, seed: toy.sample(n, random_state=seed),
        lambda y, n, seed: toy.sample_posterior(y, n, random_state=seed),
        {"noise": 0.0, "bounds": [(-toy.bound, toy.bound)] * 2},
    )


PROBLEMS = {
    "ballistics": Problem(
        _sample_ballistics,
        lambda y, n, seed: _spread(ballistics.sample_posterior(y, n, random_state=seed), seed),
        {"noise": 0.0, "bounds": [None, None, ballistics.ANGLES, None]},
    ),
    "gaussian_mixture": _toy(toys.GAUSSIAN_MIXTURE),
    "two_moons": _toy(toys.TWO_MOONS),
}


def run(
    out: Path,
    *,
    names: Iterable[str] = tuple(PROBLEMS),
    seeds: Iterable[int] = (0,),
    quick: bool = False,
    say: Any = print,
) -> list[dict[str, Any]]:
    """Fit cISR and cINN to every problem and return one row a fit; rows and table go to ``out``."""
    rows = []
    for name in names:
        for label in MODELS:
            for seed in [next(iter(seeds))] if quick else seeds:
                row = fit_one(name, label, seed, quick=quick)
                records.append(out / "posteriors.jsonl", row)
                say(f"{name:17} {label} seed {seed}: C2ST {row['c2st']:.3f}, calibration tests passed "
                    f"{row['n_passed']} of {row['n_tests']}, {row['seconds']:.0f} s")  # fmt: skip
                rows.append(row)
    everything = records.read(out / "posteriors.jsonl")
    (out / "posteriors.md").write_text(table([r for r in everything if r["quick"] == quick]))
    return rows


def fit_one(name: str, label: str, seed: int, *, quick: bool = False) -> dict[str, Any]:
    """Return the row of one fit: C2ST over ten observations and calibration over many."""
    problem = PROBLEMS[name]
    options = {**COMMON, **MODELS[label], **problem.options, "random_state": seed}
    if quick:
        short = replace(options["training"], effort=Effort(1000, 1000, 0, peak=2e-3))
        options |= {"training": short, "n_blocks": 3}
    begun = time.perf_counter()
    model = ConditionalISR(**options).fit(*problem.sample(10_000 if quick else N_TRAIN, seed))
    seconds = time.perf_counter() - begun
    _, observed = problem.sample(3 if quick else 10, 10_000 + seed)
    scores = [
        c2st(model.sample(y[None], N_DRAWS)[0], problem.sample_posterior(y, N_DRAWS, seed), random_state=0)
        for y in observed
    ]
    truths, given = problem.sample(200 if quick else 500, 20_000 + seed)
    tests = check_calibration(truths, model.sample(given, 199))
    point = model.fit_.front[model.chosen_]
    return {
        "experiment": "posteriors", "problem": name, "model": label, "seed": seed, "quick": quick,
        "c2st": float(np.mean(scores)), "c2st_each": scores, "n_passed": int(np.sum(tests["passed"])),
        "n_tests": len(tests), "calibration": tests.reset_index().to_dict("records"),
        "n_constants": point.n_constants, "seconds": seconds, "status": str(model.status_),
    }  # fmt: skip


def table(rows: list[dict[str, Any]]) -> str:
    """Return a Markdown table of the last row of every problem and model."""
    lines = ["| problem | model | C2ST, mean | calibration tests passed | constants | seconds |",
             "|---|---|---|---|---|---|"]  # fmt: skip
    for name, label in dict.fromkeys((r["problem"], r["model"]) for r in rows):
        row = [r for r in rows if (r["problem"], r["model"]) == (name, label)][-1]
        lines.append(f"| {name} | {label} | {row['c2st']:.3f} | {row['n_passed']} of {row['n_tests']} | "
                     f"{row['n_constants']} | {row['seconds']:.0f} |")  # fmt: skip
    return "\n".join(lines) + "\n"

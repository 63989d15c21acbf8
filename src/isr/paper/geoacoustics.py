"""Geoacoustic inversion as in the paper and beyond: one hydrophone, the hydrophones together, the whole array.

Every stage leaves a row and its draws for the measurement of the true environment, and is skipped when both are there:
a run that was stopped goes on where it was.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from joblib import delayed

from isr.estimators.inverse import ConditionalISR, InverseModel
from isr.estimators.settings import Condenser
from isr.ocean import simulate, tasks
from isr.ocean.references import Truths, make_truths
from isr.ocean.swellex import FREQUENCIES, prior
from isr.paper import records
from isr.paper.geoacoustics_figures import draw_figures
from isr.paper.geoacoustics_sizes import (
    ARRAY,
    FULL,
    JOINT_NOISE,
    MODELS,
    ONE_OBSERVATION,
    QUICK,
    REFINED,
    STAGES,
    TRAINING,
    Size,
)
from isr.posterior.calibration import check_calibration
from isr.posterior.metrics import c2st
from isr.posterior.outliers import OutOfDistributionWarning
from isr.posterior.posterior import Posterior
from isr.posterior.priors import parse_prior
from isr.tables.whole_files import write_arrays
from isr.tables.workers import as_they_end

N_DRAWS = 1000


def run(
    out: Path,
    *,
    task: int = 1,
    names: Iterable[str] = STAGES,
    seeds: Iterable[int] = (0,),
    quick: bool = False,
    say: Any = print,
) -> list[dict[str, Any]]:
    """Do every stage of a task that is still to do and return all rows; rows, table and figures go to ``out``."""
    size = QUICK if quick else FULL
    folder = out / f"geoacoustics-task-{task}{'-quick' if quick else ''}"
    for seed in [next(iter(seeds))] if quick else seeds:
        experiment = Experiment(task, seed, size, folder)
        wanted = []
        for name in names:
            if experiment.is_done(name):
                say(f"task {task} {name:12} seed {seed}: found in {folder}")
            else:
                wanted.append(name)
        for row in experiment.stages(wanted, n_at_a_time=2 if quick else 1):
            records.append(out / "geoacoustics.jsonl", {**row, "quick": quick})
            say(f"task {task} {row['model']:12} seed {seed}: {_told(row)}")
    rows = [r for r in records.read(out / "geoacoustics.jsonl") if r["quick"] == quick]
    (out / "geoacoustics.md").write_text(table(rows))
    draw_figures(folder, task, out)
    return [r for r in rows if r["task"] == task]


class Experiment:
    """One task with one seed: training rows, observations, exact posteriors and models, each made when needed.

    Args:
        task: 1 or 2.
        seed: Of everything drawn.
        size: How much of everything.
        folder: Where simulations, references and draws are kept.
    """

    def __init__(self, task: int, seed: int, size: Size, folder: Path) -> None:
        self.task, self.seed, self.size, self.folder = task, seed, size, folder
        self.names = prior(task).names
        self.n_parameters = len(self.names)
        self.noise = tasks.noise_sd()
        self.observed = tasks.observe_truth(seed)

    def is_done(self, name: str) -> bool:
        return self._draws_path(name).exists()

    def stages(self, names: Sequence[str], *, n_at_a_time: int) -> Iterator[dict[str, Any]]:
        """Train, judge and keep the draws of several stages; yield the row of each as it ends."""
        if not names:
            return
        self.truths()
        if not set(names) <= set(REFINED):
            self.training()
        # Most of a short training is compilation, which has one core: two at a time end sooner, the dearest first.
        order = sorted(names, key=lambda name: name not in REFINED) if n_at_a_time > 1 else names
        yield from as_they_end((delayed(self._stage)(name) for name in order), n_jobs=n_at_a_time)

    def _stage(self, name: str) -> dict[str, Any]:
        make = self._array if name == "array" else self._refined if name in REFINED else self._hydrophone
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", OutOfDistributionWarning)
            row, draws = make(name)
        write_arrays(self._draws_path(name), draws)
        return {"experiment": "geoacoustics", "task": self.task, "model": name, "seed": self.seed, **row}

    def _draws_path(self, name: str) -> Path:
        return self.folder / f"draws-{name.replace(' ', '-')}-seed-{self.seed}.npz"

    # Data ---------------------------------------------------------------------------------------------------

    def training(self) -> tuple[np.ndarray, np.ndarray]:
        """Return parameters and complex pressures, simulated once and kept."""
        kept = simulate(
            self.size.n_simulations, self.folder / f"simulations-{self.seed}", prior=prior(self.task), seed=self.seed,
            progress=False,
        )  # fmt: skip
        return kept.x, kept.y.reshape(len(kept.x), len(FREQUENCIES), -1)

    def truths(self) -> Truths:
        """Return simulated observations with their exact posteriors, made once and kept."""
        return make_truths(
            self.task, self.size.n_observations, N_DRAWS, self.folder, seed=self.seed, lattice=self.size.lattice,
            n_pool=self.size.n_pool, n_steps=self.size.n_steps, observed=self.observed,
        )  # fmt: skip

    def fresh(self, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Return parameters and pressures that no model was trained on."""
        m = prior(self.task).sample(n, np.random.default_rng([self.seed, 77]))
        p = tasks.pressures(m)
        solved = np.isfinite(p).all(axis=(1, 2))
        return m[solved], p[solved]

    # Stages -------------------------------------------------------------------------------------------------

    def _hydrophone(self, name: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        kind, more = MODELS[name]
        efforts = {
            "cINN": self.size.network, "cISR": self.size.equations, "cISR condensed": self.size.condensed,
            "cISR sparse": self.size.sparse,
        }  # fmt: skip
        training = replace(TRAINING, effort=efforts.get(name, self.size.hydrophone))
        if name == "cISR sparse":
            training = replace(training, penalty="l0.5", max_time=self.size.sparse_seconds)
        options = {**self.size.shape, "training": training, "random_state": self.seed, **more}
        m, p = self.training()
        y = tasks.hydrophone_rows(p)
        x, y = np.repeat(m, y.shape[1], axis=0), y.reshape(-1, y.shape[2])
        begun = time.perf_counter()
        model = self._fit_rows(kind, options, x, y)
        seconds = time.perf_counter() - begun

        def draw(rows: np.ndarray, n: int, seed: int) -> np.ndarray:
            return model.sample(rows, n, random_state=seed)[..., : self.n_parameters]

        rows = tasks.hydrophone_rows(self.observed[None])[0]
        pooled = draw(rows, N_DRAWS, 0)
        draws = {"pooled": pooled.reshape(-1, self.n_parameters), "each": pooled}
        if kind is ConditionalISR:
            draws["product"] = self._product(model, rows)
        truths = self.truths()
        scores = [
            c2st(draw(y[None], N_DRAWS, 1)[0], exact, random_state=0)
            for y, exact in zip(truths.hydrophone_rows, truths.hydrophone, strict=True)
        ]
        fresh_m, fresh_p = self.fresh(self.size.n_calibration)
        picked = np.random.default_rng(3).integers(fresh_p.shape[2], size=len(fresh_m))
        given = tasks.with_noise(tasks.hydrophone_rows(fresh_p)[np.arange(len(fresh_m)), picked], 4)
        row = {
            "scope": "hydrophone", "c2st": float(np.mean(scores)), "c2st_each": scores, "seconds": seconds,
            **self._calibration(fresh_m, draw(given, 199, 2)), **_size(model),
            "estimates": {key: self._estimate(value) for key, value in draws.items() if key != "each"},
        }  # fmt: skip
        if kind is ConditionalISR:
            row["log_score"] = float(np.mean(model.log_prob(fresh_m, given)))
        if name == "cISR sparse":
            row["front"] = model.front_[["n_parameters", "nll"]].to_dict("records")
        return row, draws

    def _fit_rows(
        self, kind: type[InverseModel], options: dict[str, Any], x: np.ndarray, y: np.ndarray
    ) -> Any:
        """Fit to rows of parameters and of one hydrophone's noise-free pressures."""
        frame, box = _frame(x, self.names), dict(tasks.prior_ranges(self.task))
        if kind is ConditionalISR:
            # Given y and m the noise is known: the conditional form needs no input for it.
            return kind(noise=self.noise, bounds=box, **options).fit(
                frame, _frame(y, tasks.hydrophone_names())
            )
        noise = self.noise * np.random.default_rng([self.seed, 5]).normal(size=y.shape)
        for i, column in enumerate(tasks.hydrophone_names()):
            frame[f"noise_{column}"] = noise[:, i]
        return kind(noise=JOINT_NOISE * self.noise, bounds=box, **options).fit(
            frame, _frame(y + noise, tasks.hydrophone_names())
        )

    def _product(self, model: Any, rows: np.ndarray) -> np.ndarray:
        """Draws of the product of the hydrophones' posteriors, the prior counted once."""
        post = Posterior(model.flow_, rows, prior=parse_prior(tasks.prior_ranges(self.task)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return post.sample(N_DRAWS)

    def _array(self, name: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        m, p = self.training()
        model = ConditionalISR(
            noise=self.noise,
            bounds=tasks.prior_ranges(self.task),
            training=replace(TRAINING, effort=self.size.array, backward=0.0),
            random_state=self.seed,
            **ARRAY,
        )
        begun = time.perf_counter()
        model.fit(_frame(m, self.names), _frame(tasks.array_rows(p), tasks.array_names()))
        seconds = time.perf_counter() - begun
        y_star = tasks.array_rows(self.observed[None])
        truths = self.truths()
        drawn = model.sample(truths.array_rows, N_DRAWS, random_state=1)
        fresh_m, fresh_p = self.fresh(self.size.n_calibration)
        given = tasks.with_noise(tasks.array_rows(fresh_p), 4)
        model.save(self.folder / "array.isr")
        draws = {"array": model.sample(y_star, N_DRAWS)[0], "exact": truths.at_truth}
        return {
            "scope": "array", "seconds": seconds, **_judged(drawn, truths), **_size(model),
            **self._calibration(fresh_m, model.sample(given, 199, random_state=2)),
            "log_score": float(np.mean(model.log_prob(fresh_m, given))),
            "estimates": {key: self._estimate(value) for key, value in draws.items()},
        }, draws  # fmt: skip

    def _refined(self, name: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        truths = self.truths()
        y_star = tasks.array_rows(self.observed[None])[0]
        fits = [self._refined_once(name, i, y) for i, y in enumerate((*truths.array_rows, y_star))]
        draws = {name: fits[-1]["draws"], "exact": truths.at_truth}
        return {
            "scope": "array", "seconds": float(np.mean([fit["seconds"] for fit in fits])),
            **_judged(np.stack([fit["draws"] for fit in fits[:-1]]), truths),
            "n_constants": int(fits[-1]["n_constants"]), "complexity": int(fits[-1]["complexity"]),
            "rounds": [int(fit["rounds"]) for fit in fits], "n_simulations": [int(fit["simulated"]) for fit in fits],
            "estimates": {key: self._estimate(value) for key, value in draws.items()},
        }, draws  # fmt: skip

    def _refined_once(self, name: str, i: int, y: np.ndarray) -> dict[str, np.ndarray]:
        """Return draws and costs of the i-th observation's model, trained once and kept: each takes a minute or two."""
        stem = name.replace(" ", "-")
        path = self.folder / f"{stem}-{i}-seed-{self.seed}.npz"
        if not path.exists():
            begun = time.perf_counter()
            fit = self._refine(name, y)
            kept = {
                "draws": fit.posterior(y).sample(N_DRAWS, 1), "rounds": np.array(len(fit.rounds_)),
                "simulated": np.array(fit.n_simulated_), "seconds": np.array(time.perf_counter() - begun),
            }  # fmt: skip
            size = {k: np.array(v) for k, v in _size(fit).items() if k != "status"}
            fit.save(self.folder / f"{stem}.isr")
            write_arrays(path, kept | size)
        with np.load(path) as found:
            return dict(found)

    def _refine(self, name: str, y: np.ndarray) -> ConditionalISR:
        """Return a model for one observation, in truncated rounds."""
        linear = Condenser(self.n_parameters, kind="linear")
        model = ConditionalISR(
            noise=self.noise, condenser=linear if name == "refined linear" else Condenser(8),
            training=replace(TRAINING, effort=self.size.refined, backward=0.0), random_state=self.seed,
            **ONE_OBSERVATION,
        )  # fmt: skip
        return model.fit_simulator(
            tasks.prior_ranges(self.task),
            tasks.simulate_array,
            self.size.n_refined,
            y_star=y,
            rounds=self.size.n_rounds,
        )

    # Judgement ----------------------------------------------------------------------------------------------

    def _calibration(self, m: np.ndarray, drawn: np.ndarray) -> dict[str, Any]:
        tests = check_calibration(m, drawn, names=list(self.names))
        low, high = np.quantile(drawn, [0.025, 0.975], axis=1)
        return {
            "calibration": tests.reset_index().to_dict("records"), "n_passed": int(np.sum(tests["passed"])),
            "n_tests": len(tests), "coverage_95": float(np.mean((m >= low) & (m <= high))),
        }  # fmt: skip

    def _estimate(self, draws: np.ndarray) -> dict[str, list[float]]:
        return {"mean": draws.mean(axis=0).tolist(), "sd": draws.std(axis=0).tolist()}


def _judged(drawn: np.ndarray, truths: Truths) -> dict[str, Any]:
    """Return how draws for simulated observations of the array compare with the exact posteriors."""
    exact = truths.array
    mean, sd = exact.mean(axis=1), exact.std(axis=1)
    offset = np.abs(drawn.mean(axis=1) - mean) / sd
    ratio = drawn.std(axis=1) / sd
    scores = [c2st(a, b, random_state=0) for a, b in zip(drawn, exact, strict=True)]
    low, high = np.quantile(drawn, [0.025, 0.975], axis=1)
    return {
        "c2st": float(np.mean(scores)), "c2st_each": scores,
        "offset": float(np.mean(offset)), "offset_each": offset.tolist(),
        "sd_ratio": float(np.median(ratio)), "sd_ratio_each": ratio.tolist(),
        "coverage_of_observations": float(np.mean((truths.m >= low) & (truths.m <= high))),
    }  # fmt: skip


def _size(model: InverseModel) -> dict[str, Any]:
    point = model.fit_.front[model.chosen_]
    return {"n_constants": point.n_constants, "complexity": point.complexity, "status": str(model.status_)}


def _frame(rows: np.ndarray, names: Iterable[str]) -> Any:
    import pandas as pd

    return pd.DataFrame(np.asarray(rows, dtype=float), columns=list(names))


def _told(row: dict[str, Any]) -> str:
    more = (
        f", mean off by {row['offset']:.2f} sd, sd {row['sd_ratio']:.2f} of exact" if "offset" in row else ""
    )
    return f"C2ST {row['c2st']:.3f}{more}, {row['n_constants']} constants, {row['seconds']:.0f} s"


def table(rows: list[dict[str, Any]]) -> str:
    """Return a Markdown table of the last row of every task and model."""
    lines = [
        "| task | model | reads | C2ST | mean off by (sd) | sd / exact sd | 95 % intervals hold | calibration | "
        "constants | seconds |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    latest = records.latest(rows, "task", "model", "seed")
    for row in sorted(latest, key=lambda r: (r["task"], STAGES.index(r["model"]))):
        covered = row["coverage_95"] if "coverage_95" in row else row["coverage_of_observations"]
        passed = f"{row['n_passed']} of {row['n_tests']}" if "n_passed" in row else ""
        offset = f"{row['offset']:.2f}" if "offset" in row else ""
        ratio = f"{row['sd_ratio']:.2f}" if "sd_ratio" in row else ""
        lines.append(
            f"| {row['task']} | {row['model']} | {row['scope']} | {row['c2st']:.3f} | {offset} | {ratio} | "
            f"{100 * covered:.0f} % | {passed} | {row['n_constants']} | {row['seconds']:.0f} |"
        )
    return "\n".join(lines) + "\n"

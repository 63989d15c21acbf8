"""Inverse kinematics as in the paper: INN, cINN, ISR and cISR on the planar arm, against exact posteriors."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from isr.estimators.inverse import ISR, ConditionalISR, InverseModel
from isr.estimators.settings import Effort, Training
from isr.paper import records
from isr.posterior.calibration import check_calibration
from isr.posterior.metrics import mmd2, resimulation_error
from isr.problems import kinematics as arm
from isr.storage import load
from isr.tables.extras import need

N_TRAIN = 1_000_000
N_STABILITY = 10_000_000
# Steps of a hundred rows, the same for all; a sparse model spends them on warm-up, sparsifying and refit.
DENSE = Effort(120_000, 120_000, 0, peak=2e-3)
SPARSE = Effort(60_000, 60_000, 40_000, peak=4e-3)
# A readable model has at most so many constants in all its equations.
READABLE = 400
# Bounded functions: squares of squares, as the paper's library has them, throw one draw in a thousand far away.
LIBRARY = {"constant": 1, "id": 2, "sin": 4, "sigmoid": 2, "product": 1}
# For cISR more functions pay: Err_post 0.0005 and Err_resim 2.3e-4 instead of 0.0011 and 3.0e-4. For ISR they do not:
# 0.0042 and 4.2e-4 instead of 0.0040 and 4.7e-4.
WIDER = {"constant": 1, "id": 2, "sin": 6, "sigmoid": 2, "product": 2}
COMMON: dict[str, Any] = {
    "n_blocks": 6, "n_layers": 3, "noise": arm.SIGMA_Y, "library": LIBRARY,
    "training": Training(DENSE, n_restarts=1, batch_size=100, selection="accuracy", verbose=False),
}  # fmt: skip
MODELS: dict[str, tuple[type[InverseModel], dict[str, Any]]] = {
    "INN": (ISR, {"subnet": "mlp"}),
    "cINN": (ConditionalISR, {"subnet": "mlp"}),
    "ISR": (ISR, {"training": replace(COMMON["training"], penalty=None)}),
    "cISR": (
        ConditionalISR,
        {"library": WIDER, "training": replace(COMMON["training"], penalty=None)},
    ),
    "cISR readable": (
        ConditionalISR,
        {
            "n_blocks": 5,
            "n_layers": 1,
            "library": {"constant": 1, "sin": 2, "product": 1},
            "training": replace(COMMON["training"], effort=SPARSE, backward=0.3),
        },
    ),
}
# Err_post / Err_resim of the paper's table.
PAPER = {
    "INN": (0.0259, 0.0163), "cINN": (0.0162, 0.0087), "ISR": (0.0286, 0.0196), "cISR": (0.0221, 0.0134)
}  # fmt: skip


class Targets(NamedTuple):
    """End points to invert, with the arms they came from and exact posterior draws.

    Attributes:
        x: Arms from the prior.
        y: Their end points, with noise.
        reference: Exact posterior draws for each.
    """

    x: np.ndarray
    y: np.ndarray
    reference: np.ndarray


def draw_targets(n: int, n_draws: int, *, seed: int = 12_345) -> Targets:
    """Return ``n`` end points with ``n_draws`` exact posterior draws each."""
    x, y = arm.sample(n, random_state=seed)
    return Targets(x, y, arm.sample_posteriors(y, n_draws, random_state=seed + 1))


def run(
    out: Path,
    *,
    names: Iterable[str] = tuple(MODELS),
    seeds: Iterable[int] = (0,),
    quick: bool = False,
    say: Any = print,
) -> list[dict[str, Any]]:
    """Train every model, judge it on many targets and return one row a fit; rows, table and figure go to ``out``."""
    targets = draw_targets(100, 200) if quick else draw_targets(1000, 1000)
    rows = []
    for name in names:
        for seed in [next(iter(seeds))] if quick else seeds:
            model, seconds = train(name, seed, quick=quick)
            row = {
                "experiment": "kinematics", "model": name, "seed": seed, "quick": quick, "seconds": seconds,
                **judge(model, targets, n_stability=100_000 if quick else N_STABILITY),
                **at_the_papers_target(model),
            }  # fmt: skip
            if name == "cISR readable":
                row["front"] = judge_front(model, targets)
            records.append(out / "kinematics.jsonl", row)
            model.save(_file(out, name))
            say(f"{name:14} seed {seed}: Err_post {row['err_post']:.4f}, Err_resim {row['err_resim']:.2e}, "
                f"{row['n_constants']} constants, {seconds:.0f} s")  # fmt: skip
            rows.append(row)
    everything = records.read(out / "kinematics.jsonl")
    (out / "kinematics.md").write_text(table([r for r in everything if r["quick"] == quick]))
    figure(out, n=300 if quick else 1000)
    return rows


def train(name: str, seed: int, *, quick: bool = False) -> tuple[InverseModel, float]:
    """Return a trained model and the seconds its training took, compilation included."""
    kind, options = MODELS[name]
    options = {**COMMON, **options, "random_state": seed}
    if quick:
        shape = {"n_blocks": 4, "n_layers": min(2, options["n_layers"])}
        short = replace(options["training"], effort=Effort(1500, 1000, 200, peak=4e-3))
        options |= {"training": short, **shape}
    x = arm.sample_prior(20_000 if quick else N_TRAIN, np.random.default_rng(seed))
    begun = time.perf_counter()
    model = kind(**options).fit(_named(x, arm.X_NAMES), _named(arm.forward(x), arm.Y_NAMES))
    seconds = time.perf_counter() - begun
    if name == "cISR readable":
        model.choose(complexity=_complexity_within(model, READABLE))
    return model, seconds


def _complexity_within(model: InverseModel, n_constants: int) -> int:
    """Return the complexity of the most accurate model of the front with so few constants, or of its simplest."""
    fitting = [p.complexity for p in model.fit_.front if p.n_constants <= n_constants]
    return max(fitting, default=model.fit_.front[0].complexity)


def _named(rows: np.ndarray, names: tuple[str, ...]) -> Any:
    import pandas as pd

    return pd.DataFrame(rows, columns=list(names))


def judge(model: InverseModel, targets: Targets, *, n_stability: int) -> dict[str, Any]:
    """Return a model's errors over the targets, its calibration, its size, and how many draws were not finite."""
    n, n_draws = targets.reference.shape[:2]
    drawn = model.sample(targets.y, n_draws, random_state=1)
    n_bad = count_non_finite(model, n_stability)
    error = resimulation_error(drawn, targets.y, arm.forward)
    point = model.fit_.front[model.chosen_]
    row = {
        "err_post": float(np.mean(mmd2(drawn, targets.reference))),
        "err_post_biased": float(np.mean(mmd2(drawn, targets.reference, unbiased=False))),
        "err_resim": float(np.mean(error)), "err_resim_median": float(np.median(error)),
        "err_resim_worst": float(np.max(error)),
        "n_targets": n, "n_draws": n_draws, "n_constants": point.n_constants, "complexity": point.complexity,
        "n_not_finite": n_bad, "n_stability": n_stability, "status": str(model.status_),
    }  # fmt: skip
    if np.all(np.isfinite(drawn)):
        tests = check_calibration(targets.x, drawn, names=list(arm.X_NAMES))
        row["calibration"] = tests.reset_index().to_dict("records")
    return row


def judge_front(model: InverseModel, targets: Targets, n: int = 200) -> list[dict[str, float]]:
    """Return constants and errors of every model of the front, over the first ``n`` targets."""
    y, reference = targets.y[:n], targets.reference[:n]
    rows = []
    for point in model.fit_.front:
        repeated = np.repeat(y, reference.shape[1], axis=0)
        drawn = point.model.sample(jax.random.key(1), len(repeated), repeated).reshape(
            *reference.shape[:2], -1
        )
        rows.append(
            {
                "n_constants": point.n_constants, "err_post": float(np.mean(mmd2(drawn, reference))),
                "err_resim": float(np.mean(resimulation_error(drawn, y, arm.forward))),
            }
        )  # fmt: skip
    return rows


def count_non_finite(model: InverseModel, n: int, *, chunk: int = 1_000_000) -> int:
    """Return how many of ``n`` posterior draws are not finite, each for its own y of the prior predictive."""
    n_bad = 0
    for start in range(0, n, chunk):
        size = min(chunk, n - start)
        _, y = arm.sample(size, random_state=start + 99)
        drawn = model.sample(y, 1, random_state=start)
        n_bad += int(np.sum(~np.isfinite(drawn).all(axis=-1)))
    return n_bad


def at_the_papers_target(model: InverseModel, n: int = 1000) -> dict[str, float]:
    """The paper's protocol: one end point, ground truth by rejection with a threshold."""
    truth = arm.sample_by_rejection(arm.TARGET, n, threshold=0.02, random_state=5).samples
    drawn = model.sample([arm.TARGET], n, random_state=2)
    return {
        "paper_err_post": float(mmd2(drawn[0], truth)),
        "paper_err_resim": float(resimulation_error(drawn[0], arm.TARGET, arm.forward)),
    }


def table(rows: list[dict[str, Any]]) -> str:
    """Return a Markdown table, the paper's figures beside ours."""
    lines = [
        "| model | Err_post | Err_resim | paper: Err_post | Err_resim | constants | at (0, 1.5): Err_post | "
        "Err_resim | calibration | not finite | seconds |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name in dict.fromkeys(r["model"] for r in rows):
        row = [r for r in rows if r["model"] == name][-1]
        paper = PAPER.get(name, ("", ""))
        tests = row.get("calibration", [])
        passed = f"{sum(t['passed'] for t in tests)} of {len(tests)}" if tests else "none"
        lines.append(
            f"| {name} | {row['err_post']:.4f} | {row['err_resim']:.2e} | {paper[0]} | {paper[1]} | "
            f"{row['n_constants']} | {row['paper_err_post']:.4f} | {row['paper_err_resim']:.2e} | {passed} | "
            f"{row['n_not_finite']} of {row['n_stability']:.0e} | {row['seconds']:.0f} |"
        )
    return "\n".join(lines) + "\n"


def _file(out: Path, name: str) -> Path:
    return out / f"kinematics-{name.replace(' ', '-')}.isr"


def figure(out: Path, *, n: int = 1000) -> None:
    """Draw arms that reach (0, 1.5): by rejection, and by every model saved in ``out``."""
    need("matplotlib").use("agg")
    plt = need("matplotlib.pyplot")

    names = [name for name in MODELS if _file(out, name).exists()]
    fig, axes = plt.subplots(
        1, 1 + len(names), figsize=(3.1 * (1 + len(names)), 3.5), squeeze=False, layout="constrained"
    )
    truth = arm.sample_by_rejection(arm.TARGET, n, threshold=0.02, random_state=5).samples
    arm.plot_arms(axes[0, 0], truth, arm.TARGET, colour="0.35")
    axes[0, 0].set_title("rejection")
    for i, name in enumerate(names):
        post = load(_file(out, name)).posterior(arm.TARGET)
        drawn = post.sample(n, random_state=3)
        density = post.log_prob(drawn)
        arm.plot_arms(axes[0, i + 1], drawn, arm.TARGET, log_prob=density, colour=f"C{i}")
        axes[0, i + 1].set_title(name)
    fig.savefig(out / "kinematics.png", dpi=130)
    plt.close(fig)

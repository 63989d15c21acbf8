"""Density estimation as in the paper: INN and ISR on Gaussian, Banana, Ring and a mixture of two Gaussians."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed

from isr.estimators.settings import Effort, Training
from isr.estimators.symbolic_flow import SymbolicFlow
from isr.paper import records
from isr.problems.densities import DENSITIES
from isr.tables.extras import need
from isr.training.checkpoint import History

N_TRAIN, N_TEST, N_DRAWN = 10_000, 100_000, 5_000
# A look takes two fits at a time, in processes of their own: most of a short fit is compilation.
N_TRAIN_CHARTS = 3_000
# One start under every penalty at once: each further phase of another size would be compiled on its own.
QUICK: dict[str, Any] = {"effort": Effort(0, 2400, 200), "n_restarts": 1}

# Squares and products fit no better, and leave some fresh samples in ten thousand with next to no density.
BOUNDED = {"constant": 1, "id": 2, "sin": 2, "sigmoid": 8}
# Two affine blocks can only approach a ring or two modes: every weight is kept, since accuracy is all there is to gain.
TWO_BLOCKS: dict[str, Any] = {
    "n_blocks": 2, "n_layers": 2, "mixing": "linear", "library": BOUNDED,
    "training": Training(
        Effort(8000, 8000, 0), n_restarts=8, penalty=None, batch_size=256, selection="accuracy", verbose=False
    ),
}  # fmt: skip
# Blocks as in the paper; "charts" lets the fit choose among closed-form charts beyond affine couplings.
MODELS: dict[str, dict[str, dict[str, Any]]] = {
    "gaussian": {"INN": {"n_blocks": 1, "subnet": "mlp"}, "ISR": {"n_blocks": 1, "charts": ()}},
    "banana": {"INN": {"n_blocks": 1, "subnet": "mlp"}, "ISR": {"n_blocks": 1, "charts": ()}},
    "ring": {
        "INN": {"n_blocks": 2, "subnet": "mlp"},
        "ISR": TWO_BLOCKS,
        "ISR charts": {"n_blocks": 1, "charts": "auto"},
    },
    "mog": {
        "INN": {"n_blocks": 2, "subnet": "mlp"},
        "ISR": TWO_BLOCKS,
        "ISR charts": {"n_blocks": 1, "charts": "auto"},
    },
}


def run(
    out: Path,
    *,
    names: Iterable[str] = tuple(MODELS),
    seeds: Iterable[int] = range(5),
    quick: bool = False,
    say: Any = print,
) -> list[dict[str, Any]]:
    """Fit every model on every density and return one row a fit; rows, table and figure go to ``out``."""
    rows, drawn = [], {}
    wanted = [next(iter(seeds))] if quick else list(seeds)
    cases = [(name, label, seed) for name in names for label in MODELS[name] for seed in wanted]
    if quick:  # two at a time end sooner when the dearest begin
        cases.sort(key=lambda case: "charts" not in MODELS[case[0]][case[1]])
    fits: Any = Parallel(n_jobs=2 if quick else 1, return_as="generator")(
        delayed(_fit_and_draw)(name, label, seed, quick=quick) for name, label, seed in cases
    )
    for (name, label, seed), (row, samples, history) in zip(cases, fits, strict=True):
        records.append(out / "densities.jsonl", row)
        say(f"{name:9} {label:11} seed {seed}: KL {row['kl']:.4f}, {row['n_constants']} constants, "
            f"complexity {row['complexity']}, {row['seconds']:.0f} s")  # fmt: skip
        rows.append(row)
        drawn[name, label] = samples
        if (name, label) == ("banana", "ISR"):
            curves(history, out / "history.png")
    everything = records.latest(records.read(out / "densities.jsonl"), "density", "model", "seed", "quick")
    (out / "densities.md").write_text(table([r for r in everything if r["quick"] == quick]))
    figure(drawn, out / "densities.png")
    return rows


def _fit_and_draw(
    name: str, label: str, seed: int, *, quick: bool
) -> tuple[dict[str, Any], np.ndarray, History]:
    row, model = fit_one(name, label, MODELS[name][label], seed, quick=quick)
    return row, model.sample(N_DRAWN), model.history_


def fit_one(
    name: str, label: str, options: dict[str, Any], seed: int, *, quick: bool = False
) -> tuple[dict[str, Any], SymbolicFlow]:
    """Return the row and the model of one fit."""
    density = DENSITIES[name]
    training = options.get("training", Training(verbose=False))
    if quick:
        options, training = {"n_layers": 1, **options}, replace(training, **QUICK)
    # Trying charts is the dearest part of a quick look, and its laws have a handful of constants.
    n_rows = N_TRAIN_CHARTS if quick and "charts" in options else N_TRAIN
    begun = time.perf_counter()
    model = SymbolicFlow(**{**options, "training": training, "random_state": seed}).fit(
        density.sample(n_rows, random_state=seed)
    )
    seconds = time.perf_counter() - begun
    test = density.sample(N_TEST, random_state=1_000 + seed)
    point = model.fit_.front[model.chosen_]
    row = {
        "experiment": "densities", "density": name, "model": label, "seed": seed, "quick": quick,
        "kl": float(np.mean(density.log_prob(test) - model.score_samples(test))),
        "n_constants": point.n_constants,
        "complexity": point.complexity, "seconds": seconds, "charts": list(model.fit_.charts),
        "status": str(model.status_), "options": options,
        "equations": model.expressions_.text() if label != "INN" else "",
    }  # fmt: skip
    return row, model


def table(rows: list[dict[str, Any]]) -> str:
    """Return a Markdown table of medians over the seeds, and the equations of each density's first seed."""
    lines = ["| density | model | KL (nats), median | worst | constants | complexity | seconds | seeds |",
             "|---|---|---|---|---|---|---|---|"]  # fmt: skip
    rows = sorted(
        rows, key=lambda r: (list(MODELS).index(r["density"]), list(MODELS[r["density"]]).index(r["model"]))
    )
    for name, label in dict.fromkeys((r["density"], r["model"]) for r in rows):
        group = [r for r in rows if (r["density"], r["model"]) == (name, label)]

        def median(field: str, group: list[dict[str, Any]] = group) -> float:
            return float(np.median([r[field] for r in group]))

        worst = max(r["kl"] for r in group)
        lines.append(
            f"| {name} | {label} | {median('kl'):.4f} | {worst:.4f} | {median('n_constants'):.0f} | "
            f"{median('complexity'):.0f} | {median('seconds'):.0f} | {len(group)} |"
        )
    shown = {(r["density"], r["model"]): r for r in reversed(rows) if r["equations"]}
    for (name, label), row in reversed(shown.items()):
        lines += ["", f"**{name}, {label}** (seed {row['seed']})", "", "```", row["equations"][:4000], "```"]
    return "\n".join(lines) + "\n"


def curves(history: History, path: Path) -> None:
    """Draw the training curves of a fit."""
    need("matplotlib").use("agg")
    plt = need("matplotlib.pyplot")

    ax = history.plot()
    ax.figure.tight_layout()
    ax.figure.savefig(path, dpi=130)
    plt.close(ax.figure)


def figure(drawn: dict[tuple[str, str], np.ndarray], path: Path) -> None:
    """Show samples of the truth and of every model, densities in columns, models in rows."""
    need("matplotlib").use("agg")
    plt = need("matplotlib.pyplot")

    names = [name for name in MODELS if any(name == other for other, _ in drawn)]
    labels = [
        "truth",
        *dict.fromkeys(label for name in names for label in MODELS[name] if (name, label) in drawn),
    ]
    fig, axes = plt.subplots(
        len(labels), len(names), figsize=(2.2 * len(names), 2.2 * len(labels)), squeeze=False
    )
    first = {label: next(n for n in names if label == "truth" or (n, label) in drawn) for label in labels}
    for column, name in enumerate(names):
        truth = DENSITIES[name].sample(N_DRAWN, random_state=0)
        low, high = truth.min(axis=0) - 0.5, truth.max(axis=0) + 0.5
        for row, label in enumerate(labels):
            ax = axes[row][column]
            ax.set(xticks=[], yticks=[])
            if label == "truth":
                x = truth
                ax.set_title(name)
            elif (name, label) in drawn:
                x = drawn[name, label]
            else:
                ax.set_axis_off()
                continue
            ax.scatter(*x.T, s=1.2, alpha=0.3, lw=0, color="0.3" if label == "truth" else f"C{row - 1}")
            ax.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]))
            if name == first[label]:
                ax.set_ylabel(label)
    fig.tight_layout()
    fig.savefig(path, dpi=130)
    plt.close(fig)

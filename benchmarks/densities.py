"""Densities with default options: `isr.SymbolicFlow` beside a normal law, a mixture by BIC and a kernel density.

    python benchmarks/densities.py [--quick] [--out rows.jsonl] [--only "two moons"] [--seed 0]

One row per density, seed and method: KL in nats on 100,000 fresh rows (20,000 where the truth is slow), the worst row,
constants, processor time and equations. Tables that ship with scikit-learn are split five times; the rows hold the mean
log-likelihood of the fifth that was left out. `unlisted` holds the densities.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from scipy import stats

from harness import Case, Row, main
from unlisted import LISTED, MORE, OTHERS

TABLES = ("iris", "wine", "diabetes", "breast_cancer")
METHODS = ("isr", "normal", "mixture", "kernel")
SEEDS, SPLITS, N_TRAIN, N_FRESH = 5, 5, 10_000, 100_000
SLOW_TRUTHS = {"pinwheel": 20_000, "spiral": 20_000, "two moons": 20_000}

LogProb = Callable[[np.ndarray], np.ndarray]


def cases(quick: bool) -> list[Case]:
    """Every density with every seed, every table with every split, one method after the other."""
    if quick:
        return [Case({"density": "square", "method": "isr", "number": 0})]
    densities = [*LISTED, *OTHERS, *MORE]
    drawn = [
        Case({"density": d, "method": m, "number": i})
        for d in densities
        for m in METHODS
        for i in range(SEEDS)
    ]
    tables = [
        Case({"table": t, "method": m, "number": i}) for t in TABLES for m in METHODS for i in range(SPLITS)
    ]
    return drawn + tables


def measure(
    *, method: str, number: int, quick: bool, seed: int, density: str | None = None, table: str | None = None
) -> Iterator[Row]:
    """Yield the row of one fit."""
    warnings.simplefilter("ignore")
    number += seed
    if density is not None:
        truth = {**LISTED, **OTHERS, **MORE}[density]()
        train = truth.sample(2000 if quick else N_TRAIN, number)
        fresh = truth.sample(2000 if quick else SLOW_TRUTHS.get(density, N_FRESH), 1000 + number)
        expected = truth.log_prob(fresh)
    else:
        train, fresh = split(str(table), number)
        expected = None
    began = time.process_time()
    log_prob, about = FITS[method](train, number)
    seconds = time.process_time() - began
    found = log_prob(fresh)
    row = {"fit_cpu_seconds": round(seconds, 1), "log_likelihood": float(np.mean(found)), **about}
    if expected is not None:
        row |= {"kl": float(np.mean(expected - found)), "worst_row": float(np.max(expected - found))}
    yield row


def split(name: str, number: int) -> tuple[np.ndarray, np.ndarray]:
    """Return four fifths of a table's rows, and the others; constant columns left out."""
    from sklearn import datasets

    x = getattr(datasets, f"load_{name}")().data.astype(float)
    order = np.random.default_rng(number).permutation(len(x))
    return np.array_split(x[order], [len(x) - len(x) // 5])[0], x[order][len(x) - len(x) // 5 :]


def _isr(x: np.ndarray, seed: int) -> tuple[LogProb, Row]:
    import isr

    model = isr.SymbolicFlow(random_state=seed, training=isr.Training(verbose=False)).fit(x)
    return model.score_samples, {
        "n_constants": model.expressions_.n_constants,
        "n_parameters": model.fit_.front[model.chosen_].n_constants,
        "status": str(model.status_), "form": repr(model.flow_), "equations": model.expressions_.text()[:4000],
    }  # fmt: skip


def _normal(x: np.ndarray, seed: int) -> tuple[LogProb, Row]:
    law = stats.multivariate_normal(x.mean(axis=0), np.cov(x.T))
    return law.logpdf, {}


def _mixture(x: np.ndarray, seed: int) -> tuple[LogProb, Row]:
    """The mixture that BIC likes best, of up to 12 components, full or diagonal, of standardised columns."""
    from sklearn.mixture import GaussianMixture

    mean, sd = x.mean(axis=0), x.std(axis=0)
    models = [
        GaussianMixture(k, covariance_type=kind, n_init=3, random_state=seed).fit((x - mean) / sd)
        for kind in ("full", "diag") for k in range(1, 13) if k * x.shape[1] < len(x)
    ]  # fmt: skip
    best: Any = min(models, key=lambda m: m.bic((x - mean) / sd))
    return lambda v: best.score_samples((v - mean) / sd) - np.sum(np.log(sd)), {
        "n_components": best.n_components
    }


def _kernel(x: np.ndarray, seed: int) -> tuple[LogProb, Row]:
    """A normal kernel on standardised columns, its width by cross-validation."""
    from sklearn.model_selection import GridSearchCV
    from sklearn.neighbors import KernelDensity

    mean, sd = x.mean(axis=0), x.std(axis=0)
    search = GridSearchCV(KernelDensity(), {"bandwidth": np.geomspace(0.02, 1.0, 15)}, cv=5)
    best = search.fit((x[:4000] - mean) / sd).best_params_
    kernel = KernelDensity(**best, rtol=1e-4).fit((x - mean) / sd)
    return lambda v: kernel.score_samples((v - mean) / sd) - np.sum(np.log(sd)), best


FITS: dict[str, Callable[[np.ndarray, int], tuple[LogProb, Row]]] = {
    "isr": _isr, "normal": _normal, "mixture": _mixture, "kernel": _kernel,
}  # fmt: skip

if __name__ == "__main__":
    main("densities", cases, measure)

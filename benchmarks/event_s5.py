"""The posterior of the seven parameters of event S5 (task 3) by long chains, of two kinds that must agree.

    python benchmarks/event_s5.py [--quick] [--out rows.jsonl] [--seed 0] [--only gradients]

The recording is simulated at the published parameters: ten snapshots of a source of changing level and phase on 21
hydrophones at two tones, 15 dB. No-U-turn chains begin around the best fit, sought from the likeliest prior draws;
walkers (emcee) take no gradients and begin at the best fits from several of these draws. A row holds mean and deviation
of every parameter, how far the truth lies off, and what it took.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from harness import Case, Row, main

TONES, N_SNAPSHOTS, DB = (112.0, 201.0), 10, 15.0
N_STARTS = 4


def measure(*, kind: str, seed: int, quick: bool) -> Iterator[Row]:
    """Draw the posterior by one kind of chains."""
    from isr.ocean import TASK_3, bartlett_likelihood, event_s5, pressure
    from isr.ocean.chains import best_fit, gradient_posterior
    from isr.ocean.posteriors import ensemble_posterior
    from isr.ocean.swellex import EVENT_S5_TRUTH

    covariance = recorded(pressure(event_s5(), TONES), np.random.default_rng(seed))
    likelihood = bartlett_likelihood(covariance, N_SNAPSHOTS, event_s5, TONES)

    def values(rows: np.ndarray) -> np.ndarray:
        p = pressure([event_s5(*row) for row in rows], TONES, n_jobs=1, on_error="nan", progress=False)
        size = np.sum(np.abs(p) ** 2, axis=2)
        power = np.einsum("nfi,fij,nfj->nf", p.conj(), covariance, p).real / size
        total = np.trace(covariance, axis1=1, axis2=2).real
        return -N_SNAPSHOTS * p.shape[2] * np.sum(np.log(total - power), axis=1)

    pool = TASK_3.sample(300 if quick else 5000, np.random.default_rng([seed, 1]))
    found = values(pool)
    starts = pool[np.argsort(-np.nan_to_num(found, nan=-np.inf))[:N_STARTS]]
    row: Row = {"names": list(TASK_3.names), "truth": list(EVENT_S5_TRUTH), "n_pool": len(pool)}
    if kind == "gradients":
        chains = gradient_posterior(
            likelihood, starts, TASK_3.bounds, n_chains=2, n_samples=20 if quick else 200,
            n_warmup=10 if quick else 100, random_state=seed,
        )  # fmt: skip
        draws, effective = chains.samples, chains.effective_size
        row |= {"r_hat": chains.r_hat, "n_likelihoods": chains.n_likelihoods, "best": chains.best.tolist()}
        row["nats_above_truth"] = likelihood(chains.best)[0] - likelihood(np.array(EVENT_S5_TRUTH))[0]
    else:
        fits = np.stack([best_fit(likelihood, one[None], TASK_3.bounds) for one in starts])
        walkers: dict[str, Any] = {"n_walkers": 32, "n_steps": 20 if quick else 4000, "random_state": seed}
        ensemble = ensemble_posterior(fits, values(fits), values, TASK_3.bounds, **walkers)
        draws, effective = ensemble.samples, ensemble.effective_size
        row |= {"acceptance": ensemble.acceptance, "n_likelihoods": 32 * walkers["n_steps"]}
    mean, sd, width = draws.mean(axis=0), draws.std(axis=0), np.diff(TASK_3.bounds, axis=1)[:, 0]
    yield row | {
        "mean": mean.tolist(), "sd": sd.tolist(), "prior_sd": (width / np.sqrt(12)).tolist(),
        "truth_off_by_sd": ((np.array(EVENT_S5_TRUTH) - mean) / sd).tolist(), "effective_size": effective,
    }  # fmt: skip


def recorded(p: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Covariances of snapshots: pressures times a complex level for each, plus noise of all hydrophones alike."""
    from isr.ocean import covariances

    levels = rng.normal(size=(N_SNAPSHOTS, len(p), 2)) @ [1, 1j] / np.sqrt(2)
    sd = np.sqrt(np.mean(np.abs(p) ** 2) * 10 ** (-DB / 10) / 2)
    noise = rng.normal(size=(N_SNAPSHOTS, *p.shape, 2)) @ [1, 1j] * sd
    return covariances(levels[..., None] * p + noise)


def cases(quick: bool) -> list[Case]:
    """One case for each kind of chains."""
    return [Case({"kind": kind}, needs=("emcee", "blackjax")) for kind in ("gradients", "walkers")]


if __name__ == "__main__":
    main("event_s5", cases, measure)

"""Simulated observations with their exact posteriors, for one hydrophone and for the whole array, kept on disk.

One hydrophone means: a hydrophone, not known which, as the models of one hydrophone are trained. Its likelihood is the
even mixture over the 21 places.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float
from scipy.special import logsumexp

from isr.ocean import tasks
from isr.ocean.posteriors import Grid, cell_centres, ensemble_posterior, refine_grid
from isr.ocean.swellex import prior
from isr.tables.whole_files import write_arrays

FINE = (48, 48)


@dataclass(frozen=True)
class Truths:
    """Observations and what is exactly known of their parameters.

    Args:
        m: Parameters they were simulated from.
        array_rows: What the array measured, with noise.
        array: Exact posterior draws given the array.
        hydrophone_rows: What one hydrophone of each measured, with noise.
        hydrophone: Exact posterior draws given that.
        at_truth: Exact posterior draws given the array's measurement of the true environment.
        misfit: Squared standardised misfit of each array observation's best fit, the true environment's last; about 294
            where the global optimum was found.
    """

    m: Float[np.ndarray, "n d"]
    array_rows: Float[np.ndarray, "n reals"]
    array: Float[np.ndarray, "n draws d"]
    hydrophone_rows: Float[np.ndarray, "n reals_of_one"]
    hydrophone: Float[np.ndarray, "n draws d"]
    at_truth: Float[np.ndarray, "draws d"]
    misfit: Float[np.ndarray, " n_and_one"]


def make_truths(
    task: int,
    n: int,
    n_draws: int,
    folder: Path,
    *,
    seed: int,
    lattice: tuple[int, int],
    n_pool: int,
    n_steps: int = 400,
    observed: np.ndarray,
) -> Truths:
    """Return ``n`` observations of the prior with exact posterior draws, from ``folder`` where they are there already.

    Args:
        task: 1 or 2.
        n: Observations.
        n_draws: Exact draws for each.
        folder: Where they are kept.
        seed: Of everything drawn.
        lattice: Cells of the first grid (task 1).
        n_pool: Prior draws among which the walkers find their start (task 2).
        n_steps: Steps of each walker (task 2); of twice as many walkers where one hydrophone is known, fewer do.
        observed: Pressures measured in the true environment.
    """
    path = folder / f"truths-seed-{seed}.npz"
    if path.exists():
        with np.load(path) as kept:
            return Truths(**kept)
    rng = np.random.default_rng([seed, 11])
    m = prior(task).sample(n, rng)
    p = tasks.pressures(m)
    picked = rng.integers(p.shape[2], size=n)
    array_rows = tasks.with_noise(tasks.array_rows(p), rng)
    hydrophone_rows = tasks.with_noise(tasks.hydrophone_rows(p)[np.arange(n), picked], rng)
    at_truth = tasks.array_rows(observed[None])
    known = _Known(task, lattice, n_pool, n_steps, seed)
    exact = [known.given_array(y, n_draws, i) for i, y in enumerate(np.concatenate([array_rows, at_truth]))]
    truths = Truths(
        m, array_rows, np.stack([draws for draws, _ in exact[:-1]]), hydrophone_rows,
        np.stack([known.given_hydrophone(y, n_draws, i) for i, y in enumerate(hydrophone_rows)]),
        exact[-1][0], np.array([misfit for _, misfit in exact]),
    )  # fmt: skip
    write_arrays(path, asdict(truths))
    return truths


class _Known:
    """Prior pressures, on a grid (task 1) or drawn (task 2), from which exact posteriors start."""

    def __init__(self, task: int, lattice: tuple[int, int], n_pool: int, n_steps: int, seed: int) -> None:
        self.n_steps = n_steps
        self.bounds, self.noise = prior(task).bounds, tasks.noise_sd()
        self.low, self.high = np.array(self.bounds).T
        self.shape = lattice if task == 1 else None
        rng = np.random.default_rng([seed, 12])
        self.m = cell_centres(self.low, self.high, lattice) if task == 1 else prior(task).sample(n_pool, rng)
        p = tasks.pressures(self.m)
        solved = np.isfinite(p).all(axis=(1, 2))
        if task == 2:
            self.m, p = self.m[solved], p[solved]
        elif not solved.all():
            raise ValueError(f"{np.sum(~solved)} cells of the grid have no solution")
        self.rows, self.hydrophones = tasks.array_rows(p), tasks.hydrophone_rows(p)

    def given_array(self, y: np.ndarray, n_draws: int, seed: int) -> tuple[np.ndarray, float]:
        """Exact draws given the array, and the squared misfit of the best fit."""

        def log_likelihood(m: np.ndarray) -> np.ndarray:
            return self._normal(tasks.simulate_array(m), y)

        values = self._normal(self.rows, y)
        if self.shape is not None:
            grid = refine_grid(
                Grid(self.low, self.high, values.reshape(self.shape)), log_likelihood, FINE, smooth=5
            )
            return grid.sample(n_draws, seed), float(-2 * grid.log_likelihood.max())
        found = ensemble_posterior(
            self.m, values, log_likelihood, self.bounds, n_steps=self.n_steps, random_state=seed,
            residuals=lambda m: tasks.residuals(m, y), jacobian=tasks.jacobian,
        )  # fmt: skip
        return _some(found.samples, n_draws, seed), found.misfit

    def given_hydrophone(self, y: np.ndarray, n_draws: int, seed: int) -> np.ndarray:
        """Exact draws given one hydrophone, not known which."""

        def log_likelihood(m: np.ndarray) -> np.ndarray:
            return self._mixture(tasks.hydrophone_rows(tasks.pressures(m)), y)

        values = self._mixture(self.hydrophones, y)
        if self.shape is not None:
            return Grid(self.low, self.high, values.reshape(self.shape)).sample(n_draws, seed)
        found = ensemble_posterior(
            self.m,
            values,
            log_likelihood,
            self.bounds,
            n_walkers=96,
            n_steps=3 * self.n_steps // 8,
            random_state=seed,
        )
        return _some(found.samples, n_draws, seed)

    def _normal(self, rows: np.ndarray, y: np.ndarray) -> np.ndarray:
        return -0.5 * np.sum((rows - y) ** 2, axis=-1) / self.noise**2

    def _mixture(self, rows: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.asarray(logsumexp(self._normal(rows, y), axis=1)) - np.log(rows.shape[1])


def _some(samples: np.ndarray, n: int, seed: int) -> np.ndarray:
    return samples[np.random.default_rng(seed).choice(len(samples), size=n, replace=False)]

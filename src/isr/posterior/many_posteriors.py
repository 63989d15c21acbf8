"""Draws from the posteriors of many observations, as calibration asks for, shared out among joblib's workers.

What draws is any function of an observation: a fitted model, rejection, a chain. Each observation has its own seed, so
the draws are the same with any number of workers on any backend of joblib.
"""

from __future__ import annotations

from collections.abc import Callable

import joblib
import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from isr.posterior.progress import progress_bar
from isr.tables.workers import as_they_end

Draw = Callable[[np.ndarray, int, int], ArrayLike]
"""``draw(y, n_draws, seed)`` gives rows of x, as many as asked for."""


def draw_posteriors(
    draw: Draw,
    observations: ArrayLike,
    n_draws: int,
    *,
    random_state: int = 0,
    n_jobs: int | None = None,
    progress: bool | None = None,
) -> Float[np.ndarray, "n m dim"]:
    """Return ``n_draws`` rows of x for every observation, ready for :mod:`isr.posterior.calibration`.

    Args:
        draw: ``draw(y, n_draws, seed)`` gives rows of x for one observation; it travels to the workers.
        observations: One a row.
        n_draws: Draws of each posterior.
        random_state: Seed of all seeds.
        n_jobs: Workers, as joblib counts them; None for what joblib is configured to, else one.
        progress: Show a progress bar; None for only when standard error is a terminal.

    Example:
        >>> def draw(y, n_draws, seed):
        ...     return np.random.default_rng(seed).normal(y, 0.1, (n_draws, len(y)))
        >>> draw_posteriors(draw, [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]], 50).shape
        (3, 50, 2)
    """
    rows = np.asarray(observations)
    if rows.ndim != 2 or not len(rows):
        raise ValueError(f"observations must be rows, one or more, got shape {rows.shape}")
    seeds = np.random.SeedSequence(random_state).generate_state(len(rows))
    jobs = (
        joblib.delayed(_one)(draw, number, y, n_draws, int(seed))
        for number, (y, seed) in enumerate(zip(rows, seeds, strict=True))
    )
    found: dict[int, np.ndarray] = {}
    with progress_bar(len(rows), "posteriors", progress) as advance:
        for number, drawn in as_they_end(jobs, n_jobs=n_jobs):
            found[number] = drawn
            advance(1)
    return np.stack([found[number] for number in range(len(rows))])


def _one(draw: Draw, number: int, y: np.ndarray, n_draws: int, seed: int) -> tuple[int, np.ndarray]:
    drawn = np.asarray(draw(y, n_draws, seed), dtype=float)
    if drawn.ndim != 2 or len(drawn) != n_draws:
        raise ValueError(
            f"draw must give {n_draws} rows of x, got shape {drawn.shape} for observation {number}"
        )
    return number, drawn

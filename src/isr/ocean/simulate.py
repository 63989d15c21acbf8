"""Training sets: parameters from a prior and their pressures, chunk by chunk, by `isr.posterior.simulation`.

A run killed at any moment goes on where it stopped, with any number of workers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from isr.ocean.environment import Environment
from isr.ocean.field import Engine, pressure
from isr.ocean.modes import DEFAULT_MESH, Mesh
from isr.ocean.swellex import FREQUENCIES, UniformPrior, swellex96
from isr.posterior import simulation


def simulate(
    n: int, folder: str | Path | None = None, *, prior: UniformPrior, seed: int = 0,
    frequencies: Sequence[float] = FREQUENCIES, build: Callable[..., Environment] = swellex96, chunk_size: int = 500,
    mesh: Mesh = DEFAULT_MESH, engine: Engine = "modes", n_jobs: int | None = None, progress: bool | None = None,
) -> simulation.Simulations:  # fmt: skip
    """Draw ``n`` parameters from ``prior`` and return them with their pressures, as rows.

    Args:
        n: Number of environments; those that cannot be solved are left out and listed in ``failures``.
        folder: Where finished chunks are kept and found again; made if missing.
        prior: Has ``names``, ``low`` and ``high``; see ``prior(1)`` and ``prior(2)``.
        seed: Fixes every draw.
        frequencies: In Hz.
        build: Makes an environment from one row of parameters; a function that can be imported by name.
        chunk_size: Environments per chunk.
        mesh: How finely the modes are computed.
        engine: As for `pressure`.
        n_jobs: Worker processes, as joblib counts them; None for threads on every core.
        progress: Show a progress bar; None for only when standard error is a terminal.

    Example:
        >>> from isr.ocean import prior
        >>> found = simulate(3, prior=prior(1), frequencies=[49.0])
        >>> found.names, found.y.shape
        (('water_depth_m', 'sediment_speed_m_s'), (3, 21))
    """
    grid = [float(f) for f in frequencies]

    def pressures(parameters: np.ndarray) -> np.ndarray:
        found = pressure(
            [build(*row) for row in parameters], grid, mesh=mesh, engine=engine,
            n_jobs=None if n_jobs is None else 1, progress=False, on_error="nan",
        )  # fmt: skip
        return found.reshape(len(parameters), -1)

    # What a folder knows the simulator by.
    pressures.__qualname__ = f"{build.__module__}.{build.__qualname__} at {grid} Hz, {mesh}, {engine}"
    box = dict(zip(prior.names, prior.bounds, strict=True))
    return simulation.simulate(
        box, pressures, n, random_state=seed, n_jobs=n_jobs, chunk_size=chunk_size, folder=folder, progress=progress
    )  # fmt: skip

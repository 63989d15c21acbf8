"""Complex pressure at the hydrophones: the sum of the modes, for many environments and frequencies.

p = i sqrt(2 pi) exp(i pi/4) / rho(z_s) * sum_m psi_m(z_s) psi_m(z) exp(-i k_m r) / sqrt(k_m r), which is KRAKEN's FIELD
for a point source, time factor exp(i omega t), relative to the free field at 1 m. The large-argument form of the
Hankel function is used, right beyond a few wavelengths. FIELD leaves out the source density (1 in water).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Literal

import numpy as np

from isr.ocean.environment import Environment
from isr.ocean.modes import (
    DEFAULT_MESH,
    Mesh,
    check_frequencies,
    failure,
    mesh_arguments,
    numbers,
    phase_speed_limits,
    warn_near_cut_off,
)
from isr.ocean.solve import NEAR_CUT_OFF, OK, solve_column
from isr.tables.extras import need
from isr.tables.workers import progress_bar

njit = need("numba").njit

Engine = Literal["modes", "kraken"]
OnError = Literal["raise", "nan"]
KRAKEN_POINTS = 20.0
"""Points per wavelength for KRAKEN, which takes shapes from its coarsest mesh, where none are asked for."""
_CHUNK = 16


def pressure(
    environments: Environment | Iterable[Environment],
    frequencies: Sequence[float] | np.ndarray,
    *,
    mesh: Mesh = DEFAULT_MESH,
    engine: Engine = "modes",
    n_jobs: int | None = None,
    progress: bool | None = None,
    on_error: OnError = "raise",
) -> np.ndarray:
    """Return the complex pressure at every hydrophone.

    Args:
        environments: One environment, or several with the same number of hydrophones.
        frequencies: In Hz.
        engine: ``"modes"``, or ``"kraken"`` to run KRAKEN (KRAKENC for loss in full) and FIELD, found on PATH.
        n_jobs: Threads; None for one per core. The result does not depend on it.
        progress: Show a progress bar; None for only when standard error is a terminal.
        on_error: Raise for an environment that cannot be solved, or fill its pressures with NaN.

    Returns:
        Shape (environments, frequencies, hydrophones), without the first axis for a single environment.

    Example:
        >>> from isr.ocean import pressure, swellex96
        >>> pressure(swellex96(), [49.0, 79.0]).shape
        (2, 21)
    """
    single = isinstance(environments, Environment)
    batch = [environments] if single else list(environments)
    grid = np.array(frequencies, dtype=float).reshape(-1)
    n_jobs = os.cpu_count() or 1 if n_jobs is None else n_jobs
    out = np.full((len(batch), len(grid), _n_hydrophones(batch, grid, engine)), np.nan + 0j)
    status = np.zeros((len(batch), len(grid)), dtype=np.int64)
    chunks = [slice(start, start + _CHUNK) for start in range(0, len(batch), _CHUNK)]

    def run(rows: slice) -> int:
        if engine == "kraken":
            _kraken_rows(batch[rows], grid, mesh, out[rows], on_error)
        else:
            _solve_rows(batch[rows], grid, mesh, out[rows], status[rows])
        return len(batch[rows])

    with (
        progress_bar(len(batch), "environments", progress) as advance,
        ThreadPoolExecutor(max(1, n_jobs)) as pool,
    ):
        for done in as_completed([pool.submit(run, rows) for rows in chunks]):
            advance(done.result())
    near = status == NEAR_CUT_OFF
    if near.any():
        warn_near_cut_off(batch[int(np.argwhere(near)[0, 0])], int(near.sum()))
        status[near] = OK
    if on_error == "raise" and status.any():
        row, column = np.argwhere(status)[0]
        error = failure(int(status[row, column]), batch[row], float(grid[column]), mesh)
        raise error if single else type(error)(f"environment {row}: {error}")
    return out[0] if single else out


def _n_hydrophones(batch: list[Environment], frequencies: np.ndarray, engine: str) -> int:
    """How many hydrophones all environments have, once everything that was asked for is checked."""
    check_frequencies(frequencies)
    counts = {len(environment.array.depths) for environment in batch}
    if len(counts) > 1:
        raise ValueError(f"all environments must have the same number of hydrophones, got {sorted(counts)}")
    if engine not in ("modes", "kraken"):
        raise ValueError(f"unknown engine {engine!r}; use 'modes' or 'kraken'")
    return counts.pop() if counts else 0


def _solve_rows(
    batch: list[Environment], frequencies: np.ndarray, mesh: Mesh, out: np.ndarray, status: np.ndarray
) -> None:
    for row, environment in enumerate(batch):
        limits, full_loss = phase_speed_limits(environment), environment.loss == "full"
        column = numbers(environment)
        _column_field(column, frequencies, limits, mesh_arguments(mesh), full_loss, out[row], status[row])


def _kraken_rows(
    batch: Sequence[Environment], frequencies: np.ndarray, mesh: Mesh, out: np.ndarray, on_error: OnError
) -> None:
    from isr.ocean.kraken import kraken_pressure

    for row, environment in enumerate(batch):
        points = KRAKEN_POINTS if mesh == DEFAULT_MESH else mesh.points_per_wavelength
        out[row] = kraken_pressure(environment, frequencies, points_per_wavelength=points, on_error=on_error)


@njit(cache=True, nogil=True)
def _column_field(column, frequencies, speeds, mesh, full_loss, out, status):
    pieces, halfspace, samples, ranges, density = column
    slowest, fastest = speeds
    points, refinements, decay = mesh
    for f in range(len(frequencies)):
        status[f], real, imaginary, psi, _, _ = solve_column(
            pieces, halfspace, samples, frequencies[f], slowest, fastest, points, refinements, decay,
            full_loss,
        )  # fmt: skip
        if status[f] == OK or status[f] == NEAR_CUT_OFF:
            sum_modes(real, imaginary, psi[:, 0], psi[:, 1:], ranges, density[0], out[f])


@njit(cache=True, nogil=True)
def sum_modes(real, imaginary, at_source, at_receivers, ranges, density, out):
    """Write the pressure at each (range, receiver) pair."""
    factor = 1j * np.sqrt(2 * np.pi) * np.exp(0.25j * np.pi) / density
    out[:] = 0.0
    for m in range(len(real)):
        k = np.sqrt(complex(real[m], -imaginary[m]))
        source = factor * at_source[m] / np.sqrt(k)
        wave = 0j
        for i in range(len(ranges)):
            if i == 0 or ranges[i] != ranges[i - 1]:
                angle = k.real * ranges[i]
                size = np.exp(k.imag * ranges[i])
                wave = source * complex(size * np.cos(angle), -size * np.sin(angle))
            out[i] += wave * at_receivers[m, i]
    for i in range(len(ranges)):
        out[i] /= np.sqrt(ranges[i])

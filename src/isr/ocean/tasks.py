"""The two inversion tasks: what the array measures, with how much noise, as the rows of numbers an inversion reads.

A row of parameters m is (water depth, sediment speed) in task 1, with tilt and sediment thickness in task 2. Pressures
are complex, (rows, frequencies, hydrophones); an inversion reads real and imaginary parts side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
from jaxtyping import Complex, Float
from numpy.typing import ArrayLike

from isr.ocean.field import pressure
from isr.ocean.gradients import pressure_and_gradient
from isr.ocean.swellex import FREQUENCIES, TRUTH, hydrophone_depths, prior, swellex96

SNR_DB = 15.0


def pressures(
    m: Float[np.ndarray, "n d_m"], *, n_jobs: int | None = None
) -> Complex[np.ndarray, "n frequencies hydrophones"]:
    """Return the pressures of rows of parameters, without noise; NaN where an environment has no solution."""
    environments = [swellex96(*row) for row in np.asarray(m, dtype=float)]
    return pressure(environments, FREQUENCIES, n_jobs=n_jobs, progress=False, on_error="nan")


@cache
def noise_sd(snr_db: float = SNR_DB) -> float:
    """Return the standard deviation of the noise of each real and each imaginary part.

    The signal-to-noise ratio is that of the true environment, averaged over all hydrophones and frequencies.
    """
    power = np.mean(np.abs(pressures(np.array([TRUTH]))) ** 2)
    return float(np.sqrt(0.5 * power * 10 ** (-snr_db / 10)))


def array_rows(p: Complex[np.ndarray, "n frequencies hydrophones"]) -> Float[np.ndarray, "n reals"]:
    """Return what the whole array measured, one row an environment: 147 real parts, then 147 imaginary parts."""
    flat = p.reshape(len(p), -1)
    return np.concatenate([np.real(flat), np.imag(flat)], axis=1)


def hydrophone_rows(p: Complex[np.ndarray, "n frequencies hydrophones"]) -> Float[np.ndarray, "n h reals"]:
    """Return what each hydrophone measured: (environments, hydrophones, 7 real and 7 imaginary parts)."""
    moved = np.moveaxis(p, 1, 2)
    return np.concatenate([np.real(moved), np.imag(moved)], axis=2)


def array_names() -> list[str]:
    """Return the names of the columns of `array_rows`, such as ``re_49Hz_94m``."""
    places = [f"{f:.0f}Hz_{z:.0f}m" for f in FREQUENCIES for z in hydrophone_depths()]
    return [f"{part}_{place}" for part in ("re", "im") for place in places]


def hydrophone_names() -> list[str]:
    """Return the names of the columns of one hydrophone, such as ``re_49Hz``."""
    return [f"{part}_{f:.0f}Hz" for part in ("re", "im") for f in FREQUENCIES]


def with_noise(
    rows: ArrayLike, random_state: int | np.random.Generator, snr_db: float = SNR_DB
) -> np.ndarray:
    """Return real rows with measurement noise added."""
    rows = np.asarray(rows, dtype=float)
    return rows + noise_sd(snr_db) * np.random.default_rng(random_state).normal(size=rows.shape)


def observe_truth(random_state: int = 0) -> Complex[np.ndarray, "frequencies hydrophones"]:
    """Return a noisy measurement of the true environment."""
    clean = pressures(np.array([TRUTH]))
    noisy = with_noise(array_rows(clean), random_state)[0]
    half = noisy.size // 2
    return (noisy[:half] + 1j * noisy[half:]).reshape(clean.shape[1:])


def simulate_array(m: Float[np.ndarray, "n d_m"]) -> Float[np.ndarray, "n reals"]:
    """The simulator of the whole array, for `fit_simulator`: parameters in, noise-free rows of 294 numbers out."""
    return array_rows(pressures(m))


def array_likelihood(
    y: Float[np.ndarray, " reals"], frequencies: Sequence[float] = FREQUENCIES
) -> Callable[[np.ndarray], tuple[float, np.ndarray]]:
    """Return the log-likelihood of the parameters of task 1 or 2 with its gradient, given what the array measured."""

    def value_and_gradient(m: np.ndarray) -> tuple[float, np.ndarray]:
        p, dp = pressure_and_gradient(m, swellex96, frequencies)
        rest = (array_rows(p[None])[0] - y) / noise_sd()
        return -0.5 * float(rest @ rest), -array_rows(dp) @ rest / noise_sd()

    return value_and_gradient


def residuals(m: np.ndarray, y: np.ndarray, frequencies: Sequence[float] = FREQUENCIES) -> np.ndarray:
    """Return the misfits of the array's numbers in standard deviations of the noise."""
    return (array_rows(pressure(swellex96(*m), frequencies)[None])[0] - y) / noise_sd()


def jacobian(m: np.ndarray, frequencies: Sequence[float] = FREQUENCIES) -> Float[np.ndarray, "reals d_m"]:
    """Return the derivatives of `residuals` by the parameters."""
    return array_rows(pressure_and_gradient(m, swellex96, frequencies)[1]).T / noise_sd()


def prior_ranges(task: int) -> dict[str, tuple[float, float]]:
    """Return the prior of a task as a mapping from name to range."""
    uniform = prior(task)
    return dict(zip(uniform.names, uniform.bounds, strict=True))


def truth(task: int) -> np.ndarray:
    """Return the true parameters a task asks for."""
    return np.array(TRUTH[: len(prior(task).names)])

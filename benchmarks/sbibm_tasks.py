"""The ten tasks of sbibm in NumPy: prior, simulator and what the distribution `sbibm` ships for ten observations.

Shipped are an observation, the parameters behind it and 10,000 draws of its posterior. The wheel is fetched by pip once
and unpacked into the user's cache folder; nothing of it is imported (its own dependencies are many and old).
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from isr.tables.whole_files import cache_dir

WHEEL = "sbibm==1.1.0"
Rows = np.ndarray
Random = np.random.Generator


@dataclass(frozen=True)
class Task:
    """One task.

    Args:
        name: As sbibm calls it.
        marginals: Of the prior, where its variables are independent.
        simulate: Takes rows of x and a generator, and returns rows of y.
        prior: Takes a number of rows and a generator; made of the marginals when left out.
        shipped: Folder in the wheel, and the file of an observation there.
    """

    name: str
    marginals: tuple[Any, ...]
    simulate: Callable[[Rows, Random], Rows]
    prior: Callable[[int, Random], Rows] | None = None
    shipped: tuple[str, str] = ("", "observation.csv")

    def draw_prior(self, n: int, rng: Random) -> Rows:
        """Return ``n`` rows of x."""
        if self.prior is not None:
            return self.prior(n, rng)
        return np.column_stack([marginal.rvs(n, random_state=rng) for marginal in self.marginals])

    def pairs(self, n: int, rng: Random) -> tuple[Rows, Rows]:
        """Return ``n`` rows of x drawn from the prior, and of y simulated for them."""
        x = self.draw_prior(n, rng)
        return x, self.simulate(x, rng)

    @property
    def bounds(self) -> list[tuple[float | None, float | None]] | None:
        """Return the box of the prior, None on a side without an end, or None where it has no end at all."""
        ends = [tuple(float(e) if np.isfinite(e) else None for e in m.support()) for m in self.marginals]
        return ends if any(end is not None for pair in ends for end in pair) else None

    def observation(self, number: int) -> Rows:
        """Return the observed y, number 1 to 10."""
        return self._read(number, self.shipped[1])[0]

    def truth(self, number: int) -> Rows:
        """Return the x behind an observation."""
        return self._read(number, "true_parameters.csv")[0]

    def reference(self, number: int) -> Rows:
        """Return 10,000 draws of the posterior of an observation."""
        return self._read(number, "reference_posterior_samples.csv.bz2")

    def _read(self, number: int, file: str) -> Rows:
        folder = shipped() / (self.shipped[0] or self.name) / "files" / f"num_observation_{number}"
        return pd.read_csv(folder / file).to_numpy()


@cache
def shipped() -> Path:
    """Return the folder of the wheel's tasks, fetched by pip if it is not there yet."""
    kept = cache_dir() or Path(tempfile.gettempdir())
    folder = kept / WHEEL / "sbibm" / "tasks"
    if not folder.is_dir():
        with tempfile.TemporaryDirectory() as place:
            command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "-d", place, WHEEL]
            subprocess.run(command, check=True)
            with zipfile.ZipFile(next(Path(place).glob("*.whl"))) as wheel:
                wheel.extractall(kept / WHEEL)
    return folder


# Gaussian tasks -----------------------------------------------------------------------------------------------------


def _plus_noise(x: Rows, rng: Random) -> Rows:
    return x + np.sqrt(0.1) * rng.normal(size=x.shape)


def _two_scales(x: Rows, rng: Random) -> Rows:
    scale = np.where(rng.random((len(x), 1)) < 0.5, 1.0, 0.1)
    return x + scale * rng.normal(size=x.shape)


def moon_centre(x: Rows) -> Rows:
    """Return the middle of the circle of which y is a half."""
    along, across = (x[:, 0] + x[:, 1]) / np.sqrt(2), (x[:, 1] - x[:, 0]) / np.sqrt(2)
    return np.stack([0.25 - np.abs(along), across], axis=1)


def _two_moons(x: Rows, rng: Random) -> Rows:
    angle, radius = rng.uniform(-np.pi / 2, np.pi / 2, len(x)), rng.normal(0.1, 0.01, len(x))
    return moon_centre(x) + np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)


# SLCP ---------------------------------------------------------------------------------------------------------------


def _slcp(x: Rows, rng: Random) -> Rows:
    first, second, rho = x[:, [2]] ** 2, x[:, [3]] ** 2, np.tanh(x[:, [4]])
    noise = rng.normal(size=(2, len(x), 4))
    y0 = x[:, [0]] + first * noise[0]
    y1 = x[:, [1]] + second * (rho * noise[0] + np.sqrt(1 - rho**2) * noise[1])
    return np.stack([y0, y1], axis=2).reshape(len(x), 8) + 1e-3 * rng.normal(size=(len(x), 8))


N_DISTRACTORS, N_COMPONENTS = 92, 20


@cache
def distractors() -> tuple[Rows, Rows, Rows]:
    """Return locations and factors of the mixture of Student laws that has nothing to do with x, and the order of y."""
    rng, n = np.random.RandomState(42), N_DISTRACTORS
    locations = np.array([15 * rng.normal(size=n) for _ in range(N_COMPONENTS)])
    factors = [
        np.tril(rng.normal(size=(n, n))) + np.diag(np.exp(rng.normal(size=n))) for _ in range(N_COMPONENTS)
    ]
    return locations, 3 * np.array(factors), rng.permutation(n + 8)


def _slcp_distractors(x: Rows, rng: Random) -> Rows:
    locations, factors, order = distractors()
    noise = rng.normal(size=(len(x), N_DISTRACTORS)) / np.sqrt(rng.chisquare(2, size=(len(x), 1)) / 2)
    component = rng.integers(N_COMPONENTS, size=len(x))
    for k in range(N_COMPONENTS):
        noise[component == k] = locations[k] + noise[component == k] @ factors[k].T
    return np.concatenate([_slcp(x, rng), noise], axis=1)[:, order]


# Bernoulli GLM ------------------------------------------------------------------------------------------------------


@cache
def design() -> Rows:
    """Return the matrix that x is multiplied with: an offset, and the stimulus at nine delays."""
    stimulus = np.random.RandomState(42).randn(100).astype(np.float32).astype(float)
    return np.column_stack([np.ones(100), *(np.r_[np.zeros(k), stimulus[: 100 - k]] for k in range(9))])


@cache
def glm_covariance() -> Rows:
    """Return the covariance of the prior: a filter without large second differences, and an offset."""
    n = 9
    d = np.eye(n) - np.eye(n, k=-1)
    f = d @ d + np.diag(np.arange(n) / n) ** 0.5
    precision = np.zeros((n + 1, n + 1))
    precision[0, 0], precision[1:, 1:] = 0.5, f.T @ f
    return np.linalg.inv(precision)


def _glm_prior(n: int, rng: Random) -> Rows:
    return rng.multivariate_normal(np.zeros(10), glm_covariance(), size=n, method="cholesky")


def _glm_raw(x: Rows, rng: Random) -> Rows:
    return (rng.random((len(x), 100)) < 1 / (1 + np.exp(-x @ design().T))).astype(float)


def _glm(x: Rows, rng: Random) -> Rows:
    return _glm_raw(x, rng) @ design()


# Differential equations ---------------------------------------------------------------------------------------------


def infected(x: Rows) -> Rows:
    """Return the infected share of a population after 0, 17, ..., 153 days; in x its contact and recovery rates."""

    def slope(u: Rows, x: Rows) -> Rows:  # u = log of what is susceptible and of what is infected
        return np.stack([-x[:, 0] * np.exp(u[1]), x[:, 0] * np.exp(u[0]) - x[:, 1]])

    return np.exp(solved(slope, np.log([1 - 1e-6, 1e-6]), x, 17.0)[:, 1])


def populations(x: Rows) -> Rows:
    """Return prey, then predators, after 0, 2.1, ..., 18.9 days by the equations of Lotka and Volterra."""

    def slope(u: Rows, x: Rows) -> Rows:
        return np.stack([x[:, 0] - x[:, 1] * np.exp(u[1]), -x[:, 2] + x[:, 3] * np.exp(u[0])])

    return np.exp(solved(slope, np.log([30.0, 1.0]), x, 2.1)).reshape(len(x), 20)


def solved(slope: Callable, start: Rows, x: Rows, step: float, *, tolerance: float = 1e-5) -> Rows:
    """Return a solution at ten times by Runge-Kutta steps, halved for each row until nothing changes."""
    n = 8
    with np.errstate(over="ignore", invalid="ignore"):
        coarse, done, left = (
            _runge_kutta(slope, start, x, step, n),
            np.zeros((len(x), 2, 10)),
            np.arange(len(x)),
        )
        while len(left):
            n *= 2
            fine = _runge_kutta(slope, start, x[left], step, n)
            good = np.max(np.abs(fine - coarse), axis=(1, 2)) < tolerance
            good |= n > 1 << 16
            done[left[good]], coarse, left = fine[good], fine[~good], left[~good]
    return done


def _runge_kutta(slope: Callable, start: Rows, x: Rows, step: float, n: int) -> Rows:
    h, u = step / n, np.repeat(np.asarray(start)[:, None], len(x), axis=1)
    found = [u]
    for _ in range(9):
        for _ in range(n):
            a = slope(u, x)
            b = slope(u + h / 2 * a, x)
            c = slope(u + h / 2 * b, x)
            u = u + h / 6 * (a + 2 * b + 2 * c + slope(u + h * c, x))
        found.append(u)
    return np.stack(found, axis=-1).transpose(1, 0, 2)


def _sir(x: Rows, rng: Random) -> Rows:
    return rng.binomial(1000, np.clip(infected(x), 0, 1)).astype(float)


def _lotka_volterra(x: Rows, rng: Random) -> Rows:
    mean = np.log(np.clip(populations(x), 1e-10, 1e4))
    return np.exp(mean + 0.1 * rng.normal(size=mean.shape))


def _uniform(end: float, n: int) -> tuple[Any, ...]:
    return (stats.uniform(-end, 2 * end),) * n


def _log_normal(*pairs: tuple[float, float]) -> tuple[Any, ...]:
    return tuple(stats.lognorm(scale, scale=np.exp(location)) for location, scale in pairs)


def _glm_marginals() -> tuple[Any, ...]:
    return tuple(stats.norm(0, s) for s in np.sqrt(np.diag(glm_covariance())))


_RATES = _log_normal((-0.125, 0.5), (-3.0, 0.5), (-0.125, 0.5), (-3.0, 0.5))
TASKS = {
    task.name: task
    for task in (
        Task("gaussian_linear", (stats.norm(0, np.sqrt(0.1)),) * 10, _plus_noise),
        Task("gaussian_linear_uniform", _uniform(1, 10), _plus_noise),
        Task("gaussian_mixture", _uniform(10, 2), _two_scales),
        Task("two_moons", _uniform(1, 2), _two_moons),
        Task("slcp", _uniform(3, 5), _slcp),
        Task(
            "slcp_distractors", _uniform(3, 5), _slcp_distractors,
            shipped=("slcp", "observation_distractors.csv"),
        ),
        Task("bernoulli_glm", _glm_marginals(), _glm, _glm_prior),
        Task(
            "bernoulli_glm_raw", _glm_marginals(), _glm_raw, _glm_prior,
            shipped=("bernoulli_glm", "observation_raw.csv"),
        ),
        Task("sir", _log_normal((np.log(0.4), 0.5), (np.log(0.125), 0.2)), _sir),
        Task("lotka_volterra", _RATES, _lotka_volterra),
    )
}  # fmt: skip

"""Exact posteriors of the inversion tasks, to judge a model by: a dense grid for two parameters, MCMC for four."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.special import logsumexp

from isr.posterior.pareto import smooth
from isr.tables.extras import need

LogLikelihood = Callable[[np.ndarray], np.ndarray]

# A grid is drawn again around the cells that hold all but this share of the mass.
LEFT_OUT = 1e-6
MAX_REFINEMENTS = 6


@dataclass(frozen=True)
class Grid:
    """A posterior on a regular grid of cells.

    Args:
        low: Lower end of each parameter.
        high: Upper end of each parameter.
        log_likelihood: At the centre of every cell, shape = number of cells along each parameter.
    """

    low: Float[np.ndarray, " d"]
    high: Float[np.ndarray, " d"]
    log_likelihood: np.ndarray

    @property
    def shares(self) -> np.ndarray:
        """Probability of every cell."""
        return np.exp(self.log_likelihood - logsumexp(self.log_likelihood))

    @property
    def width(self) -> np.ndarray:
        """Of a cell along each parameter."""
        return (self.high - self.low) / self.log_likelihood.shape

    def centres(self) -> Float[np.ndarray, "cells d"]:
        """Return the centre of every cell as rows."""
        return cell_centres(self.low, self.high, self.log_likelihood.shape)

    def mean(self) -> np.ndarray:
        """Return the posterior mean."""
        return self.shares.ravel() @ self.centres()

    def sd(self) -> np.ndarray:
        """Return the posterior standard deviations."""
        return np.sqrt(self.shares.ravel() @ (self.centres() - self.mean()) ** 2)

    def sample(self, n: int, random_state: int) -> Float[np.ndarray, "n d"]:
        """Return draws: a cell by its share, a place in it evenly."""
        rng = np.random.default_rng(random_state)
        cells = rng.choice(self.log_likelihood.size, size=n, p=self.shares.ravel())
        return self.centres()[cells] + self.width * rng.uniform(-0.5, 0.5, size=(n, len(self.low)))


def cell_centres(low: np.ndarray, high: np.ndarray, shape: tuple[int, ...]) -> Float[np.ndarray, "cells d"]:
    """Return the centres of the cells of a regular grid as rows, the last parameter running fastest."""
    axes = [a + (np.arange(n) + 0.5) * (b - a) / n for a, b, n in zip(low, high, shape, strict=True)]
    return np.stack([axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")], axis=1)


def refine_grid(
    grid: Grid, log_likelihood: LogLikelihood, shape: tuple[int, ...], *, smooth: float = 8.0
) -> Grid:
    """Draw finer grids around the mass until a cell is ``smooth`` times smaller than the posterior's sd.

    Args:
        grid: A first grid, fine enough that no mode falls between its cells.
        log_likelihood: Of rows of parameters, under a uniform prior.
        shape: Cells of each finer grid.
        smooth: Cells in a standard deviation.
    """
    for _ in range(MAX_REFINEMENTS):
        if np.all(grid.width * smooth <= grid.sd()):
            return grid
        low, high = _ends(grid)
        if np.all(high - low >= 0.9 * (grid.high - grid.low)) and grid.log_likelihood.shape == shape:
            return grid
        values = log_likelihood(cell_centres(low, high, shape))
        grid = Grid(low, high, values.reshape(shape))
    return grid


def _ends(grid: Grid) -> tuple[np.ndarray, np.ndarray]:
    """Box around the cells that hold almost all the mass, one cell wider on each side, inside the grid."""
    order = np.argsort(grid.shares.ravel())[::-1]
    held = np.cumsum(grid.shares.ravel()[order])
    centres = grid.centres()[order[: int(np.searchsorted(held, 1 - LEFT_OUT)) + 1]]
    low = np.maximum(centres.min(axis=0) - 1.5 * grid.width, grid.low)
    high = np.minimum(centres.max(axis=0) + 1.5 * grid.width, grid.high)
    return low, high


@dataclass(frozen=True)
class Ensemble:
    """Draws of an ensemble of walkers.

    Args:
        samples: Draws as rows.
        misfit: Twice the smallest negative log-likelihood: about the number of data where the model fits.
        acceptance: Share of accepted moves.
        effective_size: Draws divided by the longest autocorrelation time.
    """

    samples: Float[np.ndarray, "n d"]
    misfit: float
    acceptance: float
    effective_size: float


def ensemble_posterior(
    pool: Float[np.ndarray, "n d"],
    pool_log_likelihood: Float[np.ndarray, " n"],
    log_likelihood: LogLikelihood,
    bounds: tuple[tuple[float, float], ...],
    *,
    residuals: Callable[[np.ndarray], np.ndarray] | None = None,
    jacobian: Callable[[np.ndarray], np.ndarray] | None = None,
    n_walkers: int = 48,
    n_steps: int = 400,
    random_state: int = 0,
) -> Ensemble:
    """Return draws of a posterior under a uniform prior by affine-invariant walkers (emcee).

    Args:
        pool: Draws from the prior.
        pool_log_likelihood: Of each.
        log_likelihood: Of rows of parameters.
        bounds: Of the uniform prior.
        residuals: Standardised misfits of one row of parameters. If given, the walkers start around the best fit, which
            least squares finds from the best of the pool; otherwise from draws of the pool by their likelihood.
        jacobian: Their derivatives; by differences where it is not given.
        n_walkers: Walkers.
        n_steps: Steps of each; the first quarter is thrown away.
        random_state: Seed.
    """
    emcee = need("emcee")

    low, high = np.array(bounds).T
    rng = np.random.default_rng(random_state)

    def log_prob(rows: np.ndarray) -> np.ndarray:
        inside = np.all((rows > low) & (rows < high), axis=1)
        out = np.full(len(rows), -np.inf)
        if inside.any():
            out[inside] = log_likelihood(rows[inside])
        return np.where(np.isnan(out), -np.inf, out)

    if residuals is None:
        start = pool[smooth(pool_log_likelihood).resample(n_walkers, np.random.default_rng(random_state))]
        start = start + 1e-3 * (high - low) * rng.normal(size=start.shape)
    else:
        best = pool[np.argsort(pool_log_likelihood)[::-1][:N_STARTS]]
        start = _around_best_fit(residuals, jacobian, best, low, high, n_walkers, rng)
    start = np.clip(start, low + 1e-6 * (high - low), high - 1e-6 * (high - low))
    sampler = emcee.EnsembleSampler(n_walkers, len(low), log_prob, vectorize=True)
    sampler.random_state = np.random.RandomState(random_state).get_state()
    sampler.run_mcmc(start, n_steps, skip_initial_state_check=True)
    times = sampler.get_autocorr_time(tol=0, quiet=True)
    samples = sampler.get_chain(discard=n_steps // 4, flat=True)
    values = sampler.get_log_prob(discard=n_steps // 4, flat=True)
    assert samples is not None
    assert values is not None
    return Ensemble(
        samples,
        float(-2 * np.max(values)),
        float(np.mean(sampler.acceptance_fraction)),
        float(len(samples) / np.nanmax(times)),
    )


N_STARTS = 12


def _around_best_fit(
    residuals: Callable[[np.ndarray], np.ndarray],
    jacobian: Callable[[np.ndarray], np.ndarray] | None,
    starts: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    n: int,
    rng: np.random.Generator,
) -> np.ndarray:
    from scipy.optimize import least_squares

    fits = [
        least_squares(
            residuals,
            start,
            jacobian or "2-point",
            bounds=(low, high),
            x_scale=high - low,
            diff_step=1e-6,
            max_nfev=40,
        )
        for start in starts
    ]
    best = min(fits, key=lambda fit: fit.cost)
    covariance = np.linalg.pinv(best.jac.T @ best.jac)
    return rng.multivariate_normal(best.x, covariance, size=n, method="svd")

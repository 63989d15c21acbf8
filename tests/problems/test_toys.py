"""Exact posteriors of the toys are their likelihood on the prior's box."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from isr.problems.toys import TOYS

CASES = {"gaussian_mixture": [(2.0, -1.0), (9.8, 0.0)], "two_moons": [(0.0, 0.0), (-0.4, 0.5), (-1.1, 0.1)]}


@pytest.mark.parametrize(("name", "y_star"), [(name, y) for name, ys in CASES.items() for y in ys])
def test_posterior_draws_follow_the_normalised_likelihood(name, y_star):
    toy = TOYS[name]
    x = toy.sample_posterior(y_star, 20_000, random_state=0)
    low, high = np.maximum(x.min(0) - 0.02, -toy.bound), np.minimum(x.max(0) + 0.02, toy.bound)
    n = 1000
    ticks = [a + (b - a) * (np.arange(n) + 0.5) / n for a, b in zip(low, high, strict=True)]
    grid = np.stack(np.meshgrid(*ticks, indexing="ij"), axis=-1)
    p = np.exp(toy.log_likelihood(y_star, grid) + toy.log_prior(grid))
    p /= p.sum()
    for axis in range(2):
        cdf = np.cumsum(p.sum(axis=1 - axis)) - p.sum(axis=1 - axis) / 2
        ecdf = np.searchsorted(np.sort(x[:, axis]), ticks[axis]) / len(x)
        assert np.max(np.abs(ecdf - cdf)) < 0.015


@pytest.mark.parametrize("name", TOYS)
def test_likelihood_integrates_to_one_over_observations(name):
    toy, x = TOYS[name], np.array([0.3, -0.2])
    y = toy.simulate(np.tile(x, (20_000, 1)), random_state=1)
    low, high, n = y.min(0) - 0.5, y.max(0) + 0.5, 1200
    ticks = [a + (b - a) * (np.arange(n) + 0.5) / n for a, b in zip(low, high, strict=True)]
    grid = np.stack(np.meshgrid(*ticks, indexing="ij"), axis=-1)
    total = np.exp(toy.log_likelihood(grid, x)).sum() * np.prod((high - low) / n)
    assert_allclose(total, 1, atol=2e-3)


@pytest.mark.parametrize("name", TOYS)
def test_pairs_come_from_prior_and_simulator(name):
    x, y = TOYS[name].sample(100, random_state=2)
    assert x.shape == y.shape == (100, 2)
    assert np.abs(x).max() <= TOYS[name].bound
    assert np.all(np.isfinite(TOYS[name].log_likelihood(y, x)))


def test_impossible_observation_is_refused():
    with pytest.raises(ValueError, match="fall within the prior's box"):
        TOYS["two_moons"].sample_posterior((5.0, 5.0), 5, random_state=0, max_proposals=1000)

"""Reference samplers against a conjugate posterior known in closed form."""

import arviz
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats

from isr.ocean.chains import nuts
from isr.posterior.pareto import smooth
from isr.problems.references import rejection

# x ~ N(0, 1), y = x + N(0, 0.5²), y* = 1: the posterior is N(0.8, 0.2).
MEAN, STD = 0.8, float(np.sqrt(0.2))


def test_rejection_gives_the_conjugate_posterior():
    rng = np.random.default_rng(0)
    found = rejection(
        lambda n, rng: rng.normal(size=(n, 1)),
        lambda x: x + 0.5 * rng.normal(size=x.shape),
        [1.0],
        3000,
        threshold=0.05,
        random_state=1,
    )
    assert stats.kstest(found.samples[:, 0], "norm", (MEAN, STD)).pvalue > 1e-3
    assert np.abs(found.simulated - 1).max() < found.threshold
    assert found.n_simulations % 100_000 == 0


def test_rejection_gives_up_and_says_what_to_change():
    with pytest.raises(
        ValueError, match=r"only 0 of 5 draws accepted after 2000 simulations; raise threshold"
    ):
        rejection(
            lambda n, rng: rng.normal(size=(n, 1)), lambda x: x, [99.0], 5,
            threshold=0.1, batch=1000, max_simulations=2000, random_state=0,
        )  # fmt: skip
    with pytest.raises(ValueError, match="threshold must be positive, got 0"):
        rejection(lambda n, rng: rng.normal(size=(n, 1)), lambda x: x, [0.0], 5, threshold=0)


def test_weighted_draws_resampled_are_those_of_the_conjugate_posterior():
    pool = np.random.default_rng(2).normal(size=50_000)
    weights = smooth(stats.norm.logpdf(1.0, pool, 0.5))
    found = pool[weights.resample(1500, np.random.default_rng(3))]
    assert stats.kstest(found, "norm", (MEAN, STD)).pvalue > 1e-3
    assert 10_000 < weights.effective_size < 50_000


def test_nuts_gives_the_conjugate_posterior():
    chains = nuts(
        lambda x: -0.5 * jnp.sum(x**2),
        lambda x: -2.0 * jnp.sum((x - jnp.array([1.0, -2.0])) ** 2),
        np.random.default_rng(4).normal(size=(2, 2)),
        n_samples=1000,
        n_warmup=300,
    )
    draws = chains.posterior["x"].to_numpy()
    assert draws.shape == (2, 1000, 2)
    assert arviz.rhat(chains)["x"].max() < 1.02
    assert arviz.ess(chains)["x"].min() > 500
    assert chains.sample_stats["diverging"].sum() == 0
    assert_allclose(draws.mean(axis=(0, 1)), [0.8, -1.6], atol=0.06)
    assert_allclose(draws.std(axis=(0, 1)), STD, rtol=0.07)


def test_nuts_names_chains_that_start_outside_the_support():
    with pytest.raises(ValueError, match=r"not finite at the initial points of chains \[1\]"):
        nuts(lambda x: jnp.sum(jnp.log(x)), lambda x: -jnp.sum(x), [[1.0], [-1.0]])

"""The arm reaches where it should, and three ways to its posterior agree."""

import arviz
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats
from sklearn.ensemble import HistGradientBoostingClassifier

from isr.ocean.chains import nuts
from isr.posterior.metrics import c2st, mmd2
from isr.problems import kinematics

BOOSTING = HistGradientBoostingClassifier(early_stopping=True, random_state=0)
TARGETS = [(0.0, 1.5), (0.3, 1.7), (-0.8, 0.9), (0.1, 1.97)]


def test_forward_is_the_formula_of_the_paper():
    x = np.array([0.1, 0.3, -0.7, 1.1])
    vertical = 0.1 + 0.5 * np.sin(0.3) + 0.5 * np.sin(-0.4) + np.sin(0.7)
    horizontal = 0.5 * np.cos(0.3) + 0.5 * np.cos(-0.4) + np.cos(0.7)
    assert_allclose(kinematics.forward(x), [vertical, horizontal], atol=1e-14)


def test_numpy_and_jax_agree():
    x, y = kinematics.sample(20, random_state=0)
    assert_allclose(jax.jit(kinematics.forward)(jnp.asarray(x)), kinematics.forward(x), atol=1e-14)
    assert_allclose(jax.vmap(kinematics.log_prior)(jnp.asarray(x)), kinematics.log_prior(x), atol=1e-12)
    assert_allclose(
        jax.vmap(kinematics.log_likelihood)(jnp.asarray(x), jnp.asarray(y)),
        kinematics.log_likelihood(x, y),
        atol=1e-8,
    )


def test_prior_density_is_that_of_scipy():
    x = kinematics.sample_prior(10, random_state=0)
    assert_allclose(
        kinematics.log_prior(x), stats.norm.logpdf(x, scale=kinematics.PRIOR_STD).sum(1), atol=1e-12
    )


@pytest.mark.parametrize("y_star", TARGETS[:3])
def test_noise_free_posterior_reaches_the_target(y_star):
    x = kinematics.sample_posterior(y_star, 200, sigma_y=0.0, random_state=0)
    assert_allclose(kinematics.forward(x), np.broadcast_to(y_star, (200, 2)), atol=1e-9)


@pytest.mark.parametrize("y_star", TARGETS)
def test_exact_posterior_is_the_weighted_prior(y_star):
    sigma = 0.1
    prior = kinematics.sample_prior(150_000, random_state=1)
    weight = np.exp(kinematics.log_likelihood(prior, y_star, sigma))
    size = weight.sum() ** 2 / np.sum(weight**2)
    mean = weight @ prior / weight.sum()
    std = np.sqrt(weight @ (prior - mean) ** 2 / weight.sum())
    x = kinematics.sample_posterior(y_star, 4000, sigma_y=sigma, random_state=2)
    assert_allclose(x.mean(axis=0), mean, atol=float(5 * std.max() / np.sqrt(size)))
    assert_allclose(x.std(axis=0), std, rtol=5 / np.sqrt(size))
    evidence = kinematics.log_evidence(y_star, sigma_y=sigma)
    assert_allclose(evidence, np.log(weight.mean()), atol=5 / np.sqrt(size))


def test_exact_and_rejection_posteriors_agree():
    y_star = (-0.5, 1.6)
    found = kinematics.sample_by_rejection(y_star, 1000, threshold=0.05, random_state=3)
    exact = kinematics.sample_posterior(y_star, 1000, sigma_y=0.025, random_state=4)
    for i in range(4):
        assert stats.ks_2samp(exact[:, i], found.samples[:, i]).pvalue > 1e-3
    assert abs(mmd2(exact, found.samples)) < 0.004
    assert abs(c2st(exact, found.samples, classifier=BOOSTING) - 0.5) < 0.05


@pytest.mark.slow
def test_exact_and_markov_chain_posteriors_agree():
    y_star, sigma = (-0.8, 0.9), 0.05
    exact = kinematics.sample_posterior(y_star, 4000, sigma_y=sigma, random_state=5)
    chains = nuts(
        kinematics.log_prior,
        lambda x: kinematics.log_likelihood(x, y_star, sigma),
        exact[:4],
        n_samples=2000,
        n_warmup=500,
    )
    assert arviz.rhat(chains)["x"].max() < 1.02
    assert chains.sample_stats["diverging"].sum() < 20
    draws = chains.posterior["x"].to_numpy().reshape(-1, 4)
    thinned = draws[:: max(1, int(len(draws) / arviz.ess(chains)["x"].min()))]
    for i in range(4):
        assert stats.ks_2samp(exact[:, i], thinned[:, i]).pvalue > 1e-3
    assert abs(mmd2(exact[: len(thinned)], thinned)) < 0.01
    assert abs(c2st(exact, thinned, classifier=BOOSTING) - 0.5) < 0.05


def test_posteriors_of_many_targets_are_those_of_each():
    many = kinematics.sample_posteriors(TARGETS, 50, sigma_y=0.0, random_state=6)
    assert many.shape == (4, 50, 4)
    assert_allclose(
        kinematics.forward(many), np.broadcast_to(np.array(TARGETS)[:, None], (4, 50, 2)), atol=1e-9
    )


def test_same_seed_gives_the_same_draws():
    first, second = (kinematics.sample_posterior((0.0, 1.5), 20, random_state=7) for _ in range(2))
    assert_allclose(first, second, rtol=0)


def test_point_out_of_reach_is_refused():
    with pytest.raises(ValueError, match="only 0 of 10 arms found"):
        kinematics.sample_posterior((0.0, 2.5), 10, random_state=0, max_proposals=10_000)
    with pytest.raises(ValueError, match=r"one end point \(vertical, horizontal\), got shape \(3,\)"):
        kinematics.sample_posterior((0.0, 2.5, 1.0), 10)


def test_arms_are_drawn_with_contour_and_target():
    x = kinematics.sample_posterior(kinematics.TARGET, 300, random_state=8)
    figure, ax = plt.subplots()
    kinematics.plot_arms(ax, x, kinematics.TARGET, n_arms=50)
    assert len(ax.lines) == 50 + 3
    assert len(ax.collections) == 1
    plt.close(figure)

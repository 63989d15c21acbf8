"""Pareto-smoothed weights agree with ArviZ, tell a bad proposal, and resample with the right odds."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats

from isr.posterior.pareto import TRUSTED, smooth
from isr.tables.extras import need

arviz = need("arviz")


def log_weights(proposal, target, n, seed=0):
    x = proposal.rvs(size=n, random_state=seed)
    return target.logpdf(x) - proposal.logpdf(x), x


PAIRS = {
    "wider": (stats.t(4, scale=1.5), stats.norm()),
    "equal width": (stats.norm(), stats.norm(0.3)),
    "narrower": (stats.norm(0, 0.6), stats.norm()),
    "heavy target": (stats.norm(), stats.t(3)),
}


@pytest.mark.parametrize(("proposal", "target"), PAIRS.values(), ids=PAIRS.keys())
@pytest.mark.parametrize("n", [200, 5000])
def test_weights_and_shape_are_those_of_arviz(proposal, target, n):
    raw, _ = log_weights(proposal, target, n)
    expected, k = arviz.psislw(raw.copy())
    found = smooth(raw)
    assert_allclose(found.pareto_k, k, rtol=1e-6)
    assert_allclose(found.log_weights, expected, atol=1e-6)


def test_a_narrow_proposal_is_not_trusted_and_a_wide_one_is():
    assert smooth(log_weights(stats.norm(0, 0.5), stats.norm(), 4000)[0]).pareto_k > TRUSTED
    assert smooth(log_weights(stats.t(3, scale=1.5), stats.norm(), 4000)[0]).pareto_k < 0.3


def test_the_mean_weight_is_the_evidence():
    raw, _ = log_weights(stats.t(3, scale=1.5), stats.norm(), 20_000)
    assert_allclose(smooth(raw - 12.5).log_mean, -12.5, atol=0.02)


@pytest.mark.parametrize("n", [500, 20_000])
def test_resampled_draws_have_the_moments_of_the_target(n):
    raw, x = log_weights(stats.t(3, scale=1.5), stats.norm(0.5, 0.8), 40_000)
    chosen = x[smooth(raw).resample(n, np.random.default_rng(1))]
    assert_allclose(chosen.mean(), 0.5, atol=4 * 0.8 / np.sqrt(n))
    assert_allclose(chosen.std(), 0.8, atol=4 * 0.8 / np.sqrt(n))


def test_a_pool_that_is_large_enough_gives_each_draw_once():
    raw, _ = log_weights(stats.t(3, scale=1.5), stats.norm(), 20_000)
    chosen = smooth(raw).resample(2000, np.random.default_rng(0))
    assert len(np.unique(chosen)) == 2000


def test_equal_weights_have_no_tail():
    found = smooth(np.full(100, -3.0))
    assert found.pareto_k == 0
    assert_allclose([found.effective_size, found.log_mean], [100, -3.0])


@pytest.mark.parametrize("bad", [np.full(5, -np.inf), np.array([0.0, np.nan]), np.array([0.0, np.inf])])
def test_weights_without_a_finite_value_are_refused(bad):
    with pytest.raises(ValueError, match="at least one finite value"):
        smooth(bad)

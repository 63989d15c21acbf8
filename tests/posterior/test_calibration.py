"""An exact conjugate posterior passes every check; one too narrow, too wide or shifted does not."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from scipy import stats

from isr.posterior import calibration

N, M, DIM = 1000, 99, 3


def conjugate(width=1.0, shift=0.0, seed=0):
    """Truths from N(0, 1), one observation with noise 0.5, draws of the posterior widened or shifted."""
    rng = np.random.default_rng(seed)
    truths = rng.normal(size=(N, DIM))
    y = truths + 0.5 * rng.normal(size=(N, DIM))
    mean, std = y / 1.25, np.sqrt(0.2)
    return truths, mean[:, None] + shift + width * std * rng.normal(size=(N, M, DIM))


EXACT = conjugate()
WRONG = {"narrow": conjugate(width=0.7), "wide": conjugate(width=1.4), "shifted": conjugate(shift=0.15)}


def test_ranks_of_an_exact_posterior_are_uniform():
    table = calibration.uniformity(calibration.sbc_ranks(*EXACT), M)
    assert table.shape == (DIM, 2)
    assert (table > 0.01).all(axis=None)


@pytest.mark.parametrize("case", WRONG)
def test_ranks_of_a_wrong_posterior_are_not(case):
    table = calibration.uniformity(calibration.sbc_ranks(*WRONG[case]), M, names=["a", "b", "c"])
    assert list(table.index) == ["a", "b", "c"]
    assert (table < 1e-3).all(axis=None)


def test_ranks_count_the_draws_below_and_break_ties_at_random():
    truths = np.zeros((20_000, 1))
    samples = np.tile(np.array([-1.0, 0.0, 0.0, 1.0])[:, None], (20_000, 1, 1))
    counts = np.bincount(calibration.sbc_ranks(truths, samples)[:, 0], minlength=5)
    assert counts[0] == counts[4] == 0
    assert_allclose(counts[1:4] / 20_000, 1 / 3, atol=0.02)


def test_rejections_of_an_exact_posterior_come_at_the_level_of_the_test():
    rng = np.random.default_rng(1)
    ranks = rng.integers(0, M + 1, size=(500, 300))
    table = calibration.uniformity(ranks, M)
    assert_allclose((table < 0.05).mean(), [0.05, 0.05], atol=0.04)


def test_band_holds_the_whole_curve_as_often_as_it_says():
    grid = np.linspace(0.02, 0.98, 49)
    low, high = calibration.ecdf_band(200, grid, prob=0.9)
    u = np.sort(np.random.default_rng(2).uniform(size=(4000, 200)), axis=1)
    ecdf = np.stack([np.searchsorted(row, grid, side="right") for row in u]) / 200
    inside = np.all((ecdf >= low) & (ecdf <= high), axis=1).mean()
    assert 0.87 < inside < 0.94


def test_coverage_of_an_exact_posterior_is_the_level():
    marginal = calibration.marginal_coverage(*EXACT)
    assert marginal.coverage.shape == (len(calibration.LEVELS), DIM)
    assert_allclose(marginal.coverage, np.tile(marginal.levels[:, None], (1, DIM)), atol=0.06)
    assert marginal.p_value.min() > 0.01


def test_coverage_of_a_narrow_posterior_is_that_of_the_normal():
    marginal = calibration.marginal_coverage(*WRONG["narrow"], levels=[0.5, 0.9])
    expected = 2 * stats.norm.cdf(0.7 * stats.norm.ppf([0.75, 0.95])) - 1
    assert_allclose(marginal.coverage.mean(axis=1), expected, atol=0.03)
    assert marginal.p_value.max() < 1e-3


def test_tarp_passes_the_exact_and_fails_the_wrong():
    exact = calibration.tarp(*EXACT)
    assert exact.p_value > 0.01
    assert_allclose(exact.coverage, exact.levels, atol=0.06)
    for case in ("narrow", "wide"):
        assert calibration.tarp(*WRONG[case]).p_value < 1e-3


def test_tarp_rejects_an_exact_posterior_at_the_level_of_its_test():
    rng = np.random.default_rng(4)
    p_values = [
        calibration.tarp(truths, centre[:, None] + rng.normal(size=(200, 50, 2)), random_state=i).p_value
        for i, centre in enumerate(rng.normal(size=(100, 200, 2)))
        for truths in [centre + rng.normal(size=(200, 2))]
    ]
    assert stats.kstest(p_values, "uniform").pvalue > 0.01


def test_tarp_sees_a_lost_correlation_that_ranks_do_not():
    rng = np.random.default_rng(3)
    cov = np.array([[1.0, 0.95], [0.95, 1.0]])
    truths = rng.multivariate_normal([0, 0], cov, size=2000)
    samples = rng.normal(size=(2000, M, 2))
    assert (calibration.uniformity(calibration.sbc_ranks(truths, samples), M) > 1e-3).all(axis=None)
    assert calibration.tarp(truths, samples).p_value < 1e-4


def test_summary_passes_the_exact_and_names_what_fails():
    assert calibration.check_calibration(*EXACT)["passed"].all()
    failed = calibration.check_calibration(*WRONG["narrow"])
    assert not failed["passed"].any()
    assert set(failed["test"]) == {"sbc chi2", "sbc ks", "tarp"}


def test_shapes_and_non_finite_draws_are_refused():
    with pytest.raises(ValueError, match=r"got \(5, 2\) and \(5, 9, 3\)"):
        calibration.sbc_ranks(np.zeros((5, 2)), np.zeros((5, 9, 3)))
    samples = np.zeros((5, 9, 2))
    samples[0, :2] = np.inf
    with pytest.raises(ValueError, match="2 posterior draws are not finite"):
        calibration.tarp(np.zeros((5, 2)), samples)


def test_posteriors_that_are_wrong_at_one_end_of_y_alone_are_found_there():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(600, 1))
    y = x + rng.normal(size=x.shape)
    drawn = 0.5 * y[:, None] + np.sqrt(0.5) * rng.normal(size=(600, 99, 1))
    told = pd.DataFrame(y, columns=["echo"])
    assert str(calibration.Calibration.of(x, drawn, ["depth"], told)).endswith(
        "in the middle and at the ends of y"
    )
    high = np.quantile(y, 0.85) < y[:, 0]
    drawn[high] += 1.0
    tests = calibration.check_calibration(x, drawn, names=["depth"], y=told)
    failed = tests.loc[~tests["passed"], "test"].tolist()
    assert "ranks where echo is highest" in failed
    assert "ranks where echo is lowest" not in failed

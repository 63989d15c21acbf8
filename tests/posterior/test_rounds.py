"""Priors cut to boxes and rows that fall into them follow the same law."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats

from isr.posterior.priors import parse_prior
from isr.posterior.simulation import box_around, joined, simulate
from isr.tables.bounds import Bounds

PRIOR = {"depth": (200.0, 240.0), "speed": stats.norm(1500.0, 10.0)}


def test_a_cut_variable_has_scipys_truncated_law():
    cut = parse_prior(PRIOR).within([190.0, 1520.0], [210.0, 1530.0])
    reference = stats.truncnorm(2, 3, loc=1500, scale=10)
    rows = cut.sample(5000, 0)
    assert cut.bounds == ((200.0, 210.0), (1520.0, 1530.0))
    assert stats.kstest(rows[:, 1], reference.cdf).pvalue > 1e-3
    assert stats.kstest(rows[:, 0], stats.uniform(200, 10).cdf).pvalue > 1e-3
    assert_allclose(cut.log_prob(rows), reference.logpdf(rows[:, 1]) - np.log(10), rtol=1e-9)
    assert np.all(cut.log_prob([[205.0, 1519.0], [211.0, 1525.0]]) == -np.inf)


@pytest.mark.parametrize(("low", "high"), [(1620.0, 1625.0), (1375.0, 1380.0)])
def test_twelve_standard_deviations_out_is_still_exact(low, high):
    rows = parse_prior(PRIOR).within([200.0, low], [240.0, high]).sample(2000, 1)
    reference = stats.truncnorm((low - 1500) / 10, (high - 1500) / 10, loc=1500, scale=10)
    assert stats.kstest(rows[:, 1], reference.cdf).pvalue > 1e-3


def test_cutting_twice_is_cutting_once():
    prior = parse_prior(PRIOR)
    once = prior.within([205.0, 1490.0], [206.0, 1495.0])
    rows = once.sample(10, 0)
    assert_allclose(prior.within([201.0, 1480.0], [220.0, 1500.0]).within([205.0, 1490.0], [206.0, 1495.0])
                    .log_prob(rows), once.log_prob(rows))  # fmt: skip


def test_a_prior_that_only_draws_cannot_be_cut():
    with pytest.raises(ValueError, match="cannot be cut to a box; give a mapping from name"):
        parse_prior(lambda n, rng: rng.normal(size=(n, 2))).within([0.0, -1.0], [1.0, 1.0])


def test_an_empty_box_is_refused():
    with pytest.raises(ValueError, match="no mass"):
        parse_prior(PRIOR).within([250.0, 0.0], [260.0, 1.0])


def test_rows_kept_from_an_earlier_round_follow_the_prior_cut_to_the_box():
    whole = parse_prior({"a": (0.0, 1.0), "b": stats.norm()})
    first = simulate(whole, lambda x: x, 20_000, random_state=0)
    box = Bounds((0.2, 0.0), (0.5, 1.0))
    cut = whole.within(box.low, box.high)
    both = joined([first, simulate(cut, lambda x: x, 1000, random_state=1)], cut, box)
    assert len(both.x) > 2000
    assert np.all(box.contains(both.x))
    assert stats.ks_2samp(both.x[:-1000, 1], both.x[-1000:, 1]).pvalue > 1e-3
    assert stats.kstest(both.x[:, 0], stats.uniform(0.2, 0.3).cdf).pvalue > 1e-3


def test_the_box_holds_all_draws_and_leaves_out_those_that_are_not_finite():
    draws = np.random.default_rng(0).normal(size=(1000, 2))
    box = box_around(np.vstack([draws, [[np.nan, 0.0], [np.inf, 1.0]]]), parse_prior(lambda n, rng: None))
    assert np.all(box.contains(draws))
    assert np.all(np.isfinite(box.low))
    assert np.all(box.widths < 1.6 * np.ptp(draws, axis=0))


def test_draws_that_are_all_infinite_are_told():
    with pytest.raises(ValueError, match="nowhere to simulate"):
        box_around(np.full((3, 2), np.inf), parse_prior(PRIOR))

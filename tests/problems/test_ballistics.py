"""The flight obeys its differential equation, and the exact posterior is the rejection posterior."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats
from scipy.integrate import solve_ivp

from isr.problems import ballistics
from isr.problems.references import rejection


@pytest.mark.parametrize("launch", [(0.0, 1.5, 0.8, 15.0), (-0.4, 0.0, 0.2, 9.0), (0.7, 2.9, 1.4, 24.0)])
def test_impact_is_that_of_the_integrated_flight(launch):
    x0, y0, angle, speed = launch
    drag = ballistics.DRAG / ballistics.MASS

    def rates(_, state):
        return [state[2], state[3], -drag * state[2], -drag * state[3] - ballistics.GRAVITY]

    def ground(t, state):
        return state[1] if t > 1e-6 else 1.0

    ground.terminal, ground.direction = True, -1
    start = [x0, y0, speed * np.cos(angle), speed * np.sin(angle)]
    flight = solve_ivp(rates, (0, 20), start, events=ground, rtol=1e-10, atol=1e-12, max_step=0.05)
    assert_allclose(ballistics.forward(launch), flight.y_events[0][0][:1], atol=1e-7)
    assert_allclose(ballistics.flight_time(launch), flight.t_events[0][0], atol=1e-7)


def test_prior_is_the_published_one():
    x = ballistics.sample_prior(100_000, random_state=0)
    assert_allclose(x[:, 0].std(), 0.5, atol=0.01)
    assert x[:, 1].min() == 0
    assert_allclose(np.degrees([x[:, 2].min(), x[:, 2].max()]), [9, 81], atol=0.1)
    assert_allclose([x[:, 3].mean(), x[:, 3].var()], [15, 15], rtol=0.02)


def test_a_drop_from_rest_at_ground_level_lands_at_once():
    assert_allclose(ballistics.forward([0.3, 0.0, 0.5, 0.0]), [0.3], atol=1e-6)


def test_exact_and_rejection_posteriors_agree():
    found = rejection(
        ballistics.sample_prior, ballistics.forward, [5.0], 2000, threshold=0.05, random_state=1
    )
    exact = ballistics.sample_posterior(5.0, 2000, sigma_y=0.03, random_state=2)
    for i in range(4):
        assert stats.ks_2samp(exact[:, i], found.samples[:, i]).pvalue > 1e-3


def test_distance_out_of_reach_is_refused():
    with pytest.raises(ValueError, match=r"only 0 of 5 launches land at 500\.0"):
        ballistics.sample_posterior(500.0, 5, random_state=0, max_proposals=20_000)

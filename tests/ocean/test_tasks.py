"""The inversion tasks: rows, noise, exact posteriors, and a model that agrees with them."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import isr
from isr.estimators.settings import Effort
from isr.ocean import FREQUENCIES, TRUTH, hydrophone_depths, kraken_reference, tasks
from isr.ocean.posteriors import Grid, cell_centres, ensemble_posterior, refine_grid
from isr.ocean.references import make_truths

# A corner of task 1 around the truth, wide enough for the posterior and quick to simulate.
NEAR = {"water_depth_m": (216.2, 216.8), "sediment_speed_m_s": (1562.0, 1582.0)}


@pytest.fixture(scope="module")
def observed():
    return tasks.array_rows(tasks.observe_truth(0)[None])[0]


@pytest.fixture(scope="module")
def exact(observed):
    def log_likelihood(m):
        return -0.5 * np.sum((tasks.simulate_array(m) - observed) ** 2, axis=1) / tasks.noise_sd() ** 2

    low, high = np.array(list(NEAR.values())).T
    shape = (24, 16)
    first = Grid(low, high, log_likelihood(cell_centres(low, high, shape)).reshape(shape))
    return refine_grid(first, log_likelihood, (32, 32), smooth=4)


def test_the_noise_is_fifteen_decibels_below_the_signal():
    p = tasks.pressures(np.array([TRUTH]))
    assert_allclose(10 * np.log10(np.mean(np.abs(p) ** 2) / (2 * tasks.noise_sd() ** 2)), 15.0)


def test_columns_hold_what_their_names_say():
    table = kraken_reference()
    truth = table[np.all(np.isclose(table[:, :4], TRUTH), axis=1)]
    at = truth[(truth[:, 4] == FREQUENCIES[2]) & np.isclose(truth[:, 5], hydrophone_depths()[7])][0]
    place = f"112Hz_{hydrophone_depths()[7]:.0f}m"
    row = tasks.simulate_array(np.array([TRUTH[:2]]))[0]
    found = [row[tasks.array_names().index(f"{part}_{place}")] for part in ("re", "im")]
    assert_allclose(found, at[6:8], atol=2e-2 * np.abs(at[6] + 1j * at[7]))
    one = tasks.hydrophone_rows(tasks.pressures(np.array([TRUTH])))[0, 7]
    assert_allclose([one[tasks.hydrophone_names().index(f"{part}_112Hz")] for part in ("re", "im")], found)


def test_the_grid_agrees_with_the_linearised_posterior(exact):
    step = np.array([1e-3, 0.05])
    sides = [tasks.simulate_array(np.array([TRUTH[:2]]) + sign * np.diag(step)) for sign in (1, -1)]
    jacobian = (sides[0] - sides[1]) / (2 * step[:, None])
    linear = np.sqrt(np.diag(np.linalg.inv(jacobian @ jacobian.T))) * tasks.noise_sd()
    assert_allclose(linear, [0.036, 1.25], rtol=0.1)
    assert_allclose(exact.sd(), linear, rtol=0.25)
    assert np.all(np.abs(exact.mean() - TRUTH[:2]) < 3 * exact.sd())


MEAN, FACTOR = np.array([0.3, -0.2]), np.array([[0.02, 0.0], [0.03, 0.05]])


def _normal(rows):
    return -0.5 * np.sum(np.linalg.solve(FACTOR, (rows - MEAN).T) ** 2, axis=0)


def test_a_refined_grid_has_the_moments_of_a_normal():
    low, high = np.array([-1.0, -1.0]), np.array([1.0, 1.0])
    first = Grid(low, high, _normal(cell_centres(low, high, (100, 100))).reshape(100, 100))
    grid = refine_grid(first, _normal, (80, 80))
    drawn = grid.sample(20_000, 0)
    assert_allclose(grid.mean(), MEAN, atol=1e-4)
    assert_allclose(grid.sd(), np.sqrt(np.diag(FACTOR @ FACTOR.T)), rtol=1e-2)
    assert_allclose(np.cov(drawn.T), FACTOR @ FACTOR.T, rtol=0.05, atol=1e-5)


@pytest.mark.parametrize("with_residuals", [True, False])
def test_walkers_have_the_moments_of_a_normal(with_residuals):
    pool = np.random.default_rng(0).uniform(-1, 1, size=(20_000, 2))
    found = ensemble_posterior(
        pool, _normal(pool), _normal, ((-1.0, 1.0), (-1.0, 1.0)), n_steps=600,
        residuals=(lambda m: np.linalg.solve(FACTOR, m - MEAN)) if with_residuals else None,
    )  # fmt: skip
    assert_allclose(found.samples.mean(axis=0), MEAN, atol=5e-3)
    assert_allclose(np.cov(found.samples.T), FACTOR @ FACTOR.T, rtol=0.15, atol=1e-4)
    assert found.misfit < 0.1


@pytest.mark.filterwarnings("ignore:overfitting")  # few rows, for the sake of time
@pytest.mark.slow
def test_a_model_of_the_whole_array_agrees_with_the_grid(observed, exact):
    model = isr.ConditionalISR(
        n_blocks=1,
        n_layers=1,
        noise=tasks.noise_sd(),
        library={"constant": 1, "id": 2, "sin": 2, "sigmoid": 2},
        training=isr.Training(
            Effort(2400, 0, 0, peak=5e-3), penalty=None, n_restarts=1, backward=0.0, verbose=False
        ),
        random_state=0,
        condenser=isr.Condenser(4),
    ).fit_simulator(NEAR, tasks.simulate_array, 3000)
    drawn = model.posterior(observed).sample(4000)
    assert np.all(np.abs(drawn.mean(axis=0) - exact.mean()) < exact.sd())
    assert_allclose(drawn.std(axis=0), exact.sd(), rtol=0.5)


@pytest.mark.slow
@pytest.mark.parametrize("task", [1, 2])
def test_exact_posteriors_cover_what_they_were_simulated_from(task, tmp_path):
    n = 6
    truths = make_truths(
        task, n, 400, tmp_path, seed=3, lattice=(360, 60), n_pool=20_000, observed=tasks.observe_truth(0)
    )
    again = make_truths(
        task, n, 400, tmp_path, seed=3, lattice=(360, 60), n_pool=20_000, observed=tasks.observe_truth(0)
    )
    for draws in (truths.array, truths.hydrophone):
        low, high = np.quantile(draws, [0.005, 0.995], axis=1)
        assert np.mean((truths.m >= low) & (truths.m <= high)) > 0.85
    assert np.all(truths.misfit < 294 + 5 * np.sqrt(2 * 294))
    assert np.array_equal(truths.array, again.array)

"""Derivatives of the pressure against differences, and what uses them: the best fit and the chains."""

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose

from isr.ocean import (
    FREQUENCIES,
    TASK_1,
    TASK_2,
    TASK_3,
    Array,
    Environment,
    HalfSpace,
    Layer,
    Mesh,
    event_s5,
    pressure,
    pressure_and_gradient,
    swellex96,
    tasks,
)
from isr.ocean.chains import best_fit, gradient_posterior
from isr.ocean.posteriors import _around_best_fit
from ocean.waveguides import per_wavelength


def lossy_swellex(*m):
    return swellex96(*m).replace(loss="full")


def layered(depth, speed, source_depth, distance, bottom, loss="full"):
    layers = (
        Layer((0, 40, depth), (1500, 1490, 1495)),
        Layer((depth, depth + 10), (speed, speed + 20), 1.5, per_wavelength(0.3)),
    )
    array = Array(
        (20.0, 45.0, depth + 30.0), distance, 1.0
    )  # one hydrophone follows the bottom, far under it
    return Environment(layers, HalfSpace(bottom, 1.8, per_wavelength(0.6)), source_depth, array, loss=loss)


def first_order(*m):
    return layered(*m, loss="first order")


def rigid(depth, speed):
    return Environment((Layer((0, depth), (1500, speed)),), "rigid", 30.0, Array((20.0, 50.0), 2000.0))


CASES = {
    "SWellEx-96": (swellex96, (216.7, 1570.1, 0.5, 23.3), (49.0, 112.0)),
    "SWellEx-96, loss in full": (lossy_swellex, (216.7, 1570.1, 0.5, 23.3), (49.0,)),
    "event S5": (event_s5, (2950.0, 70.5, 217.0, 0.7, 21.0, 1575.0, 18.0), (79.0,)),
    "layers": (layered, (95.3, 1530.0, 31.0, 3000.0, 1650.0), (60.0, 150.0)),
    "layers, first order": (first_order, (95.3, 1530.0, 31.0, 3000.0, 1650.0), (60.0, 150.0)),
    "rigid": (rigid, (100.0, 1510.0), (60.0,)),
}


@pytest.mark.filterwarnings("ignore::isr.ocean.CutOffWarning")
@pytest.mark.parametrize("name", CASES)
def test_the_gradient_is_that_of_differences(name):
    build, theta, frequencies = CASES[name]
    mesh, theta = Mesh(), np.array(theta)
    p, dp = pressure_and_gradient(theta, build, frequencies, mesh=mesh)
    assert_allclose(p, pressure(build(*theta), frequencies, mesh=mesh), rtol=1e-10)
    for i, h in enumerate(np.diag(np.full(len(theta), 3e-3))):
        steps = [pressure(build(*(theta + n * h)), frequencies, mesh=mesh) for n in (-2, -1, 1, 2)]
        expected = (steps[0] - 8 * steps[1] + 8 * steps[2] - steps[3]) / (12 * 3e-3)
        assert np.linalg.norm(dp[i] - expected) < 1e-5 * np.linalg.norm(expected)


def test_where_the_profile_changes_its_knots_the_gradient_comes_from_one_side():
    knot = float(swellex96().layers[0].depths[-2])
    _, dp = pressure_and_gradient((knot + 4e-4, 1570.0), swellex96, [49.0])
    assert np.isfinite(dp).all()
    with pytest.raises(
        ValueError, match="parameter 1 lies where the profile's knots change; move it by more"
    ):
        pressure_and_gradient(
            (1.0,),
            lambda m: layered(*[95.3, 1530.0, 31.0, 3000.0, 1650.0]) if m == 1 else rigid(100.0, 1510.0),
            [60.0],
        )


@pytest.fixture(scope="module")
def observed():
    truth = np.array([216.5, 1572.4, 0.3, 23.5])
    return truth, tasks.with_noise(tasks.array_rows(tasks.pressures(truth[None])), 1)[0]


def test_least_squares_reach_the_same_best_fit_by_gradients_and_by_differences(observed):
    truth, y = observed
    low, high = np.array(TASK_2.bounds).T
    starts = truth + np.array([[0.4, 3.0, 0.05, 0.5]])
    found = [
        _around_best_fit(
            lambda m: tasks.residuals(m, y), jacobian, starts, low, high, 400, np.random.default_rng(0)
        )
        for jacobian in (None, tasks.jacobian)
    ]
    assert_allclose(found[0].mean(axis=0), found[1].mean(axis=0), rtol=1e-4)
    assert_allclose(found[0].std(axis=0), found[1].std(axis=0), rtol=0.02)
    map_ = best_fit(tasks.array_likelihood(y), starts, TASK_2.bounds)
    value, gradient = tasks.array_likelihood(y)(map_)
    assert value > -0.5 * 294 * 1.3
    assert np.all(np.abs(gradient * found[1].std(axis=0)) < 0.1)


def chains_agree(likelihood, jacobian, starts, bounds, **sizes):
    found = gradient_posterior(likelihood, starts, bounds, **sizes)
    slopes = jacobian(found.best)
    expected = np.sqrt(np.diag(np.linalg.inv(slopes.T @ slopes)))
    assert found.r_hat < 1.1
    assert found.effective_size > 0.15 * len(found.samples)
    assert_allclose(found.samples.std(axis=0), expected, rtol=0.35)
    assert np.all(found.samples > np.array(bounds)[:, 0])
    assert np.all(found.samples < np.array(bounds)[:, 1])
    assert found.n_likelihoods > len(found.samples)


def test_chains_run_in_double_precision_where_jax_is_in_single():
    jax.config.update("jax_enable_x64", False)
    try:
        found = gradient_posterior(
            lambda x: (-0.5 * float(np.sum((x - 0.5) ** 2)) / 0.01, -(x - 0.5) / 0.01), np.array([[0.4]]),
            ((0.0, 1.0),), n_samples=200, n_warmup=100,
        )  # fmt: skip
        assert not jax.config.jax_enable_x64
    finally:
        jax.config.update("jax_enable_x64", True)
    assert found.samples.dtype == np.float64
    assert_allclose([found.samples.mean(), found.samples.std()], [0.5, 0.1], rtol=0.15)


def test_chains_by_gradients_have_the_linearised_spread_of_two_parameters():
    truth = np.array([216.5, 1572.4])
    few = FREQUENCIES[2:3]
    rows = tasks.array_rows(pressure(swellex96(*truth), few)[None])[0]
    y = rows + tasks.noise_sd() * np.random.default_rng(0).normal(size=rows.shape)
    chains_agree(
        tasks.array_likelihood(y, few), lambda m: tasks.jacobian(m, few), truth + np.array([[0.1, 1.0]]), TASK_1.bounds,
        n_samples=80, n_warmup=40,
    )  # fmt: skip


@pytest.mark.slow
def test_chains_by_gradients_have_the_linearised_spread_of_four_parameters(observed):
    truth, y = observed
    few = FREQUENCIES[:2]
    rows = y.reshape(2, len(FREQUENCIES), -1)[:, :2].ravel()
    chains_agree(
        tasks.array_likelihood(rows, few), lambda m: tasks.jacobian(m, few), truth + np.array([[0.1, 1, 0.02, 0.2]]),
        TASK_2.bounds, n_samples=150, n_warmup=60,
    )  # fmt: skip


def test_task_3_has_seven_parameters_and_its_truth_inside():
    assert len(TASK_3.names) == 7
    truth = [event_s5().array.range, event_s5().source_depth, event_s5().layers[0].bottom]
    assert TASK_3.contains(np.array([[*truth, 1.0, 22.0, 1572.0, 21.0]])).all()
    sediment = event_s5(2900.0, 65.0, 216.0, 0.5, 20.0, 1580.0, 30.0).layers[1]
    assert (sediment.top, sediment.bottom, *sediment.speeds) == (216.0, 236.0, 1580.0, 1610.0)

"""Ray's backend of joblib changes where things run, never what comes out: worker processes of a real Ray."""

import os

import jax
import joblib
import numpy as np
import pytest
from numpy.testing import assert_array_equal

import isr
from isr.estimators.settings import Effort
from isr.inference.many_posteriors import draw_posteriors
from isr.inference.simulation import simulate
from isr.problems import geoacoustics

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::Warning")]

PRIOR = {"a": (-1.0, 1.0), "b": (0.0, 2.0)}


@pytest.fixture(scope="module")
def ray():
    """Ray with two workers, and its backend registered."""
    ray = pytest.importorskip("ray")
    register_ray = pytest.importorskip("ray.util.joblib").register_ray
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    register_ray()
    yield ray
    ray.shutdown()


def make_waves():
    def waves(x):
        return np.column_stack([np.sin(x), np.full(len(x), os.getpid())])

    return waves


def test_simulations_are_those_of_a_single_process(ray, tmp_path):
    alone = simulate(PRIOR, np.sin, 205, chunk_size=40)
    with joblib.parallel_config("ray", n_jobs=-1):
        found = simulate(PRIOR, make_waves(), 205, chunk_size=40)
        pressures = geoacoustics.simulate(
            8, tmp_path / "a", prior=geoacoustics.prior(2), frequencies=(49.0,), chunk_size=4
        )
    assert_array_equal(found.y[:, :2], alone.y)
    assert os.getpid() not in found.y[:, 2]
    local = geoacoustics.simulate(
        8, tmp_path / "b", prior=geoacoustics.prior(2), frequencies=(49.0,), chunk_size=4, n_jobs=1
    )
    assert_array_equal(pressures.load()[1], local.load()[1])


def test_restarts_of_an_estimator_are_those_of_threads(ray):
    x = np.random.default_rng(0).normal(size=(200, 2)) @ np.array([[1.0, 0.5], [0.0, 1.0]])

    def fitted():
        return isr.SymbolicFlow(
            n_layers=1, n_restarts=3, n_jobs=3,  # more shares than Ray has workers
            penalty=None, effort=Effort(60, 0, 0), random_state=0, verbose=False,
        ).fit(x)  # fmt: skip

    here = fitted()
    with joblib.parallel_config("ray", n_jobs=-1):
        there = fitted()
    for a, b in zip(jax.tree.leaves(here.flow_), jax.tree.leaves(there.flow_), strict=True):
        assert_array_equal(a, b)


def test_posteriors_of_many_observations_are_those_of_a_single_process(ray):
    def make_draw():
        def draw(y, n_draws, seed):
            return np.random.default_rng(seed).normal(y, 0.1, (n_draws, 2))

        return draw

    y = np.random.default_rng(0).normal(size=(30, 2))
    alone = draw_posteriors(make_draw(), y, 10)
    with joblib.parallel_config("ray", n_jobs=-1):
        assert_array_equal(draw_posteriors(make_draw(), y, 10), alone)

"""A cluster changes where things run, never what comes out: a real scheduler with worker processes on loopback."""

import os
import signal
import threading
import time

import jax
import jax.numpy as jnp
import joblib
import numpy as np
import pytest
from numpy.testing import assert_array_equal

import isr
from isr.estimators.settings import Effort
from isr.inference.many_posteriors import draw_posteriors
from isr.inference.simulation import simulate
from isr.problems import geoacoustics
from isr.training.loop import Phase
from isr.training.population import Schedule
from isr.training.shares import train_shared

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::Warning")]

PRIOR = {"a": (-1.0, 1.0), "b": (0.0, 2.0)}


@pytest.fixture(scope="module")
def distributed():
    return pytest.importorskip("distributed")  # here, for its import takes a second


@pytest.fixture(scope="module")
def cluster(distributed):
    """A scheduler and two worker processes, which are started again when they die."""
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=None
    ) as cluster:
        yield cluster


@pytest.fixture
def client(cluster, distributed):
    with distributed.Client(cluster) as client:
        yield client


def processes(client) -> set[int]:
    return set(client.run(os.getpid).values())


# Functions inside others travel by their code; the workers cannot import this file.
def make_waves(seconds=0.0):
    def waves(x):
        time.sleep(seconds)
        return np.column_stack([np.sin(x), np.full(len(x), os.getpid())])

    return waves


def test_simulations_are_those_of_a_single_process(client, tmp_path):
    alone = simulate(PRIOR, np.sin, 205, chunk_size=40)
    with joblib.parallel_config("dask"):
        found = simulate(PRIOR, np.sin, 205, chunk_size=40, folder=tmp_path)
        pressures = geoacoustics.simulate(
            20,
            tmp_path / "a",
            prior=geoacoustics.prior(2),
            frequencies=(49.0,),
            chunk_size=4,
        )
    assert found.y.tobytes() == alone.y.tobytes()
    local = geoacoustics.simulate(
        20, tmp_path / "b", prior=geoacoustics.prior(2), frequencies=(49.0,), chunk_size=4, n_jobs=1
    )
    assert_array_equal(pressures.load()[1], local.load()[1])


def test_restarts_of_an_estimator_are_those_of_threads(client):
    x = np.random.default_rng(0).normal(size=(200, 2)) @ np.array([[1.0, 0.5], [0.0, 1.0]])

    def fitted():
        return isr.SymbolicFlow(
            n_layers=1, n_restarts=2, n_jobs=2, penalty=None, effort=Effort(60, 0, 0), random_state=0, verbose=True,
        ).fit(x)  # fmt: skip

    here = fitted()
    with joblib.parallel_config("dask"):
        there = fitted()
    for a, b in zip(jax.tree.leaves(here.flow_), jax.tree.leaves(there.flow_), strict=True):
        assert_array_equal(a, b)
    assert_array_equal(
        np.concatenate(here.history_.held_out),
        np.concatenate(there.history_.held_out),
    )


def test_posteriors_of_many_observations_are_those_of_a_single_process(client):
    def make_draw():
        def draw(y, n_draws, seed):
            return np.random.default_rng(seed).normal(y, 0.1, (n_draws, 2))

        return draw

    y = np.random.default_rng(0).normal(size=(30, 2))
    alone = draw_posteriors(make_draw(), y, 10)
    with joblib.parallel_config("dask"):
        assert_array_equal(draw_posteriors(make_draw(), y, 10), alone)


def after(seconds, action):
    timer = threading.Timer(seconds, action)
    timer.start()
    return timer


def test_a_worker_killed_in_the_middle_of_a_simulation_loses_nothing(client):
    alone = simulate(PRIOR, np.sin, 400, chunk_size=10)
    victim = min(processes(client))
    timer = after(1.0, lambda: os.kill(victim, signal.SIGKILL))
    with joblib.parallel_config("dask"):
        found = simulate(PRIOR, make_waves(0.1), 400, chunk_size=10)
    timer.join()
    assert found.n_failed == 0
    assert_array_equal(found.y[:, :2], alone.y)
    assert victim not in processes(client)


def make_loss():
    def loss(weights, batch, key, moment):
        return jnp.mean((weights @ batch["x"] - batch["y"][0]) ** 2)

    return loss


def test_a_worker_killed_in_the_middle_of_training_loses_nothing(client, tmp_path):
    def rows(seed):
        x = np.random.default_rng(seed).normal(size=(4, 4096))
        return {"x": x, "y": (2 * x[:1] - x[2:3])}

    phases = (Phase("warm up", 400), Phase("sparsify", 0), Phase("refit", 0))
    schedule = Schedule(phases, (1e-2,), batch_size=8, threshold=0.0)
    weights = np.random.default_rng(1).normal(size=(4, 4)).astype(np.float32)

    def train(path=None):
        return train_shared(
            make_loss(), weights, rows(0), rows(1), schedule, jax.random.key(0), n_jobs=2, path=path
        )

    alone = train()
    victim = min(processes(client))
    begun = time.monotonic()
    timer = after(2.0, lambda: os.kill(victim, signal.SIGKILL))
    with joblib.parallel_config("dask"):
        found = train(tmp_path / "run.checkpoint")
    assert time.monotonic() - begun > 2.0, "training ended before the kill"
    timer.join()
    assert_array_equal(found.weights, alone.weights)


def test_a_worker_that_comes_late_is_used(distributed):
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        first = processes(client)
        timer = after(0.5, lambda: cluster.scale(3))
        with joblib.parallel_config("dask"):
            found = simulate(PRIOR, make_waves(0.1), 4000, chunk_size=10)
        timer.join()
        used = set(found.y[:, 2].astype(int))
        assert first < used
        assert_array_equal(found.y[:, :2], np.sin(found.x))

"""A cluster changes where things run, never what comes out: a real scheduler with worker processes on loopback."""

import os
import signal
import threading
import time

import jax.numpy as jnp
import joblib
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from cluster.anywhere import PRIOR, check_restarts, check_simulations, make_waves
from isr.posterior.simulation import simulate
from isr.training.loop import Phase
from isr.training.population import Restarts, Schedule, Task
from isr.training.workers import train_shared

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::Warning")]


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


def test_simulations_are_those_of_a_single_process(client, tmp_path):
    check_simulations(tmp_path, backend="dask")


def test_restarts_of_an_estimator_are_those_of_threads(client):
    check_restarts(2, backend="dask")


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
        task = Task(make_loss(), rows(0), rows(1))
        return train_shared(task, Restarts(weights), schedule, 0, n_jobs=2, path=path)

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

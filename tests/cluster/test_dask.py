"""A cluster changes where things run, never what comes out: a real scheduler with worker processes on loopback."""

import os
import signal
import threading

import joblib
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from cluster.anywhere import PRIOR, check_simulations, make_waves
from isr.posterior.simulation import simulate

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

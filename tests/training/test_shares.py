"""Restarts shared out among workers: nothing is lost, and where they run makes no difference."""

import copy

import jax.numpy as jnp
import joblib
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from isr.training.loop import Phase
from isr.training.monitor import Monitor
from isr.training.population import Restarts, Schedule, Task, train
from isr.training.workers import _n_shares, train_shared

PHASES = (Phase("warm up", 3), Phase("sparsify", 3), Phase("refit", 2, 3e-3))
SCHEDULE = Schedule(PHASES, (1e-2, 3e-2), batch_size=16, threshold=0.05)


def _make_loss():
    # A function inside another travels to other processes by its code, as those of the estimators do.
    def loss(weights, batch, key, moment):
        return jnp.mean((weights @ batch["x"] - batch["y"][0]) ** 2)

    return loss


def _data(seed):
    x = np.random.default_rng(seed).normal(size=(4, 128))
    return {"x": x, "y": (2 * x[:1] - x[2:3])}


def _train(function=train_shared, monitor=None, path=None, **more):
    weights = np.random.default_rng(1).normal(size=(5, 4)).astype(np.float32)
    task = Task(_make_loss(), _data(0), _data(1))
    return function(task, Restarts(weights), SCHEDULE, 0, monitor=monitor, path=path, **more)


def _same(a, b):
    assert_array_equal(a.weights, b.weights)
    assert_array_equal(a.held_out, b.held_out)
    assert_array_equal(a.history.frame().to_numpy()[:, 2:], b.history.frame().to_numpy()[:, 2:])


@pytest.mark.slow
def test_one_worker_is_the_single_program():
    _same(_train(n_jobs=1), _train(train))


def test_threads_and_processes_give_the_same_members():
    threads = _train(n_jobs=2)
    with joblib.parallel_config(backend="loky"):
        processes = _train(n_jobs=2)
    _same(threads, processes)
    assert np.all(np.diff(threads.held_out) >= 0)
    # Of three and two restarts the better two and one go on, each under both strengths.
    assert len(threads.weights) == 6
    assert threads.history.frame()["n_members"].tolist() == [5, 5, 5, 6, 6, 6, 6, 6]


def test_each_share_has_a_checkpoint_and_resumes(tmp_path):
    path = tmp_path / "run.ckpt"
    first = _train(n_jobs=2, path=path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["run.ckpt", "run.ckpt.1"]
    _same(first, _train(n_jobs=2, path=path))


def test_a_stop_reaches_every_share():
    monitor = Monitor(verbose=False)
    monitor.stopped = "stopped by a test"
    found = _train(n_jobs=2, monitor=monitor)
    assert found.stopped == "stopped by a test"
    assert found.history.frame().empty


def _sent(monitor):
    """A copy made by its state alone, as on the way to another process."""
    return copy.deepcopy(monitor)


def test_a_monitor_travels_without_its_progress_line_and_takes_the_time_gone_by_along():
    monitor = Monitor(verbose=True, max_time=100.0)
    with monitor.watching():
        assert not _sent(monitor.silent()).should_stop()
        monitor._begun -= 99.9
        late = _sent(monitor)
        assert late._progress is None
        assert 99.9 < late.seconds < 110.0
        monitor._begun -= 1.0
        assert _sent(monitor.silent()).should_stop()


def test_a_number_of_shares_does_not_depend_on_the_workers_there_are():
    assert [_n_shares(n) for n in (None, 1, 16)] == [1, 1, 16]
    assert _n_shares(-1) == joblib.effective_n_jobs(-1)

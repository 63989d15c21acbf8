"""The training loop: reproducible, resumable, unharmed by bad steps."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from isr.training.checkpoint import CheckpointError
from isr.training.loop import Phase
from isr.training.monitor import Monitor
from isr.training.penalties import L1Norm, SmoothHalfNorm
from isr.training.population import Restarts, Schedule, Task, train

PHASES = (Phase("warm up", 4), Phase("sparsify", 5), Phase("refit", 2, 3e-3))


def linear_loss(weights, batch, key, moment):
    return jnp.mean((weights @ batch["x"] - batch["y"][0]) ** 2)


def linear_problem(seed=0, n=128):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(4, n))
    return {"x": x, "y": (2 * x[:1] - x[2:3])}


def run(monitor=None, path=None, penalty=None, objective=linear_loss, seed=0, threshold=0.05):
    penalty = penalty or SmoothHalfNorm()
    schedule = Schedule(PHASES, (1e-2, 3e-2), batch_size=16, penalty=penalty, threshold=threshold)
    weights = np.random.default_rng(1).normal(size=(4, 4)).astype(np.float32)
    task = Task(objective, linear_problem(), linear_problem(1))
    return train(task, Restarts(weights), schedule, seed, monitor=monitor, path=path)


class StopAfter(Monitor):
    """Stops after so many epochs, as an interrupt would."""

    def __init__(self, n):
        super().__init__(verbose=False)
        self.left = n

    def should_stop(self):
        return self.stopped is not None

    def advance(self, note=""):
        self.left -= 1
        if self.left == 0:
            self.stopped = "stopped by SIGINT"


def test_same_seed_same_result():
    assert_array_equal(run().weights, run().weights)


def test_another_seed_another_result():
    assert np.any(run().weights != run(seed=1).weights)


@pytest.mark.parametrize("n_epochs", [1, 4, 6, 9, 10])
def test_a_resumed_run_ends_in_the_same_bits(tmp_path, monkeypatch, n_epochs):
    monkeypatch.setattr("isr.training.population.CHECKPOINT_SECONDS", -1.0)
    whole = run()
    path = tmp_path / "fit.checkpoint"
    part = run(StopAfter(n_epochs), path)
    assert part.stopped == "stopped by SIGINT"
    resumed = run(path=path)
    assert_array_equal(resumed.weights, whole.weights)
    assert_array_equal(np.concatenate(resumed.history.train), np.concatenate(whole.history.train))


def test_an_interrupted_run_keeps_the_best_it_has():
    part = run(StopAfter(2))
    assert np.all(np.isfinite(part.held_out))
    assert list(part.held_out) == sorted(part.held_out)


def test_a_checkpoint_of_other_data_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("isr.training.population.CHECKPOINT_SECONDS", -1.0)
    path = tmp_path / "fit.checkpoint"
    run(StopAfter(2), path)
    with pytest.raises(CheckpointError, match="belongs to a fit with other data or settings"):
        run(path=path, seed=5)


def test_a_damaged_checkpoint_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("isr.training.population.CHECKPOINT_SECONDS", -1.0)
    path = tmp_path / "fit.checkpoint"
    run(StopAfter(2), path)
    body = bytearray(path.read_bytes())
    body[-3] ^= 1
    path.write_bytes(bytes(body))
    with pytest.raises(CheckpointError, match="is damaged; delete it to begin anew"):
        run(path=path)


def test_max_time_ends_the_run_with_a_reason():
    ended = run(Monitor(verbose=False, max_time=0.0))
    assert "max_time" in ended.stopped


def test_steps_that_are_not_finite_are_skipped_and_counted():
    def sometimes_nan(weights, batch, key, moment):
        bad = jax.random.uniform(key) < 0.3
        return linear_loss(weights, batch, key, moment) * jnp.where(bad, jnp.nan, 1.0)

    result = run(objective=sometimes_nan)
    assert np.all(np.isfinite(result.weights))
    assert np.all(result.skipped > 0)


@pytest.mark.parametrize("penalty", [SmoothHalfNorm(), L1Norm()], ids=lambda p: type(p).__name__)
def test_every_penalty_leaves_weights_that_work(penalty):
    result = run(penalty=penalty)
    assert np.all(np.isfinite(result.held_out))


def test_what_is_cut_stays_cut_through_the_refit():
    cut_all = run(threshold=1e9)
    assert np.all(cut_all.weights == 0)
    some = run(threshold=0.8)
    assert np.any(some.weights == 0)
    assert np.any(some.weights != 0)


def test_a_weight_outside_a_restart_s_mask_stays_zero():
    schedule = Schedule(PHASES, (1e-2,), batch_size=16)
    masks = np.ones((3, 4))
    masks[:, 2] = 0
    weights = np.random.default_rng(1).normal(size=(3, 4)).astype(np.float32)
    task = Task(linear_loss, linear_problem(), linear_problem(1))
    result = train(task, Restarts(weights, masks), schedule, 0)
    assert np.all(result.weights[:, 2] == 0)
    assert len(result.history.phases) == sum(p.n_epochs for p in PHASES)


def memorising_problem(n=12, seed=0, noise=1.0):
    """Fewer rows than weights, and noise: training loss falls to nothing while the held-out loss rises."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(10, n))
    return {"x": x, "y": x[:1] + noise * rng.normal(size=(1, n))}


def memorise(path=None, monitor=None, n_epochs=60):
    phases = (Phase("train", n_epochs, 3e-2, 1e-5), Phase("sparsify", 0), Phase("refit", 0))
    schedule = Schedule(phases, (0.0,), threshold=0.0, batch_size=12, least_steps=20)
    weights = np.zeros((2, 10), np.float32)
    weights[1] += 0.1
    task = Task(linear_loss, memorising_problem(), memorising_problem(400, 1))
    return train(task, Restarts(weights), schedule, 0, monitor=monitor, path=path)


def test_a_member_keeps_the_weights_with_its_best_held_out_loss():
    found = memorise()
    curves = np.stack(found.history.held_out)
    assert curves[-1].min() > curves.min() + 0.05  # the last weights are worse than the best
    np.testing.assert_allclose(found.held_out.min(), curves.min(), rtol=1e-5)


def test_a_resumed_run_has_the_same_best_weights(tmp_path):
    path = tmp_path / "run.checkpoint"
    memorise(path, StopAfter(9))
    resumed = memorise(path)
    whole = memorise()
    assert_array_equal(resumed.weights, whole.weights)
    assert len(resumed.history.phases) == len(whole.history.phases)

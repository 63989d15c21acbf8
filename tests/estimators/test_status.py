"""A status tells the truth: overfitting, a surrogate worse than a constant, a fit that was stopped."""

import os
import signal
import threading
import time
import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import isr
from isr.estimators.settings import Effort
from isr.estimators.status import judged, told_apart, worse_than_constant
from isr.formulas.front import Point


def test_a_fit_that_memorises_its_rows_says_overfitting_with_both_losses():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(120, 2))
    y = np.column_stack([x[:, 0] + rng.normal(size=120), rng.normal(size=(120, 6))])
    model = isr.ConditionalISR(
        subnet="mlp",
        n_blocks=4,
        noise=0,
        training=isr.Training(Effort(2000, 0, 0), penalty=None, n_restarts=1),
        random_state=0,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(x, y)
    best = min(float(np.min(held)) for held in model.history_.held_out)
    chosen = model.fit_.front[model.chosen_]
    offset = chosen.held_out_nats - float(
        model.fit_.population.held_out[0]
    )  # standardised rows against x itself
    assert chosen.held_out_nats < best + offset + 0.02
    assert len(model.history_.phases) < 60


def test_a_gap_between_training_and_held_out_rows_is_named_with_both_figures():
    from isr.estimators.status import overfitting

    def point(train, held):
        rows = held + np.random.default_rng(0).normal(size=500)
        return Point(None, 1, 1, train, held, rows)

    assert overfitting(point(4.15, 9.04)).reason == (
        "overfitting: 9.04 nats per held-out row against 4.15 per training row"
    )
    assert overfitting(point(4.15, 4.30)) is None
    memorised = point(
        7.47, 8.77
    )  # a few rows of next to no density make the mean, and its standard error, large
    memorised.held_out_rows[::50] += 60.0
    assert overfitting(memorised) is not None


def test_posteriors_that_are_wrong_where_some_y_lie_are_named_with_the_place():
    rng = np.random.default_rng(0)
    y, z = rng.uniform(size=(1000, 2)), rng.normal(size=(1000, 3))
    assert told_apart(z, y, ["T", "p"]) is None
    z[y[:, 1] > 0.8, 2] *= 0.3
    found = told_apart(z, y, ["T", "p"])
    assert not found.ok
    assert found.reason.startswith("posteriors are not calibrated where p is highest: truths have at least")


def test_latents_that_know_of_y_are_told_though_each_of_them_is_normal():
    y, noise = np.random.default_rng(0).normal(size=(2, 4000, 1))
    assert told_apart(noise, y, ["y"]) is None
    assert told_apart(0.6 * np.sign(y - 1) + 0.8 * noise, y, ["y"]) is not None
    assert told_apart(np.tanh(y * noise) + 0.8 * noise, y, ["y"]) is not None


@pytest.mark.parametrize(("slope", "is_told"), [(0.0, False), (0.5, True)])
def test_a_density_whose_latents_know_of_each_other_is_not_called_exact(slope, is_told):
    z = np.random.default_rng(0).normal(size=(4000, 2))
    z[:, 1] = slope * z[:, 0] + np.sqrt(1 - slope**2) * z[:, 1]
    found = told_apart(z, np.zeros((4000, 0)), [])
    assert (found is not None) == is_told
    if found is not None:  # -log(1 - slope^2) / 2 = 0.144 nats
        assert 0.07 < float(found.reason.split()[-6]) < 0.17
        assert found.reason.startswith("the density is not exact: it gives rows at least 0.")


def test_regions_of_y_without_rows_are_left_out():
    rng = np.random.default_rng(0)
    y = np.column_stack([np.ones(300), rng.integers(0, 2, 300), rng.normal(size=(300, 8))])
    assert told_apart(rng.normal(size=(300, 2)), y, [f"y{i}" for i in range(10)]) is None


def test_latents_of_a_mixture_are_standard_normal_where_rows_are_its_own():
    from isr.bijections.affine import Standardise
    from isr.bijections.coupling import ConditionMap
    from isr.bijections.flow import Ensemble, Flow

    rng = np.random.default_rng(0)
    read = ConditionMap(Standardise((0.0,), (1.0,)), None, None)
    members = [Flow(Standardise((m, m), (s, s)), read) for m, s in ((0.0, 1.0), (4.0, 0.5))]
    which = rng.uniform(size=2000) < 0.3
    x = np.where(which[:, None], 4 + 0.5 * rng.normal(size=(2000, 2)), rng.normal(size=(2000, 2)))
    latents, _ = judged(Ensemble.of(tuple(members), [0.7, 0.3]), x, rng.uniform(size=(2000, 1)))
    assert told_apart(latents, rng.uniform(size=(2000, 1)), ["y"]) is None
    assert np.all(np.abs(latents.std(axis=0) - 1) < 0.05)


def test_a_surrogate_worse_than_the_mean_is_named_with_its_score():
    y = np.random.default_rng(0).normal(size=(100, 2))
    found = worse_than_constant(np.column_stack([y[:, 0], 6 * y[:, 1] + 3]), y, ["sum", "product"])
    assert not found.ok
    assert "'product' (R² -" in found.reason
    assert "'sum'" not in found.reason
    assert worse_than_constant(y + 0.1, y, ["sum", "product"]) is None


def test_isr_on_a_product_that_changes_sign_is_never_silently_worse_than_a_constant():
    x = np.random.default_rng(0).uniform(-2, 2, size=(400, 3))
    y = np.column_stack([x[:, 0] + x[:, 1] ** 2, x[:, 1] * x[:, 2]])
    model = isr.ISR(training=isr.Training(Effort(100, 100, 20), n_restarts=1), random_state=0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(x, y)
    residual = np.sum((model.predict(x) - y) ** 2, axis=0)
    scores = 1 - residual / np.sum((y - y.mean(axis=0)) ** 2, axis=0)
    assert scores.min() > 0 or (
        not model.status_.ok and any(issubclass(w.category, ConvergenceWarning) for w in caught)
    )


@pytest.mark.skipif(os.name != "posix", reason="sends a signal")
def test_an_interrupted_fit_says_it_was_stopped():
    rows = np.random.default_rng(0).normal(size=(500, 2))
    timer = threading.Timer(1.0, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.warns(ConvergenceWarning, match="stopped by SIGINT"):
        model = isr.SymbolicFlow(charts=(), training="thorough", random_state=0).fit(rows)
    assert "stopped by SIGINT" in model.status_.reason


def test_max_time_bounds_the_whole_fit_and_is_said():
    rows = np.random.default_rng(0).normal(size=(500, 2))
    isr.SymbolicFlow(charts=(), training=isr.Training(Effort(100, 100, 50)), random_state=0).fit(
        rows
    )  # compiles
    begun = time.monotonic()
    with pytest.warns(ConvergenceWarning, match="max_time of 3 s reached"):
        isr.SymbolicFlow(charts=(), training=isr.Training("thorough", max_time=3), random_state=0).fit(rows)
    assert (
        time.monotonic() - begun < 9
    )  # generous: the machine may be busy, and programs are compiled on the way

"""Observations unlike the training data are found, and those like it are left in peace."""

import json

import numpy as np
import pytest
from numpy.testing import assert_allclose

from isr.posterior.outliers import (
    MiscalibratedWarning,
    OutOfDistributionWarning,
    TrainingRecord,
    warn_if_unlike,
)


def correlated(n, seed):
    rng = np.random.default_rng(seed)
    return rng.multivariate_normal([1.0, 50.0], [[1.0, 9.5], [9.5, 100.0]], size=n)


def ring(n, seed):
    rng = np.random.default_rng(seed)
    angle, radius = rng.uniform(0, 2 * np.pi, n), 5 + 0.2 * rng.normal(size=n)
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)


def wide(n, seed):
    """Sixty columns driven by three factors, with a little noise, as many sensors that see the same thing."""
    mixing = np.random.default_rng(0).normal(size=(3, 60))
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 3)) @ mixing + 0.05 * rng.normal(size=(n, 60))


CASES = {"correlated": correlated, "ring": ring, "wide": wide, "scalar": lambda n, s: ring(n, s)[:, :1]}


@pytest.mark.parametrize("draw", CASES.values(), ids=CASES.keys())
def test_p_values_of_fresh_rows_are_not_too_small_and_alarms_are_rare(draw):
    record = TrainingRecord.of(draw(6000, 1))
    checks = [record.check(row) for row in draw(1000, 2)]
    p = np.array([check.p_value for check in checks])
    for level in (0.01, 0.05, 0.2):
        assert np.mean(p <= level) < level + 4 * np.sqrt(level / 1000)
    assert sum(check.unusual for check in checks) <= 5


@pytest.mark.parametrize("n", [20, 200])
def test_small_training_sets_raise_few_alarms(n):
    record = TrainingRecord.of(correlated(n, 1))
    assert np.mean([record.check(row).unusual for row in correlated(500, 2)]) < 6 / n


def one_dead_sensor():
    row = wide(1, 4)[0]
    row[7] += 2.0
    return row


UNLIKE = {
    "outside the range": (correlated, [6.0, 150.0], (0, 1)),
    "against the correlation": (correlated, [2.0, 35.0], ()),
    "in the hole of a ring": (ring, [0.0, 0.0], ()),
    "one sensor of many": (wide, one_dead_sensor(), ()),
}


@pytest.mark.parametrize(("draw", "y_star", "outside"), UNLIKE.values(), ids=UNLIKE.keys())
def test_what_is_unlike_is_found(draw, y_star, outside):
    found = TrainingRecord.of(draw(6000, 1)).check(y_star)
    assert found.unusual
    assert found.p_value < 0.001
    assert found.outside == outside


def test_a_constant_column_is_no_alarm_unless_it_differs():
    y = np.column_stack([np.random.default_rng(0).normal(size=500), np.full(500, 3.0)])
    record = TrainingRecord.of(y)
    assert not record.check([0.0, 3.0 + 1e-12]).unusual
    assert record.check([0.0, 3.1]).unusual


def test_collinear_columns_are_no_alarm_up_to_rounding():
    a = np.random.default_rng(0).normal(size=(500, 1))
    record = TrainingRecord.of(np.hstack([a, 2 * a + 1]))
    assert not record.check([0.3, 1.6 + 1e-9]).unusual
    assert record.check([0.3, -1.0]).unusual


def test_a_record_survives_text():
    record = TrainingRecord.of(wide(300, 1))
    text = json.dumps({name: array.tolist() for name, array in record.to_dict().items()})
    again = TrainingRecord.from_dict(json.loads(text))
    for name, array in record.to_dict().items():
        assert_allclose(getattr(again, name), array, rtol=0)
    assert again.check(wide(5, 2)) == record.check(wide(5, 2))


def test_a_record_of_much_data_stays_small():
    record = TrainingRecord.of(np.random.default_rng(0).normal(size=(30_000, 100)))
    assert sum(array.size for array in record.to_dict().values()) < 60_000


def test_the_warning_says_what_is_unusual_and_what_to_do():
    record = TrainingRecord.of(correlated(1000, 1))
    with pytest.warns(OutOfDistributionWarning, match=r"'speed' is 500, trained on .*check units and order"):
        warn_if_unlike(record, [1.0, 500.0], ["depth", "speed"])
    with pytest.warns(
        OutOfDistributionWarning, match="1 of 2 observations are unlike .* but not their combination"
    ):
        found = warn_if_unlike(record, [[1.0, 50.0], [2.0, 35.0]], ["depth", "speed"])
    assert found.n_unusual == 1


def test_mistakes_are_named():
    with pytest.raises(ValueError, match=r"at least two finite rows, got an array of shape \(5,\)"):
        TrainingRecord.of(np.zeros(5))
    with pytest.raises(ValueError, match="y_star has 3 values, the training data 2 columns"):
        TrainingRecord.of(correlated(10, 1)).check([1.0, 2.0, 3.0])


def with_latents(wrong):
    """A record of rows whose latents are normal, but for what ``wrong`` makes of those with y near its upper end."""
    rng = np.random.default_rng(0)
    y, z = rng.uniform(size=(4000, 1)), rng.normal(size=(4000, 2))
    at_the_end = y[:, 0] > 0.98
    z[at_the_end] = wrong(z[at_the_end])
    return TrainingRecord.of(y).with_latents(y, z)


WRONG = {
    "shifted": (lambda z: z + np.array([0.0, 1.5]), "off to one side by"),
    "too narrow": (lambda z: 2 * z, "farther out than it allows"),
    "too wide": (lambda z: 0.4 * z, "closer in than it allows"),
}


@pytest.mark.parametrize(("wrong", "told"), WRONG.values(), ids=WRONG.keys())
def test_a_model_that_is_wrong_near_an_observation_is_told_there_alone(wrong, told):
    record = with_latents(wrong)
    with pytest.warns(MiscalibratedWarning, match=f"near this observation the model is not right: .* {told}"):
        warn_if_unlike(record, [0.995], ["y1"])
    assert not record.misfit_near([0.5])
    again = TrainingRecord.from_dict(record.to_dict())
    assert again.misfit_near([0.995]) == record.misfit_near([0.995])


def test_a_model_that_is_right_is_hardly_ever_called_wrong():
    rng = np.random.default_rng(1)
    alarms = 0
    for seed in range(200):
        y = np.random.default_rng(seed).uniform(size=(300, 1))
        record = TrainingRecord.of(y).with_latents(y, rng.normal(size=(300, 2)))
        alarms += bool(record.misfit_near([0.99])) + bool(record.misfit_near(rng.uniform(size=(50, 1))))
    assert alarms <= 4  # one in 500 at most is expected


def test_records_of_old_files_know_no_latents():
    old = TrainingRecord.of(correlated(500, 1)).to_dict()
    del old["places"], old["latents"]
    assert not TrainingRecord.from_dict(old).misfit_near([1.0, 50.0])

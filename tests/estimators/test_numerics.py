"""Extreme data: a fit has finite draws and an exact round trip, and says which columns have no density."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.exceptions import ConvergenceWarning

import isr
from isr.bijections.affine import standardise
from isr.estimators.settings import Effort
from isr.tables.arrays import DegenerateDataWarning, degeneracies

# Many are trained for a moment only.
pytestmark = pytest.mark.filterwarnings("ignore:a normal law, linear in what is given")

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(200, 2)) @ np.array([[1.0, 0.5], [0.0, 1.0]])

FINE = {
    "singles": ROWS.astype(np.float32),
    "tiny": ROWS * 1e-12,
    "huge": ROWS * 1e12,
    "of different size": ROWS * [1e-12, 1e12],
    "far from zero": ROWS + 1e9,
    "at the end of doubles": ROWS * 1e300,
    "at the other end": ROWS * 1e-300,
    "Cauchy": RNG.standard_cauchy((200, 2)),
    "log-normal": np.exp(5 * ROWS),
    "nearly singular": np.column_stack([ROWS[:, 0], ROWS[:, 0] + 1e-3 * ROWS[:, 1]]),
    "integers": RNG.integers(-1000, 1000, (200, 2)),
}
DEGENERATE = {
    "constant": (np.column_stack([ROWS[:, 0], np.full(200, 3.0)]), "the columns 'x2' are constant"),
    "all constant": (np.full((200, 2), 3.0), "the columns 'x1', 'x2' are constant"),
    "discrete": (np.column_stack([RNG.integers(0, 3, 200), ROWS[:, 0]]), "'x1' take few different values"),
    "twice the same": (ROWS[:, [0, 0]], "the columns 'x1', 'x2' follow from each other"),
    "collinear": (
        np.column_stack([ROWS, 2 * ROWS[:, 0] - ROWS[:, 1]]),
        "'x1', 'x2', 'x3' follow from each other",
    ),
    "collinear to nine digits": (
        np.column_stack([ROWS[:, 0], 2e9 * ROWS[:, 0] + ROWS[:, 1]]),
        "'x1', 'x2' follow from each other",
    ),
    "few rows again and again": (np.repeat(ROWS[:2], 100, axis=0), "take few different values"),
}


@pytest.mark.parametrize("rows", FINE.values(), ids=FINE.keys())
def test_rows_that_have_a_density_are_not_called_degenerate(rows):
    assert degeneracies(np.asarray(rows, float), ["x1", "x2"]) == []


@pytest.mark.parametrize(("rows", "sentence"), DEGENERATE.values(), ids=DEGENERATE.keys())
def test_columns_without_a_density_are_named(rows, sentence):
    found = "; ".join(degeneracies(np.asarray(rows, float), [f"x{i + 1}" for i in range(rows.shape[1])]))
    assert sentence in found


def test_two_hundred_columns_of_few_rows_tell_nothing():
    assert degeneracies(RNG.normal(size=(50, 200)), [f"x{i}" for i in range(200)]) == []


@pytest.mark.parametrize("exponent", [-300, -12, 0, 12, 300])
def test_standard_rows_do_not_depend_on_the_unit(exponent):
    scale = standardise(ROWS * 10.0**exponent)
    assert_allclose(np.asarray(scale.scale) / 10.0**exponent, ROWS.std(axis=0), rtol=1e-12)
    assert_allclose(np.asarray(scale.shift) / 10.0**exponent, ROWS.mean(axis=0), rtol=1e-9)


def fitted(rows):
    return isr.SymbolicFlow(
        charts=(),
        n_layers=1,
        training=isr.Training(Effort(60, 0, 0), n_restarts=1, penalty=None, verbose=False),
        random_state=0,
        library={"constant": 1, "id": 1, "square": 1},
    ).fit(rows)


@pytest.mark.slow
@pytest.mark.parametrize(
    "rows", [*FINE.values(), *(rows for rows, _ in DEGENERATE.values())], ids=[*FINE, *DEGENERATE]
)
def test_a_fit_to_extreme_rows_gives_finite_draws_and_an_exact_round_trip(rows):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        model = fitted(rows)
    is_degenerate = bool(degeneracies(np.asarray(rows, float), [f"x{i}" for i in range(rows.shape[1])]))
    said = {w.category for w in said}
    # What has no density cannot be fitted exactly, and the status may say so too.
    assert said - {ConvergenceWarning} == {DegenerateDataWarning} if is_degenerate else not said
    assert np.isfinite(model.score(rows))
    assert np.isfinite(model.sample(500)).all()
    assert model.round_trip_error_ < 1e-6
    assert model.to_bundle().metadata["round_trip_error"] == model.round_trip_error_


@pytest.mark.slow
@pytest.mark.parametrize("exponent", [-12, 12])
def test_a_density_scales_with_its_unit(exponent):
    scaled = fitted(ROWS * 10.0**exponent).score(ROWS * 10.0**exponent)
    assert_allclose(scaled, fitted(ROWS).score(ROWS) - 2 * exponent * np.log(10), atol=1e-6)

"""EQLRegressor: known functions come back exactly; scikit-learn's manners."""

import numpy as np
import pandas as pd
import pytest
import sympy
from numpy.testing import assert_allclose
from sklearn.utils.estimator_checks import parametrize_with_checks

import isr
from isr.estimators.equation_model import names_of
from isr.estimators.settings import Effort
from isr.problems.laws import FUNCTIONS


def quick(**options):
    training = isr.Training("quick", n_restarts=4, verbose=False)
    return isr.EQLRegressor(**{"training": training, "random_state": 0, **options})


@pytest.mark.parametrize(
    "name", [*(pytest.param(n, marks=pytest.mark.slow) for n in ("square", "product")), "sine"]
)
def test_known_functions_come_back_exactly(name):
    function = FUNCTIONS[name]
    x, y = function.sample(random_state=0)
    model = quick(n_layers=1).fit(x, y)
    names = [sympy.Symbol(f"x{i + 1}", real=True) for i in range(function.dim)]
    found = function.compare(model.expressions_[0], symbols=names)
    assert found.same, (found.reason, model.expressions_)
    x_far, y_far = function.test_set()
    assert_allclose(model.predict(x_far), y_far, atol=1e-6)


@pytest.mark.slow
def test_several_outputs_with_the_names_of_the_frame():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"depth": rng.uniform(-1, 1, 200), "speed": rng.uniform(-1, 1, 200)})
    y = pd.DataFrame({"twice": 2 * frame["depth"], "both": frame["depth"] * frame["speed"]})
    model = quick(n_layers=1, units={"depth": "m", "both": "m²/s"}).fit(frame, y)
    assert_allclose(model.predict(frame), y, atol=1e-6)
    assert {str(s) for e in model.expressions_ for s in e.free_symbols} == {"depth", "speed"}
    saved = model.to_bundle()
    assert (saved.y_names, saved.units) == (("twice", "both"), {"depth": "m", "both": "m²/s"})
    assert saved.expressions.text().splitlines() == [
        "# depth in m", "# both in m²/s", "twice = 2*depth", "both  = depth*speed"
    ]  # fmt: skip
    assert "Variables:\n *   depth in m\n *   both in m²/s\n" in saved.expressions.code("c")


@pytest.mark.parametrize(
    ("y", "expected"),
    [
        (np.zeros(3), ("y",)),
        (np.zeros((3, 2)), ("y1", "y2")),
        (pd.Series(np.zeros(3), name="area"), ("area",)),
        (pd.Series(np.zeros(3), name="length"), ("y",)),
        (pd.Series(np.zeros(3)), ("y",)),
        (pd.DataFrame(np.zeros((3, 1))), ("y",)),
    ],
)
def test_outputs_have_the_names_of_y_where_it_has_any_of_its_own(y, expected):
    assert names_of(y, len(expected), ["length"]) == expected


def test_units_of_nothing_are_refused():
    with pytest.raises(
        ValueError, match="units for unknown columns 'q'; the columns of x and y are 'x1', 'y'"
    ):
        quick(units={"q": "m"}).fit(np.zeros((9, 1)), np.zeros(9))


def test_printed_expressions_are_the_prediction():
    x, y = FUNCTIONS["square"].sample(random_state=1)
    model = quick(n_layers=1).fit(x, y + 0.1 * x[:, 0])
    value = sympy.lambdify(sympy.Symbol("x1", real=True), model.expressions_[0])
    assert_allclose(value(x[:, 0]), model.predict(x), rtol=1e-9)


@pytest.mark.slow
def test_rows_of_no_weight_do_not_count():
    x, y = FUNCTIONS["linear"].sample(random_state=1)
    spoiled, weight = y.copy(), np.ones(len(y))
    spoiled[::4], weight[::4] = 50.0, 0.0
    model = quick(n_layers=1).fit(x, spoiled, sample_weight=weight)
    assert_allclose(model.predict(x), y, atol=1e-6)


@pytest.mark.slow
def test_rows_of_little_weight_hardly_count_in_held_out_figures_either():
    x, y = FUNCTIONS["linear"].sample(random_state=1)
    spoiled, weight = y.copy(), np.ones(len(y))
    spoiled[::4], weight[::4] = 50.0, 1e-12
    model = quick(n_layers=1).fit(x, spoiled, sample_weight=weight)
    assert model.front_["nll"].min() < -5
    assert_allclose(model.predict(x), y, atol=1e-3)


UNSUPPORTED = {
    "check_sample_weight_equivalence_on_dense_data": "rows are held out and batched at random, so a row given twice "
    "is not the same as a row of weight two"
}


@pytest.mark.slow
@parametrize_with_checks(
    [
        isr.EQLRegressor(
            n_layers=1, library=["constant", "id"], random_state=0,
            training=isr.Training(Effort(40, 40, 10), n_restarts=1, verbose=False, snap=False),
        )
    ],
    expected_failed_checks=lambda estimator: UNSUPPORTED,
)  # fmt: skip
def test_scikit_learn_contract(estimator, check):
    check(estimator)

"""LawRegressor: laws come back, also under noise, and say what they are."""

import numpy as np
import pandas as pd
import pytest
import sympy
from numpy.testing import assert_allclose
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.estimator_checks import parametrize_with_checks

import isr

UNSUPPORTED = {
    "check_sample_weight_equivalence_on_dense_data": "rows are held out at random, so a row given twice is not the "
    "same as a row of weight two",
}


def rows(n=300, d=2, seed=0):
    return np.random.default_rng(seed).uniform(1, 3, size=(n, d))


def test_an_exact_law_comes_back_with_its_constants():
    x = rows()
    model = isr.LawRegressor().fit(x, x[:, 0] * np.sqrt(x[:, 1]) / (4 * np.pi))
    x1, x2 = sympy.symbols("x1 x2", real=True)
    assert model.expressions_[0] == x1 * sympy.sqrt(x2) / (4 * sympy.pi)
    assert "sqrt(x2)" in model.expressions_.code("c")
    assert model.expressions_.n_constants <= 2
    assert model.status_.ok


def test_constant_and_linear_law_are_first_on_the_front():
    x = rows()
    model = isr.LawRegressor().fit(x, np.exp(x[:, 0]) * x[:, 1])
    first, second = list(model.front_["equations"])[:2]
    assert not any(name in first for name in ("x1", "x2"))
    assert "x1" in second
    assert "x2" in second
    assert "exp" not in second
    assert model.choose(complexity=1).predict(x).std() == pytest.approx(0.0)


@pytest.mark.slow
def test_errors_cover_the_truth_as_often_as_they_say():
    x, inside = rows(200), 0
    for seed in range(8):
        noise = 0.01 * np.random.default_rng(seed).normal(size=200)
        model = isr.LawRegressor().fit(x, 1.2345 * x[:, 0] / x[:, 1] - 0.777 * np.log(x[:, 1]) + noise)
        values, errors = np.array(model.formulas_.constants), model.errors_
        assert len(values) == 2, model.expressions_
        inside += sum(np.any(np.abs(values - true) < 2 * errors) for true in (1.2345, -0.777))
    assert inside >= 12


def test_several_outputs_keep_their_order_and_save(tmp_path):
    x = rows()
    y = np.column_stack([x[:, 0] / x[:, 1], 2 * x[:, 0] / x[:, 1] + 1])
    model = isr.LawRegressor().fit(x, y)
    assert_allclose(model.predict(x), y, rtol=1e-9)
    model.save(tmp_path / "two.isr")
    loaded = isr.load(tmp_path / "two.isr")
    assert_allclose(loaded.predict(x), y, rtol=1e-9)
    assert str(loaded.expressions) == str(model.expressions_)


def test_pure_noise_is_a_constant():
    model = isr.LawRegressor(max_time=20).fit(rows(), np.random.default_rng(1).normal(size=300))
    assert not model.expressions_[0].free_symbols


def test_outputs_of_one_value_are_a_constant():
    x = rows()
    model = isr.LawRegressor().fit(x, np.full(len(x), 3.7))
    assert_allclose(model.predict(x), 3.7)
    assert model.status_.ok


def test_columns_of_any_size_repeated_and_idle_ones_do_no_harm():
    x = rows(d=3)
    y = x[:, 0] * np.exp(-x[:, 1])
    model = isr.LawRegressor().fit(np.column_stack([x, x[:, 0]]), y)
    assert str(model.expressions_[0]) == "x1*exp(-x2)"
    scaled = isr.LawRegressor().fit(x * [1e-20, 1e20, 1.0], x[:, 0] / x[:, 1] ** 2)
    assert_allclose(scaled.predict(x * [1e-20, 1e20, 1.0]), x[:, 0] / x[:, 1] ** 2, rtol=1e-9)


def test_one_variable_to_the_power_of_another_is_predicted_and_saved(tmp_path):
    x = rows()
    model = isr.LawRegressor().fit(x, x[:, 0] ** x[:, 1])
    assert str(model.expressions_) == "y = x1**x2"
    assert_allclose(model.predict(x), x[:, 0] ** x[:, 1], rtol=1e-9)
    model.save(tmp_path / "power.isr")
    assert_allclose(isr.load(tmp_path / "power.isr").predict(x)[:, 0], model.predict(x), rtol=1e-12)


def test_a_library_restricts():
    x = rows()
    named = pd.DataFrame(x, columns=[f"angle {j}" for j in range(x.shape[1])])
    with pytest.warns(ConvergenceWarning, match="still depends on x; best found: .*angle 0"):
        model = isr.LawRegressor([], max_time=3).fit(named, np.sin(4 * x[:, 0]))
    assert not model.expressions_[0].atoms(sympy.Function)


def test_a_law_of_many_numbers_says_that_it_is_a_flexible_fit(monkeypatch):
    x = rows()
    monkeypatch.setattr("isr.estimators.law_regressor.is_flexible", lambda law, n: True)
    with pytest.warns(
        ConvergenceWarning, match="a flexible fit rather than a law: that of y .* trust it near these rows"
    ):
        isr.LawRegressor().fit(x, x[:, 0] / x[:, 1])


def test_units_rule_out_what_cannot_be():
    x = rows()
    units = {"x1": "m", "x2": "s", "y": "m/s"}
    model = isr.LawRegressor(units=units).fit(x, x[:, 0] / x[:, 1])
    assert str(model.expressions_[0]) == "x1/x2"


def test_a_posterior_follows_from_the_law():
    x = rows()
    model = isr.LawRegressor().fit(x, x[:, 0] + x[:, 1])
    draws = model.posterior(4.0, prior={"x1": (1, 3), "x2": (1, 3)}, noise=0.01).sample(500)
    assert_allclose(np.asarray(draws).sum(axis=1), 4.0, atol=0.06)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"library": "sin"}, "library is 'auto' or a list of names"),
        ({"library": ["sine"]}, "unknown function 'sine'.*did you mean 'sin'"),
        ({"max_time": 0}, "max_time is a number of seconds above 0"),
        ({"units": {"z": "m"}}, "z"),
    ],
)
def test_bad_options_get_a_sentence(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        isr.LawRegressor(**options).fit(rows(), rows()[:, 0])


@pytest.mark.slow
# The labels of irises are no law of the rows, which it may say.
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@parametrize_with_checks([isr.LawRegressor(max_time=5)], expected_failed_checks=lambda estimator: UNSUPPORTED)
def test_scikit_learn_contract(estimator, check):
    check(estimator)

"""SymbolicFlow: the laws it must find, and the manners scikit-learn asks for."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

import isr
from isr.bijections.parameters import flatten
from isr.estimators.settings import Effort
from isr.problems.densities import DENSITIES
from isr.problems.laws import LAWS

# Many are trained for a moment only.
pytestmark = pytest.mark.filterwarnings("ignore:a normal law, linear in what is given")

TINY = Effort(20, 20, 5)


def tiny(**options):
    training = isr.Training(TINY, n_restarts=2, verbose=False)
    named = {f"training__{name}": options.pop(name) for name in training.get_params() if name in options}
    return isr.SymbolicFlow(n_layers=1, training=training, random_state=0, **options).set_params(**named)


@pytest.fixture(scope="module")
def banana():
    x = DENSITIES["banana"].sample(10_000, random_state=0)
    model = isr.SymbolicFlow(
        n_layers=1,
        units={"width": "m"},
        training=isr.Training("quick", n_restarts=2, verbose=False),
        random_state=0,
    )
    return model.fit(pd.DataFrame(x, columns=["width", "height"]))


def test_the_front_tells_learned_numbers_from_numbers_in_the_equations(banana):
    chosen = banana.front_[banana.front_["chosen"]].iloc[0]
    assert chosen["n_parameters"] == np.count_nonzero(flatten(banana.flow_)[0])
    assert chosen["n_constants"] == banana.expressions_.n_constants
    assert chosen["complexity"] == banana.expressions_.complexity


def test_the_banana_law_is_found_exactly(banana):
    outputs = banana.expressions_.composed().outputs
    found = LAWS["banana"].compare(list(outputs), symbols=banana.expressions_.forward.inputs, tolerance=0.06)
    assert found.same, found.reason
    assert "sin" not in banana.expressions_.text()


def test_the_banana_density_is_close_to_the_truth(banana):
    density = DENSITIES["banana"]
    test = density.sample(50_000, random_state=1)
    frame = pd.DataFrame(test, columns=["width", "height"])
    assert np.mean(density.log_prob(test) - banana.score_samples(frame)) < 0.005


def test_equations_carry_the_names_of_the_frame(banana):
    assert [str(s) for s in banana.expressions_.forward.inputs] == ["width", "height"]


def test_equations_tell_the_units(banana):
    for direction in ("forward", "inverse"):
        assert banana.expressions_.text(direction).startswith("# width in m\n")
    assert "width (m)" in banana.to_bundle().title


def test_the_equations_are_the_model(banana):
    assert isr.check(banana.flow_, banana.expressions_).passed


def test_transform_and_back(banana):
    x = DENSITIES["banana"].sample(500, random_state=2)
    frame = pd.DataFrame(x, columns=["width", "height"])
    assert_allclose(banana.inverse_transform(banana.transform(frame)), x, atol=1e-9)


def test_samples_follow_the_learned_density(banana):
    x = banana.sample(20_000, random_state=3)
    frame = pd.DataFrame(x, columns=["width", "height"])
    # The mean of the log-density over its own samples is minus its entropy, close to the truth's.
    assert_allclose(-banana.score(frame), DENSITIES["banana"].entropy, atol=0.05)


def test_the_front_runs_from_simple_to_accurate(banana):
    front = banana.front_
    assert list(front["complexity"]) == sorted(front["complexity"])
    assert list(front["nll"]) == sorted(front["nll"], reverse=True)
    assert front["chosen"].sum() == 1


def test_a_file_keeps_the_errors_of_constants_and_the_training_curves(banana, tmp_path):
    banana.save(tmp_path / "banana.isr")
    saved = isr.load(tmp_path / "banana.isr")
    assert_array_equal(saved.errors, banana.errors_)
    assert saved.labels == banana._chosen.labels
    pd.testing.assert_frame_equal(saved.history, banana.history_.frame(), check_dtype=False)
    pd.testing.assert_frame_equal(saved.front, banana.front_.drop(columns=["n_constants", "equations"]))


def test_another_model_of_the_front_can_be_chosen(banana):
    simplest = int(banana.front_["complexity"].min())
    kept = banana.chosen_
    try:
        banana.choose(complexity=simplest)
        assert banana.front_["chosen"].iloc[0]
        assert banana.expressions_.complexity == simplest
        assert banana.to_bundle().errors is None
    finally:
        banana._use(kept)


def test_same_seed_same_model():
    x = np.random.default_rng(0).normal(size=(200, 2))
    first, second = tiny(penalty=None).fit(x), tiny(penalty=None).fit(x)
    assert_array_equal(first.score_samples(x), second.score_samples(x))


@pytest.mark.slow
def test_same_seed_same_formulas():
    x = np.random.default_rng(0).normal(size=(200, 2))
    assert_array_equal(tiny().fit(x).score_samples(x), tiny().fit(x).score_samples(x))


@pytest.mark.slow
def test_samples_stay_inside_the_bounds():
    x = np.random.default_rng(0).uniform([0, -1], [1, 1], size=(400, 2))
    model = tiny(bounds=[(0, 1), (-1, None)], penalty=None).fit(x)
    samples = model.sample(20_000)
    assert samples[:, 0].min() >= 0
    assert samples[:, 0].max() <= 1
    assert samples[:, 1].min() >= -1


@pytest.mark.slow
def test_one_variable_is_enough():
    x = np.random.default_rng(0).normal(2.0, 0.5, size=(300, 1))
    model = tiny(penalty=None).fit(x)
    grid = np.linspace(-3, 7, 2001)[:, None]
    assert_allclose(np.trapezoid(np.exp(model.score_samples(grid)), grid[:, 0]), 1.0, atol=1e-3)


def test_running_out_of_time_keeps_a_model_and_says_so():
    x = np.random.default_rng(0).normal(size=(200, 2))
    with pytest.warns(ConvergenceWarning, match="max_time of 0 s reached; the best model so far is kept"):
        model = tiny(max_time=0).fit(x)
    assert np.all(np.isfinite(model.score_samples(x)))


@pytest.mark.slow
def test_the_baseline_trains():
    x = DENSITIES["banana"].sample(500, random_state=0)
    model = tiny(subnet="mlp").fit(x)
    assert np.isfinite(model.score(x))


def test_unknown_chart_is_named():
    with pytest.raises(ValueError, match="unknown chart 'spherical'; known: polar, split, sinh_arcsinh"):
        tiny(charts=("spherical",)).fit(np.random.default_rng(0).normal(size=(10, 2)))


def test_unknown_effort_is_named():
    with pytest.raises(ValueError, match="unknown effort 'huge'; known: quick, normal, thorough"):
        tiny(effort="huge").fit(np.random.default_rng(0).normal(size=(20, 2)))


def test_unfitted_says_so():
    with pytest.raises(NotFittedError):
        tiny().sample(3)


def test_works_at_the_end_of_a_pipeline_and_in_a_grid_search():
    x = np.random.default_rng(0).normal(size=(60, 2))
    pipeline = make_pipeline(StandardScaler(), tiny(subnet="mlp"))
    search = GridSearchCV(pipeline, {"symbolicflow__n_blocks": [1]}, cv=2).fit(x)
    assert np.isfinite(search.best_score_)


QUICK_CHECKS = {
    "check_estimator_cloneable", "check_estimator_repr", "check_no_attributes_set_in_init",
    "check_do_not_raise_errors_in_init_or_set_param",
    "check_get_params_invariance", "check_set_params", "check_estimators_unfitted", "check_estimators_fit_returns_self",
    "check_fit2d_1sample", "check_fit1d", "check_n_features_in",
    "check_estimators_empty_data_messages", "check_complex_data",
}  # fmt: skip


def _checks():
    """All checks of scikit-learn; those that fit many shapes of data, each compiled anew, are slow."""
    estimator = isr.SymbolicFlow(
        n_layers=1,
        subnet="mlp",
        training=isr.Training(Effort(2, 2, 1), n_restarts=1, verbose=False),
        random_state=0,
    )
    for one, check in estimator_checks_generator(estimator):
        name = getattr(check, "func", check).__name__
        marks = () if name in QUICK_CHECKS else pytest.mark.slow
        yield pytest.param(one, check, id=name, marks=marks)


@pytest.mark.parametrize(("estimator", "check"), list(_checks()))
def test_scikit_learn_contract(estimator, check):
    check(estimator)

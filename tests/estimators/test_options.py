"""The options of the estimators: what a wrong one is told, and how scikit-learn reaches the nested ones."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

import isr
from isr.bijections.coupling import Affine
from isr.estimators.settings import Effort

ESTIMATORS = [isr.SymbolicFlow, isr.ISR, isr.ConditionalISR, isr.EQLRegressor]


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_no_estimator_has_more_than_twelve_options(estimator):
    assert len(estimator().get_params(deep=False)) <= 12


def test_what_a_coupling_does_can_be_chosen_for_flows_and_surrogates():
    for estimator in (isr.SymbolicFlow, isr.ISR):
        assert estimator(transformer=Affine(1.5))._architecture().transformer == Affine(1.5)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: isr.ConditionalISR(blocks=3),
            r"ConditionalISR has no option 'blocks' \(did you mean 'n_blocks'\?\)",
        ),
        (
            lambda: isr.EQLRegressor(nonsense=3),
            "EQLRegressor has no option 'nonsense'; its options are n_layers, library",
        ),
        (
            lambda: isr.ISR(effort="quick"),
            r"'effort' is now part of training: ISR\(training=isr.Training\(effort='quick'\)\)",
        ),
        (lambda: isr.Training(efort="quick"), r"Training has no option 'efort' \(did you mean 'effort'\?\)"),
        (lambda: isr.SymbolicFlow(training=3).fit(np.eye(9)), "training must be an isr.Training, an effort"),
        (
            lambda: isr.ConditionalISR(condenser="linear").fit(np.eye(10), np.eye(10)),
            "condenser must be an isr.Condenser",
        ),
    ],
)
def test_a_wrong_option_is_told_what_to_write_instead(make, message):
    with pytest.raises(TypeError, match=message):
        make()


def test_an_option_of_training_that_an_estimator_cannot_use_is_refused():
    model = isr.EQLRegressor(training=isr.Training(backward=1.0))
    with pytest.raises(ValueError, match="backward means nothing to EQLRegressor"):
        model.fit(np.random.default_rng(0).normal(size=(20, 2)), np.zeros(20))


def test_nested_options_are_set_and_cloned_whatever_training_was():
    for training in (None, "quick", isr.Training(penalty=None)):
        model = isr.ConditionalISR(training=training, condenser=isr.Condenser(3)).set_params(
            training__n_restarts=5, condenser__kind="linear"
        )
        copy = clone(model)
        assert copy.training == model.training
        assert copy.training is not model.training
        assert (copy.training.n_restarts, copy.condenser.kind) == (5, "linear")


def test_a_grid_search_reaches_the_options_of_training():
    x = np.random.default_rng(0).normal(size=(60, 1))
    model = isr.EQLRegressor(
        n_layers=1, library=["id"], training=isr.Training(Effort(60, 60, 20)), random_state=0
    )
    search = GridSearchCV(model, {"training__n_restarts": [1, 2]}, cv=2).fit(x, 3 * x[:, 0])
    assert search.best_score_ == pytest.approx(1.0)

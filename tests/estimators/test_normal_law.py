"""The normal law is always there to be beaten, and wild models are never chosen."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.datasets import load_wine
from sklearn.exceptions import ConvergenceWarning

import isr
from isr.bijections.affine import Linear
from isr.bijections.bijection import Chain
from isr.bijections.flow import Flow
from isr.estimators.normal_law import defended, normal_law, not_beaten, not_wild, wide_law
from isr.estimators.rows import FlowTask, network_point, prepare
from isr.estimators.settings import Effort


def correlated(n=400, dim=3, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, dim)) @ rng.normal(size=(dim, dim)) + rng.normal(size=dim)


def test_the_normal_point_is_the_normal_law_of_the_training_rows():
    rows = prepare(FlowTask(correlated()), seed=0)
    point = network_point(normal_law(rows), rows)
    law = multivariate_normal(rows.train.x.mean(axis=0), np.cov(rows.train.x.T))
    np.testing.assert_allclose(-point.held_out_rows, law.logpdf(rows.held_out.x), rtol=1e-3)


def test_the_normal_point_given_y_is_linear_regression():
    rng = np.random.default_rng(0)
    x = correlated()
    y = x[:, :2] + rng.normal(size=(len(x), 2))
    rows = prepare(FlowTask(x, None, y, np.zeros(2)), seed=0)
    point = network_point(normal_law(rows), rows)
    design = np.column_stack([np.ones(len(rows.train.x)), rows.train.y])
    slopes = np.linalg.lstsq(design, rows.train.x, rcond=None)[0]
    law = multivariate_normal(np.zeros(3), np.cov((rows.train.x - design @ slopes).T))
    held = np.column_stack([np.ones(len(rows.held_out.x)), rows.held_out.y])
    np.testing.assert_allclose(-point.held_out_rows, law.logpdf(rows.held_out.x - held @ slopes), rtol=1e-3)


def test_a_model_with_an_absurd_row_or_wild_draws_is_left_out_and_a_worse_one_is_not_chosen():
    rows = prepare(FlowTask(correlated()), seed=0)
    normal = network_point(normal_law(rows), rows)
    narrow, wide = (network_point(Flow(Linear(np.eye(3) * size)), rows) for size in (20.0, 1e-3))
    assert not_wild([normal, narrow, wide], rows, normal) == [normal]
    assert not_beaten([normal, narrow, wide], normal) == [0]


def test_a_network_with_a_little_of_the_wide_law_has_no_absurd_row():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 2))
    rows = prepare(FlowTask(x, y=x[:, :1] + 0.1 * rng.normal(size=(400, 1))), seed=0)
    law = normal_law(rows)
    narrow = replace(law, bijection=Chain((*law.steps, Linear(100 * np.eye(2)))))
    point, wide = (network_point(flow, rows) for flow in (narrow, wide_law(rows)))
    mixture = defended(point, wide)
    assert np.max(point.held_out_rows) > 1000
    assert np.all(mixture.held_out_rows < wide.held_out_rows + 9.3)
    given = rows.held_out.x, rows.held_out.y
    np.testing.assert_allclose(mixture.model.log_prob(*given), -mixture.held_out_rows, rtol=1e-6)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.slow
def test_few_rows_of_many_columns_are_no_worse_than_a_normal_law():
    train, fresh = wine()
    training = isr.Training(Effort(100, 100, 20), n_restarts=2)
    model = isr.SymbolicFlow(training=training, random_state=0).fit(train)
    normal = multivariate_normal(train.mean(axis=0), np.cov(train.T)).logpdf(fresh).mean()
    assert model.score(fresh) > normal - 0.5


def wine():
    x = load_wine().data
    order = np.random.default_rng(0).permutation(len(x))
    return x[order[:142]], x[order[142:]]


def test_couplings_of_few_rows_are_no_worse_than_a_normal_law_which_is_said():
    train, fresh = wine()
    quick = isr.Training(Effort(300, 300, 50), n_restarts=2)
    with pytest.warns(
        ConvergenceWarning,
        match="a normal law, linear in what is given, is used: it has .* nats per held-out row",
    ):
        model = isr.SymbolicFlow(charts=(), training=quick, random_state=0).fit(train)
    normal = multivariate_normal(train.mean(axis=0), np.cov(train.T)).logpdf(fresh).mean()
    assert model.score(fresh) > normal - 0.5


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_three_gaussians_get_no_absurd_density_and_no_wild_draw(seed):
    centres = np.array([[-3.0, 0.0], [3.0, 0.0], [0.0, 4.0]])

    def draw(n, seed):
        rng = np.random.default_rng(seed)
        return centres[rng.integers(3, size=n)] + 0.5 * rng.normal(size=(n, 2))

    model = isr.SymbolicFlow(random_state=seed).fit(draw(10_000, seed))
    assert model.score_samples(draw(100_000, 99)).min() > -1000
    assert np.abs(model.sample(100_000)).max() < 100


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_bounds_and_one_column_have_a_normal_law_too():
    rows = np.random.default_rng(0).uniform(size=(300, 1))
    model = isr.SymbolicFlow(
        bounds=[(0, 1)], training=isr.Training(Effort(50, 0, 0), n_restarts=1, penalty=None), random_state=0
    ).fit(rows)
    assert model.score(rows) > -0.1

"""The accurate mode: an ensemble that stops in time, has no absurd row and reads skewed columns as logarithms."""

import time
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats
from sklearn.exceptions import ConvergenceWarning

import isr
from isr.bijections.affine import Spread, Standardise, spread
from isr.bijections.flow import Ensemble, Flow
from isr.equations.check import check
from isr.estimators.settings import Effort
from sbibm_tasks import TASKS

SHORT = isr.Training(Effort(600, 0, 0))


def fitted(x, y, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # too few steps, or a gap to training rows
        return isr.ConditionalISR(
            goal="accurate", noise=0.0, random_state=0, **({"training": SHORT} | options)
        ).fit(x, y)


@pytest.fixture(scope="module")
def skewed():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(600, 2))
    y = np.exp(3 * x[:, :1] + 0.3 * rng.normal(size=(600, 1)))
    return x, y, fitted(x, y)


def test_a_linear_law_of_a_logarithm_is_met_in_the_logarithm(skewed):
    _, _, model = skewed
    assert isinstance(model.flow_.condition_map.standardise, Spread)
    exact = stats.norm(np.log(2.0) * 3 / 9.09, np.sqrt(0.09 / 9.09))  # x1 given y = 2, by conjugacy
    drawn = model.posterior([2.0]).sample(4000)[:, 0]
    assert abs(drawn.mean() - exact.mean()) < 0.02
    assert abs(drawn.std() - exact.std()) < 0.015


def test_the_density_of_an_ensemble_is_the_mixture_and_its_draws_follow_it(skewed):
    _, _, model = skewed
    points = np.array([[0.2, 0.0], [0.5, -1.0]])
    y = np.array([[2.0]])
    members = [np.exp(member.log_prob(points, y)) for member in model.flow_.members]
    assert_allclose(np.exp(model.log_prob(points, y)), model.flow_.shares @ np.array(members))
    drawn = model.flow_.sample(jax.random.key(0), 4000, y)
    nats = model.flow_.log_prob(drawn, y)
    grid = np.stack(np.meshgrid(np.linspace(-1, 1.5, 120), np.linspace(-5, 5, 120)), axis=-1).reshape(-1, 2)
    density = np.exp(model.flow_.log_prob(grid, y))
    cell = (2.5 / 119) * (10 / 119)
    assert np.sum(density) * cell == pytest.approx(1, abs=0.01)
    entropy = -np.sum(np.where(density > 0, density * np.log(density + 1e-300), 0)) * cell
    assert abs(np.mean(-nats) - entropy) < 0.08


def test_an_ensemble_is_saved_and_its_equations_are_those_of_its_best_member(skewed, tmp_path):
    x, y, model = skewed
    model.save(tmp_path / "skewed.isr")
    again = isr.load(tmp_path / "skewed.isr")
    assert_allclose(again.log_prob(x[:20], y[:20]), model.log_prob(x[:20], y[:20]))
    assert check(model.flow_.members[-1], y=y[:50], rows=x[:50]).passed


def test_each_restart_of_an_ensemble_holds_out_other_rows(skewed):
    assert len(skewed[2].fit_.front[-1].held_out_rows) == 600


@pytest.mark.parametrize(("name", "subnet"), [("slcp", "mlp"), ("bernoulli_glm", "eql")])
def test_a_dense_fit_ends_at_its_best_held_out_loss_and_has_no_absurd_row(name, subnet):
    task = TASKS[name]
    x, y = task.pairs(300, np.random.default_rng(0))
    model = fitted(
        x,
        y,
        subnet=subnet,
        n_blocks=2,
        bounds=task.bounds,
        n_layers=2,
        training=isr.Training(Effort(800, 0, 0), n_restarts=2),
    )
    losses = np.stack([held[:1] for held in model.history_.held_out[: len(model.history_.phases)]])
    assert model.fit_.population.held_out.min() <= np.min(losses) + 0.02
    x_fresh, y_fresh = task.pairs(10_000, np.random.default_rng(1))
    normal, wide = (member.log_prob(x_fresh, y_fresh) for member in model.flow_.members[-2:])
    assert np.all(model.log_prob(x_fresh, y_fresh) > np.maximum(normal - 7, wide - 10))


def test_columns_are_changed_only_where_that_brings_them_closer_to_normal():
    rng = np.random.default_rng(0)
    columns = [
        rng.normal(5, 1, 2000),
        np.exp(2 * rng.normal(size=2000)),
        rng.standard_t(1.5, 2000),
        rng.poisson(np.exp(2 * rng.normal(size=2000))).astype(float),
    ]
    rows = np.stack(columns, axis=1)
    found = spread(rows, np.ones(4, bool))
    assert found.widths[0] is None
    assert found.widths[1] == 0
    assert found.widths[2] > 0
    assert found.widths[3] is not None
    assert isinstance(spread(rows, np.zeros(4, bool)), Standardise)
    read = np.asarray(jax.vmap(lambda y: found.forward_and_log_det(y)[0])(rows))
    assert_allclose(read, (found.columns(rows) - found.shift) / found.scale, atol=1e-12)
    back = jax.vmap(lambda z: found.inverse_and_log_det(z)[0])(jnp.asarray(read))
    assert_allclose(back, rows, rtol=1e-9, atol=1e-9)


def test_an_ensemble_wants_a_share_for_each_member():
    flow = Flow(Standardise((0.0,), (1.0,)))
    with pytest.raises(ValueError, match="an ensemble of 2 needs as many shares"):
        Ensemble(flow.bijection, others=(flow,), shares=(1.0,))


def test_an_unknown_goal_is_refused():
    with pytest.raises(ValueError, match="unknown goal 'long'; known: short, accurate"):
        isr.ConditionalISR(goal="long").fit(*np.random.default_rng(0).normal(size=(2, 20, 2)))


def test_ensembles_of_surrogates_and_of_pruned_flows_are_refused():
    x, y = np.random.default_rng(0).normal(size=(2, 20, 2))
    with pytest.raises(ValueError, match="not for ISR"):
        isr.ISR(training=isr.Training(ensemble=True, penalty=None)).fit(x, y)
    with pytest.raises(ValueError, match="keep every weight"):
        isr.ConditionalISR(training=isr.Training(ensemble=True)).fit(x, y)


def test_a_density_may_be_an_ensemble_too():
    x = np.random.default_rng(0).normal([3.0, 0.0], [2.0, 0.5], size=(300, 2))
    training = isr.Training(Effort(200, 0, 0), penalty=None, ensemble=True, n_restarts=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = isr.SymbolicFlow(2, 1, training=training, random_state=0).fit(x)
    exact = stats.multivariate_normal([3.0, 0.0], np.diag([4.0, 0.25])).logpdf(x).mean()
    assert abs(model.score(x) - exact) < 0.05
    assert model.sample(50).shape == (50, 2)


def test_many_restarts_obey_the_time_they_are_given():
    x = np.random.default_rng(0).normal(size=(200, 2))
    training = isr.Training("quick", n_restarts=100_000, max_time=1.0)
    began = time.process_time()
    with pytest.warns(ConvergenceWarning, match="max_time"):
        isr.ConditionalISR(training=training, random_state=0).fit(x, x[:, :1])
    assert time.process_time() - began < 30


@pytest.mark.slow
def test_a_default_fit_reads_a_skewed_column_as_its_logarithm(skewed):
    x, y, _ = skewed
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = isr.ConditionalISR(1, 1, noise=0.0, training=Effort(600, 600, 100), random_state=0).fit(x, y)
    exact = stats.norm.logpdf(x[:, 0], np.log(y[:, 0]) * 3 / 9.09, np.sqrt(0.09 / 9.09)) + stats.norm.logpdf(
        x[:, 1]
    )
    assert model.score(x, y) > exact.mean() - 0.05
    assert "log(Max(1e-30, y1))" in model.expressions_.text()


def test_networks_on_the_front_of_a_short_fit_give_no_row_an_absurd_density():
    def draw(n, seed):
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(n, 2))
        return x, np.column_stack([x.sum(axis=1), np.abs(x[:, 0])]) + 0.1 * rng.normal(size=(n, 2))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        training = isr.Training(Effort(150, 150, 50), n_restarts=1)
        model = isr.ConditionalISR(noise=0.0, training=training, random_state=0).fit(*draw(600, 0))
    mixtures = [point.model for point in model.fit_.front if isinstance(point.model, Ensemble)]
    x, y = draw(5000, 1)
    for mixture in mixtures:
        assert np.all(mixture.log_prob(x, y) > mixture.members[-1].log_prob(x, y) - 9.3)
    assert mixtures

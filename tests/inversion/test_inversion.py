"""Laws are found, and posteriors are those that quadrature on a grid gives."""

import re
import warnings

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from scipy import stats
from scipy.special import logsumexp

import isr
from isr.inversion.posterior import LawPosterior, UnlikelyObservationWarning
from isr.inversion.record import of_law, to_law
from isr.posterior.outliers import OutOfDistributionWarning
from isr.search.formula import parse

BOX = {"temperature": (0.0, 80.0), "pressure": (1.0, 3.0)}
SENSOR_LAW = "0.5 + 0.03*temperature + 0.2*pressure + 0.01*temperature*pressure - 0.0001*temperature^2"
SIGMA = 0.02


def voltage(x):
    t, p = x.T
    return 0.5 + 0.03 * t + 0.2 * p + 0.01 * t * p - 1e-4 * t**2


def sensor(n, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform([0, 1], [80, 3], size=(n, 2))
    return x, (voltage(x) + SIGMA * rng.normal(size=n))[:, None]


class Grid:
    """The exact posterior of the sensor, by the rule of midpoints."""

    def __init__(self, y, n=1500):
        t, p = (np.arange(n) + 0.5) / n * 80, 1 + (np.arange(n) + 0.5) / n * 2
        self.x = np.stack(np.meshgrid(t, p, indexing="ij"), axis=-1).reshape(-1, 2)
        self.log_like = stats.norm.logpdf(y, voltage(self.x), SIGMA)
        self.log_evidence = logsumexp(self.log_like) - 2 * np.log(n)
        weights = np.exp(self.log_like - logsumexp(self.log_like))
        self.mean = weights @ self.x
        self.sd = np.sqrt(weights @ (self.x - self.mean) ** 2)
        self.y = y

    def log_prob(self, x):
        return stats.norm.logpdf(self.y, voltage(x), SIGMA) - self.log_evidence - np.log(160)


@pytest.fixture(scope="module", params=["found", "given"])
def model(request):
    x, y = sensor(5000)

    frame = pd.DataFrame(x, columns=list(BOX))
    law = None if request.param == "found" else SENSOR_LAW
    return isr.Inversion(law=law).fit(frame, pd.DataFrame(y, columns=["voltage"]))


def test_the_sensor_has_a_short_law_and_a_box(model):
    assert model.law_.n_constants <= 12
    assert "uniform(0, 80)" in str(model.prior_)
    assert "uniform(1, 3)" in str(model.prior_)
    assert "no test refutes it" in model.verdict_


@pytest.mark.slow
def test_the_sensor_has_the_exact_log_posterior_on_held_out_rows(model):
    x, y = sensor(60, seed=1)
    exact = [Grid(b[0], 800).log_prob(a[None])[0] for a, b in zip(x, y, strict=True)]
    assert abs(model.score(x, y) - np.mean(exact)) < 0.01


@pytest.mark.parametrize("corner", [(0.5, 1.02), (79.5, 2.98), (79.0, 1.02)])
def test_at_the_corners_mean_and_deviation_are_exact_and_no_draw_leaves_the_box(model, corner):
    y = voltage(np.array([corner]))
    exact, draws = Grid(y[0]), model.posterior(y).sample(20_000)
    assert np.all((draws >= [0, 1]) & (draws <= [80, 3]))
    assert np.all(np.abs(draws.mean(axis=0) - exact.mean) < 0.1 * exact.sd)
    assert np.all(np.abs(draws.std(axis=0) - exact.sd) < 0.1 * exact.sd)


def test_evidence_and_density_are_those_of_quadrature(model):
    y = voltage(np.array([[40.0, 2.0]]))
    exact, post = Grid(y[0]), model.posterior(y)
    assert_allclose(post.log_evidence, exact.log_evidence, atol=0.03)
    assert_allclose(post.log_prob([[40.0, 2.0]]), exact.log_prob(np.array([[40.0, 2.0]])), atol=0.1)
    assert post.pareto_k < 0.7
    assert post.effective_size > 1000
    assert post.predictive().p_value > 0.01
    assert not np.isfinite(post.log_prob([[90.0, 2.0]]))[0]


def test_several_observations_of_one_x_multiply_likelihoods(model):
    y = voltage(np.array([[40.0, 2.0]]))[0] + np.array([[0.01], [-0.01], [0.02]])
    post = model.posterior(y)
    rows = np.array([[40.0, 2.0], [41.0, 1.95]])
    expected = stats.norm.logpdf(y, voltage(rows), SIGMA).sum(axis=0)
    assert_allclose(np.diff(post.log_prob(rows)), np.diff(expected), atol=0.25)


def test_many_observations_give_one_table(model):
    table = model.table([[2.0], [3.0], [4.0]], n=500)
    assert len(table) == 6
    assert {"observation", "parameter", "mean", "sd", "effective_size", "pareto_k", "log_evidence"} <= set(
        table
    )


def test_a_saved_model_has_the_same_posterior(model, tmp_path):
    model.save(tmp_path / "sensor.isr")
    loaded = isr.load(tmp_path / "sensor.isr")
    expected = model.posterior([3.0]).sample(50)
    assert_allclose(loaded.posterior([3.0]).sample(50), expected, rtol=1e-12)
    assert isinstance(loaded.posterior([3.0]), LawPosterior)
    assert loaded.metadata["verdict"] == model.verdict_


def test_an_observation_that_no_x_gives_is_told(model):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OutOfDistributionWarning)
        post = model.posterior([9.0])
        with pytest.warns(UnlikelyObservationWarning, match="does not fit"):
            post.sample(100)
    assert post.predictive().p_value < 1e-3


def test_heavy_tails_are_found():
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 2, size=(3000, 1))
    found = isr.Inversion(fallback=False).fit(x, 2 * x + 0.1 * rng.standard_t(3, size=(3000, 1)))
    assert found.law_.groups[0].noise.kind == "student"
    assert_allclose(found.law_.groups[0].noise.parameters, [3], atol=0.6)
    assert "no test refutes it" in found.verdict_


def test_both_modes_of_a_prior_are_found_and_drawn():
    rng = np.random.default_rng(0)
    x = (rng.choice([-2.0, 2.0], size=3000) + 0.3 * rng.normal(size=3000))[:, None]
    found = isr.Inversion(fallback=False).fit(x, x**2 + 0.3 * rng.normal(size=(3000, 1)))
    assert "mixture of" in str(found.prior_)
    draws = found.posterior([4.0]).sample(4000)[:, 0]
    assert 0.4 < np.mean(draws > 0) < 0.6
    grid = np.linspace(-4, 4, 20_001)
    log_p = np.logaddexp(stats.norm.logpdf(grid, -2, 0.3), stats.norm.logpdf(grid, 2, 0.3))
    weights = np.exp(log_p + stats.norm.logpdf(4.0, grid**2, 0.3))
    assert_allclose(
        np.abs(draws).std(), np.sqrt(np.sum(weights * (np.abs(grid) - 2) ** 2) / weights.sum()), rtol=0.1
    )


def test_columns_that_say_nothing_are_dropped_and_named():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1000, 2))
    y = np.column_stack([x[:, 0] + 0.1 * rng.normal(size=1000), rng.standard_cauchy(size=(1000, 5))])
    found = isr.Inversion(fallback=False).fit(x, y)
    assert found.law_.dropped == ("y2", "y3", "y4", "y5", "y6")
    # x2 stands in no law: its posterior is its prior.
    draws = found.posterior([0.5, 0, 0, 0, 0, 0]).sample(4000)
    assert_allclose(draws[:, 1].std(), 1, atol=0.06)


def test_noise_in_proportion_to_the_value_is_a_law_of_the_logarithm():
    rng = np.random.default_rng(0)
    x = rng.uniform([0, 0.2], [2, 1.2], size=(2000, 2))
    y = np.exp(x[:, :1] - np.outer(x[:, 1], [1, 2]) + 0.05 * rng.normal(size=(2000, 2)))
    found = isr.Inversion(fallback=False).fit(x, y)
    assert [column.transform for column in found.law_.columns] == ["log", "log"]
    assert "no test refutes it" in found.verdict_
    # The density is one of y: that of log y over y.
    expected = stats.norm.logpdf(np.log(y[0]), x[0, 0] - x[0, 1] * np.array([1, 2]), 0.05) - np.log(y[0])
    assert_allclose(found.law_.log_prob(x[:1], y[:1])[0], expected.sum(), atol=0.1)


def test_more_scatter_than_the_noise_that_was_stated_is_told():
    x, y = sensor(500)
    law = re.sub("temperature|pressure", lambda m: {"temperature": "x1", "pressure": "x2"}[m[0]], SENSOR_LAW)
    found = isr.Inversion(noise=0.001, law=law, fallback=False).fit(x, y)
    assert "more than the noise 0.001 that was stated" in found.verdict_


def test_a_prior_of_other_columns_is_refused():
    x, y = sensor(100)
    with pytest.raises(ValueError, match="the prior is one of"):
        isr.Inversion(prior={"a": (0, 1), "b": (0, 1)}).fit(x, y)


def test_the_error_of_a_constant_stands_beside_it_in_text_latex_and_file_and_can_be_read_back():
    rng = np.random.default_rng(0)
    x = rng.uniform([10, 1], [80, 3], size=(600, 2))
    model = isr.Inversion(random_state=0).fit(x, 0.02 * x[:, 0] * x[:, 1] + 0.02 * rng.normal(size=600))
    line = str(model.law_)
    slope, error = (float(v) for v in re.fullmatch(r"y1 = ([\d.]+)\((\d+)\)\*x1\*x2 ± .*", line).groups())
    digits = len(str(slope).split(".")[1])
    # the error of least squares: sigma / sqrt(sum of squares)
    expected = 0.02 / np.sqrt(np.sum((x[:, 0] * x[:, 1]) ** 2))
    assert_allclose(error * 10.0**-digits, expected, rtol=0.15)
    assert f"{slope}({error:.0f}) x_{{1}} x_{{2}}" in model.law_.latex()
    assert str(to_law(of_law(model.law_))) == line
    assert parse(line.split(" ± ")[0].split(" = ")[1], ["x1", "x2"]) == parse(f"{slope}*x1*x2", ["x1", "x2"])


@pytest.mark.parametrize("law", ["sqrt(-a)", "exp(exp(exp(a)))"])
def test_a_stated_law_without_a_finite_value_is_refused(law):
    x = pd.DataFrame({"a": np.linspace(2, 3, 40)})
    with pytest.raises(ValueError, match=r"the law '.*' of y has no finite value in 40 of 40 rows of x"):
        isr.Inversion(law=law).fit(x, pd.DataFrame({"y": np.linspace(0, 1, 40)}))


def test_a_law_that_is_neither_text_nor_function_is_refused():
    with pytest.raises(
        ValueError, match="law must be text, a mapping from column to text, or a function, got 5"
    ):
        isr.Inversion(law=5).fit(np.ones((40, 1)), np.ones((40, 1)))


def test_a_copy_of_a_column_is_left_out_and_not_called_idle():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 1))
    y = x + 0.1 * rng.normal(size=(300, 1))
    found = isr.Inversion({"x1": stats.norm()}, fallback=False).fit(x, np.hstack([y, 2 * y]))
    assert found.law_.dropped == ()
    assert "y2 says the same as y1 and is left out" in found.verdict_

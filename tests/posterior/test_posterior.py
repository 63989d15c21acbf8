"""The posterior object against laws known in closed form: linear-Gaussian models, lognormals and their products."""

import warnings
from types import SimpleNamespace

import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import pytest
from jaxtyping import Array, Float
from numpy.testing import assert_allclose
from scipy import stats

from isr.bijections.affine import Bounded, Linear, Standardise
from isr.bijections.bijection import AbstractBijection, Chain
from isr.bijections.coupling import ConditionMap
from isr.bijections.flow import Flow
from isr.posterior import plots
from isr.posterior.abstract import EffectiveSizeWarning, NonFiniteDrawsWarning, summary_table
from isr.posterior.maximum import SpikeWarning
from isr.posterior.outliers import OutOfDistributionWarning, TrainingRecord
from isr.posterior.plots import pair_plot
from isr.posterior.posterior import Posterior

# x ~ N(0, PRIOR), y = GAIN x + N(0, NOISE).
PRIOR = np.array([[1.0, 0.3], [0.3, 0.5]])
GAIN = np.array([[1.0, 0.5], [-0.4, 1.0]])
NOISE = np.diag([0.2, 0.3])
NAMES = {
    "x_names": ["depth", "sound speed"],
    "y_names": ["north", "east"],
    "units": {"depth": "m", "east": "Pa"},
}
Y = np.array([0.7, -0.4])
REPEATED = np.random.default_rng(1).multivariate_normal(GAIN @ [0.5, -0.8], NOISE, size=6)


class LinearGaussian(AbstractBijection):
    """``z = whiten (x - gain y)``, that is ``x | y ~ N(gain y, (whitenᵀ whiten)⁻¹)``."""

    gain: Float[Array, "d_x d_y"]
    whiten: Float[Array, "d_x d_x"]

    @property
    def dim(self):
        return self.whiten.shape[0]

    def forward_and_log_det(self, x, condition=None):
        return self.whiten @ (x - self.gain @ condition), jnp.linalg.slogdet(self.whiten)[1]

    def inverse_and_log_det(self, z, condition=None):
        x = jnp.linalg.solve(self.whiten, z) + self.gain @ condition
        return x, -jnp.linalg.slogdet(self.whiten)[1]


class NormalPrior:
    def __init__(self, covariance):
        self.law = stats.multivariate_normal(np.zeros(len(covariance)), covariance)

    def log_prob(self, x):
        return self.law.logpdf(x).reshape(len(x))


class Flipping(AbstractBijection):
    """The identity, whose inverse is not a number where the first latent exceeds 2."""

    dim: int = 2

    def forward_and_log_det(self, x, condition=None):
        return x, jnp.zeros((), x.dtype)

    def inverse_and_log_det(self, z, condition=None):
        return jnp.where(z[0] > 2, jnp.nan, z), jnp.zeros((), z.dtype)


def exact(rows, prior=PRIOR, gain=GAIN, noise=NOISE):
    """Conjugate posterior of x given rows of observations: mean and covariance."""
    precision = np.linalg.inv(prior) + len(rows) * gain.T @ np.linalg.inv(noise) @ gain
    covariance = np.linalg.inv(precision)
    return covariance @ gain.T @ np.linalg.inv(noise) @ np.sum(rows, axis=0), covariance


def conditional(gain, covariance, first=(), n_padding=0):
    whiten = np.linalg.inv(np.linalg.cholesky(covariance))
    bijection = Chain((*first, LinearGaussian(jnp.asarray(gain), jnp.asarray(whiten))))
    width = gain.shape[1]
    return Flow(
        bijection, ConditionMap(Standardise((0.0,) * width, (1.0,) * width), None, None), (), n_padding
    )


COVARIANCE = exact([Y])[1]
CONDITIONAL = conditional(COVARIANCE @ GAIN.T @ np.linalg.inv(NOISE), COVARIANCE)
# f(x) = [y, z] with one observed output.
JOINT = Flow(Linear(jnp.asarray([[1.0, 0.5], [0.3, -1.0]])), noise=(0.4,))


def joint_law(rows):
    """``M x ~ N([ȳ, 0], diag(σ² / k, 1))``."""
    back = np.linalg.inv([[1.0, 0.5], [0.3, -1.0]])
    covariance = back @ np.diag([0.16 / len(rows), 1.0]) @ back.T
    return back @ [np.mean(rows), 0.0], covariance


@pytest.fixture(scope="module")
def single():
    return Posterior(CONDITIONAL, Y, **NAMES)


@pytest.fixture(scope="module")
def repeated():
    return Posterior(CONDITIONAL, REPEATED, **NAMES, prior=NormalPrior(PRIOR))


@pytest.fixture(scope="module")
def joint():
    return Posterior(JOINT, [[1.0], [1.4], [0.9]])


CASES = {
    "one observation": ("single", lambda: exact([Y]), 1e-9),
    "several, conditional": ("repeated", lambda: exact(REPEATED), 0.05),
    "several, joint": ("joint", lambda: joint_law([1.0, 1.4, 0.9]), 1e-9),
}


@pytest.fixture(params=CASES.values(), ids=CASES.keys())
def case(request):
    name, law, tolerance = request.param
    return request.getfixturevalue(name), *law(), tolerance


def test_draws_follow_the_closed_form(case):
    posterior, mean, covariance, _ = case
    z = np.linalg.solve(np.linalg.cholesky(covariance), (posterior.sample(4000, 3) - mean).T)
    for column in z:
        assert stats.kstest(column, "norm").pvalue > 1e-3
    assert abs(np.corrcoef(z)[0, 1]) < 0.06


def test_the_density_is_the_closed_form(case):
    posterior, mean, covariance, tolerance = case
    x = np.random.default_rng(0).multivariate_normal(mean, covariance, size=50)
    expected = stats.multivariate_normal(mean, covariance).logpdf(x)
    assert_allclose(posterior.log_prob(x), expected, atol=tolerance)
    assert_allclose(posterior.log_prob(x[0]), expected[:1], atol=tolerance)


def test_the_maximum_is_the_mode(case):
    posterior, mean, _, _ = case
    assert_allclose(posterior.map(), mean, atol=1e-6)


def test_the_mean_is_the_mean(case):
    posterior, mean, covariance, _ = case
    assert np.all(np.abs(posterior.mean() - mean) < 5 * np.sqrt(np.diag(covariance) / 2000))


def test_only_weighted_draws_have_an_effective_size(single, repeated, joint):
    assert single.effective_size is None
    assert joint.effective_size is None
    assert 2000 < repeated.effective_size <= 4096


def test_the_same_seed_gives_the_same_draws_and_another_seed_others(single):
    assert_allclose(single.sample(5), single.sample(5, 0), rtol=0)
    assert not np.allclose(single.sample(5), single.sample(5, 1))
    assert single.sample(5, np.random.default_rng(0)).shape == (5, 2)


def test_the_mode_of_a_correlated_lognormal_is_found_inside_its_bounds():
    # log x ~ N(m, S) has its mode at exp(m - S 1).
    gain, covariance = np.array([[0.5], [1.0]]), np.array([[0.3, 0.1], [0.1, 0.2]])
    flow = conditional(gain, covariance, first=[Bounded((0.0, 0.0), (None, None))])
    found = Posterior(flow, [0.8]).map()
    assert_allclose(found, np.exp(gain[:, 0] * 0.8 - covariance.sum(axis=1)), rtol=1e-6)


def test_a_density_that_rises_to_its_bound_has_no_maximum_there():
    flow = conditional(np.array([[1.0], [0.0]]), np.eye(2), first=[Bounded((0.0, None), (2.0, None))])
    posterior = Posterior(flow, [2.0])
    with pytest.warns(SpikeWarning, match=r"rises towards the upper bound of x1 \(2\)"):
        assert posterior.map() is None
    assert posterior.log_prob([2.1, 1.0]) == -np.inf


# One variable: x ~ N(0, 1), y = x + N(0, 0.5²); the flow pads x with a variable of its own.
SCALAR = np.sqrt(0.2)
PADDED = conditional(np.array([[0.8], [0.0]]), np.diag([SCALAR**2, 1.0]), n_padding=1)


@pytest.mark.parametrize("y", [[[0.9]], [[0.9], [0.2], [0.5]]], ids=["one", "three"])
def test_a_single_variable_is_served_too(y):
    posterior = Posterior(PADDED, y, prior=NormalPrior(np.eye(1)))
    mean, covariance = exact(y, np.eye(1), np.eye(1), 0.25 * np.eye(1))
    law = stats.norm(mean[0], np.sqrt(covariance[0, 0]))
    assert_allclose(posterior.map(), mean, atol=1e-6)
    assert stats.kstest(posterior.sample(2000)[:, 0], law.cdf).pvalue > 1e-3
    assert_allclose(posterior.log_prob([0.1, 0.6]), law.logpdf([0.1, 0.6]), atol=0.05)


def test_many_observations_narrow_the_posterior_as_they_should():
    y = np.random.default_rng(2).multivariate_normal(GAIN @ [0.5, -0.8], NOISE, size=100)
    posterior = Posterior(CONDITIONAL, y, prior=NormalPrior(PRIOR))
    mean, covariance = exact(y)
    draws = posterior.sample(2000)
    assert_allclose((draws.mean(axis=0) - mean) / np.sqrt(np.diag(covariance)), 0, atol=0.15)
    assert_allclose(np.cov(draws.T), covariance, rtol=0.2, atol=1e-4)


class BoxPrior:
    def log_prob(self, x):
        return np.where(np.all(np.abs(x) < 0.5, axis=1), 0.0, -np.inf)


def test_what_the_prior_excludes_is_not_drawn():
    posterior = Posterior(CONDITIONAL, REPEATED[:2], prior=BoxPrior())
    assert np.abs(posterior.sample(500)).max() < 0.5
    assert posterior.log_prob([0.6, 0.0]) == -np.inf


def test_observations_that_contradict_each_other_are_named():
    class Nowhere:
        def log_prob(self, x):
            return np.full(len(x), -np.inf)

    with pytest.raises(ValueError, match="no draw has density under all observations at once"):
        Posterior(CONDITIONAL, REPEATED, prior=Nowhere()).sample()


def test_few_effective_draws_are_a_warning():
    poor = Posterior(CONDITIONAL, REPEATED, prior=NormalPrior(PRIOR))
    poor.__dict__["_product"] = SimpleNamespace(sample=lambda n, seed: (np.zeros((n, 2)), 12.0))
    with pytest.warns(EffectiveSizeWarning, match="1000 draws rest on about 12 independent ones"):
        poor.sample()


def test_summary_has_the_columns_of_arviz_and_the_right_numbers(single):
    mean, covariance = exact([Y])
    sd = np.sqrt(np.diag(covariance))
    table = single.summary()
    assert list(table.columns) == ["mean", "sd", "hdi_3%", "hdi_97%", "map"]
    assert list(table.index) == ["depth", "sound speed"]
    half = stats.norm.ppf(0.97) * sd
    assert_allclose(table["mean"], mean, atol=0.03)
    assert_allclose(table["sd"], sd, rtol=0.05)
    assert_allclose(table[["hdi_3%", "hdi_97%"]].to_numpy().T, [mean - half, mean + half], atol=0.1)
    assert_allclose(table["map"], mean, atol=1e-6)
    assert list(single.summary(200, hdi=0.5).columns)[2:4] == ["hdi_25%", "hdi_75%"]
    assert single.summary(200).equals(single.summary(single.sample(200)))


def test_the_interval_is_that_of_arviz():
    arviz = pytest.importorskip("arviz")
    draws = np.random.default_rng(0).gamma(2.0, size=(999, 2))
    table = summary_table(draws, ["a", "b"], hdi=0.9)
    expected = [arviz.hdi(column, hdi_prob=0.9) for column in draws.T]
    assert_allclose(table[["hdi_5%", "hdi_95%"]], expected, rtol=1e-12)


def test_arviz_gets_draws_density_and_observations(single, repeated):
    data = single.to_arviz(400, n_chains=2)
    draws = single.sample(400)
    assert data.posterior["depth"].shape == (2, 200)
    assert_allclose(data.posterior["sound speed"].to_numpy().ravel(), draws[:, 1])
    assert_allclose(data.sample_stats["lp"].to_numpy().ravel(), single.log_prob(draws))
    assert_allclose(data.observed_data["north"], Y[:1])
    assert data.posterior["depth"].attrs["units"] == "m"
    assert data.observed_data["east"].attrs["units"] == "Pa"
    assert_allclose(repeated.to_arviz(40).observed_data["east"], REPEATED[:, 1])


def test_a_frame_of_draws_goes_back_in(single):
    frame = single.frame(20)
    assert list(frame.columns) == ["depth", "sound speed"]
    assert_allclose(single.log_prob(frame), single.log_prob(frame.to_numpy()))
    with pytest.raises(ValueError, match="in another order than expected"):
        single.log_prob(frame[["sound speed", "depth"]])


def test_resimulation_tells_how_far_draws_are_from_the_observation(single):
    mean, covariance = exact([Y])
    expected = np.trace(GAIN @ covariance @ GAIN.T) + np.sum((GAIN @ mean - Y) ** 2)
    assert_allclose(single.resimulate(lambda x: x @ GAIN.T, n=2000), expected, rtol=0.1)


def test_resimulation_takes_complex_simulators_and_hides_no_failure(single):
    def simulator(x):
        return x[:, :1] + 1j * x[:, 1:]

    assert_allclose(single.resimulate(simulator, n=50), np.mean(np.sum((single.sample(50) - Y) ** 2, axis=1)))
    assert np.isnan(single.resimulate(lambda x: np.where(x > 0, np.nan, x), n=50))


def test_draws_that_are_not_finite_are_returned_and_counted():
    posterior = Posterior(Flow(Flipping(), noise=(1.0,)), [0.0])
    with pytest.warns(NonFiniteDrawsWarning, match=r"\d+ of 1000 draws are not finite; they are returned"):
        draws = posterior.sample()
    n_bad = np.isnan(draws).any(axis=1).sum()
    assert len(draws) == 1000
    assert n_bad > 0
    with pytest.warns(NonFiniteDrawsWarning, match=f"{n_bad} of 1000"):
        assert np.isfinite(posterior.mean(1000)).all()
    with pytest.warns(NonFiniteDrawsWarning):
        assert np.isnan(posterior.to_arviz(1000).sample_stats["lp"]).sum() == n_bad
    with pytest.warns(NonFiniteDrawsWarning):
        assert np.isnan(posterior.resimulate(lambda x: x[:, :1]))


def test_the_pair_plot_shows_truth_and_prior(single):
    prior = np.random.default_rng(0).multivariate_normal([0, 0], PRIOR, size=300)
    figure = single.plot(300, truth=[0.5, -0.8], prior=prior)
    assert len(figure.axes) == 4
    below = figure.axes[2]
    assert below.get_xlabel() == "depth (m)"
    assert below.get_ylabel() == "sound speed"
    dashed = [line for line in below.lines if line.get_linestyle() == "--"]
    assert [line.get_color() for line in dashed] == ["red", "red"]
    assert below.collections, "the regions of highest density are drawn"
    assert not figure.axes[1].axison
    plt.close(figure)


def test_a_plot_of_many_variables_says_which_it_shows(monkeypatch):
    monkeypatch.setattr(plots, "MAX_VARIABLES", 2)
    draws = np.random.default_rng(0).normal(size=(50, 3))
    names = ["a", "b", "c"]
    figure = pair_plot(draws, names)
    assert figure.get_suptitle() == "first 2 of 3 variables; choose others by names=[...]"
    plt.close(figure)
    figure = pair_plot(draws, names, shown=["c"])
    assert figure.get_suptitle() == "1 of 3 variables"
    assert figure.axes[0].get_xlabel() == "c"
    plt.close(figure)
    with pytest.raises(ValueError, match="names must be some of 'a', 'b', 'c', got 'd'"):
        pair_plot(draws, names, shown=["d"])
    with pytest.raises(ValueError, match=r"truth must have 3 values per row, got shape \(1, 2\)"):
        pair_plot(draws, names, truth=[1, 2])


def test_the_posterior_says_what_it_is(single, repeated):
    assert repr(single) == "Posterior of depth, sound speed given north = 0.7, east = -0.4"
    assert repr(repeated).endswith("(mean of 6 observations)")


def test_an_observation_unlike_the_training_data_is_a_warning():
    training = TrainingRecord.of(np.random.default_rng(0).normal(size=(1000, 2)))
    with pytest.warns(OutOfDistributionWarning, match="y_star is unlike the training data.*'north' is 9"):
        assert Posterior(CONDITIONAL, [9.0, 0.0], **NAMES, training=training).likeness.unusual
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Posterior(CONDITIONAL, Y, training=training).likeness.p_value > 0.1


MISTAKES = {
    "unconditional": (lambda: Posterior(Flow(Linear(jnp.eye(2))), [0.0]), "this flow observes nothing"),
    "no prior": (
        lambda: Posterior(CONDITIONAL, REPEATED),
        r"6 observations of the same x need the prior .* with log_prob\(rows\) as prior",
    ),
    "width of y": (
        lambda: Posterior(CONDITIONAL, [1.0, 2.0, 3.0]),
        r"y_star has 3 columns, expected 2: 'y1', 'y2'",
    ),
    "not finite": (
        lambda: Posterior(CONDITIONAL, [1.0, np.nan]),
        "y_star contains NaN or infinite values: column 'y2'",
    ),
    "names": (
        lambda: Posterior(CONDITIONAL, Y, x_names=["a"]),
        "x has 2 variables, but 1 names were given: 'a'",
    ),
    "no draws": (
        lambda: Posterior(CONDITIONAL, Y).sample(0),
        "draws must be a whole number, at least 1, got 0",
    ),
    "chains": (lambda: Posterior(CONDITIONAL, Y).to_arviz(10, n_chains=3), "multiple of n_chains, got n=10"),
    "hdi": (lambda: Posterior(CONDITIONAL, Y).summary(16, hdi=94), "hdi must lie between 0 and 1, got 94"),
    "simulator": (
        lambda: Posterior(CONDITIONAL, Y).resimulate(lambda x: x[:, :1], n=16),
        r"shape \(16, 1\) of 16 rows; expected one row each, with 2 columns",
    ),
    "width of x": (lambda: Posterior(CONDITIONAL, Y).log_prob([1.0, 2.0, 3.0]), "x must have 2 columns"),
}


@pytest.mark.parametrize(("mistake", "message"), MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_is_answered_with_what_to_do(mistake, message):
    with pytest.raises(ValueError, match=message):
        mistake()


def test_a_prior_must_give_a_number_a_row():
    class Wrong:
        def log_prob(self, x):
            return np.zeros((len(x), 1))

    with pytest.raises(
        ValueError, match=r"prior.log_prob must return one number per row: 4096 rows gave shape"
    ):
        Posterior(CONDITIONAL, REPEATED, prior=Wrong()).sample()

"""Whatever a prior is made from, it draws, weighs and bounds as SciPy says."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats
from sklearn.neighbors import KernelDensity

from isr import ocean as geoacoustics
from isr.posterior.priors import Prior, parse_prior
from isr.problems import kinematics
from isr.tables.bounds import parse_bounds

MIXED = {
    "depth": (200.5, 236.5),
    "speed": stats.norm(1500.0, 20.0),
    "width": stats.gamma(2.0, scale=3.0),
    "share": stats.beta(2.0, 5.0),
}
CORRELATED = stats.multivariate_normal([1.0, -1.0], [[1.0, 0.6], [0.6, 2.0]])


class Boxed:
    """A prior as a user might write it."""

    names = ("a", "b")
    bounds = ((0.0, 1.0), (None, 3.0))

    def sample(self, n, random_state):
        rng = np.random.default_rng(random_state)
        return np.column_stack([rng.uniform(size=n), 3 - rng.exponential(size=n)])

    def log_prob(self, rows):
        return stats.uniform.logpdf(rows[:, 0]) + stats.expon.logpdf(3 - rows[:, 1])


def kernel_density():
    return KernelDensity(bandwidth=0.5).fit(np.random.default_rng(0).normal(size=(50, 2)))


PRIORS = {
    "mapping": lambda: MIXED,
    "one variable": lambda: {"a": (-1, 1)},
    "discrete": lambda: {"count": stats.poisson(15), "die": stats.randint(1, 7)},
    "object with random_state": Boxed,
    "object with rng": lambda: geoacoustics.prior(2),
    "scikit-learn": kernel_density,
    "joint SciPy": lambda: CORRELATED,
    "function of rng": lambda: lambda n, rng: rng.normal(size=(n, 3)),
    "function of random_state": lambda: kinematics.sample_prior,
    "one column": lambda: lambda n, rng: rng.normal(size=n),
}


@pytest.fixture(params=PRIORS.values(), ids=PRIORS.keys())
def prior(request) -> Prior:
    return parse_prior(request.param())


def test_a_seed_fixes_the_draws_and_another_changes_them(prior):
    rows = prior.sample(50, random_state=4)
    assert rows.shape[0] == 50
    assert rows.ndim == 2
    assert_array_equal(rows, prior.sample(50, random_state=4))
    assert_array_equal(rows, prior.sample(50, np.random.default_rng(4)))
    assert not np.array_equal(rows, prior.sample(50, random_state=5))


def test_a_single_draw_is_a_row(prior):
    assert prior.sample(1, random_state=0).shape == (1, prior.sample(2, random_state=0).shape[1])


def test_draws_lie_within_bounds_that_tables_accept(prior):
    rows = prior.sample(2000, random_state=1)
    names = prior.names or [f"x{i}" for i in range(rows.shape[1])]
    bounds = parse_bounds(prior.bounds, names)
    for column, (low, high) in zip(rows.T, bounds.pairs() if bounds else [], strict=bool(bounds)):
        assert low is None or column.min() >= low
        assert high is None or column.max() <= high


def test_a_parsed_prior_stays_itself_and_survives_another_process(prior):
    assert parse_prior(prior) is prior
    cloudpickle = pytest.importorskip("cloudpickle")  # older joblib brings its own
    arrived = cloudpickle.loads(cloudpickle.dumps(prior))
    assert_array_equal(arrived.sample(20, 3), prior.sample(20, 3))


@pytest.mark.parametrize("make", PRIORS.values(), ids=PRIORS.keys())
def test_the_description_is_the_same_in_every_session(make):
    assert repr(parse_prior(make())) == repr(parse_prior(make()))
    assert "0x" not in repr(parse_prior(make()))


def test_the_log_density_of_independent_variables_is_the_sum_of_scipys():
    prior = parse_prior(MIXED)
    rows = prior.sample(200, random_state=2)
    expected = (
        -np.log(36.0)
        + stats.norm.logpdf(rows[:, 1], 1500.0, 20.0)
        + stats.gamma.logpdf(rows[:, 2], 2.0, scale=3.0)
        + stats.beta.logpdf(rows[:, 3], 2.0, 5.0)
    )
    assert_allclose(prior.log_prob(rows), expected, rtol=1e-12)


@pytest.mark.parametrize("name", MIXED)
def test_every_variable_has_the_law_it_was_given(name):
    column = list(MIXED).index(name)
    law = stats.uniform(200.5, 36.0) if name == "depth" else MIXED[name]
    draws = parse_prior(MIXED).sample(5000, random_state=3)[:, column]
    assert stats.kstest(draws, law.cdf).pvalue > 1e-3


def test_variables_of_a_mapping_are_independent():
    ranks = stats.spearmanr(parse_prior(MIXED).sample(5000, random_state=3)).statistic
    assert np.abs(ranks - np.eye(4)).max() < 0.05


def test_outside_the_support_the_density_is_nought():
    prior = parse_prior(MIXED)
    row = prior.sample(1, random_state=0)
    for column, value in [(0, 237.0), (0, 200.0), (2, -0.1), (3, 1.1)]:
        outside = row.copy()
        outside[0, column] = value
        assert prior.log_prob(outside) == -np.inf


def test_both_ends_of_a_range_belong_to_it():
    low, high = 0.1, 0.7000000000000001
    assert_allclose(parse_prior({"a": (low, high)}).log_prob([[low], [high]]), -np.log(high - low))


def test_masses_stand_in_for_densities_of_discrete_variables():
    prior = parse_prior({"count": stats.poisson(15)})
    assert_allclose(prior.log_prob([[12.0], [20.0]]), stats.poisson(15).logpmf([12, 20]))


@pytest.mark.parametrize(
    ("prior", "log_prob"),
    [
        (CORRELATED, CORRELATED.logpdf),
        (kernel_density(), kernel_density().score_samples),
        (Boxed(), Boxed().log_prob),
    ],
    ids=["SciPy", "scikit-learn", "own"],
)
def test_an_object_keeps_its_own_density(prior, log_prob):
    rows = np.random.default_rng(0).uniform(size=(20, 2))
    assert_allclose(parse_prior(prior).log_prob(rows), log_prob(rows))


def test_the_priors_of_geoacoustics_are_uniform_within_their_bounds():
    prior = parse_prior(geoacoustics.prior(1))
    assert prior.bounds == ((200.5, 236.5), (1532.0, 1592.0))
    assert prior.names == ("water_depth_m", "sediment_speed_m_s")
    same = parse_prior(dict(zip(prior.names, prior.bounds, strict=True)))
    rows = np.array([[210.0, 1540.0], [236.5, 1592.0], [190.0, 1540.0]])
    assert_allclose(prior.log_prob(rows), same.log_prob(rows))


@pytest.mark.parametrize(
    ("prior", "bounds"),
    [
        (MIXED, ((200.5, 236.5), (None, None), (0.0, None), (0.0, 1.0))),
        ({"a": stats.norm(), "b": stats.cauchy()}, None),
        ({"a": stats.truncnorm(-1, 2, loc=1)}, ((0.0, 3.0),)),
        ({"die": stats.randint(1, 7)}, ((0.5, 6.5),)),
        (Boxed(), ((0.0, 1.0), (None, 3.0))),
        (CORRELATED, None),
        (kinematics.sample_prior, None),
    ],
)
def test_bounds_are_those_of_the_support(prior, bounds):
    assert parse_prior(prior).bounds == bounds


def test_an_unknown_density_is_explained():
    with pytest.raises(ValueError, match=r"density of the prior sample_prior is unknown; give a mapping"):
        parse_prior(kinematics.sample_prior).log_prob([[0.0] * 4])


class NoNames:
    def __init__(self):
        self.bounds = {"a": (0, 1)}

    def sample(self, n, rng):
        return rng.uniform(size=(n, 1))


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({}, ValueError, "the prior is empty; give each variable a range"),
        ({"a": (1, 0)}, ValueError, r"finite low < high, got \(1\.0, 0\.0\) for 'a'"),
        ({"a": (0, np.inf)}, ValueError, r"finite low < high, got \(0\.0, inf\)"),
        ({"a": 3.0}, TypeError, r"'a' must be \(low, high\) or a frozen.*got 3\.0; a variable that is known"),
        ({"a": (1, 2, 3)}, TypeError, r"must be \(low, high\)"),
        ({"a": stats.norm}, TypeError, r"the distribution family norm; freeze it .*stats\.norm\(\.\.\.\)"),
        ({"a": stats.norm([0, 1], 1)}, ValueError, "'a' has arrays as parameters"),
        ({1: (0, 1)}, TypeError, "names of the prior must be text, got 1"),
        (Boxed, TypeError, r"the prior is the class Boxed, not an object; call it: Boxed\(\.\.\.\)"),
        (NoNames(), ValueError, "bounds by name, 'a', but no names; give it names"),
        ([(0, 1)], TypeError, "a prior must be a mapping from name .* got list"),
    ],
)
def test_what_is_no_prior_is_explained(given, error, message):
    with pytest.raises(error, match=message):
        parse_prior(given)


class Careless(Boxed):
    def sample(self, n, rng):
        return rng.uniform(size=(n, 3))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (Careless(), r"drew an array of shape \(5, 3\); expected 5 rows with 2 columns"),
        (lambda n, rng: rng.uniform(size=(n + 1, 2)), r"shape \(6, 2\); expected 5 rows with one column"),
        (lambda n, rng: np.full((n, 2), np.nan), r"drew NaN or infinite.*first such row is \[nan, nan\]"),
    ],
)
def test_bad_draws_are_explained(given, message):
    with pytest.raises(ValueError, match=message):
        parse_prior(given).sample(5, random_state=0)


@pytest.mark.parametrize("rows", [[1.0, 2.0], [[1.0]], 3.0])
def test_rows_of_another_shape_are_refused(rows):
    with pytest.raises(ValueError, match=r"the 2 columns 'a', 'b', got shape .*single row as \[\[\.\.\.\]\]"):
        parse_prior(Boxed()).log_prob(rows)

"""Options, numbers of draws and rows that make no sense are refused in a sentence, and copies are whole."""

import copy
import pickle

import jax
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal
from scipy import stats

import isr

X = pd.DataFrame(np.random.default_rng(0).uniform(1, 3, size=(60, 2)), columns=["a", "b"])
Y = (X["a"] * X["b"] + 0.05 * np.random.default_rng(1).normal(size=60)).to_frame("c")
BOX = {"a": (1.0, 3.0), "b": (1.0, 3.0)}
TIMES = np.linspace(0, 1, 5)
RUNS = pd.DataFrame(np.exp(-np.outer(X["a"], TIMES)), columns=[f"m{i}" for i in range(5)])


def inversion(prior=None, noise=0.05, **options):
    return isr.Inversion(prior, noise, law="a*b", fallback=False, random_state=0, **options).fit(X, Y)


def series(channels, times=TIMES):
    return isr.Inversion(series=channels, times=times, fallback=False, max_time=5).fit(X, RUNS)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    model = inversion(BOX)
    path = tmp_path_factory.mktemp("hostile") / "m.isr"
    model.save(path)
    return model, isr.load(path)


OPTIONS = {
    "negative scale": (lambda: inversion({**BOX, "a": stats.norm(0, -1)}), "prior of 'a' has parameters"),
    "complex noise": (lambda: inversion(noise=1j), "noise must be a number, or one for each column of y, got 1j"),
    "vast noise": (lambda: inversion(noise=1e308), "finite and not negative, and below 1e.150, got 1e.308"),
    "vast noise of networks": (lambda: isr.ConditionalISR(noise=1e308).fit(X, Y), "and below 1e.150"),
    "series as a list": (lambda: series([["m0"]]), "maps the name of a channel to its columns of y, got list"),
    "series as text": (lambda: series("m0"), "maps the name of a channel to its columns of y, got str"),
    "two channels": (
        lambda: series({"m": list(RUNS), "n": list(RUNS)}), "columns more than once: 'm0', .*; each is one channel",
    ),
    "a number as law": (lambda: isr.Inversion(law=5).fit(X, Y), "law must be text, .* got 5"),
    "pairs of rows": (lambda: inversion().plot(X, Y[:5]), "x has 60 rows and y has 5; they must be pairs"),
    "no columns": (lambda: isr.LawRegressor().fit(X[[]], Y), "X has no columns"),
    "no channels": (lambda: isr.MotionRegressor().fit(TIMES, np.ones((5, 0))), "the values have no columns"),
    "masked parameters": (
        lambda: isr.MotionRegressor().fit(TIMES, RUNS.to_numpy()[:, :, None], np.ma.masked_greater(X.to_numpy(), 2.9)),
        "x holds NaN or infinity; leave those trajectories out",
    ),
    "same name": (
        lambda: isr.LawRegressor().fit(X.set_axis(["a", "a"], axis=1), Y), "duplicate names of X: 'a'; give every",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_that_makes_no_sense_is_refused_in_a_sentence(name):
    call, message = OPTIONS[name]
    with pytest.raises((TypeError, ValueError), match=message):
        call()


@pytest.mark.parametrize("n", ["5", 2.5, True, None, np.nan, [5], -1, 0, 1e30])
def test_a_number_of_draws_is_a_whole_number_that_has_room(n, saved):
    wanted = (
        "would take about .* GB"
        if n == 1e30
        else "the number of draws must be a whole number, at least 1, got"
    )
    model, loaded = saved
    post = model.posterior([4.0])
    calls = [post.sample, post.frame, post.mean, post.summary, post.plot, post.to_arviz, post.predictive]
    calls += [lambda n: model.table([[4.0]], n), lambda n: model.sample([[4.0]], n)]
    calls += [lambda n: loaded.draws(np.array([[4.0]]), n), loaded.posterior([4.0]).sample]
    calls += [lambda n: isr.Inversion().fit_simulator(BOX, lambda x: x, n)]
    for call in calls:
        if n == [5] and call == post.summary:
            continue  # draws themselves
        with pytest.raises(ValueError, match=wanted):
            call(n)
    if n != 0:
        with pytest.raises(ValueError, match=wanted.replace("least 1", "least 0")):
            isr.build_flow(jax.random.key(0), 2).sample(jax.random.key(0), n)


@pytest.mark.parametrize("seed", ["a", -1, 1.5])
def test_a_seed_is_a_whole_number(seed, saved):
    with pytest.raises(
        ValueError, match="random_state must be a whole number from 0, a generator of NumPy or None"
    ):
        saved[0].posterior([4.0]).sample(5, seed)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([1.0, 2.0, 3.0], r"x must have 2 columns, got an array of shape \(3,\)"),
        ([], r"x must have 2 columns, got an array of shape \(0,\)"),
        ("a", "x must be rows of numbers or a frame, got 'a'"),
        (None, r"x must have 2 columns, got an array of shape \(\)"),
        ({"a": 1.0, "b": 2.0}, "x must be rows of numbers or a frame, got {'a'"),
    ],
)
def test_rows_of_another_shape_have_no_density(rows, message, saved):
    with pytest.raises((TypeError, ValueError), match=message):
        saved[0].posterior([4.0]).log_prob(rows)


def test_predictions_beyond_all_numbers_are_told(saved):
    far = pd.DataFrame([[1e300, 1e300], [1.0, 2.0]], columns=["a", "b"])
    law = isr.LawRegressor(random_state=0).fit(X, Y)
    for model in (*saved, law):
        with pytest.warns(UserWarning, match="1 of 2 predictions are not finite; their x lies outside"):
            assert np.isinf(model.predict(far)[0]).all()


def through_bytes(model):
    """What workers of joblib do."""
    return pickle.loads(pickle.dumps(model))  # noqa: S301


def test_a_copy_gives_the_same_posterior(saved):
    model, loaded = saved
    drawn = model.posterior([4.0]).sample(50)
    for one in (model, loaded):
        for made in (copy.deepcopy(one), through_bytes(one)):
            assert_array_equal(made.posterior([4.0]).sample(50), drawn)
    post = through_bytes(model.posterior([4.0]))
    assert_array_equal(post.sample(50), drawn)


def test_what_a_mask_hides_in_trajectories_was_not_measured():
    from isr.motion.series import read_series

    values = np.ma.masked_equal([[1.0], [-999.0], [0.3], [0.2], [0.1], [0.05]], -999.0)
    series = read_series(np.arange(6.0), values)
    assert np.isnan(series.values[0, 1, 0])
    assert series.n_values == 5

"""Every fitted model tells and draws what it found; figures say what was observed, in which unit."""

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest

import isr
from isr.estimators.settings import Effort
from isr.inversion.means import Searcher
from isr.posterior.plots import pair_plot

mpl.use("agg")
BRIEF = {
    "training": isr.Training(Effort(30, 0, 0), n_restarts=1, penalty=None, verbose=False), "random_state": 0,
}  # fmt: skip
UNITS = {"a": "m", "c": "V"}


def rows(n=200):
    rng = np.random.default_rng(0)
    x = pd.DataFrame(rng.uniform(1, 3, size=(n, 2)), columns=["a", "b"])
    return x, pd.DataFrame({"c": x["a"] * x["b"] + 0.1 * rng.normal(size=n)})


MODELS = {
    "density": (lambda x, y: isr.SymbolicFlow(n_blocks=1, n_layers=1, units={"a": "m"}, **BRIEF).fit(x), False, 4),
    "conditional": (lambda x, y: isr.ConditionalISR(n_blocks=1, n_layers=1, units=UNITS, **BRIEF).fit(x, y), True, 4),
    "joint": (lambda x, y: isr.ISR(n_blocks=1, n_layers=1, units=UNITS, **BRIEF).fit(x, y), True, 3),
    "law": (lambda x, y: isr.Inversion(law="a*b", units=UNITS, fallback=False, random_state=0).fit(x, y), True, 3),
}  # fmt: skip


FLIGHT = np.linspace(0, 2, 30)
# What can be shown of a loaded model: with rows, and without them the number of axes or what is wanted instead.
NEEDS_Y = "draws x for a given y: give rows, plot.x, y., or draw one posterior, posterior.y..plot"
LOADED = {
    "density": (4, 4),
    "conditional": (4, NEEDS_Y),
    "joint": (3, NEEDS_Y),
    "law": (3, 9),
    "formula": (3, "knows no law of x: give rows, plot.x. or plot.x, y."),
    "motion": (1, "drawn over trajectories: give times and values, plot.times, values."),
}


def fitted(name):
    """A model, and the rows that it is shown over."""
    if name == "formula":
        return isr.LawRegressor(units=UNITS, random_state=0).fit(*rows()), rows()
    if name == "motion":
        runs = np.stack([np.exp(-2 * FLIGHT), 3 * np.exp(-2 * FLIGHT)])[:, :, None]
        library = [isr.motion.library.Library(1)]
        return isr.MotionRegressor(library=library).fit(FLIGHT, runs, names=["a"]), (FLIGHT, runs)
    make, has_y, _ = MODELS[name]
    x, y = rows()
    return make(x, y), (x, y)[: 1 + has_y]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", LOADED)
def test_a_loaded_model_says_and_draws_what_the_fitted_one_does(name, tmp_path):
    model, data = fitted(name)
    model.save(tmp_path / "model.isr")
    loaded = isr.load(tmp_path / "model.isr")
    assert loaded.summary() == model.summary()
    assert loaded.title == model.summary().splitlines()[0]
    with_rows, without = LOADED[name]
    for shown in (loaded, model):
        figure = shown.plot(*data)
        assert len(figure.axes) == with_rows
        mpl.pyplot.close(figure)
    if isinstance(without, str):
        with pytest.raises(ValueError, match=without):
            loaded.plot()
        return
    figure = loaded.plot()
    assert len(figure.axes) == without
    assert figure.get_suptitle() == "draws of the model"
    mpl.pyplot.close(figure)


def test_the_predictive_check_is_drawn_with_the_observation_in_red():
    x, y = rows()
    model = isr.Inversion({"a": (1, 3), "b": (1, 3)}, law="a*b", fallback=False, random_state=0).fit(x, y)
    checked = model.posterior([[4.0], [4.2]]).predictive()
    figure = checked.plot()
    (ax,) = figure.axes
    assert ax.get_xlabel() == "c"
    assert [line.get_xdata()[0] for line in ax.lines] == [4.0, 4.2]
    assert f"p = {checked.p_value:.2g}" in figure.get_suptitle()
    # The predictions lie around the observations, as wide as the noise.
    assert abs(checked.y.mean() - 4.1) < 0.1
    assert 0.09 < checked.y.std() < 0.2
    mpl.pyplot.close(figure)


def test_a_search_tells_the_best_so_far_and_the_time_that_is_left():
    x = np.random.default_rng(0).uniform(1, 3, size=(700, 2))
    told = []
    Searcher(50.0, told.append)(x, x[:, 0] / (x[:, 0] + x[:, 1]), None, ["a", "b"])
    assert any("best so far" in line for line in told)
    assert all(line.endswith("s left)") for line in told)
    assert "(at most 50 s left)" in told[0]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", MODELS)
def test_a_model_says_and_draws_what_it_found(name):
    make, has_y, n_axes = MODELS[name]
    x, y = rows()
    model = make(x, y)
    text = model.summary()
    assert "a (m)" in text.splitlines()[0]
    assert "=" in text
    figure = model.plot(x, y) if has_y else model.plot(x)
    assert len(figure.axes) == n_axes
    labels = {ax.get_xlabel() for ax in figure.axes}
    assert "a (m)" in labels
    mpl.pyplot.close(figure)


def test_a_posterior_is_drawn_with_what_was_observed_and_a_truth_by_name():
    x, y = rows()
    prior = {"a": (1, 3), "b": (1, 3)}
    model = isr.Inversion(prior, law="a*b", units=UNITS, fallback=False, random_state=0).fit(x, y)
    figure = model.posterior([4.0]).plot(200, truth={"b": 2.0})
    assert figure.get_suptitle() == "given c = 4 V"
    lines = [line.get_xdata()[0] for ax in figure.axes for line in ax.lines if line.get_linestyle() == "--"]
    assert 2.0 in lines
    mpl.pyplot.close(figure)
    with pytest.raises(ValueError, match="the truth names 'q'; the variables are 'a', 'b'"):
        pair_plot(x.to_numpy(), ["a", "b"], truth={"q": 1.0})

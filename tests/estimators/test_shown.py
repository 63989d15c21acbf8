"""Every fitted model tells and draws what it found; figures say what was observed, in which unit."""

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest

import isr
from isr.estimators.settings import Effort
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

"""Draws outside the training rows are counted, and sharp ends of the rows are told from tails."""

import numpy as np
import pytest

import isr
from isr.estimators.settings import Effort
from isr.posterior.outliers import Extent, OutsideDataWarning, warn_if_outside
from isr.tables.bounds import sharp_box

N = 5000
ENDS = {
    "uniform": (lambda rng: rng.uniform(0, 80, N), True, True),
    "exponential": (lambda rng: rng.exponential(size=N), True, False),
    "half normal": (lambda rng: np.abs(rng.normal(size=N)), True, False),
    "ramp up to its end": (lambda rng: np.sqrt(rng.uniform(size=N)), False, True),
    "cut normal": (lambda rng: np.clip(rng.normal(size=4 * N), -1, 9)[:N], True, False),
    "arcsine": (lambda rng: np.cos(rng.uniform(0, np.pi, N)), True, True),
    "normal": (lambda rng: rng.normal(size=N), False, False),
    "student": (lambda rng: rng.standard_t(3, size=N), False, False),
    "logistic": (lambda rng: rng.logistic(size=N), False, False),
    "triangle": (lambda rng: rng.triangular(-1, 0, 1, N), False, False),
    "log-normal": (lambda rng: rng.lognormal(size=N), False, False),
    "gamma 5": (lambda rng: rng.gamma(5, size=N), False, False),
}


@pytest.mark.parametrize("name", ENDS)
def test_sharp_ends_are_told_from_tails(name):
    draw, at_low, at_high = ENDS[name]
    for seed in range(5):
        extent = Extent.of(draw(np.random.default_rng(seed))[:, None])
        assert (bool(extent.sharp_low[0]), bool(extent.sharp_high[0])) == (at_low, at_high)


def test_many_draws_outside_are_counted_and_the_remedy_is_named():
    rng = np.random.default_rng(0)
    extent = Extent.of(np.column_stack([rng.uniform(0, 80, N), rng.uniform(1, 3, N)]))
    draws = np.column_stack([rng.normal(80, 1, 1000), np.full(1000, 2.0)])
    with pytest.warns(OutsideDataWarning, match=r"5\d\.\d% of the draws .*, in 'T', .* give bounds where x"):
        warn_if_outside(extent, draws, ["T", "p"])
    warn_if_outside(extent, np.array([[40.0, 2.0]] * 200 + [[90.0, 2.0]]), ["T", "p"])  # half a per cent


def rows_of_a_box():
    rng = np.random.default_rng(0)
    x = rng.uniform([0, 1], [80, 3], size=(1000, 2))
    return x, x + 0.2 * x.std(axis=0) * rng.normal(size=x.shape)


OPTIONS = {"n_blocks": 1, "n_layers": 1, "noise": 0, "random_state": 0}
OPTIONS["training"] = isr.Training(Effort(300, 0, 0), n_restarts=1, penalty=None)


def test_sharp_ends_of_the_rows_are_bounds_that_no_draw_leaves_and_the_status_says_so():
    model = isr.ConditionalISR(**OPTIONS).fit(*rows_of_a_box())
    post = model.posterior([80.0, 3.0])
    draws = post.sample(2000)
    assert np.all((draws > [0, 1]) & (draws < [80, 3]))
    assert post.bounds.pairs() == ((0.0, 80.0), (1.0, 3.0))
    assert post.share_outside == 0
    assert "x1 ends sharply at 0 and 80, x2 ends sharply at 1 and 3: taken for bounds" in str(model.status_)
    assert "bounds={} leaves them open" in str(model.status_)


def test_a_model_without_bounds_warns_at_the_edge_of_its_prior_and_its_file_does_too(tmp_path):
    model = isr.ConditionalISR(bounds={}, **OPTIONS).fit(*rows_of_a_box())
    assert "sharply" not in str(model.status_)
    model.save(tmp_path / "m.isr")
    for post in (model.posterior([80.0, 3.0]), isr.load(tmp_path / "m.isr").posterior([80.0, 3.0])):
        with pytest.warns(OutsideDataWarning, match="give bounds"):
            draws = post.sample(2000)
        outside = np.mean(np.any((draws < [0, 1]) | (draws > [80, 3]), axis=1))
        assert abs(post.share_outside - outside) < 0.05


def test_rows_on_a_bound_leave_it_open():
    x = np.column_stack([np.arange(2000) % 5, np.linspace(0.0005, 0.9995, 2000)])
    assert sharp_box(x).pairs() == ((None, None), (0.0, 1.0))

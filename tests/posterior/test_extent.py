"""Draws outside the training rows are counted, and sharp ends of the rows are told from tails."""

import numpy as np
import pytest

import isr
from isr.estimators.settings import Effort
from isr.posterior.outliers import Extent, OutsideDataWarning, warn_if_outside

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
    with pytest.warns(
        OutsideDataWarning, match=r"5\d\.\d% of the draws .* bounds=\{'T': \(0, 80\), 'p': \(1, 3\)\}"
    ):
        warn_if_outside(extent, draws, ["T", "p"])
    warn_if_outside(extent, np.array([[40.0, 2.0]] * 200 + [[90.0, 2.0]]), ["T", "p"])  # half a per cent


def test_a_model_without_bounds_warns_at_the_edge_of_its_prior_and_its_file_does_too(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 1, size=(1000, 2))
    y = x + 0.2 * rng.normal(size=x.shape)
    options = {"n_blocks": 1, "n_layers": 1, "noise": 0, "random_state": 0}
    options["training"] = isr.Training(Effort(300, 0, 0), n_restarts=1, penalty=None)
    model = isr.ConditionalISR(**options).fit(x, y)
    model.save(tmp_path / "m.isr")
    for post in (model.posterior([1.0, 1.0]), isr.load(tmp_path / "m.isr").posterior([1.0, 1.0])):
        with pytest.warns(OutsideDataWarning, match="bounds="):
            draws = post.sample(2000)
        outside = np.mean(np.any((draws < 0) | (draws > 1), axis=1))
        assert abs(post.share_outside - outside) < 0.05
    bounded = isr.ConditionalISR(bounds=[(0, 1), (0, 1)], **options).fit(x, y)
    assert bounded.posterior([1.0, 1.0]).share_outside < 0.01

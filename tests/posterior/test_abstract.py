"""A kind of posterior that gives only draws and a log-density offers all the rest."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats

from isr.posterior.abstract import AbstractPosterior, EffectiveSizeWarning
from isr.posterior.maximum import SpikeWarning
from isr.posterior.outliers import Extent, OutsideDataWarning
from isr.tables.bounds import Bounds


class Independent(AbstractPosterior):
    """Variables with frozen distributions of SciPy, whose draws are worth ``worth`` of their number."""

    def __init__(self, laws, bounds, worth=1.0, extent=None):
        self.laws, self.worth, self.extent = laws, worth, extent
        self.bounds = Bounds.from_pairs(bounds)
        self.x_names = tuple(f"x{i + 1}" for i in range(len(laws)))
        self.y_names, self.y_star, self.units = ("y1",), np.array([[1.0], [3.0]]), {"x1": "m"}

    def _draw(self, n, seed, precision="double"):
        rng = np.random.default_rng(seed)
        return np.column_stack([law.rvs(n, random_state=rng) for law in self.laws]), self.worth * n

    def _log_prob(self, rows, precision="double"):
        return np.sum([law.logpdf(column) for law, column in zip(self.laws, rows.T, strict=True)], axis=0)


GAMMA = Independent([stats.gamma(3.0, scale=0.5), stats.t(4, loc=-7)], [(0.0, None), (None, None)])


def test_the_mode_is_found_from_draws_and_density():
    assert_allclose(GAMMA.map(), [1.0, -7.0], atol=1e-6)


def test_a_density_that_rises_to_a_bound_has_no_mode():
    rising = Independent([stats.beta(1, 0.2)], [(0.0, 1.0)])
    with pytest.warns(SpikeWarning, match=r"rises towards the upper bound of x1 \(1\)"):
        assert rising.map() is None


def test_tables_figures_and_words_follow():
    table = GAMMA.summary(2000)
    assert_allclose(table["mean"], [1.5, -7.0], atol=0.15)
    assert_allclose(table["map"], [1.0, -7.0], atol=1e-6)
    assert GAMMA.to_arviz(40).posterior["x1"].attrs["units"] == "m"
    assert repr(GAMMA) == "Posterior of x1, x2 given y1 = 2 (mean of 2 observations)"
    assert_allclose(GAMMA.log_prob(GAMMA.frame(5)), GAMMA.log_prob(GAMMA.sample(5)))
    assert_allclose(GAMMA.resimulate(lambda x: x[:, 0], 9), np.mean((GAMMA.sample(9)[:, 0] - 2.0) ** 2))
    figure = GAMMA.plot(100)
    assert len(figure.axes) == 4
    plt.close(figure)


def test_draws_that_are_worth_few_or_lie_outside_are_told():
    with pytest.warns(EffectiveSizeWarning, match="100 draws rest on about 20 independent ones"):
        Independent(GAMMA.laws, [(0.0, None), (None, None)], worth=0.2).sample(100)
    narrow = Extent(*np.array([[0.0, -8.0], [9.0, -6.0]]), *np.zeros((2, 2), bool))
    with pytest.warns(OutsideDataWarning, match="of the draws lie outside the range of the training rows"):
        Independent(GAMMA.laws, [(0.0, None), (None, None)], extent=narrow).sample(100)

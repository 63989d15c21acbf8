"""Densities integrate to one, their samplers follow them, and their entropies are right."""

import numpy as np
import pytest
import sympy as sp
from numpy.testing import assert_allclose
from scipy import stats

from isr.problems import densities, paper_equations
from isr.problems.densities import DENSITIES

# Half-width and centre of a box that holds all but 1e-9 of each density.
BOXES = {"gaussian": ((0, 3), 2.2), "banana": ((0, 10), 20), "ring": ((0, 0), 7), "mog": ((0, 0), 8)}
FIGURES = {"gaussian": 0.535, "banana": 3.531, "ring": 3.256, "mog": 2.145}


def grid_of(name, n=1000):
    (cx, cy), half = BOXES[name]
    step = 2 * half / n
    ticks = -half + step * (np.arange(n) + 0.5)
    xx, yy = np.meshgrid(cx + ticks, cy + ticks, indexing="ij")
    return np.stack([xx, yy], axis=-1), step**2


@pytest.mark.parametrize("name", DENSITIES)
def test_density_integrates_to_one_and_entropy_is_its_quadrature(name):
    x, cell = grid_of(name)
    log_p = DENSITIES[name].log_prob(x)
    p = np.exp(log_p)
    assert_allclose(p.sum() * cell, 1, atol=1e-6)
    assert_allclose(-np.sum(p * log_p) * cell, DENSITIES[name].entropy, atol=1e-5)


@pytest.mark.parametrize("name", DENSITIES)
def test_entropy_is_the_quoted_figure(name):
    assert_allclose(DENSITIES[name].entropy, FIGURES[name], atol=6e-4)


@pytest.mark.parametrize("name", DENSITIES)
def test_sampler_follows_the_density(name):
    density = DENSITIES[name]
    x = density.sample(200_000, random_state=1)
    grid, cell = grid_of(name, 400)
    p = np.exp(density.log_prob(grid)) * cell
    for axis in range(2):
        edges = grid[:, 0, 0] if axis == 0 else grid[0, :, 1]
        cdf = np.cumsum(p.sum(axis=1 - axis))
        distance = np.max(
            np.abs(np.searchsorted(np.sort(x[:, axis]), edges) / len(x) - cdf + p.sum(1 - axis) / 2)
        )
        assert distance < 0.005
    assert abs(density.kl(-density.log_prob(x).mean())) < 0.01


@pytest.mark.parametrize("name", ["gaussian", "banana", "ring"])
def test_law_maps_the_density_to_a_standard_normal(name):
    density = DENSITIES[name]
    assert density.law is not None
    x0, x1 = sp.symbols("x0 x1", real=True)
    z = np.stack(
        sp.lambdify([x0, x1], density.law, ["scipy", "numpy"])(*density.sample(5000, random_state=2).T)
    )
    for latent in z:
        assert stats.kstest(latent, "norm").pvalue > 1e-3
    assert abs(np.corrcoef(z)[0, 1]) < 0.05


def test_ring_law_has_the_density_of_the_ring():
    law = densities.RING.law
    assert law is not None
    symbols = sp.symbols("x0 x1", real=True)
    jacobian = sp.Matrix(law).jacobian(symbols)
    point = {symbols[0]: 3.1, symbols[1]: -4.0}
    z = np.array([float(e.subs(point)) for e in law])
    log_det = np.log(abs(float(jacobian.det().subs(point))))
    assert_allclose(
        log_det - 0.5 * z @ z - np.log(2 * np.pi), densities.RING.log_prob([3.1, -4.0]), rtol=1e-10
    )


def test_divergence_of_a_wrong_model_is_its_analytic_value():
    wide = densities.gaussian(variance=0.2)
    # KL of N(0, 0.1 I) from N(0, 0.2 I) in two dimensions is log 2 - 1/2.
    assert_allclose(densities.GAUSSIAN.kl_of(wide.log_prob), np.log(2) - 0.5, atol=0.005)


def test_wrong_number_of_columns_is_refused():
    with pytest.raises(ValueError, match=r"has 2 variables along the last axis, got shape \(5, 3\)"):
        densities.RING.log_prob(np.zeros((5, 3)))


def test_impossible_ring_is_refused():
    with pytest.raises(ValueError, match="radius >= 6 width"):
        densities.ring(1.0, 0.5)


def test_printed_gaussian_equation_is_nearly_exact():
    assert 0 < paper_equations.kl("gaussian", densities.GAUSSIAN) < 0.002


def test_printed_ring_equation_stays_far_from_every_ring():
    centred = paper_equations.best_ring_kl(centred=True)
    assert_allclose(centred.kl, 0.665, atol=0.02)
    assert_allclose(centred.radius, 0.96, atol=0.02)

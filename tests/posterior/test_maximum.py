"""The densest point of a posterior lies where its mass is, or a sentence says that there is none."""

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

import isr
from isr.bijections.affine import Bounded, Standardise
from isr.bijections.bijection import AbstractBijection, Chain
from isr.bijections.flow import Flow
from isr.posterior.maximum import SpikeWarning, normal_points
from isr.posterior.posterior import Posterior

NOISE = 0.02


class Banana(AbstractBijection):
    """``z = (x1 - 1, (x2 - 3 x1²) / 0.1)``: a thin bent ridge, whose mode is (1, 3)."""

    dim: int = 2

    def forward_and_log_det(self, x, condition=None):
        return jnp.stack([x[0] - 1, (x[1] - 3 * x[0] ** 2) / 0.1]), -jnp.log(jnp.asarray(0.1, x.dtype))

    def inverse_and_log_det(self, z, condition=None):
        first = z[0] + 1
        return jnp.stack([first, 0.1 * z[1] + 3 * first**2]), jnp.log(jnp.asarray(0.1, z.dtype))


class TwoModes(AbstractBijection):
    """Both variables ``x = z + 2 tanh(4 z)``, the second a fifth as wide: two modes in each, near 2 and -2."""

    dim: int = 2

    def _stretched(self, z):
        scale = jnp.asarray([1.0, 0.2], z.dtype)
        return scale * (z + 2 * jnp.tanh(4 * z)), jnp.sum(jnp.log(scale * (1 + 8 / jnp.cosh(4 * z) ** 2)))

    def forward_and_log_det(self, x, condition=None):
        low, high = jnp.full(2, -20.0, x.dtype), jnp.full(2, 20.0, x.dtype)
        for _ in range(60):
            middle = (low + high) / 2
            above = self._stretched(middle)[0] > x
            low, high = jnp.where(above, low, middle), jnp.where(above, middle, high)
        return (low + high) / 2, -self._stretched((low + high) / 2)[1]

    def inverse_and_log_det(self, z, condition=None):
        return self._stretched(z)


def in_box(width):
    """x1 and x2 in the unit square; the posterior of x2 is ``Φ(u)`` with ``u ~ N(0, width²)``."""
    steps = (Bounded((0.0, 0.0), (1.0, 1.0)), Standardise((0.0, 0.0), (1.0, width)))
    return Flow(Chain(steps), noise=(0.1,))


def given_first(bijection):
    return Flow(
        bijection, noise=(1.0,)
    )  # y = z1 with noise 1: at y = 0 the law of the latent is the base law


def test_the_mode_of_a_thin_bent_ridge_is_found():
    assert_allclose(Posterior(given_first(Banana()), [0.0]).map(), [1.0, 3.0], atol=1e-6)


def test_one_of_several_modes_is_found():
    posterior = Posterior(given_first(TwoModes()), [0.0])
    found = posterior.map()
    grid = np.linspace(0, 5, 20001)
    best = grid[np.argmax(posterior.log_prob(np.column_stack([grid, np.full(len(grid), found[1])])))]
    assert_allclose(abs(found), [best, 0.2 * best], atol=1e-3)


def test_a_level_density_has_a_point_within_its_bounds():
    found = Posterior(in_box(1.0), [0.0]).map()
    assert np.all((found > 0) & (found < 1))


def test_a_mode_between_bounds_is_found():
    assert_allclose(Posterior(in_box(0.5), [0.0]).map(), [0.5, 0.5], atol=1e-6)


def test_a_density_that_rises_to_its_bounds_is_told_in_words():
    posterior = Posterior(in_box(2.0), [0.0], x_names=["depth", "angle"])
    with pytest.warns(
        SpikeWarning, match="no densest point is given: the density rises towards the .* angle"
    ):
        assert posterior.map() is None
    assert "almost no draw falls" in posterior.map_note
    assert "map" not in posterior.summary(200)


def test_the_starts_are_standard_normal():
    points = normal_points(2048, 6)
    assert_allclose(points.mean(axis=0), 0, atol=0.08)
    assert_allclose(np.cov(points.T), np.eye(6), atol=0.12)


def sensor(x, n_outputs):
    temperature, pressure = x.T
    both = [0.02 * temperature * pressure + 0.001 * temperature**2, 0.3 * pressure**2 + 0.01 * temperature]
    return np.column_stack(both[:n_outputs])


@pytest.mark.slow
@pytest.mark.parametrize("n_outputs", [1, 2])
def test_the_mode_of_a_bounded_sensor_lies_on_its_ridge(n_outputs):
    rng = np.random.default_rng(0)
    x = np.column_stack([rng.uniform(0, 80, 5000), rng.uniform(1, 3, 5000)])
    y = sensor(x, n_outputs) + NOISE * rng.normal(size=(5000, n_outputs))
    model = isr.ConditionalISR(
        bounds={"T": (0, 80), "P": (1, 3)},
        training=isr.Training("quick", n_restarts=1),
        noise=NOISE,
        random_state=0,
    )
    model.fit(pd.DataFrame(x, columns=["T", "P"]), pd.DataFrame(y, columns=["v", "w"][:n_outputs]))
    for truth in ([60.0, 2.0], [40.0, 1.5], [78.0, 1.2], [10.0, 2.8], [35.0, 1.02], [5.0, 1.1]):
        observed = sensor(np.array([truth]), n_outputs)[0]
        posterior = model.posterior(observed)
        if not posterior.map_note:
            assert np.all(abs(sensor(posterior.map()[None], n_outputs)[0] - observed) < 3 * NOISE)
        else:
            assert n_outputs == 1  # one voltage leaves a level ridge from bound to bound
            assert "bound of P" in posterior.map_note

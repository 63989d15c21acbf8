"""Single precision gives what double gives, to its own digits."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import ks_2samp

from isr.bijections.affine import Bounded
from isr.bijections.build import Architecture, build_flow
from isr.bijections.flow import CHUNK
from isr.bijections.primitives import arctan, sin2pi

SMALL = Architecture(n_blocks=2, n_layers=2)
CONDITION = np.array([[0.4, -1.0]])
BOX = Bounded((0.1, -0.7, None), (0.3, None, 1.7))
FLOWS = {
    "free": (lambda k: build_flow(k, 3, architecture=SMALL), None),
    "conditional": (lambda k: build_flow(k, 3, condition_dim=2, architecture=SMALL), CONDITION),
    "joint": (lambda k: build_flow(k, 3, noise=(0.3,), architecture=SMALL), CONDITION[:, :1]),
    "bounded": (lambda k: build_flow(k, 3, bounds=BOX, architecture=SMALL), None),
    "padded": (lambda k: build_flow(k, 1, architecture=SMALL), None),
    "networks": (lambda k: build_flow(k, 3, architecture=Architecture(2, 2, subnet="mlp", width=8)), None),
    "skipping": (lambda k: build_flow(k, 2, architecture=Architecture(3, 2, skip=True, mixing="linear")), None),
    "waves": (lambda k: build_flow(k, 2, architecture=Architecture(1, 2, library=("sin", "cos", "product"))), None),
    "polar": (lambda k: build_flow(k, 2, architecture=Architecture(1, 1, charts=("polar",))), None),
}  # fmt: skip
QUICK = ("conditional", "bounded", "skipping")
each_flow = pytest.mark.parametrize(
    ("make", "y"),
    [
        pytest.param(*flow, id=name, marks=[] if name in QUICK else pytest.mark.slow)
        for name, flow in FLOWS.items()
    ],
)


@each_flow
def test_draws_and_densities_are_those_of_double_precision(make, y, key):
    flow = make(key)
    noise = np.random.default_rng(0).normal(size=(200, flow.bijection.dim))
    x = flow.draw(noise, y)
    single = flow.draw(noise, y, precision="single")
    assert single.dtype == np.float32
    assert_allclose(single, x, rtol=1e-4, atol=1e-4)
    density = flow.log_prob(x, y, precision="single")
    assert density.dtype == np.float32
    assert_allclose(density, flow.log_prob(x, y), rtol=1e-3, atol=1e-3)


@each_flow
def test_the_inverse_undoes_the_map_to_single_precision(make, y, key):
    flow = make(key)
    y = y if flow.condition_map is not None else None
    z = np.random.default_rng(0).normal(size=(200, flow.bijection.dim)).astype(np.float32)
    if flow.n_padding:
        z = flow.forward(z[:, :1], precision="single")[0]
    x, log_det = flow.inverse(z, y, precision="single")
    back, other = flow.forward(x, y, precision="single")
    assert_allclose(back, z, rtol=1e-3, atol=1e-3)
    assert_allclose(other, -log_det, rtol=1e-3, atol=1e-3)


def test_a_seed_gives_the_same_draws_and_both_precisions_the_same_law(key):
    make, y = FLOWS["conditional"]
    flow, n = make(key), 20_000
    single = flow.sample(jax.random.key(5), n, y, precision="single")
    assert_array_equal(single, flow.sample(jax.random.key(5), n, y, precision="single"))
    double = flow.sample(jax.random.key(6), n, y)
    assert double.dtype == np.float64
    for a, b in zip(single.T, double.T, strict=True):
        comparison: Any = ks_2samp(a, b)
        assert comparison.pvalue > 1e-3


def test_draws_in_single_precision_never_leave_the_bounds(key):
    flow = FLOWS["bounded"][0](key)
    noise = np.random.default_rng(0).normal(scale=20.0, size=(5000, 3))
    drawn = flow.draw(noise, precision="single").astype(np.float64)
    assert (drawn[:, 0] >= 0.1).all()
    assert (drawn[:, 0] <= 0.3).all()
    assert (drawn[:, 1] >= -0.7).all()
    assert (drawn[:, 2] <= 1.7).all()


def test_densities_in_single_precision_are_finite_on_the_bounds(key):
    flow = FLOWS["bounded"][0](key)
    rows = np.array([[0.1, 0.0, 0.0], [0.3, 0.0, 0.0], [0.31, 0.0, 0.0]])
    assert_array_equal(np.isfinite(flow.log_prob(rows, precision="single")), [True, True, False])


def test_many_rows_in_double_precision_mean_what_few_do(key):
    flow = build_flow(key, 2, architecture=Architecture(1, 1))
    x = np.random.default_rng(0).normal(size=(CHUNK + 10, 2))
    assert_allclose(flow.log_prob(x)[-5:], flow.log_prob(x[-5:]), rtol=1e-12)


@pytest.mark.parametrize(("dtype", "digits"), [(jnp.float32, 3e-7), (jnp.float64, 5e-16)])
def test_polynomials_are_the_functions_they_stand_for(dtype, digits):
    points = np.concatenate(
        [np.linspace(-3, 3, 4001), np.logspace(-6, 6, 400), -np.logspace(-6, 6, 400), [0.0]]
    )
    points = points.astype(dtype).astype(np.float64)
    found = np.asarray(arctan(jnp.asarray(points, dtype)))
    assert found.dtype == dtype
    assert_allclose(found, np.arctan(points), rtol=digits)
    turns = points[np.abs(points) < 10]
    expected = np.sin(2 * np.pi * (turns - np.round(turns)))
    assert_allclose(np.asarray(sin2pi(jnp.asarray(turns, dtype))), expected, atol=digits)


def test_polynomials_keep_infinities_and_nan():
    ends = jnp.array([jnp.inf, -jnp.inf, jnp.nan])
    assert_allclose(arctan(ends), [np.pi / 2, -np.pi / 2, np.nan])
    assert np.isnan(sin2pi(ends)).all()


def test_an_unknown_precision_is_refused(key):
    flow = FLOWS["free"][0](key)
    message = "precision must be 'double' or 'single', got 'half'"
    with pytest.raises(ValueError, match=message):
        flow.sample(jax.random.key(0), 3, precision="half")
    with pytest.raises(ValueError, match=message):
        flow.log_prob(np.zeros((2, 3)), precision="half")

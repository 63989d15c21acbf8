"""A flow is a density: it integrates to one, its samples follow it, and it refuses what it cannot read."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from isr.bijections.affine import Bounded, Permutation, Standardise
from isr.bijections.build import Architecture, build_flow
from isr.bijections.flow import CHUNK, Flow

SMALL = Architecture(n_blocks=2, n_layers=1)
CONDITION = np.array([[0.4, -1.0]])


def two_variables(key, **options):
    return build_flow(key, 2, architecture=SMALL, standardise=Standardise((1.0, -2.0), (0.5, 2.0)), **options)


def quadrature(flow, y=None, half_width=10.0, n=301):
    """Return a grid over the plane, its cell and the density on it."""
    side = np.linspace(-half_width, half_width, n)
    grid = np.stack(np.meshgrid(side, side, indexing="ij"), -1).reshape(-1, 2)
    x = np.array([1.0, -2.0]) + np.array([0.5, 2.0]) * grid
    cell = (side[1] - side[0]) ** 2 * 0.5 * 2.0
    return x, cell, np.exp(flow.log_prob(x, y))


@pytest.mark.parametrize("y", [None, CONDITION], ids=["alone", "given y"])
def test_a_density_integrates_to_one_and_samples_follow_it(key, y):
    flow = two_variables(key, condition_dim=0 if y is None else 2)
    x, cell, density = quadrature(flow, y)
    assert_allclose(density.sum() * cell, 1.0, atol=1e-6)
    mean = (density[:, None] * x).sum(0) * cell
    variance = (density[:, None] * (x - mean) ** 2).sum(0) * cell
    n = 40_000
    samples = flow.sample(jax.random.key(1), n, y)
    assert samples.shape == (n, 2)
    assert np.all(np.abs(samples.mean(0) - mean) < 5 * np.sqrt(variance / n))
    assert_allclose(samples.var(0), variance, rtol=0.05)


def test_the_density_of_a_single_variable_integrates_to_one(key):
    flow = build_flow(key, 1, architecture=SMALL, standardise=Standardise((3.0,), (2.0,)))
    x = np.linspace(3 - 30, 3 + 30, 2001)[:, None]
    density = np.exp(flow.log_prob(x))
    assert_allclose(density.sum() * (x[1, 0] - x[0, 0]), 1.0, atol=1e-4)


def hold_the_laws_of_one_variable(n_blocks, subnet, condition_dim):
    shape = Architecture(n_blocks=n_blocks, subnet=subnet, width=8)
    scale = Standardise((3.0,), (2.0,))
    flow = build_flow(
        jax.random.key(1), 1, condition_dim=condition_dim, architecture=shape, standardise=scale
    )
    rng = np.random.default_rng(0)
    n = 10_000
    x = 3 + 2 * np.concatenate([rng.normal(size=(n // 2, 1)), rng.uniform(-6, 6, size=(n - n // 2, 1))])
    y = rng.normal(size=(n, condition_dim)) if condition_dim else None
    latent, log_det = flow.forward(x, y)
    assert latent.shape == (n, 2)
    back, back_log_det = flow.inverse(latent, y)
    assert_allclose(back, x, rtol=1e-9, atol=1e-9)
    assert_allclose(back_log_det, -log_det, rtol=1e-9, atol=1e-9)

    def jacobian(padded, given):
        condition = flow.condition_map(given) if condition_dim else None
        return jax.jacfwd(lambda row: flow.bijection.forward_and_log_det(row, condition)[0])(padded)

    axes = (0, 0 if condition_dim else None)
    padded = jnp.asarray(np.pad(x, ((0, 0), (0, 1))))
    jacobians = jax.jit(jax.vmap(jacobian, in_axes=axes))(padded, None if y is None else jnp.asarray(y))
    assert_allclose(log_det, np.linalg.slogdet(np.asarray(jacobians))[1], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("n_blocks", "subnet", "condition_dim"), [(1, "eql", 0), (2, "mlp", 2)])
def test_the_inverse_undoes_the_map_of_a_single_variable(n_blocks, subnet, condition_dim):
    hold_the_laws_of_one_variable(n_blocks, subnet, condition_dim)


@pytest.mark.slow
@pytest.mark.parametrize("n_blocks", [3, 6])
@pytest.mark.parametrize("subnet", ["eql", "mlp"])
@pytest.mark.parametrize("condition_dim", [0, 2])
def test_the_laws_of_a_single_variable_hold_for_every_depth(n_blocks, subnet, condition_dim):
    hold_the_laws_of_one_variable(n_blocks, subnet, condition_dim)


def test_the_density_of_a_box_integrates_to_one_inside_it(key):
    flow = build_flow(key, 2, architecture=SMALL, bounds=Bounded((0.0, -1.0), (2.0, 1.0)))
    n = 400
    edge = (np.arange(n) + 0.5) / n
    grid = np.stack(np.meshgrid(2 * edge, 2 * edge - 1, indexing="ij"), -1).reshape(-1, 2)
    assert_allclose(np.exp(flow.log_prob(grid)).sum() * (2 / n) ** 2, 1.0, atol=2e-3)
    samples = flow.sample(jax.random.key(2), 20_000)
    assert np.all((samples >= [0, -1]) & (samples <= [2, 1]))


def test_the_joint_form_gives_the_density_of_x_up_to_the_noise(key):
    flow = build_flow(key, 2, noise=(0.3,), architecture=SMALL)
    assert flow.condition_dim == flow.n_observed == 1
    x = np.random.default_rng(0).normal(size=(50, 2))
    y = np.random.default_rng(1).normal(size=(50, 1))
    latent, log_det = flow.forward(x)
    from scipy.stats import norm

    expected = log_det + norm.logpdf(latent[:, 0], y[:, 0], 0.3) + norm.logpdf(latent[:, 1])
    assert_allclose(flow.log_prob(x, y), expected, rtol=1e-12)


def test_rows_do_not_know_of_each_other(key):
    flow = two_variables(key)
    x = np.random.default_rng(0).normal(size=(CHUNK + 3, 2))
    whole = flow.forward(x)[0]
    assert_allclose(flow.forward(x[-3:])[0], whole[-3:], rtol=1e-12)
    assert flow.forward(x[:0])[0].shape == (0, 2)
    assert_allclose(flow.forward(x[0])[0], whole[:1], rtol=1e-12)


def test_one_condition_serves_all_rows(key):
    flow = two_variables(key, condition_dim=2)
    x = np.random.default_rng(0).normal(size=(20, 2))
    assert_allclose(flow.log_prob(x, CONDITION), flow.log_prob(x, np.repeat(CONDITION, 20, 0)), rtol=1e-12)


def test_a_single_precision_model_is_run_in_double(key):
    from isr.bijections.parameters import cast

    flow = two_variables(key)
    single = cast(flow, jnp.float32)
    x = np.random.default_rng(0).normal(size=(20, 2))
    assert single.forward(x)[0].dtype == np.float64
    assert_allclose(single.inverse(single.forward(x)[0])[0], x, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda f, c: f.log_prob(np.zeros((3, 3))), r"x must have 2 columns, got an array of shape \(3, 3\)"),
        (lambda f, c: f.inverse(np.zeros((3, 1))), r"the latent must have 2 columns"),
        (lambda f, c: f.log_prob(np.array([[0.0, np.nan]])), r"x holds NaN in column\(s\) \[1\]"),
        (lambda f, c: f.log_prob(np.zeros((3, 2)), CONDITION), "this flow has no condition, but y was given"),
        (lambda f, c: c.log_prob(np.zeros((3, 2))), "this flow is conditional: give y with 2 columns"),
        (lambda f, c: f.sample(jax.random.key(0), -1), "draws must be a whole number, at least 0, got -1"),
        (lambda f, c: c.sample(jax.random.key(0), 3), "this flow is conditional"),
        (
            lambda f, c: c.log_prob(np.zeros((3, 2)), np.zeros((2, 2))),
            r"one row or as many as x \(3\), got 2",
        ),
        (lambda f, c: c.log_prob(np.zeros((3, 2)), np.zeros((3, 1))), "y must have 2 columns"),
        (lambda f, c: c.log_prob(np.zeros((1, 2)), np.full((1, 2), np.nan)), "y holds NaN"),
    ],
)
def test_rows_that_do_not_fit_are_refused_with_a_reason(key, call, message):
    with pytest.raises(ValueError, match=message):
        call(two_variables(key), two_variables(key, condition_dim=2))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda k: build_flow(k, 0), "x needs at least one variable"),
        (lambda k: build_flow(k, 2, condition_dim=1, noise=(0.1,)), "not both"),
        (lambda k: build_flow(k, 2, noise=(0.1, 0.1, 0.1)), "3 observed outputs do not fit into 2"),
        (lambda k: build_flow(k, 2, noise=(-0.1,)), "noise of an observed output must be positive"),
        (lambda k: Flow(Permutation((0, 1)), n_padding=2), "n_padding must be 0 or 1"),
        (
            lambda k: build_flow(k, 2, condition_dim=2, standardise_condition=Standardise((0.0,), (1.0,))),
            "standardise_condition covers 1 variables, condition_dim is 2",
        ),
    ],
)
def test_a_flow_that_cannot_be_is_refused_with_a_reason(key, make, message):
    with pytest.raises(ValueError, match=message):
        make(key)


@pytest.mark.parametrize(
    ("condenser", "widths"), [("network", [64, 64, 3]), ("wide network", [128, 128, 3]), ("linear", [3])]
)
def test_what_condenses_y_is_as_wide_as_its_name_says(key, condenser, widths):
    shape = Architecture(n_blocks=1, n_layers=1, n_features=3, condenser=condenser)
    flow = build_flow(key, 2, condition_dim=20, architecture=shape)
    assert [bias.shape[-1] for bias in flow.condition_map.network.biases] == widths

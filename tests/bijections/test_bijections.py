"""The laws of every bijection: the inverse undoes it, its log-determinant is that of the Jacobian, and it stays finite.

A new bijection joins by a line in ``BIJECTIONS``.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from equations.expression_models import make
from isr.bijections.affine import (
    Bounded,
    Inverted,
    Linear,
    Permutation,
    Shift,
    Standardise,
    inverse_and_log_det,
)
from isr.bijections.bijection import Chain
from isr.bijections.build import Architecture, build_core
from isr.bijections.charts import Polar, Split
from isr.bijections.coupling import Affine, Coupling
from isr.bijections.formula import Formulas
from isr.bijections.shapes import SinhArcsinh

N = 10_000
N_FEATURES = 2


def core(dim, n_blocks, *, n_features=0, **shape):
    def make(key):
        return Chain(tuple(build_core(key, dim, n_features, Architecture(n_blocks=n_blocks, **shape))))

    return make, n_features


def plain(bijection):
    return lambda key: bijection, 0


def formulas(*trees):
    constants = jnp.array([0.3, -0.2])
    return Formulas(constants, trees, stack=2, n_inputs=1)


CLOSED = ("shapes", "mixture", "triangular", "spiral", "plain polar", "edges", "long tails")
SQUARE = ("mul", ("constant", 1), ("pow", ("input", 0), 2))
BIJECTIONS = {
    "standardise": plain(Standardise((1.0, -2.0, 3e5), (0.5, 4.0, 1e-3))),
    "shift": plain(Shift(jnp.array([0.5, -2.0]))),
    "linear": plain(Linear(jnp.array([[1.0, 0.3, 0.0], [0.2, -1.5, 0.4], [0.0, 0.0, 0.7]]))),
    "permutation": plain(Permutation((2, 0, 3, 1))),
    "inverted": plain(Inverted(Standardise((1.0, -2.0), (0.5, 4.0)))),
    "bounded": plain(Bounded((0.0, None, 2.0, None), (1.0, 5.0, None, None))),
    "polar": plain(Polar(jnp.array([0.3, -0.2]), pair=(2, 0), dim=3)),
    "sinh-arcsinh": plain(SinhArcsinh(jnp.array([0.3, -0.2]), jnp.array([0.1, -0.4]))),
    "split": plain(Split(jnp.array(0.3), jnp.array([-2.0, 1.5]), jnp.array([-0.3, 0.2]), 0.1, 1, 2)),
    **{name: (lambda key, name=name: make(name).bijection, 0) for name in CLOSED},
    "formulas": plain(
        Coupling(formulas(SQUARE, ("constant", 0)), formulas(("number", 0), SQUARE), 1, 2, Affine(2.0), 6.0)
    ),
    "1 block of 2": core(2, 1),
    "2 blocks of 3, skip": core(3, 2, n_layers=1, skip=True),
    "4 blocks of 4, linear mixing, leaky ReLU": core(4, 4, mixing="linear", subnet="mlp", width=16),
    "6 blocks of 4 given y, 3 layers": core(4, 6, n_features=N_FEATURES, n_layers=3),
    "no clamp, no guard": core(2, 1, clamp=None, guard=None, library=["constant", "sin", "id"]),
}  # fmt: skip

# Every width and every number of blocks, with and without a condition; one variable is tested as a flow, which pads it.
GRID = {
    f"{1 + (dim + shift) % 6} blocks of {dim}, {subnet}{' given y' if n_features else ''}": core(
        dim, 1 + (dim + shift) % 6, n_features=n_features, subnet=subnet, width=16
    )
    for dim in range(2, 19, 2)
    for shift, n_features in ((0, 0), (3, N_FEATURES))
    for subnet in ("eql", "mlp")
}


def draw(case, n=N):
    """Return a bijection, points that reach 6 standard deviations out, and their conditions."""
    make, n_features = case
    bijection = make(jax.random.key(1))
    rng = np.random.default_rng(0)
    normal, wide = (
        rng.normal(size=(n // 2, bijection.dim)),
        rng.uniform(-6, 6, size=(n - n // 2, bijection.dim)),
    )
    u = jnp.asarray(np.concatenate([normal, wide]))
    condition = jnp.asarray(rng.normal(size=(n, n_features))) if n_features else None
    if isinstance(bijection, Bounded | Standardise):
        u = jax.vmap(lambda row: bijection.inverse_and_log_det(row)[0])(u)
    return bijection, u, condition


@eqx.filter_jit
def run(bijection, x, condition):
    """Everything the laws speak of, compiled once: image, its preimage, log-determinants and Jacobians."""

    def one(row, given):
        image, log_det = bijection.forward_and_log_det(row, given)
        back, back_log_det = bijection.inverse_and_log_det(image, given)
        return image, back, log_det, back_log_det

    def jacobian(row, given):
        return jax.jacfwd(lambda r: bijection.forward_and_log_det(r, given)[0])(row)

    axes = (0, None if condition is None else 0)
    return jax.vmap(one, in_axes=axes)(x, condition), jax.vmap(jacobian, in_axes=axes)(x, condition)


def hold_the_laws(case):
    bijection, x, condition = draw(case)
    (image, back, log_det, back_log_det), jacobians = run(bijection, x, condition)
    assert np.all(np.isfinite(image))
    spread = np.std(np.asarray(x), axis=0)
    assert np.max(np.abs(back - x) / (np.abs(np.asarray(x)) + spread)) < 1e-9
    assert_allclose(back_log_det, -log_det, rtol=1e-9, atol=1e-9)
    assert_allclose(log_det, np.linalg.slogdet(np.asarray(jacobians))[1], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(c, id=n, marks=[pytest.mark.slow] if n.startswith("6") else [])
        for n, c in BIJECTIONS.items()
    ],
)
def test_the_inverse_undoes_the_map_and_the_log_det_is_that_of_the_jacobian(case):
    hold_the_laws(case)


@pytest.mark.slow
@pytest.mark.parametrize("case", GRID.values(), ids=GRID.keys())
def test_the_laws_hold_for_every_depth_and_width(case):
    hold_the_laws(case)


@pytest.mark.parametrize(
    "name",
    [
        "bounded",
        "edges",
        "polar",
        "split",
        "6 blocks of 4 given y, 3 layers",
        "4 blocks of 4, linear mixing, leaky ReLU",
    ],
)
def test_the_inverse_is_finite_a_thousand_standard_deviations_out(name):
    make, n_features = BIJECTIONS[name]
    bijection = make(jax.random.key(1))
    rng = np.random.default_rng(0)
    z = jnp.asarray(1e3 * rng.normal(size=(1000, bijection.dim)))
    condition = jnp.asarray(1e3 * rng.normal(size=n_features)) if n_features else None
    x, log_det = jax.jit(jax.vmap(lambda row: bijection.inverse_and_log_det(row, condition)))(z)
    assert np.all(np.isfinite(x))
    assert np.all(np.isfinite(log_det))


def test_no_inverse_ever_leaves_the_bounds():
    bounded = Bounded((0.1, None, 2.0), (0.3, 5.0, None))
    z = jnp.asarray(np.random.default_rng(0).normal(scale=20.0, size=(N, 3)))
    x = np.asarray(jax.vmap(lambda row: bounded.inverse_and_log_det(row)[0])(z))
    assert np.all((x[:, 0] >= 0.1) & (x[:, 0] <= 0.3))
    assert np.all(x[:, 1] <= 5.0)
    assert np.all(x[:, 2] >= 2.0)


def test_a_point_on_a_bound_has_a_finite_image():
    image, log_det = Bounded((0.0, 0.0), (1.0, 1.0)).forward_and_log_det(jnp.array([0.0, 1.0]))
    assert np.all(np.isfinite(image))
    assert np.isfinite(log_det)
    image, log_det = Bounded((0.0, None), (None, 3.0)).forward_and_log_det(jnp.array([0.0, 3.0]))
    assert np.all(np.isfinite(image))
    assert np.isfinite(log_det)


def test_the_log_scale_never_passes_its_clamp():
    make, _ = core(4, 1, library=["square", "constant"], clamp=0.5)
    coupling = make(jax.random.key(0)).bijections[0]
    _, log_det = coupling.forward_and_log_det(jnp.full(4, 6.0))
    assert abs(log_det) <= 4 * 0.5


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Standardise((0.0,), (1.0, 2.0)), "differ in length"),
        (lambda: Standardise((0.0,), (0.0,)), "scales must be positive"),
        (lambda: Bounded((1.0,), (0.0,)), "low < high"),
        (lambda: Bounded((1.0, 2.0), (3.0,)), "low and high differ in length"),
        (lambda: Permutation((0, 0)), "order must hold each of 0..1 once"),
        (lambda: Chain(()), "a chain needs bijections"),
        (lambda: Chain((Permutation((0, 1)), Permutation((0, 1, 2)))), r"dimensions \[2, 3\]"),
        (lambda: Polar(jnp.zeros(2), pair=(0, 0), dim=2), "pair must name two different variables"),
        (lambda: Split(jnp.array(0.0), jnp.zeros(2), jnp.zeros(2), 0.0, 2, 2), r"variable must lie in 0..1"),
        (lambda: Architecture(subnet="tree"), "unknown subnet 'tree'; known: eql, mlp"),
        (lambda: Architecture(mixing="stir"), "unknown mixing 'stir'"),
        (lambda: Architecture(charts=("map",)), "unknown chart 'map'"),
        (lambda: Architecture(n_blocks=0), "at least one block"),
        (lambda: core(4, 1, clamp=-1.0)[0](jax.random.key(0)), "clamp must be a positive number or None"),
        (lambda: core(1, 1)[0](jax.random.key(0)), "a coupling needs variables on both sides"),
    ],
)
def test_what_cannot_be_built_is_refused_with_a_reason(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_an_inverse_and_its_determinant_have_the_derivatives_of_a_solved_system():
    matrix, change = np.random.default_rng(0).normal(size=(2, 4, 4))

    def plain(m):
        return jnp.linalg.inv(m), jnp.linalg.slogdet(m)[1]

    for derivative in (jax.jvp, lambda f, at, to: jax.jvp(jax.jacrev(f), at, to)):
        ours, theirs = (derivative(f, (matrix,), (change,)) for f in (inverse_and_log_det, plain))
        for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
            assert_allclose(a, b, rtol=1e-9, atol=1e-9)

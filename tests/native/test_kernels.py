"""C kernels give what the couplings say, in both directions and with their gradients; XLA does the rest."""

import platform
from dataclasses import dataclass, replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import sympy

from isr import SymbolicFlow, Training
from isr.bijections import primitives
from isr.bijections.affine import Linear, Shift
from isr.bijections.bijection import Chain
from isr.bijections.build import Architecture, build_flow
from isr.bijections.coupling import Coupling
from isr.bijections.flow import Flow
from isr.bijections.parameters import cast, flatten
from isr.bijections.primitives import PRIMITIVES, register_primitive
from isr.bijections.programs import Accelerated, accelerate, accelerated_steps
from isr.estimators.settings import Effort
from isr.native import library
from isr.training.loop import Moment
from isr.training.losses import FlowObjective

pytestmark = pytest.mark.skipif(not library.library().tag, reason="no C compiler, or another system")


UNITS = library.library().units
# The other units are steep, which costs single precision its digits where they follow one another.
TOGETHER = ("square", "sin2pi", "sin", "cos", "sigmoid", "tanh", "sqrt", "log", "product")
SMALL, PAPER = Architecture(1, 2), Architecture(1, 3)


@dataclass(frozen=True)
class Shape:
    dim: int = 4
    n_condition: int = 2
    n: int = 100
    one_condition: bool = False
    architecture: Architecture = SMALL


CASES = {
    "paper": Shape(architecture=PAPER),
    "two tiles and a part": Shape(n=300, architecture=PAPER),
    "a single sample": Shape(n=1, architecture=PAPER),
    "one condition for all": Shape(one_condition=True, n=37),
    "no condition": Shape(n_condition=0, n=17),
    "odd dimension": Shape(dim=5),
    "two variables": Shape(dim=2, n=16),
    "every layer read at the end": Shape(architecture=Architecture(1, 3, skip=True)),
    "no bias": Shape(architecture=Architecture(1, 2, library={"id": 3, "sin2pi": 2})),
    "no clamp, no guard": Shape(architecture=Architecture(1, 2, clamp=None, guard=None)),
    "tight clamp and guard": Shape(architecture=Architecture(1, 2, clamp=0.5, guard=0.7)),
    "one condition, beyond the guard and read at the end": Shape(
        one_condition=True, n=150, architecture=Architecture(1, 2, guard=0.1, skip=True)
    ),
    "one condition, no bias": Shape(
        one_condition=True, architecture=Architecture(1, 2, library={"id": 3, "sin2pi": 2})
    ),
    "products before others": Shape(
        architecture=Architecture(1, 2, library={"constant": 1, "product": 3, "id": 1, "square": 2, "sin": 2})
    ),
    "leaky ReLUs": Shape(architecture=Architecture(1, 2, subnet="mlp", width=19)),
    "most units at once": Shape(
        architecture=Architecture(1, 2, library={"constant": 1, "id": 1, **dict.fromkeys(TOGETHER, 1)})
    ),
    **{
        name: Shape(architecture=Architecture(1, 2, library={"constant": 1, "id": 1, name: 3}))
        for name in UNITS
        if name not in ("id", "leaky_relu")
    },
}
# What other cases hold too, in another order.
DEAR = {*TOGETHER, "two variables", "odd dimension", "no bias"}


def drawn(shape: Shape) -> tuple[Coupling, np.ndarray, np.ndarray | None]:
    flow = build_flow(
        jax.random.key(3), shape.dim, condition_dim=shape.n_condition, architecture=shape.architecture
    )
    (coupling,) = (step for step in flow.steps if isinstance(step, Coupling))
    rng = np.random.default_rng(0)
    vector, restore = flatten(coupling)
    coupling = restore(np.asarray(vector) + 0.1 * rng.normal(size=len(vector)))
    condition = rng.normal(size=(shape.n_condition, 1 if shape.one_condition else shape.n))
    if shape.one_condition:
        condition = condition[:, 0]
    return coupling, rng.normal(size=(shape.dim, shape.n)), condition if shape.n_condition else None


def value_and_gradients(bijection, x, condition, direction, dtype):
    vector, restore = flatten(cast(bijection, dtype))
    weights = np.random.default_rng(1).normal(size=(len(x) + 1, x.shape[1]))

    def loss(vector, x, condition):
        z, log_det = getattr(restore(vector), f"{direction}_columns")(x, condition)
        return jnp.sum(jnp.vstack([z, log_det]) * jnp.asarray(weights, dtype)), (z, log_det)

    given = [None if a is None else jnp.asarray(a, dtype) for a in (vector, x, condition)]
    by = tuple(i for i, a in enumerate(given) if a is not None)
    (_, images), gradients = jax.jit(jax.value_and_grad(loss, argnums=by, has_aux=True))(*given)
    return [np.asarray(a, np.float64) for a in (*images, *gradients)]


@pytest.mark.parametrize("direction", ["forward", "inverse"])
@pytest.mark.parametrize(
    "shape",
    [pytest.param(s, id=n, marks=[pytest.mark.slow] * (n in DEAR)) for n, s in CASES.items()],
)
def test_values_and_gradients_are_those_of_the_coupling_in_double_precision(shape, direction):
    coupling, x, condition = drawn(shape)
    expected = value_and_gradients(coupling, x, condition, direction, jnp.float64)
    form = accelerate(coupling)
    assert isinstance(form, Accelerated)
    assert form.dim == coupling.dim
    found = value_and_gradients(form, x, condition, direction, jnp.float32)
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=1e-4 * np.max(np.abs(other)))


CHAINS = {
    "matrices": Shape(architecture=Architecture(3, 2, mixing="linear")),
    "permutations": Shape(n=300, architecture=Architecture(3, 2, mixing="permutation")),
    "nothing between": Shape(n_condition=0, architecture=Architecture(3, 2, mixing="none")),
    "matrices of an odd dimension": Shape(
        dim=5, n=300, one_condition=True, architecture=Architecture(2, 1, mixing="linear")
    ),
    "networks": Shape(architecture=Architecture(2, 2, subnet="mlp", width=19, mixing="linear")),
}


def drawn_chain(shape: Shape) -> tuple[Chain, np.ndarray, np.ndarray | None]:
    flow = build_flow(
        jax.random.key(3), shape.dim, condition_dim=shape.n_condition, architecture=shape.architecture
    )
    _, x, condition = drawn(replace(shape, architecture=SMALL))
    vector, restore = flatten(flow.bijection)
    return restore(np.asarray(vector) + 0.1 * np.random.default_rng(5).normal(size=len(vector))), x, condition


@pytest.mark.parametrize("direction", ["forward", "inverse"])
@pytest.mark.parametrize("shape", CHAINS.values(), ids=CHAINS.keys())
def test_blocks_go_together_and_give_what_their_steps_give(shape, direction):
    chain, x, condition = drawn_chain(shape)
    together = accelerate(chain)
    (form,) = together.bijections
    assert isinstance(form, Accelerated)
    np.testing.assert_array_equal(flatten(together)[0], flatten(chain)[0])
    found = value_and_gradients(together, x, condition, direction, jnp.float32)
    expected = value_and_gradients(chain, x, condition, direction, jnp.float64)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=5e-4, atol=2e-4 * np.max(np.abs(other)))


def test_blocks_that_differ_stay_apart_and_other_steps_as_they_are():
    chain, x, _ = drawn_chain(CHAINS["nothing between"])
    first, second, third = chain.bijections
    matrix, shift = Linear(jnp.eye(4) + 0.2), Shift(jnp.arange(4.0))
    steps = (matrix, shift, first, matrix, second, matrix, third, matrix)
    found = accelerated_steps(steps)
    assert [type(step) for step in found] == [Linear, Shift, Accelerated, Accelerated, Linear]
    assert [len(step.kernel.blocks.orders) for step in found[2:4]] == [1, 2]
    expected = Chain(steps).forward_columns(x)
    for one, other in zip(
        cast(Chain(found), jnp.float32).forward_columns(jnp.float32(x)), expected, strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4 * np.max(np.abs(other)))


@pytest.mark.parametrize("matrix", [np.zeros((4, 4)), np.full((4, 4), np.nan)])
def test_a_matrix_without_inverse_is_told_by_numbers_that_are_not_finite(matrix):
    chain, x, condition = drawn_chain(CHAINS["matrices"])
    broken = eqx.tree_at(lambda c: c.bijections[2].matrix, chain, jnp.asarray(matrix))
    form = cast(accelerate(broken), jnp.float32)
    _, log_det = form.forward_columns(jnp.float32(x), jnp.float32(condition))
    assert not np.any(np.isfinite(log_det))


def test_learned_numbers_keep_their_order():
    coupling, _, _ = drawn(CASES["every layer read at the end"])
    np.testing.assert_array_equal(flatten(accelerate(coupling))[0], flatten(coupling)[0])


def test_members_side_by_side_are_the_members():
    coupling, x, condition = drawn(CASES["paper"])
    form = cast(accelerate(coupling), jnp.float32)
    x, condition = (jnp.asarray(a, jnp.float32) for a in (x, condition))
    weights = jnp.stack([form.weights, 0.5 * form.weights, -form.weights])

    def loss(weights):
        z, log_det = replace(form, weights=weights).forward_columns(x, condition)
        return jnp.sum(z**2) + jnp.sum(log_det)

    together = jax.vmap(jax.value_and_grad(loss))(weights)
    apart = [jax.value_and_grad(loss)(w) for w in weights]
    for i, one in enumerate(apart):
        assert all(np.array_equal(a, b[i]) for a, b in zip(one, together, strict=True))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e30])
def test_a_sample_that_is_not_finite_spoils_no_other(bad):
    coupling, x, condition = drawn(CASES["paper"])
    form = cast(accelerate(coupling), jnp.float32)
    spoilt = x.copy()
    spoilt[0, 7] = bad
    clean, dirty = (
        form.forward_columns(jnp.asarray(rows, jnp.float32), jnp.asarray(condition, jnp.float32))
        for rows in (x, spoilt)
    )
    others = np.arange(x.shape[1]) != 7
    for one, other in zip(clean, dirty, strict=True):
        np.testing.assert_array_equal(np.asarray(one)[..., others], np.asarray(other)[..., others])
    if not np.isfinite(bad):
        assert not np.isfinite(np.asarray(dirty[0])[0, 7])


@pytest.mark.parametrize(("mixing", "dim"), [("permutation", 4), ("linear", 4), ("permutation", 2)])
def test_the_gradient_of_training_is_that_of_xla(mixing, dim, monkeypatch):
    shape = Architecture(4, 2, mixing=mixing)
    flow = build_flow(jax.random.key(0), dim, condition_dim=2, architecture=shape)
    vector, restore = flatten(flow)
    rng = np.random.default_rng(0)
    batch = {"x": rng.normal(size=(dim, 50)), "y": rng.normal(size=(2, 50))}
    batch = {name: jnp.asarray(rows, jnp.float32) for name, rows in batch.items()}
    objective = FlowObjective(restore, backward=1.0)

    def run():
        loss = jax.jit(lambda w: objective(w, batch, jax.random.key(1), Moment(0, 1e-3)))
        return jax.value_and_grad(loss)(jnp.asarray(vector, jnp.float32))

    found = run()
    monkeypatch.setattr(Flow, "accelerated", lambda flow: flow)
    expected = run()
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-5)
    np.testing.assert_allclose(found[1], expected[1], atol=1e-4 * float(jnp.max(jnp.abs(expected[1]))))


@pytest.mark.parametrize("name", ["twice", "leaky_relu"])
def test_primitives_of_users_are_left_to_xla(name):
    register_primitive(name, lambda g: 2 * g)
    try:
        coupling, _, _ = drawn(Shape(architecture=Architecture(1, 1, library={name: 2})))
        assert accelerate(coupling) is coupling
    finally:
        del PRIMITIVES[name]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="names processors of another kind")
@pytest.mark.parametrize("processor", ["haswell", "x86-64"])
def test_narrower_registers_give_the_same(processor, tmp_path, monkeypatch):
    monkeypatch.setenv("ISR_CACHE", str(tmp_path))
    options = [f"-march={processor}" if o == "-march=native" else o for o in library.OPTIONS]
    monkeypatch.setattr(library, "OPTIONS", tuple(options))
    tag = library._library.__wrapped__().tag
    coupling, x, condition = drawn(CASES["two tiles and a part"])
    form = accelerate(coupling)
    assert tag not in ("", form.kernel.tag)
    narrow = replace(form, kernel=form.kernel._replace(tag=tag))
    for one, other in zip(
        value_and_gradients(form, x, condition, "forward", jnp.float32),
        value_and_gradients(narrow, x, condition, "forward", jnp.float32),
        strict=True,
    ):
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=1e-4 * np.max(np.abs(other)))


@pytest.mark.parametrize("kind", [k for k in UNITS if k != "leaky_relu"])
def test_a_condition_that_is_not_a_number_shows(kind):
    library = {"constant": 1, "id": 1, kind: 2}
    coupling, x, condition = drawn(Shape(n=3, architecture=Architecture(1, 1, library=library)))
    condition[0, 1] = np.nan
    form = cast(accelerate(coupling), jnp.float32)
    z, _ = form.forward_columns(jnp.asarray(x, jnp.float32), jnp.asarray(condition, jnp.float32))
    np.testing.assert_array_equal(np.isfinite(z).all(axis=0), [True, False, True])


def test_arrays_that_do_not_fit_are_refused():
    coupling, x, condition = drawn(CASES["paper"])
    form = cast(accelerate(coupling), jnp.float32)
    x, condition = (jnp.asarray(a, jnp.float32) for a in (x, condition))
    for wrong in (None, condition[:1], condition[:, :7], condition.astype(jnp.float64)):
        with pytest.raises(TypeError, match="a coupling of 4 variables given 2 takes as many rows"):
            form.forward_columns(x, wrong)
    with pytest.raises(TypeError, match=r"got float32\[3, 100\] and"):
        form.inverse_columns(x[:3], condition)
    short = replace(form, weights=form.weights[:-1])
    with pytest.raises(jax.errors.JaxRuntimeError, match="other sizes or types than its plan says"):
        jax.block_until_ready(short.forward_columns(x, condition))


def test_a_built_in_primitive_that_the_c_code_lacks_is_trained_by_xla(monkeypatch):
    bump = primitives.Primitive("bump", 1, lambda g: jnp.exp(-g * g), lambda g: sympy.exp(-(g**2)))
    monkeypatch.setattr(primitives, "_BUILT_IN", (*primitives._BUILT_IN, bump))
    monkeypatch.setitem(PRIMITIVES, "bump", bump)
    coupling, _, _ = drawn(Shape(architecture=Architecture(1, 1, library={"bump": 2})))
    assert accelerate(coupling) is coupling
    x = np.random.default_rng(0).normal(size=(100, 2))
    training = Training(Effort(20, 0, 0), penalty=None, n_restarts=1, verbose=False)
    model = SymbolicFlow(
        charts=(),
        n_layers=1, library={"constant": 1, "bump": 1}, training=training, random_state=0
    ).fit(x)  # fmt: skip
    assert np.isfinite(model.score_samples(x)).all()


def test_wide_networks_are_left_to_xla():
    coupling, _, _ = drawn(Shape(architecture=Architecture(1, 1, subnet="mlp", width=200)))
    assert accelerate(coupling) is coupling


@pytest.mark.parametrize("n_condition", [0, 1])
def test_the_padding_of_one_variable_is_summed_out_the_same(n_condition):
    flow = build_flow(jax.random.key(0), 1, condition_dim=n_condition, architecture=SMALL)
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(20, 1)), rng.normal(size=(20, 1)) if n_condition else None
    found = flow.log_prob(x, y, precision="single")
    np.testing.assert_allclose(found, flow.log_prob(x, y), rtol=1e-4, atol=1e-4)

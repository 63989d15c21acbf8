"""The equations are the model: the same numbers in both directions, log-determinants included."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import sympy
from numpy.testing import assert_allclose

from equations.expression_models import MODELS, make, rows_for, sparse
from isr.bijections.bijection import AbstractBijection
from isr.bijections.build import Architecture, build_flow
from isr.bijections.flow import Flow
from isr.equations import extract


def values(method, rows, y):
    """Run a model without compiling it: every model is run once only, and compiling takes longer."""
    with jax.disable_jit():
        return method(rows, y)


# tests/bijections/test_primitives.py reads every primitive by itself; three of them in a model are enough here.
PRIMITIVE = [name for name in MODELS if name.startswith("primitive ")]
DEAR = ("linear", "three layers", "dense skip", "sparse leaky ReLU", *PRIMITIVE[3:])


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) if n in DEAR else n for n in MODELS]
)
def test_the_equations_equal_the_model_in_both_directions(name):
    flow = make(name)
    x, y = rows_for(flow)
    expressions = extract(flow)
    latent, log_det = values(flow.forward, x, y)
    found, found_log_det = expressions.evaluate("forward", x, y)
    assert_allclose(found, latent, rtol=1e-9, atol=1e-9)
    assert_allclose(found_log_det, log_det, rtol=1e-9, atol=1e-9)
    far = np.random.default_rng(1).normal(scale=3.0, size=latent.shape)
    for z in (latent, far):
        back, back_log_det = values(flow.inverse, z, y)
        found, found_log_det = expressions.evaluate("inverse", z, y)
        assert_allclose(found, back, rtol=1e-9, atol=1e-9)
        assert_allclose(found_log_det, back_log_det, rtol=1e-9, atol=1e-9)


def test_the_padded_forward_reads_its_padding():
    flow = make("padded")
    expressions = extract(flow)
    assert len(expressions.forward.inputs) == 1
    assert len(expressions.forward_padded.inputs) == 2
    from isr.equations.expressions import evaluate

    rows, y = np.random.default_rng(0).normal(size=(50, 2)), np.zeros((1, 1))
    found, log_det = evaluate(expressions.forward_padded, rows, y)
    condition = flow.condition_map(jnp.zeros(1))
    expected = jax.vmap(lambda r: flow.bijection.forward_and_log_det(r, condition))(jnp.asarray(rows))
    assert_allclose(found, expected[0], rtol=1e-9, atol=1e-9)
    assert_allclose(log_det, expected[1], rtol=1e-9, atol=1e-9)


def test_a_sample_of_a_bounded_model_stays_inside_its_bounds():
    expressions = extract(make("bounded"))
    z = np.random.default_rng(0).normal(scale=50.0, size=(1000, 4))
    x, _ = expressions.evaluate("inverse", z)
    assert np.all((x[:, 0] >= 0) & (x[:, 0] <= 1) & (x[:, 1] <= 5) & (x[:, 2] >= 2))
    assert expressions.inverse.bounds == ((0.0, 1.0), (None, 5.0), (2.0, None), (None, None))


def test_what_has_no_weight_is_not_written():
    expressions = extract(make("identity"))
    assert expressions.forward.assignments == ()
    assert set(expressions.forward.outputs) == set(expressions.forward.inputs)
    assert expressions.log_det == 0


def test_every_equation_is_read_and_reads_only_what_stands_before_it():
    for name in ("sparse", "conditional", "bounded", "leaky ReLU"):
        expressions = extract(make(name))
        for program in (expressions.forward, expressions.inverse):
            known = {*program.inputs, *program.conditions}
            for assignment in program.assignments:
                assert assignment.value.free_symbols <= known
                assert assignment.target not in known
                assert not assignment.value.is_Symbol
                known.add(assignment.target)
            read = set().union(*(e.free_symbols for e in program.expressions))
            assert {a.target for a in program.assignments} <= read


def test_blocks_carry_the_names_of_the_paper():
    expressions = extract(build_flow(jax.random.key(0), 2, architecture=Architecture(n_blocks=1)))
    roles = [a.role for a in expressions.forward.assignments if a.role in ("s1", "t1", "v1", "s2", "t2")]
    assert roles == ["s1", "t1", "v1", "s2", "t2"]
    names = {a.target.name for a in expressions.forward.assignments}
    assert {"s1", "t1", "v1", "s2", "t2"} <= names
    two = extract(build_flow(jax.random.key(0), 4, architecture=Architecture(n_blocks=2)))
    assert {"b1_s1_1", "b2_s1_2", "b1_t2_1"} <= {a.target.name for a in two.forward.assignments}
    assert [b.number for b in two.blocks] == [1, 2]
    assert len(two.blocks[0].s1) == 2


def test_a_dense_model_grows_with_its_weights_and_not_with_their_products():
    small = extract(build_flow(jax.random.key(0), 4, architecture=Architecture(n_blocks=1, n_layers=3)))
    large = extract(build_flow(jax.random.key(0), 4, architecture=Architecture(n_blocks=3, n_layers=3)))
    assert large.forward.n_operations < 3.5 * small.forward.n_operations


def test_the_clamp_is_written_with_the_exact_constant():
    flow = sparse(build_flow(jax.random.key(0), 2, architecture=Architecture(n_blocks=1, n_layers=1)), 0.6)
    assert any(e.has(sympy.pi) and e.has(sympy.atan) for e in extract(flow).forward.expressions)


def test_weights_that_are_not_finite_have_no_equations():
    from isr.bijections.parameters import flatten

    vector, restore = flatten(build_flow(jax.random.key(0), 2))
    with pytest.raises(ValueError, match="not finite"):
        extract(restore(vector.at[3].set(jnp.nan)))


class Stretched(AbstractBijection):
    """A bijection of a user's own, known to nothing but JAX."""

    dim: int = 2

    def forward_and_log_det(self, x, condition=None):
        return jnp.sinh(x) + 2 * x, jnp.sum(jnp.log(jnp.cosh(x) + 2))

    def inverse_and_log_det(self, z, condition=None):
        return z, jnp.zeros(())


def test_a_bijection_of_ones_own_is_read_from_its_program():
    expressions = extract(Flow(Stretched()))
    x = np.random.default_rng(0).normal(size=(20, 2))
    found, log_det = expressions.evaluate("forward", x)
    assert_allclose(found, np.sinh(x) + 2 * x, rtol=1e-12)
    assert_allclose(log_det, np.log(np.cosh(x) + 2).sum(axis=1), rtol=1e-12)


@jax.jit
def arctan(x):
    """No arctangent, whatever it is called."""
    return x / (1 + x * x)


def test_a_function_of_a_user_is_read_whatever_it_is_called():
    class Misleading(AbstractBijection):
        dim: int = 2

        def forward_and_log_det(self, x, condition=None):
            return arctan(x), jnp.zeros(())

        def inverse_and_log_det(self, z, condition=None):
            return z, jnp.zeros(())

    (first, _) = extract(Flow(Misleading())).forward.outputs
    u = next(iter(first.free_symbols))
    assert not first.has(sympy.atan)
    assert_allclose(float(first.subs(u, 2.0)), 0.4, rtol=1e-12)


def test_a_step_without_a_form_is_named():
    class Sorted(AbstractBijection):
        dim: int = 2

        def forward_and_log_det(self, x, condition=None):
            return jnp.sort(x), jnp.zeros(())

        def inverse_and_log_det(self, z, condition=None):
            return z, jnp.zeros(())

    with pytest.raises(
        TypeError, match="the program uses 'sort' on its inputs, which has no form as an equation"
    ):
        extract(Flow(Sorted()))


def test_evaluation_refuses_rows_that_do_not_fit():
    expressions = extract(make("conditional"))
    with pytest.raises(ValueError, match="the input must have 4 columns"):
        expressions.evaluate("forward", np.zeros((3, 2)), np.zeros((3, 2)))
    with pytest.raises(ValueError, match="give y with 2 columns"):
        expressions.evaluate("forward", np.zeros((3, 4)))
    with pytest.raises(ValueError, match="one row or as many as the input"):
        expressions.evaluate("forward", np.zeros((3, 4)), np.zeros((2, 2)))
    with pytest.raises(ValueError, match="direction must be one of forward, inverse"):
        expressions.evaluate("sideways", np.zeros((3, 4)))

"""A primitive means the same number as its equation, and a library is checked."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import sympy
from numpy.testing import assert_allclose

from isr.bijections.networks import build_eql, build_mlp, n_rows, n_units, unit_values
from isr.bijections.primitives import PAPER_LIBRARY, PRIMITIVES, lookup, parse_library, register_primitive
from isr.equations.extract import function_program
from isr.equations.functions import sigmoid, written_out


@pytest.fixture
def _registry_restored():
    before = dict(PRIMITIVES)
    yield
    PRIMITIVES.clear()
    PRIMITIVES.update(before)


SYMPY = {
    "id": lambda g: g, "square": lambda g: g**2, "cube": lambda g: g**3,
    "sin2pi": lambda g: sympy.sin(2 * sympy.pi * g),
    "sin": sympy.sin, "cos": sympy.cos, "exp": sympy.exp, "log": sympy.log, "sqrt": sympy.sqrt,
    "reciprocal": lambda g: 1 / g, "sigmoid": lambda g: 1 / (1 + sympy.exp(-g)), "tanh": sympy.tanh,
    "product": lambda a, b: a * b,
}  # fmt: skip


@pytest.mark.parametrize("name", SYMPY)
def test_a_primitive_and_its_equation_mean_the_function_inside_and_outside_the_domain(name):
    primitive = lookup(name)
    points = np.concatenate([np.linspace(-20, 20, 11), [-1e-6, 1e-6, 0.01, 15.0, 0.0099, 15.1]])
    arguments = [points, points[::-1]][: primitive.arity]
    low, high = (None if end is None else sympy.Float(end) for end in primitive.domain)
    symbols = sympy.symbols(f"u:{primitive.arity}", real=True)
    (equation,) = function_program(lambda x: primitive.apply(*x), symbols, sympy.symbols("v:1"), {}).outputs
    for i, point in enumerate(zip(*arguments, strict=True)):
        held = [p if low is None else max(p, low) for p in map(sympy.Float, point)]
        expected = float(SYMPY[name](*(p if high is None else min(p, high) for p in held)).evalf(30))
        found = primitive.apply(*(jnp.asarray(a[i]) for a in arguments))
        assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
        written = float(equation.evalf(30, subs=dict(zip(symbols, point, strict=True))))
        assert_allclose(written, expected, rtol=1e-12, atol=1e-12)


def test_the_constant_is_one():
    assert_allclose(lookup("constant").apply(jnp.array([3.0])), [1.0])


@pytest.mark.parametrize("name", PRIMITIVES)
def test_every_primitive_costs_something(name):
    assert PRIMITIVES[name].cost >= 1


def test_the_sigmoid_is_one_function_with_its_derivative_and_its_printed_form():
    u = sympy.Symbol("u", real=True)
    slope = sympy.diff(sigmoid(2 * u), u)
    for point in (-40.0, -1.3, 0.0, 2.7, 40.0):
        exact = sympy.Float(point, 30)
        written = 1 / (1 + sympy.exp(-2 * exact))
        assert_allclose(float(slope.subs(u, exact)), float(2 * written * (1 - written)), rtol=1e-12)
        form = written_out(sigmoid(2 * u))
        assert not form.has(sigmoid)
        assert_allclose(float(form.subs(u, exact)), float(written), rtol=1e-12, atol=1e-15)


def test_a_written_out_sigmoid_keeps_its_exponent_in_one_piece():
    u, v = sympy.symbols("u v", real=True)
    assert str(written_out(v / sigmoid(0.5 * u + 800.0))) == "v*(exp(-0.5*u - 800.0) + 1)"
    assert written_out(v + 1) == v + 1


@pytest.mark.usefixtures("_registry_restored")
def test_a_primitive_of_ones_own_joins_a_network():
    register_primitive("bump", lambda g: jnp.exp(-g * g))
    register_primitive("ratio", lambda a, b: a / (1 + b * b), arity=2)
    network = build_eql(jax.random.key(0), 2, 1, library=["bump", "ratio", "constant"])
    assert np.isfinite(network(jnp.array([0.3, 0.4]))).all()


@pytest.mark.usefixtures("_registry_restored")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "Bump"}, "must be a lower-case identifier, got 'Bump'"),
        ({"name": "sin"}, "called 'sin' exists already"),
        ({"arity": 3}, "takes 1 or 2 arguments, got arity=3"),
        ({"cost": 0}, "cost of a primitive is a whole number from 1 up, got 0"),
        ({"cost": 1.5}, "whole number from 1 up, got 1.5"),
        ({"domain": (3.0, 1.0)}, r"low < high, got \(3.0, 1.0\)"),
        ({"domain": (float("nan"), 1.0)}, "low < high, got"),
        ({"array": lambda g: jnp.sum(g)}, "must be elementwise"),
        ({"array": lambda g: 1 / jnp.zeros_like(g)}, "is not finite at"),
    ],
)
def test_a_registration_that_is_wrong_is_refused_with_a_reason(arguments, message):
    given = {"name": "own", "array": lambda g: g, **arguments}
    with pytest.raises(ValueError, match=message):
        register_primitive(**given)
    assert "own" not in PRIMITIVES


def test_an_unknown_primitive_is_refused_with_the_known_ones():
    with pytest.raises(
        ValueError, match=r"unknown primitive 'sine'; known primitives: constant, cos, .*register_primitive"
    ):
        lookup("sine")


@pytest.mark.parametrize(
    ("library", "error", "message"),
    [
        ("sin", TypeError, "got the string 'sin'"),
        ({"sin": -1}, ValueError, "multiplicity of 'sin' must be a whole number"),
        ({"sin": 1.5}, ValueError, "got 1.5"),
        ({"sin": True}, ValueError, "got True"),
        (["constant"], ValueError, "holds no function"),
        ({"sin": 0}, ValueError, "holds no function"),
        (["sine"], ValueError, "unknown primitive 'sine'"),
    ],
)
def test_a_library_that_is_wrong_is_refused_with_a_reason(library, error, message):
    with pytest.raises(error, match=message):
        parse_library(library)


def test_a_library_is_the_same_whatever_the_order_it_is_written_in():
    assert parse_library(["sin", "id", "sin"]) == parse_library({"id": 1, "sin": 2})


def test_the_paper_library_makes_a_layer_of_eight_units_with_nine_arguments():
    library = parse_library(PAPER_LIBRARY)
    assert (n_rows(library), n_units(library)) == (9, 8)
    g = jnp.arange(9.0)
    sigmoid = 1 / (1 + np.exp(-6.0))
    expected = [0, 1, 4, 9, 16, np.sin(2 * np.pi * 5), sigmoid, 7 * 8]
    assert_allclose(jnp.concatenate(unit_values(library, g, axis=-1), axis=-1), expected, atol=1e-12)


@pytest.mark.parametrize("skip", [False, True])
def test_stacked_networks_are_networks_of_their_own(skip):
    network = build_eql(jax.random.key(0), 3, 2, stack=2, skip=skip)
    x = jnp.array([0.1, -0.2, 0.3])
    for member in range(2):
        alone = jax.tree.map(lambda leaf, member=member: leaf[member : member + 1], network)
        assert_allclose(alone(x)[0], network(x)[member], rtol=1e-12)


def test_a_network_without_hidden_layer_is_refused():
    with pytest.raises(ValueError, match="at least one hidden layer"):
        build_eql(jax.random.key(0), 2, 1, n_layers=0)
    with pytest.raises(ValueError, match="a hidden layer needs a unit"):
        build_mlp(jax.random.key(0), 2, 1, width=0)


def test_a_leaky_relu_network_without_hidden_layer_is_a_linear_map():
    network = build_mlp(jax.random.key(0), 3, 2, n_layers=0)
    a, b = jnp.array([0.1, -0.2, 0.3]), jnp.array([1.0, 2.0, -3.0])
    assert_allclose(network(a + 2 * b), network(a) + 2 * network(b), rtol=1e-12)


@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize("n_layers", [1, 3])
def test_many_columns_at_once_are_each_on_its_own(skip, n_layers):
    network = build_eql(jax.random.key(0), 3, 2, n_layers=n_layers, stack=2, skip=skip)
    x = jnp.asarray(np.random.default_rng(0).normal(size=(3, 7)))
    assert_allclose(network.columns(x), jax.vmap(network, in_axes=-1, out_axes=-1)(x), rtol=1e-12)


@pytest.mark.parametrize("n_layers", [0, 1, 3])
def test_many_columns_of_a_leaky_relu_network_are_each_on_its_own(n_layers):
    network = build_mlp(jax.random.key(0), 3, 2, n_layers=n_layers, stack=2)
    x = jnp.asarray(np.random.default_rng(0).normal(size=(3, 7)))
    assert_allclose(network.columns(x), jax.vmap(network, in_axes=-1, out_axes=-1)(x), rtol=1e-12, atol=1e-12)

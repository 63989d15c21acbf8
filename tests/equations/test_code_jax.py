"""The equations as JAX functions and as JAX source: the model's numbers, gradients and batches."""

import importlib.util
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from equations.expression_models import conditional, make, sparse
from isr.bijections.build import Architecture, build_flow
from isr.equations import extract
from isr.equations.code import generate

FLOWS = {
    "conditional": lambda: sparse(conditional(jax.random.key(0), n_blocks=1), 0.3),
    "joint": lambda: sparse(make("joint"), 0.3),
    "bounded": lambda: sparse(make("bounded"), 0.2),
    "one variable": lambda: sparse(make("padded"), 0.1),
}


def drawn(flow, noise, y):
    return flow.draw_columns(noise[:, None], y)[:, 0]


@pytest.fixture(scope="module", params=FLOWS)
def case(request):
    """A flow's equations, what goes in, and what the flow itself gives for it, by name of the function."""
    flow = FLOWS[request.param]()
    rng = np.random.default_rng(0)
    z = jnp.asarray(rng.normal(size=(20, flow.bijection.dim)))
    y = jnp.asarray(rng.normal(size=flow.condition_dim)) if flow.condition_dim else None
    with jax.disable_jit():
        x = jax.vmap(lambda row: drawn(flow, row, y))(z)
        expected = {
            "forward": jax.vmap(lambda row: flow.forward_one(row, y))(x),
            "inverse": jax.vmap(lambda row: flow.inverse_one(row, y))(z),
            "log_prob": flow.log_prob_columns(x.T, y),
            "draw": x,
        }
    outputs = {name: e[0] if isinstance(e, tuple) else e for name, e in expected.items()}
    return extract(flow), {"inverse": z, "draw": z}, x, y, outputs | {"log_det": expected["forward"][1]}


def compare(functions, rows, x, y, expected):
    with jax.disable_jit():
        for name, numbers in expected.items():
            function = getattr(functions, name)
            found = jax.vmap(lambda row, f=function: f(row, y))(rows.get(name, x))
            assert_allclose(found, numbers, rtol=1e-9, atol=1e-9)


def test_functions_give_the_models_numbers(case):
    expressions, *numbers = case
    compare(expressions.to_jax(), *numbers)


def test_source_gives_the_models_numbers(case, tmp_path):
    expressions, rows, x, y, expected = case
    (tmp_path / "model.py").write_text(generate(expressions, "jax"))
    spec = importlib.util.spec_from_file_location("generated_model", tmp_path / "model.py")
    model = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(model)
    compare(model, rows, x, y, {name: expected[name] for name in ("forward", "inverse")})
    assert model.sample(jax.random.key(0), 5, y).shape == (5, x.shape[1])


def test_functions_compile_differentiate_and_batch():
    flow = build_flow(jax.random.key(0), 2, noise=(0.1,), architecture=Architecture(n_blocks=1, n_layers=1))
    functions = extract(flow).to_jax()
    y = jnp.array([0.5])
    x = functions.sample(jax.random.key(0), 6, y)
    slope, expected = (
        jax.jit(jax.vmap(jax.grad(log_prob), in_axes=(0, None)))(x, y)
        for log_prob in (functions.log_prob, lambda row, y: flow.log_prob_columns(row[:, None], y)[0])
    )
    assert_allclose(slope, expected, rtol=1e-9, atol=1e-9)
    jacobian = jax.jit(jax.jacobian(lambda row: functions.forward(row)))(x[0])
    assert_allclose(functions.log_det(x[0]), jnp.linalg.slogdet(jacobian)[1], atol=1e-10)


def test_sums_over_the_same_variables_become_one_product():
    # Weights stand in matrices: term by term XLA would compile for minutes.
    source = generate(extract(make("three layers")), "jax")
    matrices = re.findall(r"isr_product\(\[\n(.*?)\n    \], \[", source, re.DOTALL)
    assert max(matrix.count("\n") for matrix in matrices) >= 8
    assert max(line.count("*") for line in source.splitlines()) < 10


def test_a_missing_observation_is_named():
    functions = extract(sparse(make("joint"), 0.1)).to_jax()
    with pytest.raises(ValueError, match="y is missing"):
        functions.log_prob(jnp.zeros(4))

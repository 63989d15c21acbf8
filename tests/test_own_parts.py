"""A primitive and a transformer of a user's own: trained, printed, exported, saved, loaded, run backwards.

CONTRIBUTING.md has the same steps as recipes.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

import isr
from equations.code_runs import RUNNERS, Inputs
from isr.bijections.build import Architecture
from isr.bijections.coupling import TRANSFORMERS, AbstractTransformer
from isr.bijections.primitives import PRIMITIVES
from isr.storage import ModelFileError


class SinhArcsinhCoupling(AbstractTransformer):
    """Maps ``u`` to ``sinh(exp(d) * asinh(u)) * exp(s) + t``: d bends the tails."""

    names = ("s", "t", "d")

    def constrained(self, *raw):
        s, t, d = raw
        return 2 * jnp.tanh(s / 2), t, 0.5 * jnp.tanh(d)

    def forward(self, u, *parameters):
        s, t, d = parameters
        w = jnp.exp(d) * jnp.arcsinh(u)
        return jnp.sinh(w) * jnp.exp(s) + t, s + d + jnp.log(jnp.cosh(w)) - 0.5 * jnp.log(1 + u * u)

    def inverse(self, v, *parameters):
        s, t, d = parameters
        q = (v - t) * jnp.exp(-s)
        w = jnp.exp(-d) * jnp.arcsinh(q)
        return jnp.sinh(w), -s - d + jnp.log(jnp.cosh(w)) - 0.5 * jnp.log(1 + q * q)


@pytest.fixture
def own_parts():
    isr.register_primitive("softplus", jax.nn.softplus)
    isr.register_transformer(SinhArcsinhCoupling)
    yield
    del PRIMITIVES["softplus"], TRANSFORMERS["SinhArcsinhCoupling"]


@pytest.fixture
def model(own_parts):
    rng = np.random.default_rng(0)
    x = rng.standard_t(5, size=(800, 2))
    x[:, 1] += np.log1p(np.exp(2 * x[:, 0]))
    return isr.SymbolicFlow(
        library={"constant": 1, "id": 1, "softplus": 1},
        transformer=SinhArcsinhCoupling(),
        training=isr.Training("quick", n_restarts=2),
        random_state=0,
    ).fit(x), x


def test_own_parts_are_trained_printed_exported_saved_loaded_and_inverted(model, tmp_path):
    model, x = model
    z = model.transform(x)
    assert_allclose(model.inverse_transform(z), x, rtol=1e-9, atol=1e-9)
    equations = model.expressions_
    latent, _ = equations.evaluate("forward", x)
    assert_allclose(latent, z, rtol=1e-9, atol=1e-9)
    assert_allclose(equations.evaluate("inverse", z)[0], x, rtol=1e-8, atol=1e-8)
    assert "sinh" in equations.text()
    assert "sinh" in equations.latex("inverse")
    density = model.score_samples(x[:20])
    for language in ("c", "javascript", "python"):
        inputs = Inputs(x[:20], z[:20], np.zeros((20, 0)))
        found = RUNNERS[language](equations.code(language), inputs, tmp_path)
        assert_allclose(found.inverse, x[:20], rtol=1e-8, atol=1e-8)
        assert_allclose(found.log_prob, density, rtol=1e-9, atol=1e-9)
    model.save(tmp_path / "own.isr")
    loaded = isr.load(tmp_path / "own.isr")
    assert_allclose(loaded.score_samples(x[:20]), density, rtol=1e-12)
    assert loaded.sample(5).shape == (5, 2)


@pytest.mark.usefixtures("own_parts")
def test_a_file_with_an_unknown_transformer_says_what_to_register(tmp_path):
    flow = isr.build_flow(jax.random.key(0), 2, architecture=Architecture(transformer=SinhArcsinhCoupling()))
    isr.save(flow, tmp_path / "own.isr")
    cls = TRANSFORMERS.pop("SinhArcsinhCoupling")
    try:
        with pytest.raises(ModelFileError, match=r"call isr\.register_transformer before loading"):
            isr.load(tmp_path / "own.isr")
    finally:
        TRANSFORMERS["SinhArcsinhCoupling"] = cls

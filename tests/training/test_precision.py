"""Training runs in single precision throughout: strict promotion would refuse a double on the way."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from isr.bijections.build import Architecture, build_flow
from isr.bijections.parameters import flatten
from isr.training.loop import Moment
from isr.training.losses import FlowObjective

FORMS = {"flow": {}, "conditional": {"condition_dim": 2}, "joint": {"noise": (0.1,)}}
SHAPES = {
    "eql": {},
    "mlp": {"subnet": "mlp"},
    "charts": {"charts": ("polar", "split", "sinh_arcsinh"), "mixing": "linear"},
    "features": {"n_features": 3},
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "shape", [pytest.param(s, marks=pytest.mark.slow) if s == "charts" else s for s in SHAPES]
)
def test_the_gradient_of_every_flow_is_single_and_finite(form, shape):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(500, 3)) + rng.choice([-4.0, 4.0], 500)[:, None] * np.array([1.0, 0, 0])
    flow = build_flow(
        jax.random.key(0), 3, architecture=Architecture(n_blocks=1, **SHAPES[shape]), rows=rows, **FORMS[form]
    )
    weights, restore = flatten(flow)
    batch = {"x": jnp.asarray(rows[:8].T, jnp.float32)}
    if flow.condition_dim:
        batch["y"] = jnp.asarray(rng.normal(size=(flow.condition_dim, 8)), jnp.float32)
    objective = FlowObjective(restore, backward=0.1)
    gradient = jax.jit(jax.grad(objective))(
        weights.astype(jnp.float32), batch, jax.random.key(1), Moment(0, 0.0)
    )
    assert gradient.dtype == jnp.float32
    assert jnp.all(jnp.isfinite(gradient))

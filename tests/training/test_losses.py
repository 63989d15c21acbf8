"""The noise a loss adds to y: wide while steps are long, the observation's own where a model is judged."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from isr.model.build import Architecture, build_flow
from isr.model.parameters import flatten
from isr.training.loop import Moment
from isr.training.losses import WIDE, make_objective, widened

JITTER = (0.01, 0.3)


def test_noise_narrows_to_that_of_the_observation():
    assert widened(JITTER, 0.0).ravel() == pytest.approx(JITTER)
    spread = np.array([widened(JITTER, share).ravel() for share in np.linspace(0, 1, 5)])
    assert np.all(np.diff(spread, axis=0) > 0)
    assert spread[-1] ** 2 == pytest.approx(np.square(JITTER) + WIDE**2, rel=1e-5)


@pytest.mark.parametrize(
    ("form", "is_widened"),
    [({"noise": (1.0, 1.0)}, True), ({"condition_dim": 2}, False)],
    ids=["ISR", "cISR"],
)
def test_only_an_output_is_widened_and_only_in_training(form, is_widened):
    flow = build_flow(jax.random.key(0), 3, architecture=Architecture(n_blocks=1, n_layers=1), **form)
    weights, restore = flatten(flow)
    rng = np.random.default_rng(0)
    batch = {"x": jnp.asarray(rng.normal(size=(3, 64)), jnp.float32), "y": jnp.zeros((2, 64), jnp.float32)}

    def loss(rate: float, highest_rate: float) -> float:
        objective = jax.jit(make_objective(restore, jitter=JITTER, highest_rate=highest_rate))
        return float(objective(weights.astype(jnp.float32), batch, jax.random.key(1), Moment(0, rate)))

    plain = loss(0.0, np.inf)
    assert loss(0.0, 1e-3) == plain
    assert (loss(1e-3, 1e-3) != plain) == is_widened

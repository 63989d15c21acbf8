"""The noise a loss adds to y: wide while steps are long, the observation's own where a model is judged."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from isr.bijections.build import Architecture, build_flow
from isr.bijections.parameters import flatten
from isr.training.loop import Moment, Noise, make_epoch
from isr.training.losses import WIDE, FlowObjective, widened
from isr.training.penalties import SmoothHalfNorm

JITTER = np.array([0.01, 0.3])


def test_noise_narrows_to_that_of_the_observation():
    noise = Noise(JITTER, 0.01)
    assert widened(noise, 0.0).ravel() == pytest.approx(JITTER)
    spread = np.array([widened(noise, rate).ravel() for rate in np.linspace(0, 0.01, 5)])
    assert np.all(np.diff(spread, axis=0) > 0)
    assert spread[-1] ** 2 == pytest.approx(np.square(JITTER) + WIDE**2, rel=1e-5)


@pytest.mark.parametrize("form", [{"noise": (1.0, 1.0)}, {"condition_dim": 2}], ids=["ISR", "cISR"])
def test_noise_is_widened_only_in_training(form):
    flow = build_flow(jax.random.key(0), 3, architecture=Architecture(n_blocks=1, n_layers=1), **form)
    weights, restore = flatten(flow)
    rng = np.random.default_rng(0)
    batch = {"x": jnp.asarray(rng.normal(size=(3, 64)), jnp.float32), "y": jnp.zeros((2, 64), jnp.float32)}

    def loss(rate: float, highest_rate: float) -> float:
        moment = Moment(0, rate, Noise(JITTER, highest_rate))
        return float(FlowObjective(restore)(weights.astype(jnp.float32), batch, jax.random.key(1), moment))

    plain = loss(0.0, np.inf)
    assert loss(0.0, 1e-3) == plain
    assert loss(1e-3, 1e-3) != plain


def test_fits_of_one_structure_share_what_is_compiled():
    def epoch(seed: int, n_layers: int = 1, backward: float = 1.0):
        flow = build_flow(
            jax.random.key(seed), 2, architecture=Architecture(n_blocks=1, n_layers=n_layers, mixing="linear")
        )
        return make_epoch(FlowObjective(flatten(flow)[1], backward), SmoothHalfNorm())

    assert epoch(0) is epoch(1)
    assert epoch(0) is not epoch(0, n_layers=2)
    assert epoch(0) is not epoch(0, backward=0.5)

"""Held-out losses: each member's own, whatever the size of the population."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from isr.training.loop import make_evaluate


def mean_square(weights, batch, key, moment):
    return jnp.mean(jnp.square(weights @ batch["x"]))


@pytest.mark.parametrize("n_members", [1, 8, 17])
def test_members_have_the_losses_they_have_alone(n_members):
    rng = np.random.default_rng(0)
    raw, x = rng.normal(size=(n_members, 5)).astype(np.float32), rng.normal(size=(5, 40)).astype(np.float32)
    raw[-1] = np.nan
    masks = (rng.random(raw.shape) < 0.7).astype(np.float32)
    found = make_evaluate(mean_square)(raw, masks, {"x": jnp.asarray(x)}, jax.random.key(0))
    np.testing.assert_allclose(found, np.mean(((raw * masks) @ x) ** 2, axis=1), rtol=1e-5)

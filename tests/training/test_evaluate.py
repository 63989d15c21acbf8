"""Held-out losses: each member's own, whatever the size of the population and of the groups it is taken in."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from isr.training.loop import EVALUATED_TOGETHER, MOST_ROWS_TOGETHER, evaluated_together, make_evaluate


def mean_square(weights, batch, key, moment):
    return jnp.mean(jnp.square(weights @ batch["x"]))


@pytest.mark.parametrize("n_members", [1, 3, 8, 17])
@pytest.mark.parametrize("size", [1, 8])
def test_members_have_the_losses_they_have_alone(n_members, size):
    rng = np.random.default_rng(0)
    raw, x = rng.normal(size=(n_members, 5)).astype(np.float32), rng.normal(size=(5, 40)).astype(np.float32)
    raw[-1] = np.nan
    masks = (rng.random(raw.shape) < 0.7).astype(np.float32)
    evaluate = make_evaluate(mean_square)
    found = evaluate(raw, masks, {"x": jnp.asarray(x)}, jax.random.key(0), size=size)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, np.mean(((raw * masks) @ x) ** 2, axis=1), rtol=1e-5)


def test_one_member_or_many_rows_are_evaluated_one_by_one():
    assert evaluated_together(1, 100) == evaluated_together(5, MOST_ROWS_TOGETHER + 1) == 1
    assert evaluated_together(2, MOST_ROWS_TOGETHER) == EVALUATED_TOGETHER

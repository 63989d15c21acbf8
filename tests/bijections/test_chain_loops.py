"""A chain that runs alike blocks in a loop gives what the blocks give one by one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from isr.bijections import bijection
from isr.bijections.affine import Linear
from isr.bijections.bijection import Chain, repeats
from isr.bijections.build import Architecture, build_flow
from isr.bijections.parameters import flatten


def _flow(mixing="linear", n_blocks=4, condition_dim=2):
    shape = Architecture(
        n_blocks=n_blocks, n_layers=1, mixing=mixing, library={"id": 1, "sin": 1, "product": 1}
    )
    return build_flow(jax.random.key(3), 4, condition_dim=condition_dim, architecture=shape)


@pytest.fixture
def columns():
    rng = np.random.default_rng(0)
    return jnp.asarray(rng.normal(size=(4, 7))), jnp.asarray(rng.normal(size=(2, 7)))


CASES = [
    pytest.param("forward_columns", True, marks=pytest.mark.slow),
    pytest.param("inverse_columns", False, marks=pytest.mark.slow),
    pytest.param("log_prob_columns", False, marks=pytest.mark.slow),
    ("draw_columns", False),
]


@pytest.mark.parametrize(("method", "one_condition"), CASES)
def test_loops_change_no_value_and_no_gradient(method, one_condition, columns, monkeypatch):
    x, y = columns
    flow, given = _flow(), y[:, 0] if one_condition else y
    vector, restore = flatten(flow)

    def total(weights):
        return sum(
            jnp.sum(jnp.sin(part)) for part in jax.tree.leaves(getattr(restore(weights), method)(x, given))
        )

    looped = jax.jit(jax.value_and_grad(total))(vector)
    monkeypatch.setattr(bijection, "LEAST_REPEATS", 100)
    unrolled = jax.jit(jax.value_and_grad(lambda weights: total(weights)))(vector)
    assert_allclose(looped[0], unrolled[0], rtol=1e-5)
    assert_allclose(looped[1], unrolled[1], rtol=1e-4, atol=1e-5)


def test_blocks_with_learned_mixing_repeat_and_fixed_permutations_do_not():
    assert [len(same) for same in repeats(_flow().steps)] == [4]
    assert [len(same) for same in repeats(_flow("permutation").steps)] == [1] * 7
    assert [len(same) for same in repeats(_flow(n_blocks=2).steps)] == [1] * 4


def test_what_differs_in_shape_stands_alone():
    blocks = _flow(n_blocks=3).steps
    other = _flow(n_blocks=3, condition_dim=0).steps
    mixed = Chain((*blocks, Linear(jnp.eye(4)), *other))
    assert sum(len(same) * len(same[0]) for same in repeats(mixed.bijections)) == len(mixed.bijections)
    assert [len(same) for same in repeats(mixed.bijections)] == [3, 1, 3]

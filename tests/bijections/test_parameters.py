"""A model's numbers as one vector: nothing lost, nothing moved."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from isr.bijections.build import Architecture, build_flow
from isr.bijections.parameters import cast, flatten, n_constants


def flow():
    return build_flow(jax.random.key(0), 3, condition_dim=1, architecture=Architecture(mixing="linear"))


def learned(model):
    return jax.tree.leaves(eqx.filter(model, eqx.is_inexact_array))


def test_a_vector_put_back_is_the_same_model():
    vector, restore = flatten(flow())
    again, _ = flatten(restore(vector))
    assert_array_equal(again, vector)
    assert jax.tree.structure(restore(vector)) == jax.tree.structure(flow())


def test_every_number_has_its_own_place():
    vector, restore = flatten(flow())
    counted = restore(jnp.arange(len(vector), dtype=vector.dtype))
    assert_array_equal(flatten(counted)[0], np.arange(len(vector)))


def test_putting_back_keeps_the_precision_of_the_vector_and_works_under_jit():
    vector, restore = flatten(flow())
    single = restore(vector.astype(jnp.float32))
    assert {leaf.dtype for leaf in learned(single)} == {np.dtype("float32")}
    total = jax.jit(lambda v: flatten(restore(v))[0].sum())(vector)
    np.testing.assert_allclose(total, vector.sum())


def test_a_cast_changes_precision_and_nothing_else():
    single = cast(flow(), jnp.float32)
    assert_array_equal(flatten(single)[0], flatten(flow())[0].astype(jnp.float32))


def test_constants_are_the_weights_that_are_not_zero():
    vector, restore = flatten(flow())
    cut = restore(vector.at[jnp.array([20, 25, 27])].set(0.0))
    zeros_before = int((np.asarray(vector) == 0).sum())
    assert n_constants(cut) == len(vector) - zeros_before - 3


@pytest.mark.parametrize("mixing", ["linear", "permutation", "none"])
def test_leaves_inside_a_program_are_pieces_of_the_vector_in_order(mixing):
    shape = Architecture(n_blocks=4, n_layers=2, mixing=mixing)
    vector, restore = flatten(build_flow(jax.random.key(0), 3, condition_dim=2, architecture=shape))
    numbers = jnp.arange(len(vector), dtype=float)
    inside = jax.jit(lambda v: learned(restore(v)))(numbers)
    ends = np.cumsum([leaf.size for leaf in inside])[:-1]
    for leaf, expected in zip(inside, np.split(np.arange(len(vector)), ends), strict=True):
        assert_array_equal(leaf.ravel(), expected)

"""Penalties against their formulas."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from isr.training.penalties import HardConcrete, L1Norm, SmoothHalfNorm, parse_penalty

NONE = jnp.zeros(0)


def test_half_norm_is_the_sum_of_roots_away_from_zero():
    w = np.array([0.3, -2.0, 1.0])
    rest = np.sqrt(3 * 0.05 / 8)
    assert_allclose(SmoothHalfNorm().value(jnp.asarray(w), NONE), np.sum(np.sqrt(np.abs(w)) - rest))


def test_half_norm_and_its_slope_are_continuous_where_the_pieces_meet():
    penalty = SmoothHalfNorm(0.05)
    value = jax.vmap(lambda w: penalty.value(w[None], NONE))
    slope = jax.vmap(jax.grad(lambda w: penalty.value(w[None], NONE)))
    below, above = jnp.array([0.05 - 1e-9]), jnp.array([0.05 + 1e-9])
    assert_allclose(value(below), value(above), atol=1e-7)
    assert_allclose(slope(below), slope(above), rtol=1e-5)


def test_half_norm_is_zero_and_flat_at_zero():
    penalty = SmoothHalfNorm()
    assert_allclose(penalty.value(jnp.zeros(5), NONE), 0.0, atol=1e-12)
    assert_allclose(jax.grad(penalty.value)(jnp.zeros(5), NONE), 0.0, atol=1e-12)


def test_l1_is_the_sum_of_sizes():
    assert_allclose(L1Norm().value(jnp.array([1.0, -2.5]), NONE), 3.5)


def test_hard_concrete_counts_the_gates_that_are_open():
    penalty = HardConcrete()
    gates = jnp.array([30.0, -30.0])
    assert_allclose(penalty.value(jnp.ones(2), gates), 1.0, atol=1e-6)
    assert_allclose(penalty.gate(jnp.ones(2), gates, None), [1.0, 0.0])


def test_hard_concrete_value_is_the_chance_that_a_sampled_gate_is_not_zero():
    penalty = HardConcrete()
    gates = jnp.full(20_000, -1.3)
    drawn = penalty.gate(jnp.ones(20_000), gates, jax.random.key(0))
    assert_allclose(np.mean(np.asarray(drawn) != 0), penalty.value(jnp.ones(1), gates[:1]), atol=0.01)


def test_unknown_penalty_is_named():
    with pytest.raises(ValueError, match=r"unknown penalty 'l2'; known: l0.5, l1, l0"):
        parse_penalty("l2")

"""Penalties against their formulas."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from isr.training.penalties import L1Norm, SmoothHalfNorm, parse_penalty


def test_half_norm_is_the_sum_of_roots_away_from_zero():
    w = np.array([0.3, -2.0, 1.0])
    rest = np.sqrt(3 * 0.05 / 8)
    assert_allclose(SmoothHalfNorm().value(jnp.asarray(w)), np.sum(np.sqrt(np.abs(w)) - rest))


def test_half_norm_and_its_slope_are_continuous_where_the_pieces_meet():
    penalty = SmoothHalfNorm(0.05)
    value = jax.vmap(lambda w: penalty.value(w[None]))
    slope = jax.vmap(jax.grad(lambda w: penalty.value(w[None])))
    below, above = jnp.array([0.05 - 1e-9]), jnp.array([0.05 + 1e-9])
    assert_allclose(value(below), value(above), atol=1e-7)
    assert_allclose(slope(below), slope(above), rtol=1e-5)


def test_half_norm_is_zero_and_flat_at_zero():
    penalty = SmoothHalfNorm()
    assert_allclose(penalty.value(jnp.zeros(5)), 0.0, atol=1e-12)
    assert_allclose(jax.grad(penalty.value)(jnp.zeros(5)), 0.0, atol=1e-12)


def test_l1_is_the_sum_of_sizes():
    assert_allclose(L1Norm().value(jnp.array([1.0, -2.5])), 3.5)


def test_unknown_penalty_is_named():
    with pytest.raises(ValueError, match=r"unknown penalty 'l2'; known: l0.5, l1,"):
        parse_penalty("l2")

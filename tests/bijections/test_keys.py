"""Keys and orders made on the host are JAX's own, bit for bit."""

import jax
import numpy as np
import pytest

from isr.bijections import keys
from isr.bijections.build import build_flow
from isr.bijections.parameters import flatten


def _words(key):
    return np.asarray(jax.random.key_data(key))


@pytest.mark.parametrize("seed", [0, 7, 2**31 - 1, 2**31, 2**32 - 1])
def test_a_seed_gives_the_key_that_jax_gives(seed):
    with jax.enable_x64(True):
        assert np.array_equal(_words(keys.key_of(seed)), _words(jax.random.key(seed)))


@pytest.mark.parametrize("n", [1, 2, 7, 1000])
def test_splitting_gives_the_keys_that_jax_gives(n):
    key = jax.random.key(3)
    assert np.array_equal(keys.split_words(keys.words_of(key), n), _words(jax.random.split(key, n)))


@pytest.mark.parametrize("number", [0, 1, 1 << 20, 2**32 - 1])
def test_folding_in_gives_the_key_that_jax_gives(number):
    key = jax.random.key(3)
    assert np.array_equal(_words(keys.fold_in(key, number)), _words(jax.random.fold_in(key, number)))


def test_an_array_of_keys_splits_into_what_each_of_them_does():
    many = jax.random.split(jax.random.key(1), 3)
    found = keys.split_words(_words(many), 4)
    assert np.array_equal(found, [_words(jax.random.split(key, 4)) for key in many])


# From 1,626 things on they are sorted twice, for two of them may have drawn the same word.
@pytest.mark.parametrize("n", [0, 1, 2, 100, 1625, 1626, 50_000])
def test_an_order_is_the_one_that_jax_gives(n):
    many = jax.random.split(jax.random.key(2), 2)
    found = keys.permutations(_words(many), n)
    assert np.array_equal(found, [jax.random.permutation(key, n) for key in many])


def test_a_key_of_another_generator_is_taken_as_well():
    first, second = keys.split_words(keys.words_of(jax.random.key(0, impl="rbg")), 2)
    assert not np.array_equal(first, second)


def test_words_stand_for_their_key():
    key = jax.random.key(5)
    words = keys.words_of(key)
    assert keys.words_of(words) is words
    flows = [build_flow(k, 4, condition_dim=1) for k in (key, words)]
    assert np.array_equal(*(flatten(flow)[0] for flow in flows))

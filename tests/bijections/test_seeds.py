"""Seeds form a tree: the same place gives the same numbers, other places give others."""

import jax
import numpy as np
import pytest

from isr.bijections.build import build_flow
from isr.bijections.parameters import child, children, flatten, generator, jax_keys, sequence_of

SEEDS = {"number": 3, "sequence": np.random.SeedSequence(3), "key": jax.random.key(3)}


@pytest.mark.parametrize("seed", SEEDS.values(), ids=SEEDS.keys())
def test_a_place_has_its_own_numbers_and_always_the_same(seed):
    places = [(), (0,), (1,), (0, 0), (0, 1), (2**32 - 1,)]
    drawn = [generator(child(seed, *place)).normal(size=3) for place in places]
    assert len(np.unique(drawn)) == 3 * len(places)
    assert np.array_equal(drawn, [generator(child(seed, *place)).normal(size=3) for place in places])


def test_children_are_the_first_places_and_asking_for_them_changes_nothing():
    root = np.random.SeedSequence(5)
    first, again = children(root, 3), children(root, 3)
    assert [s.spawn_key for s in first] == [s.spawn_key for s in again] == [(0,), (1,), (2,)]
    assert child(child(root, 1), 2).spawn_key == child(root, 1, 2).spawn_key == (1, 2)


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg"])
def test_a_key_of_jax_stands_for_all_its_words(impl):
    words = [sequence_of(jax.random.key(seed, impl=impl)).generate_state(4) for seed in (0, 1)]
    assert not np.array_equal(*words)


def test_keys_for_compiled_programs_differ_and_repeat():
    with jax.enable_x64(True):
        keys = jax_keys(7, 4, 3)
        assert keys.shape == (4, 3)
        assert len(np.unique(jax.random.key_data(keys).reshape(-1, 2), axis=0)) == 12
        assert np.array_equal(jax.random.key_data(keys), jax.random.key_data(jax_keys(7, 4, 3)))


def test_a_flow_is_built_from_any_seed():
    weights = [flatten(build_flow(seed, 4, condition_dim=1))[0] for seed in SEEDS.values()]
    assert np.array_equal(weights[0], weights[1])
    assert not np.array_equal(weights[0], weights[2])

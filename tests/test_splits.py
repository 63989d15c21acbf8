"""Splits cover the rows, without overlap, the same way each time."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from isr.tables import split_rows


@given(st.integers(2, 500), st.floats(0.001, 0.999), st.integers(0, 2**32))
def test_a_split_shares_out_all_rows_once(n_rows, share, seed):
    held_out = 1 + int(share * (n_rows - 1))
    split = split_rows(n_rows, held_out=min(held_out, n_rows - 1), random_state=seed)
    assert_array_equal(np.sort(np.concatenate(split)), np.arange(n_rows))
    assert len(split.held_out) == min(held_out, n_rows - 1)


def test_a_split_is_the_same_for_the_same_seed_only():
    first, again, other = (split_rows(100, held_out=10, random_state=seed) for seed in (3, 3, 4))
    assert_array_equal(first.held_out, again.held_out)
    assert not np.array_equal(first.held_out, other.held_out)
    assert len(first.held_out) == 10


@pytest.mark.parametrize("held_out", [0, 9, 12])
def test_impossible_splits_are_refused(held_out):
    with pytest.raises(ValueError, match=f"between 1 and 8 of 9, got {held_out}"):
        split_rows(9, held_out=held_out, random_state=0)

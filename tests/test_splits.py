"""Splits cover the rows, without overlap, the same way each time."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from isr.tables import split_rows


@given(st.integers(2, 500), st.floats(0.001, 0.999), st.integers(0, 2**32))
def test_a_split_shares_out_all_rows_once(n_rows, held_out, seed):
    split = split_rows(n_rows, held_out=held_out, random_state=seed)
    assert_array_equal(np.sort(np.concatenate(split)), np.arange(n_rows))
    assert len(split.train) > 0
    assert len(split.held_out) > 0
    assert abs(len(split.held_out) - held_out * n_rows) <= 1


def test_a_split_is_the_same_for_the_same_seed_only():
    first, again, other = (split_rows(100, random_state=seed) for seed in (3, 3, 4))
    assert_array_equal(first.held_out, again.held_out)
    assert not np.array_equal(first.held_out, other.held_out)
    assert len(first.held_out) == 10


def test_a_number_of_rows_can_be_held_out():
    assert len(split_rows(10, held_out=3, random_state=0).held_out) == 3


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: split_rows(1, random_state=0), ValueError, "n_rows must be at least 2, got 1"),
        (lambda: split_rows(2.5, random_state=0), TypeError, "n_rows must be a whole number, got 2.5"),
        (
            lambda: split_rows(9, held_out=1.5, random_state=0),
            ValueError,
            "strictly between 0 and 1, got 1.5",
        ),
        (
            lambda: split_rows(9, held_out=0.0, random_state=0),
            ValueError,
            "strictly between 0 and 1, got 0.0",
        ),
        (lambda: split_rows(9, held_out=9, random_state=0), ValueError, "between 1 and 8, got 9"),
        (
            lambda: split_rows(9, held_out="a", random_state=0),
            TypeError,
            "a share or a number of rows, got 'a'",
        ),
        (
            lambda: split_rows(9, held_out=True, random_state=0),
            TypeError,
            "a share or a number of rows, got True",
        ),
    ],
)
def test_impossible_splits_are_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()

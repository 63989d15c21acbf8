"""The rows of an epoch's batches: every row once a pass, in a new order each, or as many as an epoch has steps for."""

import numpy as np

from isr.training.loop import batches


def test_few_rows_are_passed_over_several_times_each_in_a_new_order():
    rows = batches(0, n_rows=20, batch_size=5, n_steps=12)
    assert rows.shape == (12, 5)
    passes = rows.reshape(3, 20)
    assert all(sorted(one) == list(range(20)) for one in passes)
    assert len({tuple(one) for one in passes}) == 3


def test_of_many_rows_an_epoch_takes_other_ones_each_time_and_none_twice():
    first, other, again = (batches(seed, n_rows=1000, batch_size=10, n_steps=25) for seed in (0, 1, 0))
    assert len(set(first.ravel())) == 250
    assert not np.array_equal(first, other)
    assert np.array_equal(first, again)


def test_a_batch_larger_than_the_rows_holds_all_of_them():
    rows = batches(0, n_rows=7, batch_size=64, n_steps=3)
    assert rows.shape == (3, 7)
    assert all(sorted(batch) == list(range(7)) for batch in rows)

"""The order of an epoch's rows: every row once a pass, a new order each, parts of one pass that do not overlap."""

import numpy as np

from isr.training.loop import Orders


def test_few_rows_are_passed_over_several_times_each_in_a_new_order():
    orders = Orders(n_rows=20, batch_size=5, n_steps=12)
    rows = orders.rows(0, 0)
    assert rows.shape == (12, 5)
    passes = rows.reshape(3, 20)
    assert all(sorted(one) == list(range(20)) for one in passes)
    assert len({tuple(one) for one in passes}) == 3


def test_parts_of_a_pass_over_many_rows_hold_every_row_once():
    orders = Orders(n_rows=1000, batch_size=10, n_steps=25)
    assert orders.n_parts == 4
    parts = [orders.rows(1, part) for part in range(4)]
    assert sorted(np.concatenate(parts).ravel()) == list(range(1000))


def test_another_key_gives_another_order_and_the_same_key_the_same():
    orders = Orders(n_rows=100, batch_size=10, n_steps=10)
    first, other = orders.rows(0, 0), orders.rows(1, 0)
    assert not np.array_equal(first, other)
    assert np.array_equal(orders.rows(0, 0), first)


def test_a_batch_larger_than_the_rows_holds_all_of_them():
    rows = Orders(n_rows=7, batch_size=64, n_steps=3).rows(0, 0)
    assert rows.shape == (3, 7)
    assert all(sorted(batch) == list(range(7)) for batch in rows)

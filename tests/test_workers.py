"""Calls shared out among joblib's workers: every backend gives the same, also those that know less than others."""

import io
import sys
import types

import joblib
import numpy as np
import pytest
from joblib.parallel import ThreadingBackend
from numpy.testing import assert_array_equal

from isr.posterior.simulation import simulate
from isr.tables.workers import BLOCK, as_they_end, is_watched


class Plain(ThreadingBackend):
    """As Ray's: gives no result before all are there, and refuses more workers than it has."""

    supports_return_generator = False

    def effective_n_jobs(self, n_jobs):
        return 2 if n_jobs == -1 else super().effective_n_jobs(n_jobs)

    def configure(self, n_jobs=1, parallel=None, **options):
        if n_jobs > 2:
            raise ValueError(f"{n_jobs} workers on a cluster of 2")
        return super().configure(n_jobs, parallel, **options)


joblib.register_parallel_backend("plain", Plain)


def squares(n, begun=None):
    def square(number):
        if begun is not None:
            begun.append(number)
        return number**2

    return (joblib.delayed(square)(number) for number in range(n))


@pytest.mark.parametrize("n_jobs", [None, 1, 2, 7, -1])
@pytest.mark.parametrize("backend", ["threading", "plain"])
def test_every_call_is_made_once_whatever_the_backend(backend, n_jobs):
    with joblib.parallel_config(backend):
        assert sorted(as_they_end(squares(23), n_jobs=n_jobs)) == [n**2 for n in range(23)]
        assert list(as_they_end(squares(0), n_jobs=n_jobs)) == []


def test_a_backend_that_gives_all_results_together_works_block_by_block():
    begun = []
    with joblib.parallel_config("plain", n_jobs=-1):
        found = as_they_end(squares(100, begun))
        assert [next(found) for _ in range(3)] == [0, 1, 4]
        assert sorted(begun) == list(range(2 * BLOCK))
        found.close()


def test_simulations_are_the_same_on_a_backend_that_knows_less():
    prior = {"a": (-1.0, 1.0), "b": (0.0, 2.0)}
    alone = simulate(prior, np.sin, 205, chunk_size=10)
    with joblib.parallel_config("plain", n_jobs=2):
        assert_array_equal(simulate(prior, np.sin, 205, chunk_size=10).y, alone.y)


def test_progress_is_shown_in_a_notebook_and_not_where_nobody_looks(monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert not is_watched()
    monkeypatch.setitem(sys.modules, "ipykernel", types.ModuleType("ipykernel"))
    assert is_watched()

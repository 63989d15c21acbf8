"""What must come out the same wherever it runs; each check takes the settings of joblib that move it away from here."""

import os
import time
from pathlib import Path
from typing import Any

import jax
import joblib
import numpy as np
from numpy.testing import assert_array_equal

import isr
from isr import ocean as geoacoustics
from isr.estimators.settings import Effort
from isr.posterior.simulation import simulate

PRIOR = {"a": (-1.0, 1.0), "b": (0.0, 2.0)}


# Functions inside others travel by their code; the workers cannot import this file.
def make_waves(seconds: float = 0.0):
    def waves(x):
        time.sleep(seconds)
        return np.column_stack([np.sin(x), np.full(len(x), os.getpid())])

    return waves


def check_simulations(folder: Path, **away: Any) -> None:
    def pressures(name: str, **workers: Any):
        return geoacoustics.simulate(
            20, folder / name, prior=geoacoustics.prior(2), frequencies=(49.0,), chunk_size=4, **workers
        ).load()[1]

    with joblib.parallel_config(**away):
        there = simulate(PRIOR, make_waves(), 205, chunk_size=40, folder=folder / "waves")
        found = pressures("there")
    assert_array_equal(there.y[:, :2], simulate(PRIOR, np.sin, 205, chunk_size=40).y)
    assert os.getpid() not in there.y[:, 2]
    assert_array_equal(found, pressures("here", n_jobs=1))


def check_restarts(n_shares: int, **away: Any) -> None:
    x = np.random.default_rng(0).normal(size=(200, 2)) @ np.array([[1.0, 0.5], [0.0, 1.0]])

    def fitted():
        return isr.SymbolicFlow(
            charts=(),
            n_layers=1,
            training=isr.Training(
                Effort(60, 0, 0), n_restarts=n_shares, n_jobs=n_shares, penalty=None, verbose=True
            ),
            random_state=0,
        ).fit(x)

    here = fitted()
    with joblib.parallel_config(**away):
        there = fitted()
    for a, b in zip(jax.tree.leaves(here.flow_), jax.tree.leaves(there.flow_), strict=True):
        assert_array_equal(a, b)
    assert_array_equal(np.concatenate(here.history_.held_out), np.concatenate(there.history_.held_out))

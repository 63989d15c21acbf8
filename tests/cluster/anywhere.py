"""What must come out the same wherever it runs; each check takes the settings of joblib that move it away from here."""

import os
import time
from pathlib import Path
from typing import Any

import joblib
import numpy as np
from numpy.testing import assert_array_equal

from isr import ocean as geoacoustics
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

"""The benchmark of laws of motion: its list can be simulated, and a quick run leaves a row."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import motion


def test_every_system_of_the_list_can_be_simulated():
    names = [m.name for m in motion.systems()]
    assert len(set(names)) == 10
    for system in motion.systems():
        x, y = system.simulate(2, 0, 0.0)
        assert np.isfinite(y).all()
        assert y.shape == (2, len(system.times), len(system.channels))
        assert x.shape == (2, len(system.ranges))


def test_a_known_solution_is_simulated():
    (system,) = [m for m in motion.systems() if m.name == "michaelis"]
    x, y = system.simulate(3, 0, 0.0)
    vmax, km, start = x.T
    left = km[:, None] * np.log(y[..., 0] / start[:, None]) + y[..., 0] - start[:, None]
    assert_allclose(left, -vmax[:, None] * system.times, atol=1e-5)


@pytest.mark.slow
def test_a_quick_run_leaves_a_row():
    (row,) = motion.main(["--quick"])
    assert row["exact"] == [True, True]

"""Simulated pressures are those of their parameters, and a run goes on where it was stopped."""

import pytest
from numpy.testing import assert_allclose, assert_array_equal

from isr.ocean import Environment, UniformPrior, pressure, prior, simulate, swellex96
from isr.posterior.simulation import FailedSimulationsWarning

SETTINGS = {"prior": prior(2), "seed": 3, "frequencies": (49.0, 79.0), "chunk_size": 8}


def small_or_no_waveguide(depth: float) -> Environment:
    base = swellex96()
    return base if depth > 0.5 else base.replace(max_phase_speed=1488.0)


def test_pressures_are_those_of_their_parameters():
    found = simulate(4, **SETTINGS)
    assert found.x.shape == (4, 4)
    assert prior(2).contains(found.x).all()
    expected = pressure([swellex96(*row) for row in found.x], SETTINGS["frequencies"])
    assert_allclose(found.y, expected.reshape(4, -1), rtol=1e-12)


def test_workers_and_interruptions_leave_the_same_rows(tmp_path):
    whole = simulate(20, tmp_path, **SETTINGS)
    first, second, *_ = sorted(tmp_path.iterdir())
    second.unlink()
    first.write_bytes(first.read_bytes()[:100])  # cut short, as by a full disk
    again = simulate(20, tmp_path, n_jobs=2, **SETTINGS)
    assert_array_equal(again.x, whole.x)
    assert_array_equal(again.y, whole.y)


@pytest.mark.parametrize("other", [{"seed": 4}, {"frequencies": (49.0, 80.0)}], ids=["seed", "frequencies"])
def test_another_simulation_has_chunks_of_its_own(tmp_path, other):
    simulate(8, tmp_path, **SETTINGS)
    one = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    found = simulate(8, tmp_path, **(SETTINGS | other))
    assert_array_equal(found.y, simulate(8, **(SETTINGS | other)).y)
    both = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    assert one.items() < both.items()


def test_failed_environments_are_reported_and_left_out():
    bounds = UniformPrior(("depth",), (0.0,), (1.0,))
    options = {"prior": bounds, "frequencies": (49.0,), "build": small_or_no_waveguide, "chunk_size": 5}
    with pytest.warns(FailedSimulationsWarning, match="of 12 simulations failed"):
        found = simulate(12, **options)
    assert 0 < found.n_failed < 12
    assert found.n_failed + len(found.x) == 12
    assert (found.failures["depth"] <= 0.5).all()
    assert (found.x > 0.5).all()

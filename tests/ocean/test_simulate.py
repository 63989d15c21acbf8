"""A simulation is the same however often it is stopped, and says when it is another one."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from isr.ocean import (
    Environment,
    Simulation,
    UniformPrior,
    pressure,
    prior,
    simulate,
    swellex96,
)

SETTINGS = {"prior": prior(2), "seed": 3, "frequencies": (49.0, 79.0), "chunk_size": 8}


def parts(directory):
    return {path.name: path.read_bytes() for path in sorted(directory.glob("part-*.parquet"))}


def small_or_no_waveguide(depth: float) -> Environment:
    base = swellex96()
    return base if depth > 0.5 else base.replace(max_phase_speed=1488.0)


def test_stored_pressures_are_those_of_the_stored_parameters(tmp_path):
    run = simulate(20, tmp_path, **SETTINGS)
    parameters, found = run.load()
    assert parameters.shape == (20, 4)
    assert prior(2).contains(parameters).all()
    expected = pressure([swellex96(*row) for row in parameters], SETTINGS["frequencies"])
    assert found.dtype == np.complex64
    assert_allclose(found, expected, rtol=1e-5, atol=1e-10)
    assert run.failures().empty


def test_workers_and_interruptions_leave_the_same_bytes(tmp_path):
    whole = simulate(30, tmp_path / "a", n_jobs=1, **SETTINGS)
    again = simulate(30, tmp_path / "b", n_jobs=2, **SETTINGS)
    assert parts(whole.directory) == parts(again.directory)
    again.part(1).unlink()
    again.part(2).write_bytes(again.part(2).read_bytes()[:100])  # cut short, as by a full disk
    assert again.missing() == [1, 2]
    simulate(30, tmp_path / "b", **SETTINGS)
    assert parts(whole.directory) == parts(again.directory)
    assert again.missing() == []


def test_a_killed_run_goes_on_to_the_same_end(tmp_path):
    program = f"""
        from isr.ocean import prior, simulate
        simulate(400, {str(tmp_path / "killed")!r}, prior=prior(2), seed=3, frequencies=(49.0, 79.0), chunk_size=8)
    """
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(program)])
    deadline = time.monotonic() + 60
    while len(list((tmp_path / "killed").glob("part-*"))) < 2 and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    left = Simulation.open(tmp_path / "killed")
    assert left.n_chunks == 50
    simulate(400, tmp_path / "killed", **SETTINGS)
    simulate(400, tmp_path / "whole", **SETTINGS)
    assert parts(tmp_path / "killed") == parts(tmp_path / "whole")
    assert not list((tmp_path / "whole").glob(".*"))


def test_another_simulation_in_the_directory_is_refused(tmp_path):
    simulate(8, tmp_path, **SETTINGS)
    with pytest.raises(
        ValueError, match=r"holds another simulation \(seed: there 3, asked 4\).*another directory"
    ):
        simulate(8, tmp_path, **(SETTINGS | {"seed": 4}))
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert manifest["prior"]["names"] == list(prior(2).names)


def test_failed_environments_are_reported_and_left_out(tmp_path):
    bounds = UniformPrior(("depth",), (0.0,), (1.0,))
    run = simulate(12, tmp_path, prior=bounds, frequencies=(49.0,), build=small_or_no_waveguide, chunk_size=5)
    parameters, found = run.load()
    failures = run.failures()
    assert 0 < len(failures) < 12
    assert len(failures) + len(parameters) == 12
    assert (failures["depth"] <= 0.5).all()
    assert (parameters > 0.5).all()
    assert np.isfinite(found).all()


def test_chunks_can_be_read_one_by_one(tmp_path):
    run = simulate(20, tmp_path, **SETTINGS)
    sizes = [len(parameters) for parameters, _ in run.chunks()]
    assert sizes == [8, 8, 4]
    assert_array_equal(np.concatenate([p for p, _ in run.chunks()]), run.load()[0])


def test_a_directory_without_a_simulation_and_a_wrong_size_are_explained(tmp_path):
    with pytest.raises(
        FileNotFoundError, match=r"no simulation in .*manifest.json is missing; run simulate first"
    ):
        Simulation.open(tmp_path)
    with pytest.raises(ValueError, match="n and chunk_size must be at least 1, got 0"):
        simulate(0, tmp_path, prior=prior(1))
    assert os.listdir(tmp_path) == []

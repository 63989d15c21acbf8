"""`kill -9` at any moment costs time and nothing else: the same run begun again ends in the same bits."""

import multiprocessing
import shutil
import signal
import time
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from faults import runs
from isr.storage import load
from isr.training import checkpoint
from isr.training.loop import start

# Children are forked from a process that has imported everything once.
FORK = multiprocessing.get_context("forkserver")
FORK.set_forkserver_preload(["isr.training.population", "isr.posterior.simulation", "isr.ocean.simulate"])


def kept(folder: Path) -> set[tuple[str, int]]:
    """What a run can go on from, and when it was written."""
    found = [*folder.glob("rows/part-*"), *folder.glob("*.checkpoint")]
    return {(path.name, path.stat().st_mtime_ns) for path in found}


def wait_until_it_works(process, folder: Path) -> None:
    """Starting takes longer than the work itself; without waiting most kills would fall into imports."""
    before = kept(folder)
    while process.is_alive() and kept(folder) == before:
        time.sleep(0.002)


class Times(NamedTuple):
    """Seconds to the first thing kept, and from there to the end."""

    start: float
    work: float


def run_to_the_end(run, folder: Path) -> Times:
    """Run in a process of its own and return how long that took."""
    folder.mkdir(exist_ok=True)
    begun = time.monotonic()
    process = FORK.Process(target=run, args=(str(folder),))
    process.start()
    wait_until_it_works(process, folder)
    working = time.monotonic()
    process.join(300)
    process.kill()  # one that hangs must not stay behind
    process.join()
    assert process.exitcode == 0
    return Times(working - begun, time.monotonic() - working)


class Kills(NamedTuple):
    """How many runs were killed, how many of these after they had begun their work, and how many came to their end."""

    kills: int
    kills_at_work: int
    ends: int


def kill_often(run, folder: Path, n_kills: int, times: Times, whole: dict[str, bytes]) -> Kills:
    """Begin a run again and again and kill it at random moments, one in ten of them before it works.

    A run that comes to its end between two kills must have made ``whole``; the next one begins from nothing.
    """
    folder.mkdir()
    rng, n_killed, n_at_work, n_ended = np.random.default_rng(0), 0, 0, 0
    while n_killed < n_kills:
        process = FORK.Process(target=run, args=(str(folder),))
        process.start()
        early, moment = rng.uniform() < 0.1, rng.uniform()
        if early:
            process.join(moment * times.start)
        else:
            wait_until_it_works(process, folder)
            process.join(moment * times.work)
        process.kill()
        process.join()
        everything_left_is_whole(folder)
        if process.exitcode == 0:
            n_ended += 1
            assert files(folder) == whole
            shutil.rmtree(folder)
            folder.mkdir()
        else:
            assert process.exitcode == -signal.SIGKILL
            n_killed += 1
            n_at_work += not early
    return Kills(n_killed, n_at_work, n_ended)


def everything_left_is_whole(folder: Path) -> None:
    for part in folder.glob("rows/part-*.npz"):
        assert len(np.load(part, allow_pickle=False)["x"])
    for name in folder.glob("*.checkpoint"):
        mark = name.read_bytes().split(b'"mark": "')[1][:64].decode()
        checkpoint.read(name, mark, lambda members: start(jnp.zeros((members, 4), jnp.float32)))


def files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not path.name.endswith((".tmp", ".checkpoint"))
    }


RUNS = {
    "fit": (runs.train_population, 2, 50),
    "simulation": (runs.simulate_rows, 2, 50),
    "estimator": (runs.fit_flow, 0, 8),
}
# What a killed fit goes on from is also tested without a kill, in tests/training.
FEW = [
    pytest.param(run, few, id=name, marks=[pytest.mark.slow] if name == "fit" else [])
    for name, (run, few, _) in RUNS.items()
    if few
]
MANY = [pytest.param(run, many, id=name) for name, (run, _, many) in RUNS.items()]


def check(run, n_kills: int, tmp_path: Path) -> Kills:
    times = run_to_the_end(run, tmp_path / "whole")
    whole = files(tmp_path / "whole")
    found = kill_often(run, tmp_path / "killed", n_kills, times, whole)
    run_to_the_end(run, tmp_path / "killed")
    assert files(tmp_path / "killed") == whole
    return found


@pytest.mark.parametrize(("run", "n_kills"), FEW)
def test_a_run_killed_a_few_times_ends_in_the_same_bits(run, n_kills, tmp_path):
    check(run, n_kills, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(("run", "n_kills"), MANY)
def test_a_run_killed_at_many_random_moments_ends_in_the_same_bits(run, n_kills, tmp_path, record_property):
    found = check(run, n_kills, tmp_path)
    for name, number in found._asdict().items():
        record_property(name, number)
    assert found.kills_at_work > n_kills // 2, "too few runs had begun their work when they were killed"


@pytest.mark.parametrize("overwrite", [True, False])
def test_of_two_processes_that_save_the_same_model_one_wins_cleanly(overwrite, tmp_path):
    writers = [
        FORK.Process(target=runs.save_many, args=(str(tmp_path), name, overwrite)) for name in ("a", "b")
    ]
    for writer in writers:
        writer.start()
    sizes = set()
    while any(writer.is_alive() for writer in writers):
        time.sleep(0.01)
        if (tmp_path / "model.isr").exists():
            sizes.add(load(tmp_path / "model.isr").metadata["size"])  # never damaged, whoever is writing
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    wins = [int((tmp_path / f"wins-{name}").read_text()) for name in ("a", "b")]
    assert sum(wins) == (20 if overwrite else 1)
    saved = load(tmp_path / "model.isr")
    assert len(jax.tree.leaves(saved.model)[0]) == 200 * saved.metadata["size"]
    assert not list(tmp_path.glob(".*"))

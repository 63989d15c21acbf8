"""A file is whole or it is not there; a disk that is full, read-only or gone is told in words and costs nothing."""

import os
import resource
import shutil
import subprocess
import sys
import textwrap
from contextlib import contextmanager
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from isr.posterior.simulation import simulate
from isr.tables import whole_files
from isr.tables.whole_files import refuse_unwritable, write_whole
from isr.training import checkpoint
from isr.training.checkpoint import CheckpointError
from isr.training.loop import Phase
from isr.training.monitor import Monitor
from isr.training.population import Restarts, Schedule, Task, train


@contextmanager
def files_no_longer_than(n_bytes: int):
    """What a full disk does, for files alone."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "note"
    write_whole(path, lambda hidden: hidden.write_text("old"))
    with (
        files_no_longer_than(10_000),
        pytest.raises(OSError, match=r"^cannot write .*note: File too large; .*raise the limit"),
    ):
        write_whole(path, lambda hidden: hidden.write_bytes(b"new" * 10_000))
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["note"]


def test_a_folder_that_is_gone_is_named(tmp_path):
    with pytest.raises(
        FileNotFoundError, match=r"^cannot write .*note: No such file.*; create the folder first"
    ):
        write_whole(tmp_path / "gone" / "note", lambda hidden: hidden.write_text("x"))
    with pytest.raises(FileNotFoundError, match="gone does not exist; create it first"):
        refuse_unwritable(tmp_path / "gone" / "note")


@pytest.mark.parametrize("links", [True, False])
def test_a_name_that_is_taken_stays_as_it_is(tmp_path, monkeypatch, links):
    if not links:  # some file systems know none

        def no_links(*names):
            raise OSError(whole_files.errno.EPERM, "Operation not permitted")

        monkeypatch.setattr(os, "link", no_links)
    path = tmp_path / "note"
    write_whole(path, lambda hidden: hidden.write_text("first"), replace=False)
    with pytest.raises(FileExistsError, match="note exists already; choose another name"):
        write_whole(path, lambda hidden: hidden.write_text("second"), replace=False)
    assert path.read_text() == "first"
    assert os.listdir(tmp_path) == ["note"]


def test_what_a_killed_writer_left_is_cleared_away_and_what_a_living_one_writes_is_not(tmp_path):
    names = [".isr-0123.tmp", ".isr-4567.tmp", "mine.tmp"]
    for name in names:
        (tmp_path / name).write_text("part")
        os.utime(tmp_path / name, (1, 1))
    os.utime(tmp_path / names[1])  # too young to be sure
    write_whole(tmp_path / "note", lambda hidden: hidden.write_text("all"))
    assert sorted(os.listdir(tmp_path)) == sorted([*names[1:], "note"])


def _waves(x):
    return np.exp(1j * x) * x[:, ::-1]


def test_a_simulation_that_ran_out_of_space_goes_on_from_what_it_kept(tmp_path):
    settings = {"random_state": 7, "chunk_size": 40}
    prior = {"a": (-1.0, 1.0), "b": (0.0, 2.0)}

    def waves(x, calls=[0]):  # noqa: B006
        calls[0] += 1
        if calls[0] == 3:
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
        return _waves(x)

    with (
        files_no_longer_than(100_000),
        pytest.raises(OSError, match=r"cannot write .*part-.*-000002.npz: File too large"),
    ):
        simulate(prior, waves, 205, folder=tmp_path / "rows", **settings)
    assert sorted(p.name[-10:] for p in (tmp_path / "rows").iterdir()) == ["000000.npz", "000001.npz"]
    found = simulate(prior, waves, 205, folder=tmp_path / "rows", **settings)
    assert_array_equal(found.y, _waves(found.x))


def _loss(weights, batch, key, moment):
    return jnp.mean((weights @ batch["x"] - batch["y"][0]) ** 2)


def _train(path, about=""):
    def rows(seed):
        x = np.random.default_rng(seed).normal(size=(4, 64))
        return {"x": x, "y": (2 * x[:1] - x[2:3])}

    schedule = Schedule((Phase("train", 3), Phase("sparsify", 0), Phase("refit", 0)), (0.0,), batch_size=16)
    weights = np.random.default_rng(1).normal(size=(2, 4)).astype(np.float32)
    task = Task(_loss, rows(0), rows(1), about=about)
    return train(task, Restarts(weights), schedule, 0, monitor=Monitor(verbose=False), path=path)


def test_training_outlives_a_full_disk_and_only_its_own_checkpoint_is_taken(tmp_path):
    path = tmp_path / "fit.checkpoint"
    whole = _train(None)
    with (
        files_no_longer_than(100),
        pytest.warns(UserWarning, match="the fit goes on without this checkpoint"),
    ):
        unkept = _train(path)
    assert_array_equal(unkept.weights, whole.weights)
    assert os.listdir(tmp_path) == []

    assert_array_equal(_train(path).weights, whole.weights)
    with pytest.raises(CheckpointError, match="other data or settings"):
        _train(path, about="another loss")
    with pytest.raises(FileNotFoundError, match="create it first"):
        _train(tmp_path / "gone" / "fit.checkpoint")

    kept = path.read_bytes()
    for place in range(kept.index(b"\n") + 20):  # everything in front of the arrays, and where they begin
        path.write_bytes(kept[:place] + bytes([kept[place] ^ 1]) + kept[place + 1 :])
        with pytest.raises(CheckpointError, match="delete it to begin anew"):
            checkpoint.read(path, "", lambda members: None)


ON_A_SMALL_DISK = """
    import subprocess, sys
    import numpy as np
    from pathlib import Path
    from isr.tables.whole_files import refuse_unwritable
    from isr.posterior.simulation import simulate

    disk = Path(sys.argv[1])
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", disk], check=True)
    prior = {"a": (-1.0, 1.0), "b": (0.0, 2.0)}

    def run():
        return simulate(prior, np.sin, 5000, folder=disk / "rows", chunk_size=100, progress=False)

    try:
        run()
    except OSError as error:
        print(error)
    kept = {p.name: p.read_bytes() for p in (disk / "rows").glob("part-*")}
    subprocess.run(["mount", "-o", "remount,size=8m", disk], check=True)
    found = run()
    print(2 < len(kept) < 50, all((disk / "rows" / n).read_bytes() == b for n, b in kept.items()))
    print(np.array_equal(found.y, np.sin(found.x)), len(list(disk.rglob(".*"))))
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    for attempt in (lambda: refuse_unwritable(disk / "x"), lambda: simulate(prior, np.cos, 9, folder=disk / "more")):
        try:
            attempt()
        except OSError as error:
            print(error)
    print(np.array_equal(run().y, found.y))
"""


@pytest.mark.slow
def test_a_real_disk_that_is_full_or_read_only(tmp_path):
    if (
        shutil.which("unshare") is None
        or subprocess.run(["unshare", "-rm", "true"], capture_output=True).returncode
    ):
        pytest.skip("this system lets nobody mount a disk of their own")
    disk = tmp_path / "disk"
    disk.mkdir()
    done = subprocess.run(
        ["unshare", "-rm", sys.executable, "-c", textwrap.dedent(ON_A_SMALL_DISK), str(disk)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    full, kept, whole, *read_only, again = done.stdout.splitlines()
    assert full.endswith("No space left on device; free some space and try again")
    assert (kept, whole, again) == ("True True", "True 0", "True")
    assert len(read_only) == 2
    for line in read_only:
        assert line.endswith("Read-only file system; choose a folder that can be written to")


def test_a_model_whose_place_is_gone_or_taken_is_kept_elsewhere(tmp_path):
    from isr.bijections.formula import Formulas
    from isr.cli.fit import _kept
    from isr.storage import Bundle, load

    bundle = Bundle(Formulas(jnp.ones(1), (("constant", 0),), 1, 1))
    (tmp_path / "taken.isr").write_text("mine")
    for name, why in (("gone/a.isr", "gone does not exist"), ("taken.isr", "exists already")):
        with pytest.warns(UserWarning, match=f"{why}.*the model was saved as .* instead"):
            spare = _kept(bundle, tmp_path / name, overwrite=False)
        assert load(spare).kind == bundle.kind
        shutil.rmtree(spare.parent)
    assert (tmp_path / "taken.isr").read_text() == "mine"
    assert _kept(bundle, tmp_path / "free.isr", overwrite=False) == Path(tmp_path / "free.isr")

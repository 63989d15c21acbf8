"""Rows on disk: any stretch is what was written, held-out rows lie in no block, memory does not grow with them."""

import subprocess
import sys
import textwrap

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal

import isr
from isr.estimators import rows as rows_of_fits
from isr.estimators.rows import Pairs, StandardBlocks, Stream, prepare
from isr.estimators.settings import Effort
from isr.tables.sources import open_rows
from isr.training.loop import Blocks

VALUES = np.random.default_rng(0).normal(size=(1003, 3))


@pytest.fixture(params=["parquet", "npy", "memmap", "array"])
def source(request, tmp_path):
    if request.param == "parquet":
        pd.DataFrame(VALUES, columns=["a", "b", "c"]).to_parquet(
            tmp_path / "rows.parquet", row_group_size=100
        )
        return tmp_path / "rows.parquet"
    if request.param == "array":
        return VALUES
    np.save(tmp_path / "rows.npy", VALUES)
    return tmp_path / "rows.npy" if request.param == "npy" else np.load(tmp_path / "rows.npy", mmap_mode="r")


@pytest.mark.parametrize(("start", "stop"), [(0, 1003), (0, 1), (99, 101), (100, 200), (950, 1003)])
def test_any_stretch_of_a_source_is_what_was_written(source, start, stop):
    rows = open_rows(source)
    assert (rows.n_rows, len(rows.names)) == VALUES.shape
    assert_array_equal(rows.read(start, stop), VALUES[start:stop])


def test_columns_are_picked_by_name_or_number(source, tmp_path):
    is_parquet = str(source).endswith("parquet")
    rows = open_rows(source, ["c", "a"] if is_parquet else [2, 0])
    assert rows.names == (("c", "a") if is_parquet else ("x1", "x2"))
    assert_array_equal(rows.read(5, 9), VALUES[5:9][:, [2, 0]])


def test_blocks_and_held_out_rows_are_all_rows_without_overlap(monkeypatch):
    monkeypatch.setattr(rows_of_fits, "BLOCK_ROWS", 250)
    stream = Stream.over(open_rows(VALUES, [0, 1]), open_rows(VALUES, [2]), seed=3)
    assert (stream.n_blocks, stream.block_rows) == (5, 200)
    x, y = stream.sample()
    rows = prepare(Pairs(x, None, y, np.zeros(1), n_held_out=stream.n_held_out), seed=3)
    blocks = StandardBlocks(stream, rows)
    assert isinstance(blocks, Blocks)
    trained = np.concatenate([blocks.block(number)["x"].T for number in range(5)])
    back = trained * np.asarray(rows.scale.scale) + np.asarray(rows.scale.shift)
    held = {tuple(row) for row in np.round(rows.held_out.x, 9)}
    seen = {tuple(row) for row in np.round(back, 9)}
    assert len(held) == stream.n_held_out
    assert not held & seen
    assert held | seen == {tuple(row) for row in np.round(VALUES[:1000, :2], 9)}
    assert {tuple(row) for row in np.round(rows.train.x, 9)} <= seen
    assert_array_equal(blocks.block(2)["x"], blocks.block(2)["x"])


def test_sources_that_cannot_be_read_are_explained(tmp_path):
    (tmp_path / "rows.parquet").write_bytes(b"PAR1")
    broken = VALUES.copy()
    broken[700, 1] = np.nan
    for attempt, message in (
        (lambda: open_rows(tmp_path / "no.parquet"), "there is no file"),
        (lambda: open_rows(tmp_path / "rows.parquet"), "not a Parquet file, or damaged"),
        (lambda: open_rows([1, 2]), "a path or an array with rows and columns, got list"),
        (lambda: open_rows(VALUES, [3]), "numbers from 0 to 2, got 3"),
        (lambda: Stream.over(open_rows(broken), None, seed=0).sample(), "not finite in row 701, column 'x2'"),
        (lambda: Stream.over(open_rows(VALUES), open_rows(VALUES[:9]), seed=0), "1003 rows but y has 9"),
        (
            lambda: Stream.over(open_rows(VALUES), None, seed=0, bounds=[(0, 1)] * 3).sample(),
            "above its upper bound",
        ),
    ):
        with pytest.raises((ValueError, TypeError, OSError), match=message):
            attempt()


FIT = """
    import resource, sys
    import isr
    from isr.estimators.settings import Effort

    isr.ConditionalISR(
        n_blocks=1, n_layers=1, library={"constant": 1, "id": 1}, noise=0, random_state=0,
        training=isr.Training(Effort(6000, 0, 0), n_restarts=1, penalty=None, verbose=False),
    ).fit_file(sys.argv[1], x=["a", "b"], y=["c"])
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_file(tmp_path, record_property):
    used = {}
    for n in (300_000, 6_000_000):
        path = tmp_path / f"{n}.parquet"
        rng = np.random.default_rng(0)
        x = rng.normal(size=(n, 2))
        frame = pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "c": x[:, 0] - x[:, 1] + 0.5 * rng.normal(size=n)})
        frame.to_parquet(path, row_group_size=100_000)
        del frame, x
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(FIT), str(path)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        used[n] = int(done.stdout)
        record_property(f"memory_mb_of_{n}_rows", used[n])
    # The larger file holds 137 MB more of doubles; a fit in memory would need several copies of them.
    assert used[6_000_000] - used[300_000] < 60, used


@pytest.mark.slow
def test_a_density_of_rows_on_disk_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(rows_of_fits, "BLOCK_ROWS", 2000)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(10_000, 2)) @ np.array([[1.0, 0.8], [0.0, 0.6]])
    np.save(tmp_path / "rows.npy", x)
    model = isr.SymbolicFlow(
        charts=(),
        n_layers=1,
        training=isr.Training(Effort(1500, 0, 0), n_restarts=1, penalty=None, verbose=False),
        random_state=0,
    ).fit_file(tmp_path / "rows.npy")
    truth = np.log(2 * np.pi) + 1 + np.log(0.6)
    assert abs(-model.score(rng.normal(size=(20_000, 2)) @ np.array([[1.0, 0.8], [0.0, 0.6]])) - truth) < 0.03

"""Hostile files, sizes and moments at the command line: a sentence, the right exit code, nothing raw on screen."""

import os
import signal
import stat
import subprocess
import sys
import time
import zipfile

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import isr
from fuzz.forgeries import run_command
from isr.bijections.affine import Standardise
from isr.bijections.flow import Flow
from isr.bijections.formula import Formulas
from isr.storage import Bundle, ModelFileError, load, save
from isr.tables.files import read_rows
from isr.training.monitor import Monitor

HOSTILE = ("a\x1b[2J\x07", "b\u202eexe", "c\nerror: d\x9b1m")


@pytest.fixture
def model(tmp_path):
    flow = Flow(Standardise((0.0,) * 3, (1.0,) * 3))
    front = {"complexity": [1], "nll": [0.5], "n_parameters": [0], "chosen": [True]}
    about = {"front": front, "note": HOSTILE[0]}
    return save(
        Bundle(flow, HOSTILE, units={HOSTILE[1]: "m\x1b"}, kind="flow\r\x1b[1m", metadata=about),
        tmp_path / "m.isr",
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ["show"],
        ["show", "--json"],
        ["show", "--text"],
        ["sample", "--y", "a=1"],
        ["show", "--complexity", "0"],
    ],
)
def test_no_name_or_title_steers_a_terminal(model, arguments):
    command, *options = arguments
    _, out, err = run_command(command, model, *options)
    assert not set("\x1b\x07\x9b\u202e\r") & set(out + err)
    if arguments == ["show"]:
        assert "\\u202e" in out
        assert not any(line.startswith("error") for line in out.splitlines())
    assert not set("\x1b\n\u202e") & set(repr(load(model)))


def test_names_in_an_error_are_written_out(tmp_path):
    rows = tmp_path / "rows.csv"
    rows.write_text("a\u202e\x1b[31m,b\n1,2\n3,x\n")
    _, _, err = run_command("fit", rows, "--y", "c", "--out", tmp_path / "x.isr")
    assert "\\u202e" in err
    assert not set("\x1b\u202e") & set(err)


def test_a_cell_of_megabytes_is_not_echoed(tmp_path):
    rows = tmp_path / "rows.csv"
    rows.write_text("a,b\n1," + "x" * 3_000_000 + "\n")
    _, _, err = run_command("fit", rows, "--x", "a,b", "--out", tmp_path / "x.isr")
    assert len(err) < 2000
    assert "is not numeric: row 1 holds 'xxx" in err


@pytest.mark.parametrize("n", ["1000000000000", "1" + "0" * 30])
def test_draws_that_no_memory_holds_are_refused(tmp_path, n):
    path = save(Flow(Standardise((0.0,), (1.0,))), tmp_path / "m.isr")
    code, _, err = run_command("sample", path, "-n", n)
    assert code == 2
    assert "would take about" in err
    assert "ask for fewer at a time" in err


@pytest.mark.skipif(sys.platform != "linux", reason="macOS has no limit of the address space")
@pytest.mark.parametrize("command", [["fit", "rows.csv"], ["show", "m.isr"]])
def test_a_limit_of_the_address_space_is_told_before_xla_meets_it(tmp_path, command):
    (tmp_path / "rows.csv").write_text("a,b\n" + "1,2\n3,5\n" * 20)
    save(Flow(Standardise((0.0,), (1.0,))), tmp_path / "m.isr")
    script = 'ulimit -v 2000000; exec "$0" -m isr.cli "$@"'
    done = subprocess.run(
        ["sh", "-c", script, sys.executable, *command],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("error: this process may use 2.0 GB of address space (ulimit -v)")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("ending", ["npz", "xlsx"])
def test_an_archive_that_unpacks_to_terabytes_is_refused(tmp_path, ending):
    bomb = tmp_path / f"bomb.{ending}"
    if ending == "npz":
        np.savez_compressed(bomb, a=np.zeros(1000))
    else:
        pytest.importorskip("openpyxl")
        pd.DataFrame({"a": np.zeros(1000)}).to_excel(bomb, index=False)
    data = bytearray(bomb.read_bytes())
    entry = data.rindex(b"PK\x01\x02")
    # the unpacked size that it declares
    data[entry + 24 : entry + 28] = (4_000_000_000).to_bytes(4, "little")
    bomb.write_bytes(data)
    with zipfile.ZipFile(bomb) as archive:
        assert archive.infolist()[-1].file_size == 4_000_000_000
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("isr.tables.memory.memory_left", lambda: 1e9)
        with pytest.raises(ValueError, match=r"\d+ (arrays|parts) unpacked would take about 8 GB of memory"):
            read_rows(bomb)


def test_a_cell_in_the_far_corner_of_a_sheet_does_not_make_it_billions_of_cells(tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in (["a", "b"], *([i, 2 * i] for i in range(30))):
        book.active.append(row)
    book.save(tmp_path / "near.xlsx")
    assert read_rows(tmp_path / "near.xlsx").shape == (30, 2)
    book.active["XFD1048576"] = 1
    book.save(tmp_path / "far.xlsx")
    with pytest.raises(
        ValueError, match=r"reaches to row 1,048,576 and column 16,384, but holds only 63 cells"
    ):
        read_rows(tmp_path / "far.xlsx")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names here")
def test_a_device_or_pipe_is_never_replaced_by_a_file(tmp_path, run, models):
    pipe = tmp_path / "out.csv"
    os.mkfifo(pipe)
    code, _, err = run("sample", str(models["flow"]), "-n", "3", "--out", str(pipe), "--force")
    assert (code, "out.csv is no plain file (a pipe or a device); give the name of a file" in err) == (
        2,
        True,
    )
    with pytest.raises(OSError, match="is no plain file"):
        isr.save(isr.load(models["flow"]), pipe)
    assert stat.S_ISFIFO(pipe.stat().st_mode)


@pytest.mark.parametrize("name", ["pipe.isr", "pipe.csv", "/dev/zero"])
def test_a_pipe_or_a_device_is_refused_at_once(tmp_path, name):
    path = tmp_path / name
    if not path.exists():
        os.mkfifo(path)
    begun = time.monotonic()
    code, _, err = run_command("fit" if path.suffix == ".csv" else "show", path)
    assert time.monotonic() - begun < 5
    assert code == 2
    assert "is no plain file (a pipe or a device)" in err
    if path.suffix != ".csv":
        with pytest.raises(ModelFileError, match="no plain file"):
            load(path)


@pytest.mark.parametrize("moment", [0.03, 0.2, 0.5, 0.9])
def test_control_c_while_modules_are_imported_is_one_line(tmp_path, moment):
    save(Bundle(Formulas(jnp.ones(1), (("constant", 0),), 1, 1)), tmp_path / "m.isr")
    process = subprocess.Popen(
        [sys.executable, "-c", "import sys; print('begun', flush=True); from isr.cli import main; main(sys.argv[1:])",
         "show", str(tmp_path / "m.isr")],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout.readline() == "begun\n"
    time.sleep(moment)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) in ((130, "error: interrupted\n"), (0, ""))


@pytest.mark.parametrize(
    ("training", "message"),
    [
        ({"n_restarts": 0}, "n_restarts must be at least 1, got 0"),
        ({"n_restarts": -1}, "n_restarts must be at least 1, got -1"),
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"max_time": -1}, "max_time must be at least 0, got -1"),
        ({"max_time": float("nan")}, "max_time must be at least 0, got nan"),
    ],
)
@pytest.mark.parametrize("kind", [isr.SymbolicFlow, isr.EQLRegressor, isr.ConditionalISR])
def test_training_options_that_mean_nothing_are_refused(kind, training, message):
    x = np.random.default_rng(0).normal(size=(40, 2))
    with pytest.raises(ValueError, match=message):
        kind(training=isr.Training(**training)).fit(x, x[:, 0])


@pytest.mark.parametrize(
    ("kind", "x_scale", "y_scale", "message"),
    [
        (isr.ConditionalISR, 1.0, 1e300, r"the column 'y1' of y reaches .*e.300; .* give it in another unit"),
        (
            isr.ConditionalISR,
            1e-310,
            1.0,
            r"the column 'x1' of x reaches .*e-3\d\d only; .* give it in another unit",
        ),
        (isr.Inversion, 1.0, 1e300, r"the column 'y1' of y reaches .*e.300; .* give it in another unit"),
        (
            isr.SymbolicFlow,
            1e-310,
            1.0,
            r"the column 'x1' of x reaches .*e-3\d\d only; .* give it in another unit",
        ),
        (
            isr.EQLRegressor,
            1e-310,
            1.0,
            r"the column 'X1' of X reaches .*e-3\d\d only; .* give it in another unit",
        ),
    ],
)
def test_numbers_at_the_ends_of_doubles_are_refused(kind, x_scale, y_scale, message):
    x = np.random.default_rng(0).normal(size=(40, 2))
    with pytest.raises(ValueError, match=message):
        kind().fit(x * x_scale, x[:, 0] * y_scale)


def test_a_model_that_found_no_place_is_kept_elsewhere_and_told_by_the_exit_code(tmp_path, monkeypatch):
    rows = tmp_path / "rows.csv"
    np.savetxt(rows, np.random.default_rng(0).normal(size=(60, 2)), delimiter=",", header="a,b", comments="")
    real, calls = save, []

    def full(model, path, **options):
        calls.append(path)
        if str(path).startswith(str(tmp_path / "full")):
            raise OSError(28, "No space left on device")
        return real(model, path, **options)

    (tmp_path / "full").mkdir()
    monkeypatch.setattr("isr.storage.save", full)
    monkeypatch.setattr(Monitor, "should_stop", lambda self: True)
    code, _, err = run_command("fit", rows, "--quick", "--restarts", 1, "--out", tmp_path / "full" / "m.isr")
    assert code == 2
    assert "the model could not be saved as" in err.splitlines()[-1]
    assert load(calls[-1]).kind == "SymbolicFlow"


def test_a_machine_that_jax_cannot_use_is_not_taken_for_a_damaged_file(model):
    done = subprocess.run(
        [sys.executable, "-m", "isr.cli", "show", str(model)],
        env={**os.environ, "JAX_PLATFORMS": "junk"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.startswith("error: JAX cannot compute here: Unable to initialize backend 'junk'")


def test_a_seed_beyond_64_bits_is_refused(model):
    code, _, err = run_command("sample", model, "-n", 1, "--seed", 2**63)
    assert code == 2
    assert "Invalid value for '--seed': Input should be less than or equal to" in err

"""Ten sessions of somebody who uses `isr` for the first time, as they would type them."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

PROGRAM = [sys.executable, "-W", "ignore", "-m", "isr.cli"]
COMMANDS = (
    "fit",
    "show",
    "posterior",
    "sample",
    "predict",
    "check",
    "export",
    "report",
    "demo",
    "reproduce",
)
QUICK = ("--method", "cisr", "--quick", "--restarts", 1, "--blocks", 1, "--layers", 1)


@pytest.fixture
def isr(tmp_path):
    """Runs the program in a folder of its own, as a shell would."""

    def isr(*arguments, **environment):
        return subprocess.run(
            [*PROGRAM, *map(str, arguments)], cwd=tmp_path, capture_output=True, text=True, timeout=600,
            env={**os.environ, "COLUMNS": "80", **environment},
        )  # fmt: skip

    return isr


def table(n, seed=0):
    rng = np.random.default_rng(seed)
    depth, speed = rng.uniform(200, 240, n), rng.uniform(1500, 1600, n)
    p1 = (depth - 220) / 20 + (speed - 1550) / 100 + 0.02 * rng.normal(size=n)
    p2 = (depth - 220) / 20 - (speed - 1550) / 50 + 0.02 * rng.normal(size=n)
    return pd.DataFrame({"depth": depth, "speed": speed, "p1": p1, "p2": p2})


@pytest.mark.slow
def test_a_messy_spreadsheet_leads_to_a_posterior_and_a_page(isr, tmp_path):
    rows = table(400).rename(columns={"depth": "Tiefe (m)", "speed": "Geschwindigkeit (m/s)"}).round(4)
    rows.insert(0, "Datum", "03.01.2024")
    rows["Bemerkung"] = "für später"
    rows["note"] = rows["Bemerkung"]
    rows.loc[[3, 77], "p1"] = np.nan
    text = rows.to_csv(sep=";", decimal=",", index=False).replace("note", "Bemerkung", 1)
    (tmp_path / "messung.csv").write_text(text, encoding="cp1252")
    x, y = "Tiefe (m),Geschwindigkeit (m/s)", "p1,p2"
    refused = isr("fit", "messung.csv", "--x", x, "--y", y)
    assert refused.returncode == 2
    assert "pass --dropna to leave such rows out" in refused.stderr
    fitted = isr("fit", "messung.csv", "--x", x, "--y", y, "--dropna", *QUICK)
    assert fitted.returncode == 0, fitted.stderr
    assert "semicolons between values, commas before decimals, text in cp1252" in fitted.stderr
    assert "2 of 400 rows lack a value and are left out" in fitted.stderr
    # the hints can be pasted into a shell as they are
    hint = next(line.strip() for line in fitted.stdout.splitlines() if "isr posterior" in line)
    done = subprocess.run(
        hint.replace("isr", " ".join(PROGRAM), 1), shell=True, cwd=tmp_path, capture_output=True, text=True, check=False
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Geschwindigkeit (m/s)" in done.stdout
    assert isr("report", "messung.isr", "--data", "messung.csv").returncode == 2  # two rows lack p1
    assert isr("report", "messung.isr").returncode == 0
    assert "<math" in (tmp_path / "messung.html").read_text("utf-8")


@pytest.mark.slow
def test_ctrl_c_keeps_the_best_model_so_far(tmp_path):
    table(2000).to_csv(tmp_path / "rows.csv", index=False)
    command = [
        *PROGRAM,
        "fit",
        "rows.csv",
        "--x",
        "depth,speed",
        "--y",
        "p1,p2",
        "--method",
        "cisr",
        "--thorough",
    ]
    running = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    time.sleep(45)
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=300)
    assert running.returncode in (0, 130), err
    assert running.returncode == 130 or (tmp_path / "rows.isr").exists()
    assert "Traceback" not in err


@pytest.mark.slow
def test_output_may_be_cut_by_a_pipe(isr, tmp_path):
    table(100).to_csv(tmp_path / "rows.csv", index=False)
    assert (
        isr("fit", "rows.csv", "--x", "depth,speed", "--y", "p1,p2", *QUICK, "--out", "m.isr").returncode == 0
    )
    piped = f"set -o pipefail; {' '.join(PROGRAM)} show m.isr | head -1"
    done = subprocess.run(["bash", "-c", piped], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == 1


def test_a_wrong_column_is_answered_with_the_right_one(isr, tmp_path):
    table(100).to_csv(tmp_path / "rows.csv", index=False)
    outcome = isr("fit", "rows.csv", "--x", "dept", "--y", "p1")
    assert outcome.returncode == 2
    assert "has no column 'dept' (did you mean 'depth'?)" in outcome.stderr
    assert len(outcome.stderr.splitlines()) == 1


@pytest.mark.slow
def test_fifty_rows_give_a_model_or_a_sentence(isr, tmp_path):
    table(50).to_csv(tmp_path / "rows.csv", index=False)
    outcome = isr("fit", "rows.csv", "--x", "depth,speed", "--y", "p1,p2")
    assert outcome.returncode in (0, 2, 3), outcome.stderr
    assert "Traceback" not in outcome.stderr
    assert outcome.returncode or (tmp_path / "rows.isr").exists()


@pytest.mark.slow
def test_three_hundred_thousand_rows_are_read_and_fitted(isr, tmp_path):
    table(300_000).to_csv(tmp_path / "rows.csv", index=False)
    outcome = isr("fit", "rows.csv", "--x", "depth,speed", "--y", "p1,p2", *QUICK, "--max-time", 60)
    assert outcome.returncode == 0, outcome.stderr
    assert "300,000 rows" in outcome.stderr


def test_a_folder_that_cannot_be_written_to_is_refused_before_the_work(isr, tmp_path):
    table(100).to_csv(tmp_path / "rows.csv", index=False)
    begun = time.monotonic()
    outcome = isr("fit", "rows.csv", "--x", "depth,speed", "--y", "p1", "--out", "/proc/m.isr")
    if not Path("/proc").is_dir():
        pytest.skip("this system has no folder that nobody can write to")
    assert outcome.returncode == 2
    assert re.search(r"error: .*(cannot write|cannot be written)", outcome.stderr)
    assert time.monotonic() - begun < 20


@pytest.mark.slow
def test_without_a_compiler_a_fit_works_and_the_version_says_so(isr, tmp_path):
    table(200).to_csv(tmp_path / "rows.csv", index=False)
    alone = {"PATH": str(tmp_path), "CC": "", "ISR_CACHE": "off"}
    outcome = isr("fit", "rows.csv", "--x", "depth,speed", "--y", "p1,p2", *QUICK, **alone)
    assert outcome.returncode == 0, outcome.stderr
    assert "compiler" in isr("--version", **alone).stdout


@pytest.mark.slow
def test_without_a_network_everything_works(isr, tmp_path):
    (tmp_path / "offline").mkdir()
    (tmp_path / "offline" / "sitecustomize.py").write_text(
        "import socket\n"
        "def refused(*arguments, **options):\n"
        "    raise OSError('there is no network')\n"
        "socket.getaddrinfo = socket.create_connection = refused\n"
    )
    offline = {"PYTHONPATH": os.pathsep.join([str(tmp_path / "offline"), os.environ.get("PYTHONPATH", "")])}
    table(200).to_csv(tmp_path / "rows.csv", index=False)
    fit = ("fit", "rows.csv", "--x", "depth,speed", "--y", "p1,p2", *QUICK, "--out", "m.isr")
    for command in (
        fit,
        ("show", "m.isr"),
        ("posterior", "m.isr", "--y", "p1=0.1,p2=0.2"),
        ("report", "m.isr"),
    ):
        outcome = isr(*command, **offline)
        assert outcome.returncode == 0, outcome.stderr


@pytest.mark.parametrize("command", [(), *((c,) for c in COMMANDS)], ids=lambda c: "".join(c) or "isr")
def test_help_fits_a_terminal_of_80_columns_and_shows_flags_as_flags(command, isr):
    outcome = isr(*command, "--help")
    assert outcome.returncode == 0
    assert max(map(len, outcome.stdout.splitlines())) <= 80
    assert "<bool>" not in outcome.stdout
    assert "Example" in outcome.stdout or not command


@pytest.mark.slow
def test_a_wheel_in_an_environment_of_its_own_fits_and_reports(tmp_path):
    pip = pytest.importorskip("pip", reason="pip is not installed")
    root = Path(__file__).parents[2]
    del pip
    wheel = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--wheel-dir",
        str(tmp_path),
        str(root),
    ]
    subprocess.run(wheel, check=True)
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    python = tmp_path / "venv" / ("Scripts" if os.name == "nt" else "bin") / "python"
    built = next(tmp_path.glob("symbolicflow-*.whl"))
    subprocess.run(
        [python, "-m", "pip", "install", "--quiet", "-c", root / "constraints.txt", built], check=True
    )  # fmt: skip
    work = tmp_path / "elsewhere"
    work.mkdir()
    table(300).to_csv(work / "rows.csv", index=False)
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    program = shutil.which("isr", path=python.parent)
    for arguments in (
        ("demo", "sensor"),
        ("fit", "rows.csv", "--x", "depth,speed", "--y", "p1,p2", "--quick"),
        ("report", "rows.isr", "--data", "rows.csv"),
    ):
        done = subprocess.run(
            [program, *arguments], cwd=work, capture_output=True, text=True, env=environment, check=False
        )
        assert done.returncode == 0, done.stderr
    assert (work / "demo" / "sensor.html").exists()
    assert (work / "rows.html").exists()

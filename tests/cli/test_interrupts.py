"""A fit that is told to stop, or whose files go away, ends with the best model so far, saved."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from cli.conftest import rows
from isr.storage import load
from isr.training.monitor import Monitor

SHORT = ("--layers", 1, "--blocks", 1, "--restarts", 1, "--dense", "--quick")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_keeps_the_best_model_though_the_data_are_gone(name, run, tmp_path, monkeypatch):
    rows().to_csv(tmp_path / "rows.csv", index=False)
    n_epochs = []

    def advance(self, note=""):
        n_epochs.append(note)
        if len(n_epochs) == 2:
            (tmp_path / "rows.csv").unlink()
            os.kill(os.getpid(), getattr(signal, name))

    monkeypatch.setattr(Monitor, "advance", advance)
    code, out, err = run("fit", "rows.csv", "--x", "depth,speed", *SHORT)
    assert code == 0, err
    assert f"warning: the fit ended early: stopped by {name}" in err
    assert "Saved: rows.isr" in out
    assert len(n_epochs) < 5
    saved = load(tmp_path / "rows.isr")
    assert np.isfinite(saved.sample(100)).all()
    assert "stopped by" in saved.metadata["status"]


@pytest.mark.slow
def test_a_real_process_that_is_terminated_leaves_its_model(tmp_path):
    rows().to_csv(tmp_path / "rows.csv", index=False)
    command = "fit rows.csv --x depth,speed --thorough --checkpoint part".split()
    process = subprocess.Popen(
        [sys.executable, "-m", "isr.cli", *command],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 300
        while not (tmp_path / "part").exists() and process.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=300)
    finally:
        process.kill()
    assert process.returncode == 0, err
    assert "Traceback" not in err
    assert "stopped by SIGTERM" in err
    assert "Saved: rows.isr" in out
    assert np.isfinite(load(tmp_path / "rows.isr").sample(100)).all()

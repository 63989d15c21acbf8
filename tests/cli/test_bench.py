"""``isr bench`` runs the scripts of a clone, and says what is missing where something is."""

import json
import os
import subprocess
import sys
from pathlib import Path

from isr.cli import experiments

ROOT = Path(__file__).parents[2]


def isr_bench(*words, cwd=ROOT):
    command = [sys.executable, "-m", "isr.cli", "bench", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=dict(os.environ), check=False)


def test_options_of_a_script_reach_it_and_rows_and_a_page_are_written(tmp_path):
    asked = ("--list", "kim", "--only", "sine", "--method", "isr LawRegressor", "--noise", "0")
    done = isr_bench("laws", *asked, "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in (tmp_path / "laws.jsonl").read_text().splitlines()]
    assert {row["family"] for row in rows} == {"kim"}
    assert all("sine" in row["formula"] for row in rows)
    assert (tmp_path / "benchmarks.md").exists()


def test_an_unknown_name_is_told_with_those_known(tmp_path):
    done = isr_bench("speed", cwd=tmp_path)
    assert done.returncode == 2
    assert "unknown benchmark 'speed'; known: constants, " in done.stderr


def test_without_a_clone_the_command_says_where_benchmarks_are(run, monkeypatch, tmp_path):
    monkeypatch.setattr(experiments, "__file__", str(tmp_path / "a" / "b" / "c" / "d" / "experiments.py"))
    monkeypatch.chdir(tmp_path)
    outcome = run("bench", "restarts")
    assert outcome.code == 2
    assert "benchmarks come with the repository" in outcome.err

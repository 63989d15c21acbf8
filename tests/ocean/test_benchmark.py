"""The benchmark runs, and its own figures meet the targets it is there to show."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "normal_modes.py"


def test_the_quick_benchmark_writes_rows_that_meet_the_targets(tmp_path):
    out = tmp_path / "rows.jsonl"
    subprocess.run([sys.executable, SCRIPT, "--quick", "--out", out], check=True, capture_output=True)
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert all({"commit", "machine", "seed", "compile_seconds"} <= row.keys() for row in rows)
    default = next(row for row in rows if row.get("mesh", "").startswith("default"))
    assert default["worst_error_against_kraken"] < 3e-3
    assert default["worst_error_against_kraken_one_frequency"] < 1e-2
    environments = [row for row in rows if row["measure"] == "environment"]
    assert len(environments) == 10
    assert all(row["full_20_points_against_krakenc"] < 1e-3 for row in environments)
    rates = [row for row in rows if row["measure"] == "rate"]
    assert rates
    assert all(row["failures"] == 0 for row in rates)
    assert (
        rates[0]["cpu_ms_per_environment"] < 60
    )  # KRAKEN's; the margin is wide so that a busy machine passes


@pytest.mark.slow
def test_both_kinds_of_chains_of_event_s5_write_a_row(tmp_path):
    out = tmp_path / "rows.jsonl"
    script = SCRIPT.with_name("event_s5.py")
    subprocess.run([sys.executable, script, "--quick", "--out", out], check=True, capture_output=True)
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["kind"] for row in rows] == ["gradients", "walkers"]
    assert all(len(row["mean"]) == len(row["sd"]) == 7 for row in rows)

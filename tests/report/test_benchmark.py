"""The benchmark of the explorer runs, and says so where it cannot."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "report_explorer.py"


@pytest.mark.slow
def test_the_quick_benchmark_writes_a_row(tmp_path):
    out = tmp_path / "rows.jsonl"
    subprocess.run([sys.executable, SCRIPT, "--quick", "--out", out], check=True, capture_output=True)
    (row,) = [json.loads(line) for line in out.read_text().splitlines()]
    assert {"commit", "machine", "load", "seed", "n_constants", "jax_draw_ms"} <= row.keys()
    assert row["page_kb"] < 3000
    if "failure" not in row:
        assert row["pictures_per_second"] > 1
        # Sixty frames a second leave 16.7 ms; a shared machine may take a few times as long.
        assert row["frame_ms_best"] <= row["frame_ms"] < 200

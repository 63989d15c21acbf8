"""The benchmark of laws: rows of noise as told, honest rows of failures, counts."""

import json

import numpy as np
import pytest

import laws
from formulas import family
from isr.paper import records


def test_noise_is_in_units_of_the_spread_of_y():
    formula = family("feynman")["I.13.4"]
    x, exact = laws.data(formula, 20_000, 3, 0.0)
    same, noisy = laws.data(formula, 20_000, 3, 0.1)
    np.testing.assert_array_equal(x, same)
    np.testing.assert_array_equal(exact, formula.values(x))
    assert np.std(noisy - exact) == pytest.approx(0.1 * np.std(exact), rel=0.02)


def test_the_truth_explains_everything_and_a_mean_nothing():
    y = np.arange(5.0)
    assert laws.r_squared(y, y) == 1
    assert laws.r_squared(np.full(5, 2.0), y) == 0
    assert laws.r_squared(np.full(5, np.nan), y) is None


def test_a_summary_counts_by_method_family_and_noise():
    common = {"method": "a", "family": "kim", "noise": 0.0}
    rows = [
        common | {"symbolic": True, "strict": False, "fit_cpu_seconds": 2.0},
        common | {"symbolic": True, "strict": True, "fit_cpu_seconds": 4.0},
        common | {"symbolic": False, "strict": False, "failure": "no"},
        common | {"noise": 0.1, "symbolic": False, "strict": False, "fit_cpu_seconds": 1.0},
    ]
    first, second = map(json.loads, laws.summary(rows).splitlines())
    assert first == {
        "method": "a", "family": "kim", "noise": 0.0, "fits": 3, "symbolic": 2, "strict": 1, "median_cpu": 3.0,
        "most_cpu": 4.0, "failed": 1,
    }  # fmt: skip
    assert second["noise"] == 0.1


@pytest.mark.slow
def test_a_run_leaves_a_row_for_each_formula_and_noise(tmp_path):
    out = tmp_path / "rows.jsonl"
    laws.main([
        "--list", "strogatz", "--only", "vdp2", "--noise", "0", "0.01", "--max-time", "5", "--method",
        "isr EQLRegressor", "--out", str(out),
    ])  # fmt: skip
    rows = records.read(out)
    assert [row["noise"] for row in rows] == [0.0, 0.01]
    assert all(row["r2"] > 0.99 for row in rows)
    assert {
        "commit",
        "machine",
        "fit_cpu_seconds",
        "symbolic",
        "strict",
        "found",
        "memory_mb",
        "seed",
    } <= rows[0].keys()

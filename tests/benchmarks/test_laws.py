"""The benchmark of laws: rows of noise as told, honest rows of failures, counts."""

import json

import numpy as np
import pytest

import laws
import page
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


def law(formula, noise=0.0, **more):
    return {
        "benchmark": "laws", "family": "strogatz", "formula": formula, "method": "isr LawRegressor", "noise": noise,
        "seed": 0, "quick": False, "commit": "abc", "machine": "one",
    } | more  # fmt: skip


FOUND = {"strict": True, "symbolic": True, "r2": 1.0, "fit_cpu_seconds": 1.5, "found": "x0"}
MISSED = {"strict": False, "symbolic": False, "r2": 0.9, "fit_cpu_seconds": 3.5, "found": "x0 + | x1"}


def test_the_page_tells_what_is_found_what_is_missed_and_what_was_found_instead(tmp_path):
    rows = [
        law("vdp1", **FOUND), law("vdp2", **MISSED), law("lv1", failure="not done after 60 s"),
        law("vdp1", 0.1, **FOUND | {"strict": False}), law("vdp1", method="pyoperon", **MISSED),
    ]  # fmt: skip
    text = page.render(page.chosen(rows), tmp_path, "figures")
    assert "| strogatz | 0 | isr LawRegressor | 1 of 3 | 1 of 3 | 1 of 3 | 2.5 | 3.5 | 1 |" in text
    assert "| formula | LawRegressor, 0 | LawRegressor, 0.1 | pyoperon, 0 |" in text
    assert "| vdp1 | ✓ | (✓) | – |" in text
    assert "| lv1 | – |  |  |" in text
    assert "| strogatz | vdp2 | 0 | 0.9 | `x0 + \\| x1` |" in text
    assert "| laws found, Strogatz's systems, noise 0 | ≥ 13 of 14 |  | not measured |" in text
    assert "| laws found, blind, noise 0 | ≥ 34 of 40 |  | not measured |" in text


def test_a_list_is_judged_once_all_of_it_was_tried(tmp_path):
    rows = [law(f"one{i}", **(FOUND if i else MISSED)) for i in range(14)]
    text = page.render(page.chosen(rows), tmp_path, "figures")
    assert "| laws found, Strogatz's systems, noise 0 | ≥ 13 of 14 | 13 of 14 |" in text


def test_a_fit_that_failed_counts_beside_those_that_did_not():
    failed = law("lv1", failure="not done after 60 s")
    assert page.chosen([failed, law("vdp1", **FOUND)])[0] == failed
    assert page.chosen([failed, law("lv1", **FOUND)]) == [law("lv1", **FOUND)]


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

"""The machinery of the benchmarks, without a single peer: complete rows, failures kept, verdicts, the page."""

import json
import sys
from pathlib import Path

import pytest

import harness
import page
import targets
from fronts import constants, equal_time, front
from harness import Case
from isr.paper import records
from run import benchmarks_in

FOLDER = Path(__file__).parents[2] / "benchmarks"
SCRIPT = '''"""A benchmark of nothing."""
import sys
sys.path.insert(0, {folder!r})
from harness import Case, main, time_calls

def cases(quick):
    return [
        Case({{"flow": "fine"}}, timeout=60),
        Case({{"flow": "broken"}}, timeout=60),
        Case({{"flow": "endless"}}, timeout=0.1),
        Case({{"flow": "absent"}}, needs=("no-such-distribution",)),
    ]

def measure(flow, *, quick, seed):
    yield time_calls(lambda: sum(range(1000)), seconds=0.01).as_row(10) | {{"given": [quick, seed]}}
    if flow == "broken":
        raise ArithmeticError("it does not add up")
    if flow == "endless":
        import time
        time.sleep(60)

if __name__ == "__main__":
    main("nothing", cases, measure)
'''


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    folder = tmp_path_factory.mktemp("benchmark")
    script, out = folder / "nothing.py", folder / "nothing.jsonl"
    script.write_text(SCRIPT.format(folder=str(FOLDER)))
    import subprocess

    subprocess.run(
        [sys.executable, script, "--quick", "--seed", "3", "--out", out], check=True, capture_output=True
    )
    return records.read(out)


def of(rows, flow):
    return [row for row in rows if row["flow"] == flow]


def test_a_row_is_complete(rows):
    (row,) = of(rows, "fine")
    told = {"commit", "versions", "machine", "seed", "quick", "cores", "load", "others_cores", "case_seconds"}
    timed = {"compile_seconds", "compile_cpu_seconds", "run_seconds", "wall_ms", "cpu_ms", "n_calls"}
    assert told | timed <= row.keys()
    assert row["given"] == [True, 3]
    assert "failure" not in row


def test_a_case_that_breaks_keeps_its_rows_and_says_why(rows):
    measured, failed = of(rows, "broken")
    assert "wall_ms" in measured
    assert failed["failure"] == "ArithmeticError: it does not add up"


def test_a_case_that_does_not_end_is_a_failure(rows):
    assert of(rows, "endless")[-1]["failure"] == "not done after 2 s"


def test_a_missing_peer_is_told_with_the_remedy(rows):
    (row,) = of(rows, "absent")
    assert row["failure"] == "not installed: no-such-distribution; `make bench` installs every peer"


def test_times_are_those_of_one_thing():
    row = harness.Timing(1.5, 1.2, [0.4, 0.2, 0.3], [0.2, 0.1, 0.2]).as_row(10)
    assert row["wall_ms"] == pytest.approx(30)
    assert row["cpu_ms"] == pytest.approx(20)
    assert row["compile_seconds"] == pytest.approx(1.3)


def step(flow, cpu_ms, **more):
    row = {
        "benchmark": "training_step",
        "part": "step",
        "flow": flow,
        "cores": 1,
        "batch_size": 100,
        "quick": True,
    }
    return (
        row
        | {"cpu_ms": cpu_ms, "cpu_ms_best": cpu_ms, "n_parameters": 5, "commit": "abc", "machine": "one"}
        | more
    )


def test_a_full_row_counts_before_a_quick_one_and_a_later_before_an_earlier():
    rows = [step("a", 3.0, quick=False), step("a", 1.0), step("b", 5.0), step("b", 6.0)]
    assert [row["cpu_ms"] for row in page.chosen(rows)] == [3.0, 6.0]


def test_a_failure_counts_until_the_case_is_measured():
    failed = {"benchmark": "training_step", "part": "step", "flow": "a", "cores": 1, "failure": "broken"}
    assert page.chosen([failed]) == [failed]
    assert page.chosen([failed, step("a", 1.0)]) == [step("a", 1.0)]


def test_the_page_says_what_holds_what_falls_short_and_why(tmp_path):
    failed = {"benchmark": "sampling", "flow": "sbi MAF", "failure": "not installed: sbi"}
    rows = [
        step("isr cISR", 1.0, others_cores=1.5), step("PyTorch eager cISR", 60.0), step("FrEIA cINN", 10.0), failed,
    ]  # fmt: skip
    text = page.render(rows, tmp_path, "figures")
    verdicts = {
        line.split("|")[1].strip(): line for line in text.splitlines() if line.startswith("| training step")
    }
    assert (
        "| ≥ 50 × | 60 × | holds |"
        in verdicts["training step, batch 100, cISR against the same in PyTorch eager"]
    )
    assert "| 10 × | **falls short**: see" in verdicts["training step, batch 100, cISR against FrEIA's cINN"]
    assert "not measured" in verdicts["training step, batch 100, cISR against FlowJAX's coupling flow"]
    assert "other programs used 1.5 to 1.5 cores" in text
    assert "- sbi MAF: not installed: sbi" in text
    assert (tmp_path / "benchmark-training-step.png").stat().st_size > 5000


def test_a_number_below_is_good_where_less_is_better():
    target = targets.Target("seconds", 5, lambda rows: 4.0, "slow", at_most=True, unit="s")
    assert target.judged([]) == ("≤ 5 s", "4 s", "holds")


def test_the_benchmarks_are_the_scripts_that_take_the_options():
    found = benchmarks_in(FOLDER)
    assert {"training_step", "equal_time", "growth", "normal_modes"} <= set(found)
    assert not {"harness", "page", "figures", "cluster_costs"} & set(found)


@pytest.mark.parametrize(
    "name",
    ["training_step", "restarts", "sampling", "equal_time", "constants", "symbolic", "growth", "densities"],
)
def test_the_quick_form_has_fewer_cases_than_the_full_one(name):
    import importlib

    script = importlib.import_module(name)
    quick, full = script.cases(True), script.cases(False)
    assert all(isinstance(case, Case) for case in [*quick, *full])
    assert 0 < len(quick) <= len(full)
    assert json.dumps([case.options for case in full])


def trained(flow, n_parameters, err_post, **more):
    return {
        "benchmark": "equal_time", "problem": "arm", "flow": flow, "budget": 180.0, "n_parameters": n_parameters,
        "n_steps": 10, "err_post": err_post, "err_resim": 0.01, "err_resim_median": 0.01,
    } | more  # fmt: skip


def smaller(flow, n_parameters, err_post):
    return trained(flow, n_parameters, err_post, benchmark="constants", n_blocks=2, n_layers=1, width=4)


def test_errors_of_several_seeds_are_told_by_mean_and_range():
    rows = [trained("isr cISR", 100, error, seed=seed) for seed, error in enumerate((0.1, 0.3))]
    text = equal_time([*rows, trained("sbi MAF", 200, 0.25, seed=0)])
    assert "| 180 | isr cISR | 100 | 10 | 0.2 | 0.01 | 0.01 | 2 | 0.1, 0.3 |" in text
    assert "| 180 | sbi MAF | 200 | 10 | 0.25 | 0.01 | 0.01 | 1 |  |" in text
    assert "On the front of error against time: isr cISR (180 s)." in text


def test_the_front_of_constants_has_flows_of_all_sizes_trained_as_long_and_names_who_else_is_on_it():
    rows = [
        smaller("isr cISR", 50, 0.3), trained("isr cISR", 100, 0.1), trained("isr cISR", 100, 0.0, budget=600.0),
        smaller("FlowJAX spline", 60, 0.4),
    ]  # fmt: skip
    alone = constants(rows)
    assert "| 50 | isr cISR | 2 blocks, 1 layers, half the functions | 10 | 0.3 |  | 0.01 | yes |" in alone
    assert "| 100 | isr cISR | as above | 10 | 0.1 |  | 0.01 | yes |" in alone
    assert "| 60 | FlowJAX spline | 2 blocks, 1 layers, 4 units | 10 | 0.4 |  | 0.01 |  |" in alone
    assert "isr's cISR is alone on the front" in alone
    assert "It is that rule" not in alone
    level = constants([*rows, smaller("isr cISR", 70, 5e-5), trained("isr cINN", 300, 1e-5)])
    assert "alone" in level
    assert "by the bare numbers there would stand beside it isr cINN with 300 constants (1e-05)." in level
    twice = constants([*rows, trained("isr cISR, small", 50, 0.5)])
    assert "half the functions | 10 | 0.4 | 0.3, 0.5 | 0.01 | yes |" in twice
    beside = constants([*rows, smaller("FlowJAX spline", 65, 0.2)])
    assert "Beside isr's cISR there stand on the front: FlowJAX spline with 65 constants." in beside


def test_a_front_holds_what_none_beats_at_the_same_cost_or_a_lower_one():
    errors = {(1, "a"): 0.9, (1, "b"): 0.7, (3, "a"): 0.4, (3, "b"): 0.8, (10, "a"): 0.3, (10, "b"): 0.5}
    rows = [{"budget": b, "flow": name, "c2st": error} for (b, name), error in errors.items()]
    found = [(r["budget"], r["flow"]) for r in front(rows, "budget", "c2st")]
    assert found == [(1, "b"), (3, "a")]  # 0.4 and 0.3 are both those of exact draws

"""``isr fit``: from a file to a saved model, and what it refuses before any work is done."""

import copy
import json
import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

import isr
from isr.cli.fit import Knowledge, Method, Networks, conclude, estimator_of
from isr.cli.inputs import Pairs, Reading, read_pairs
from isr.cli.options import bounds_in, noise_in
from isr.storage import load

SHORT = ("--layers", 1, "--blocks", 1, "--restarts", 1, "--dense", "--max-time", 0.1)


def test_a_density_is_fitted_saved_and_shown(run, models, tmp_path):
    code, out, err = run("fit", models["rows"], "--x", "depth,speed", "--units", "depth=m", *SHORT)
    assert code == 0
    assert "rows.csv: 200 rows; x = depth, speed; method flow" in err
    assert "warning: the fit ended early: max_time of 0.1 s reached" in err
    for part in ("Accuracy against complexity", "a normal law", "inverse undoes forward", "Saved: rows.isr"):
        assert part in out
    assert "isr sample rows.isr -n 1000 --out samples.csv" in out
    saved = load(tmp_path / "rows.isr")
    assert saved.units == {"depth": "m"}
    assert saved.metadata["data"] == "rows.csv"
    assert saved.metadata["rows"] == 200
    assert "history" in saved.metadata


def test_an_inverse_problem_is_fitted_and_told_in_json(run, models, tmp_path):
    data = pd.read_csv(models["rows"])
    data.to_parquet(tmp_path / "rows.parquet")
    code, out, _ = run(
        "fit", "rows.parquet", "--y", "p*", "--bounds", "depth=200:240,speed=1500:1600", *SHORT, "--json"
    )
    assert code == 0
    found = json.loads(out)
    assert (found["kind"], found["x"], found["y"]) == ("ConditionalISR", ["depth", "speed"], ["p1", "p2"])
    assert found["checks"]["passed"]
    assert np.isfinite(found["scores"]["held_out_nats"])
    drawn = run("sample", found["out"], "--y", "p1=0.2,p2=0.1", "-n", 50, "--json").out
    assert all(200 <= depth <= 240 for depth in json.loads(drawn)["depth"])


def test_the_end_of_a_regression_shows_the_formulas(models, regressor, tmp_path, capsys):
    frame = pd.read_csv(models["rows"])
    named = copy.copy(regressor).set_params(units={"p1": "Pa"})
    named.y_names_ = ("p1",)
    conclude(
        named, Pairs(frame[["depth", "speed"]], frame[["p1"]], {}, {}), tmp_path / "law.isr", "rows.csv", as_json=False,
        provenance={"command": "isr fit"},
    )  # fmt: skip
    out = capsys.readouterr().out
    assert "# p₁ in Pa" in out
    assert "p₁ = 0.0500(20)·depth" in out
    assert "R² = 1" in out
    assert "formulas = model" in out
    assert load(tmp_path / "law.isr").y_names == ("p1",)


def test_without_x_columns_that_hold_no_numbers_are_left_out_and_said(tmp_path, capsys):
    path = tmp_path / "rows.csv"
    rows = pd.DataFrame({"site": ["north", "east"], "when": ["2024-01-01", "2024-01-02"], "empty": np.nan})
    rows.assign(a=["1,234.5", "2"], y=[1.0, 2.5]).to_csv(path, index=False)
    with pytest.warns(UserWarning, match="'a' is read without the marks"):
        pairs = read_pairs(path, None, "y", Reading())
    assert (list(pairs.x), pairs.since) == (["a"], {})
    assert "without numbers are left out: 'site', 'when', 'empty'" in capsys.readouterr().err
    with pytest.warns(UserWarning, match="'a' is read"):
        pairs = read_pairs(path, None, "y", Reading(dates=True))
    assert pairs.x["when"].tolist() == [0.0, 1.0]
    assert pairs.units == {"when": "days since 2024-01-01"}


METHODS = {
    Method.isr: (isr.ISR, "eql"), Method.cisr: (isr.ConditionalISR, "eql"), Method.inn: (isr.ISR, "mlp"),
    Method.cinn: (isr.ConditionalISR, "mlp"), Method.flow: (isr.SymbolicFlow, "eql"),
}  # fmt: skip


@pytest.mark.parametrize(("method", "expected"), METHODS.items())
def test_each_method_is_the_estimator_of_that_name(method, expected):
    made = estimator_of(method, Knowledge(), Networks(["a=0:1"], 3, quick=True), units=None, seed=0)
    assert (type(made), made.subnet or "eql") == expected
    assert (made.n_blocks, made.training.effort, made.bounds) == (3, "quick", {"a": (0, 1)})


def test_a_formula_is_found_by_the_search_for_laws(run, models, tmp_path):
    columns = ("--x", "depth,speed", "--y", "p1", "--method", "formula", "--primitives", "sqrt,reciprocal")
    code, out, _ = run("fit", models["rows"], *columns, "--out", "p.isr", "--max-time", 20)
    assert code == 0
    assert "LawRegressor of depth, speed" in out
    assert "R²" in out
    assert load(tmp_path / "p.isr").kind == "LawRegressor"


def test_bounds_and_noise_are_read():
    assert bounds_in(["a=0:1,b=:2", "c=-1e3:"]) == {"a": (0.0, 1.0), "b": (None, 2.0), "c": (-1000.0, None)}
    assert bounds_in([]) is None
    assert (noise_in("auto"), noise_in("0.5"), noise_in("p=1,q=2")) == ("auto", 0.5, {"p": 1.0, "q": 2.0})


WRONG = {
    "no file": ("fit row.csv", "there is no file row.csv (did you mean 'rows.csv'?)"),
    "no column": ("fit rows.csv --x dpth", "has no column 'dpth' (did you mean 'depth'?)"),
    "no y column": ("fit rows.csv --y q", "rows.csv has no column 'q'"),
    "both": ("fit rows.csv --x depth --y depth", "'depth' stands in --x and in --y"),
    "none left": ("fit rows.csv --y *", "no column with numbers is left for x"),
    "density of y": ("fit rows.csv --y p1 --method flow", "leave --y out, or use --method cisr"),
    "nothing measured": ("fit rows.csv --method isr", "--method isr needs to know what is measured: add --y"),
    "unknown method": ("fit rows.csv --method magic", "'magic' is not one of 'law', 'formula', 'isr'"),
    "bounds": (
        "fit rows.csv --bounds depth=200",
        "cannot read depth=200; write it as --bounds depth=200:240",
    ),
    "bound": ("fit rows.csv --bounds depth=a:b", "--bounds needs a number for 'depth', got 'a'"),
    "units": (
        "fit rows.csv --units dept=m",
        "--units names 'dept', which is neither in x nor in y (did you mean",
    ),
    "noise": ("fit rows.csv --noise 0.1", "--noise means nothing with --method flow; leave it out"),
    "blocks": ("fit rows.csv --y p1 --method eql --blocks 2", "--blocks means nothing with --method eql"),
    "efforts": ("fit rows.csv --quick --thorough", "exclude each other"),
    "folder": ("fit rows.csv --out no/model.isr", "the folder no does not exist; create it first"),
    "restarts": ("fit rows.csv --restarts 0", "Invalid value for '--restarts'"),
    "outside": ("fit rows.csv --x depth,speed --y p1 --bounds depth=0:210", "above its upper bound 210.0"),
}


@pytest.mark.parametrize(("command", "sentence"), WRONG.values(), ids=WRONG.keys())
def test_a_mistake_is_one_line_before_any_work(command, sentence, run, models, tmp_path):
    (tmp_path / "rows.csv").write_bytes(models["rows"].read_bytes())
    code, out, err = run(*command.split())
    assert (code, out) == (2, "")
    assert sentence in err
    assert err.splitlines()[-1].startswith("error: ")
    assert [p.name for p in tmp_path.iterdir()] == ["rows.csv"]


def test_commands_run_as_programs_without_a_terminal_or_its_signs(models, tmp_path):
    def isr_program(*arguments):
        done = subprocess.run(
            [sys.executable, "-m", "isr.cli", *map(str, arguments)], capture_output=True, text=True, cwd=tmp_path,
            stdin=subprocess.DEVNULL, encoding="latin-1", env=os.environ | {"PYTHONIOENCODING": "latin-1"},
        )  # fmt: skip
        return done.returncode, done.stdout, done.stderr

    code, out, err = isr_program("predict", models["eql"], "--x", "depth=220,speed=1550", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["y"] == pytest.approx([0.0], abs=1e-9)
    code, out, err = isr_program("show", models["flow"])
    assert (code, err) == (0, "")
    assert "z? " in out  # for a subscript that this encoding does not have
    code, out, err = isr_program("show", "nothing.isr")
    assert (code, out) == (2, "")
    assert err == "error: there is no file nothing.isr; isr fit makes one\n"

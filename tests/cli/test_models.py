"""The commands that read a saved model: show, check, export, posterior, sample, predict, report."""

import importlib
import io
import json
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import sympy

import isr
from isr.bijections.affine import Bounded, Standardise
from isr.bijections.bijection import Chain
from isr.bijections.flow import Flow
from isr.cli.inputs import open_model
from isr.cli.show import front_of
from isr.equations.check import CheckResult, CheckRow
from isr.posterior.outliers import OutsideDataWarning
from isr.report import gather, render
from isr.storage import Bundle, load, save

EVERY = ["flow", "cisr", "isr", "eql"]


def frame_of(text):
    return pd.read_csv(io.StringIO(text))


def test_a_law_of_motion_is_shown_exported_and_described(run, tmp_path):
    times = np.linspace(0, 2, 30)
    runs = np.stack([np.exp(-times), 3 * np.exp(-times)])[:, :, None]
    library = [isr.motion.library.Library(1)]
    isr.MotionRegressor(library=library).fit(times, runs, names=["q"]).save(tmp_path / "law.isr")
    assert "q' = -q" in run("show", "law.isr").out
    about = json.loads(run("show", "law.isr", "--json").out)
    assert about["laws"]["The law of motion"] == "q' = -q"
    source = run("export", "law.isr", "--lang", "python").out
    assert "def " in source
    code, _, err = run("show", "law.isr", "--latex")
    assert (code, "a law of motion is an equation for rates, not for y" in err) == (2, True)


# show ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", EVERY)
def test_show_prints_equations_and_front(kind, run, models):
    code, out, err = run("show", models[kind])
    assert (code, err) == (0, "")
    assert "depth" in out
    assert "Equations" in out
    assert "held-out nats" in out


def test_show_gives_the_standard_errors_of_constants(run, models):
    out = run("show", models["eql"]).out
    assert "0.0500(20)·depth" in out
    assert "26.50(50)" in out
    assert "0.0500(20)" in run("show", models["eql"], "--latex").out
    shown = json.loads(run("show", models["eql"], "--json").out)
    assert [c["value"] for c in shown["constants"]] == [26.5, 0.05]
    assert [c["error"] for c in shown["constants"]] == pytest.approx([0.5, 0.002])


@pytest.mark.parametrize("kind", EVERY)
def test_shown_text_is_what_sympy_reads(kind, run, models):
    lines = [line for line in run("show", models[kind], "--text").out.splitlines() if line[0] != "#"]
    assert all(sympy.sympify(line.split(" = ")[1]) is not None for line in lines)


@pytest.mark.parametrize("kind", EVERY)
def test_show_gives_latex_and_json(kind, run, models):
    assert run("show", models[kind], "--latex").out.startswith(r"\begin{align*}")
    shown = json.loads(run("show", models[kind], "--json").out)
    assert shown["x"] == ["depth", "speed"]
    assert shown["complexity"] > 0
    assert ("inverse" in shown["equations"]) == (kind != "eql")


def test_units_stand_beside_their_variables(run, models):
    assert "ConditionalISR of depth (m), speed, given p1" in run("show", models["cisr"]).out


@pytest.mark.parametrize("kind", EVERY)
def test_units_reach_equations_code_and_axes(kind, run, models):
    assert "# depth in m\n" in run("show", models[kind], "--text").out
    assert "# depth in m\n" in run("show", models[kind]).out
    assert re.search(r"depth (\(m\)|in m)\n", run("export", models[kind], "--lang", "c").out)
    rows = pd.read_csv(models["rows"]).assign(y=0.0)
    page = render(gather(load(models[kind]), data=rows, checks=False))
    axis = "y (Pa), observed" if kind == "eql" else "depth (m)"
    assert f">{axis}</text>" in page


def test_show_inverse_is_the_other_direction(run, models):
    assert (
        run("show", models["flow"], "--inverse", "--text").out
        == load(models["flow"]).expressions.text("inverse") + "\n"
    )


def test_show_takes_another_model_of_the_front(run, models):
    saved = load(models["eql"])
    front = saved.metadata["front"]
    assert set(saved.others) == {f"front {i}" for i, chosen in enumerate(front["chosen"]) if not chosen}
    simplest = json.loads(run("show", models["eql"], "--complexity", front["complexity"][0], "--json").out)
    assert simplest["complexity"] == front["complexity"][0]
    assert simplest["front"][0]["chosen"]
    code, _, err = run("show", models["eql"], "--complexity", 0)
    assert code == 2
    assert f"no model has complexity 0 or less; the simplest on the front has {front['complexity'][0]}" in err


# check and export -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", EVERY)
def test_check_passes_for_every_kind(kind, run, models):
    assert run("check", models[kind], "--data", models["rows"]).code == 0
    assert json.loads(run("check", models[kind], "--json").out)["passed"]


def test_a_failed_check_has_its_own_exit_code(run, models, monkeypatch):
    monkeypatch.setattr(
        importlib.import_module("isr.equations.check"), "check",
        lambda *a, **k: CheckResult((CheckRow("forward", 1.0, 1e-9, 3),)),
    )  # fmt: skip
    code, out, err = run("check", models["flow"])
    assert code == 4
    assert "FAILED" in out
    assert "the equations do not hold: forward: error 1.0e+00" in err


@pytest.mark.parametrize("kind", EVERY)
@pytest.mark.parametrize("language", ["python", "c", "javascript", "jax", "latex"])
def test_every_model_is_exported_to_every_language(kind, language, run, models):
    code, out, _ = run("export", models[kind], "--lang", language)
    assert code == 0
    assert out.endswith("\n")


def test_exported_python_computes_what_the_model_does(run, models, tmp_path):
    rows = pd.read_csv(models["rows"])
    space = {}
    exec(run("export", models["eql"]).out, space)  # noqa: S102
    predicted = frame_of(run("predict", models["eql"], models["rows"]).out)["y"]
    np.testing.assert_allclose(space["y"](rows["depth"], rows["speed"]), predicted, rtol=1e-9, atol=1e-12)
    run("export", models["flow"], "--out", "law.py")
    space = {}
    exec((tmp_path / "law.py").read_text(), space)  # noqa: S102
    x = rows[["depth", "speed"]].to_numpy()
    np.testing.assert_allclose(space["log_prob"](x), load(models["flow"]).log_prob(x), rtol=1e-9)


# posterior and sample ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["cisr", "isr"])
def test_a_posterior_is_summarised_and_its_draws_written(kind, run, models, tmp_path):
    code, out, err = run("posterior", models[kind], "--y", "p1=0.3", "-n", 200, "--out", "draws.csv")
    assert code == 0
    assert err.startswith("warning: ")  # these models were hardly trained
    assert "of the draws lie outside the range of the training rows" in err
    assert "given p1 = 0.3" in out
    assert "map" in out
    drawn = pd.read_csv(tmp_path / "draws.csv")
    with pytest.warns(OutsideDataWarning):
        expected = load(models[kind]).posterior([0.3]).sample(200)
    np.testing.assert_allclose(drawn, expected, rtol=1e-14)


def test_a_posterior_as_json_agrees_with_its_draws(run, models):
    drawn = frame_of(run("sample", models["cisr"], "--y", "p1=0.3", "-n", 200).out)
    (found,) = json.loads(run("posterior", models["cisr"], "--y", "p1=0.3", "-n", 200, "--json").out)[
        "posteriors"
    ]
    assert found["unlike_training_data"] is False
    assert [row["mean"] for row in found["summary"]] == pytest.approx(drawn.mean().to_list())


def test_a_densest_point_that_is_a_spike_is_told_in_words(run, tmp_path):
    steps = (Bounded((0.0, 0.0), (1.0, 1.0)), Standardise((0.0, 0.0), (1.0, 2.0)))
    save(Bundle(Flow(Chain(steps), noise=(0.1,)), ("depth", "angle"), ("seen",)), tmp_path / "spiked.isr")
    told = "the density rises towards the .* bound of angle"
    _, out, _ = run("posterior", tmp_path / "spiked.isr", "--y", "seen=0")
    assert re.search(rf"no densest point \(map\): {told}", out)
    (found,) = json.loads(run("posterior", tmp_path / "spiked.isr", "--y", "seen=0", "--json").out)[
        "posteriors"
    ]
    assert re.match(told, found["map_note"])
    assert "map" not in found["summary"][0]


def test_a_posterior_goes_to_arviz_parquet_and_a_picture(run, models, tmp_path):
    common = ("posterior", models["isr"], "--y", "p1=0.3", "-n", 100)
    assert run(*common, "--out", "draws.nc", "--plot", "draws.png").code == 0
    assert run(*common, "--out", "draws.parquet").code == 0
    assert (tmp_path / "draws.png").read_bytes()[:4] == b"\x89PNG"
    assert (tmp_path / "draws.nc").read_bytes()[:4] == b"\x89HDF"
    assert pd.read_parquet(tmp_path / "draws.parquet").shape == (100, 2)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["draws.nc", "draws.parquet", "draws.png"]


def test_every_row_of_measurements_has_its_posterior(run, models, tmp_path):
    (tmp_path / "seen.csv").write_text("p1\n0.3\n-0.3\n")
    common = ("posterior", models["isr"], "--y-file", "seen.csv", "-n", 50)
    assert "add --together where all measure the same x, or --each" in run(*common).err
    assert run(*common, "--each", "--out", "draws.csv").code == 0
    assert pd.read_csv(tmp_path / "draws.csv")["observation"].value_counts().to_dict() == {1: 50, 2: 50}
    (one,) = json.loads(run(*common, "--together", "--json").out)["posteriors"]
    assert one["n_observations"] == 2
    assert "hold one posterior, but seen.csv has 2 rows" in run(*common, "--each", "--plot", "a.png").err


def test_a_measurement_unlike_the_training_data_is_noticed(run, models):
    code, out, err = run("posterior", models["cisr"], "--y", "p1=90", "-n", 50, "--json")
    assert code == 0
    assert err.startswith("warning: y_star is unlike the training data")
    assert json.loads(out)["posteriors"][0]["unlike_training_data"] is True


def test_samples_are_those_of_the_model(run, models):
    drawn = frame_of(run("sample", models["flow"], "-n", 5, "--seed", 3).out)
    np.testing.assert_allclose(drawn, load(models["flow"]).sample(5, seed=3), rtol=1e-12)
    assert list(json.loads(run("sample", models["flow"], "-n", 5, "--json").out)) == ["depth", "speed"]


# predict and report -----------------------------------------------------------------------------------------------


def test_predictions_are_those_of_the_surrogate(run, models):
    x = pd.read_csv(models["rows"])[["depth", "speed"]].to_numpy()
    found = frame_of(run("predict", models["isr"], models["rows"]).out)
    np.testing.assert_allclose(found["p1"], load(models["isr"]).flow.forward(x)[0][:, 0], rtol=1e-12)
    one = frame_of(run("predict", models["isr"], "--x", f"speed={float(x[0, 1])},depth={float(x[0, 0])}").out)
    assert one["p1"][0] == pytest.approx(found["p1"][0])


@pytest.mark.parametrize("kind", ["cisr", "eql"])
def test_a_report_is_written_in_one_step(kind, run, models, tmp_path):
    code, out, _ = run(
        "report", models[kind], "--data", models["rows"].with_name("named.csv"), "--out", "a.html"
    )
    assert code == 2
    rows = pd.read_csv(models["rows"]).assign(y=0.0)
    rows.to_csv("rows.csv", index=False)
    code, out, _ = run("report", models[kind], "--data", "rows.csv", "--out", "a.html")
    assert code == 0
    assert out.startswith("written: a.html")
    assert "<math" in (tmp_path / "a.html").read_text("utf-8")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.html", "rows.csv"]


@pytest.mark.parametrize("kind", ["cisr", "isr"])
def test_a_report_judges_the_posterior_on_rows(kind, run, models, tmp_path):
    assert run("report", models[kind], "--data", models["rows"], "--calibrate", "--out", "a.html").code == 0
    page = (tmp_path / "a.html").read_text("utf-8")
    assert 'id="calibration"' in page
    assert "in the middle" in page
    assert "sbc ks" in page


def test_a_report_of_a_file_shows_errors_of_constants(run, models, tmp_path):
    assert run("report", models["eql"], "--out", "a.html").code == 0
    page = (tmp_path / "a.html").read_text("utf-8")
    assert "<mn>0.0500(20)</mn>" in page


def test_another_model_of_the_front_has_no_errors_of_the_chosen_one(models):
    simplest = open_model(models["eql"], 5)
    assert open_model(models["eql"]).errors is not None
    assert simplest.errors is None
    assert simplest.labels == {}


# What goes wrong --------------------------------------------------------------------------------------------------

WRONG = {
    "no such model": ("show nothing.isr", "there is no file nothing.isr"),
    "no model": ("show {rows}", "it is not a model saved by isr"),
    "two forms": ("show {flow} --latex --text", "exclude each other"),
    "no inverse": ("show {eql} --inverse", "a regressor's formulas give y from x alone; they have no inverse"),
    "no posterior": ("posterior {flow} --y p1=1", "has no posterior; it has sample and score_samples"),
    "no measurement": ("posterior {cisr}", "give one measurement with --y p1=0.1, or rows of them with --y-file"),
    "other measurement": ("posterior {cisr} --y p9=1", "--y names 'p9', which this model does not have there"),
    "no number": ("posterior {cisr} --y p1=deep", "--y needs a number for 'p1', got 'deep'"),
    "no pair": ("posterior {cisr} --y 0.3", "--y cannot read '0.3'; write it as --y p1=0.1"),
    "given twice": ("posterior {cisr} --y p1=1 --y p1=2", "--y names 'p1' twice"),
    "ending": ("posterior {cisr} --y p1=1 --out a.xlsx", "--out cannot write '.xlsx'; known: .csv, .parquet, .nc"),
    "several of one": ("posterior {cisr} --y-file {rows} --together", "need the prior the model was trained on"),
    "given nothing": ("sample {cisr}", "this ConditionalISR draws x given y; add --y p1=0.1"),
    "given too much": ("sample {flow} --y p1=1", "observes nothing; leave --y out"),
    "nothing to judge by": ("report {cisr} --calibrate", "--calibrate needs rows to judge by: add --data"),
    "nothing to judge": ("report {flow} --data {rows} --calibrate", "has no posterior; it has sample"),
    "no folder": ("sample {flow} --out no/rows.csv", "the folder no does not exist; create it first"),
    "no density": ("sample {eql}", "has no sample; it has predict"),
    "no density to condition": ("posterior {eql} --y area=1", "has no posterior; it has predict"),
    "explorer of formulas": ("report {eql} --y area=1", "observes nothing; leave --y out"),
    "no surrogate": ("predict {cisr} {rows}", "given p1 has no predict; it has posterior, sample and score_samples"),
    "no rows": ("predict {isr}", "give rows of x as a file, or one row with --x"),
    "wrong x": ("predict {isr} --x depth=1", "--x has no value for 'speed'; write --x depth=0.1,speed=0.1"),
    "no columns": ("check {flow} --data {models}", "is a folder; name the file inside it"),
    "language": ("export {flow} --lang fortran", "'fortran' is not one of 'python', 'c'"),
    "explorer": ("report {flow} --y p1=1", "observes nothing; leave --y out"),
}  # fmt: skip


@pytest.mark.parametrize(("command", "sentence"), WRONG.values(), ids=WRONG.keys())
def test_a_mistake_is_one_line_with_the_remedy(command, sentence, run, models):
    places = {**models, "models": models["rows"].parent}
    code, out, err = run(*command.format(**places).split())
    assert (code, out) == (2, "")
    assert sentence in err
    assert err.startswith("error: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "command",
    [
        "posterior {cisr} --y p1=1 --out kept", "posterior {cisr} --y p1=1 --plot kept", "sample {flow} --out kept",
        "predict {isr} {rows} --out kept", "export {flow} --out kept", "report {flow} --out kept",
        "fit {rows} --out kept",
    ],
)  # fmt: skip
def test_no_file_is_replaced_unless_asked_to(command, run, models, tmp_path):
    kept = tmp_path / "kept.csv"
    kept.write_text("mine")
    code, _, err = run(*command.replace("kept", "kept.csv").format(**models).split())
    assert code == 2
    assert "kept.csv exists already; choose another name or pass --force" in err
    assert kept.read_text() == "mine"


def test_a_file_is_replaced_when_asked_to(run, models, tmp_path):
    (tmp_path / "rows.csv").write_text("mine")
    assert run("sample", models["flow"], "-n", 3, "--out", "rows.csv", "--force").code == 0
    assert len((tmp_path / "rows.csv").read_text().splitlines()) == 4


def test_a_plain_flow_without_names_can_be_used(run, tmp_path, key):
    isr.save(isr.build_flow(key, 2, condition_dim=1), tmp_path / "plain.isr")
    assert run("posterior", "plain.isr", "--y", "y1=0.1", "-n", 20).code == 0
    assert "x1" in run("show", "plain.isr").out


def test_a_file_that_lacks_the_rest_of_its_front_says_so(run, models, tmp_path):
    saved = load(models["eql"])
    save(Bundle(saved.model, saved.x_names, metadata=saved.metadata), tmp_path / "alone.isr")
    assert (
        "only its figures; fit again to save the whole front"
        in run("show", "alone.isr", "--complexity", 6).err
    )


@pytest.mark.parametrize(
    "front",
    [{"nll": [1.0]}, {"complexity": [1], "nll": ["a"], "n_parameters": [2], "chosen": [True]}, [1.0], 7],
)
def test_half_a_front_in_a_file_is_no_front(front, models):
    saved = load(models["eql"])
    forged = replace(saved, metadata={**saved.metadata, "front": front})
    assert front_of(saved)
    assert front_of(forged) == []
    assert forged.front is None


def test_many_measurements_come_in_one_tidy_table(run, models, tmp_path):
    rows = pd.DataFrame({"p1": np.linspace(-0.5, 0.5, 30)})
    rows.to_csv(tmp_path / "many.csv", index=False)
    arguments = ("posterior", models["cisr"], "--y-file", "many.csv", "--each", "-n", 200)
    lines = run(*arguments).out.splitlines()
    assert lines[0].split()[:4] == ["observation", "parameter", "mean", "sd"]
    assert len(lines) == 1 + 30 * 2
    found = json.loads(run(*arguments, "--json").out)["summary"]
    assert found["observation"] == [i for i in range(1, 31) for _ in range(2)]
    assert found["parameter"][:2] == ["depth", "speed"]


# laws ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def law(tmp_path_factory):
    """A saved law of one voltage, and the file of rows that it was found from, with a line of units and a date."""
    folder, rng = tmp_path_factory.mktemp("law"), np.random.default_rng(0)
    x = pd.DataFrame({"day": rng.uniform(0, 9, 60), "gain": rng.uniform(1, 3, 60)})
    y = pd.DataFrame({"u": 0.5 * x["day"] * x["gain"] + 0.1 * rng.normal(size=60)})
    model = isr.Inversion(
        law="0.5*day*gain", prior={"day": (0, 9), "gain": (1, 3)}, noise=0.1, fallback=False
    )
    bundle = model.fit(x, y).to_bundle()
    known = {**bundle.metadata, "since": {"day": "2024-01-01 00:00:00"}}
    save(replace(bundle, metadata=known), folder / "law.isr")
    dates = pd.Timestamp("2024-01-01") + pd.to_timedelta(x["day"], "D")
    (folder / "rows.csv").write_text(
        "# a run\nday,gain,u\n,,V\n"
        + pd.concat([dates, x["gain"], y], axis=1).to_csv(index=False, header=False)
    )
    return folder / "law.isr", folder / "rows.csv"


def test_a_law_is_shown_plotted_predicted_and_reported(law, run, tmp_path):
    model, rows = law
    assert "x given y" in run("show", model).out
    code, out, err = run("posterior", model, "--y", "u=3", "-n", 200, "--plot", "p.png")
    assert (code, "draws worth" in out) == (0, True), err
    assert (tmp_path / "p.png").exists()
    # the dates of another file are counted from the day that the model knows
    code, out, err = run("predict", model, rows)
    expected = pd.read_csv(rows, comment="#", header=None, skiprows=3)[2]
    assert (code, err) == (0, f"{rows}: read with 1 line that begins with # left out, units from line 3\n")
    assert np.std(frame_of(out)["u"] - expected) < 0.15
    assert run("report", model, "--data", rows).code == 0
    assert "<math" in (tmp_path / "law.html").read_text("utf-8")


def test_the_equations_of_a_law_are_checked_against_it(law, run):
    model, rows = law
    code, out, err = run("check", model)
    assert (code, "equations = law" in out, err) == (0, True, "")
    found = json.loads(run("check", model, "--data", rows, "--json").out)
    assert (found["passed"], found["rows"][0]["n"]) == (True, 60)


def test_names_that_formulas_cannot_hold_are_told_beside_them(law, run, tmp_path):
    bundle = isr.load(law[0])
    save(replace(bundle, x_names=("Tag (d)", "gain")), tmp_path / "named.isr")
    assert "where day is Tag (d)\n" in run("show", tmp_path / "named.isr").out

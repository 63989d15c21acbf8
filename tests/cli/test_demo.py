"""`isr demo`: its stories are listed, its folder is looked at before the work, and each story ends with a page."""

import json

import pytest

import isr


def test_the_stories_are_listed(run):
    outcome = run("demo", "--list")
    names = [line.split()[2] for line in outcome.out.splitlines()]
    assert names == ["arm", "sensor", "density", "regression", "ocean"]
    assert json.loads(run("demo", "--list", "--json").out)["sensor"].startswith("temperature")


@pytest.mark.parametrize("story", ["arm", "sensor"])
def test_the_folder_is_looked_at_before_the_work(story, run, tmp_path):
    (tmp_path / "file").write_text("in the way")
    outcome = run("demo", story, "--out", "file")
    assert (outcome.code, outcome.err) == (2, "error: file is a file; --out needs a folder\n")
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / f"{story}.isr").write_text("mine")
    outcome = run("demo", story, "--out", "old")
    assert outcome.code == 2
    assert "exists already; choose another name or pass --force" in outcome.err
    assert (tmp_path / "old" / f"{story}.isr").read_text() == "mine"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("story", "said"), [("sensor", "pressure*temperature"), ("regression", "sqrt(length)")]
)
def test_a_story_finds_its_law_and_leaves_a_model_and_a_page(story, said, run, tmp_path):
    outcome = run("demo", story)
    assert outcome.code == 0, outcome.err
    assert said in outcome.out
    assert f"isr show demo/{story}.isr" in outcome.out
    assert isr.load(tmp_path / "demo" / f"{story}.isr").kind
    assert "https://" not in (tmp_path / "demo" / f"{story}.html").read_text("utf-8")

"""``isr bench`` runs scripts, and says what is missing where something is."""

import pytest

from isr.cli import bench


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of benchmarks with one that works and one that does not."""
    place = tmp_path / "benchmarks"
    place.mkdir()
    (place / "harness.py").touch()
    usage = "'python benchmarks/{}.py [--quick] [--out rows.jsonl]'\n"
    (place / "restarts.py").write_text(
        usage.format("restarts") + "import sys; open(sys.argv[-1], 'w').write('{}')"
    )
    (place / "growth.py").write_text(usage.format("growth") + "raise SystemExit(3)")
    (place / "page.py").write_text("import sys; open(sys.argv[-1], 'w').write('# page')")
    monkeypatch.setattr(bench, "benchmarks_folder", lambda: place)
    (tmp_path / "out").mkdir()
    return place


def test_rows_and_page_are_written(run, folder, tmp_path):
    outcome = run("bench", "restarts", "--quick", "--out", tmp_path / "out")
    assert outcome.code == 0
    assert (tmp_path / "out" / "restarts.jsonl").read_text() == "{}"
    assert (tmp_path / "out" / "benchmarks.md").read_text() == "# page"


def test_a_script_that_fails_does_not_hide_the_others(run, folder, tmp_path):
    outcome = run("bench", "growth", "restarts", "--out", tmp_path / "out")
    assert outcome.code != 0
    assert "these benchmarks ended with an error: growth" in outcome.err
    assert (tmp_path / "out" / "restarts.jsonl").exists()


def test_an_unknown_name_is_told_with_those_known(run):
    outcome = run("bench", "speed")
    assert outcome.code == 2
    assert "unknown benchmark 'speed'; known: constants, densities, equal_time, growth" in outcome.err


def test_without_a_clone_the_command_says_where_benchmarks_are(run, monkeypatch, tmp_path):
    monkeypatch.setattr(bench, "__file__", str(tmp_path / "a" / "b" / "c" / "bench.py"))
    outcome = run("bench", "restarts")
    assert outcome.code == 2
    assert "there is no folder of benchmarks: they come with the repository" in outcome.err

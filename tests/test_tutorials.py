"""The documentation's Python is valid, and its tutorials run as they stand and reach what they say."""

import ast
import importlib
import re
from pathlib import Path

import numpy as np
import pytest

DOCS = Path(__file__).parents[1] / "docs"
README = DOCS.parent / "README.md"
PAGES = sorted(DOCS.rglob("*.md"))


def blocks(page):
    return re.findall(r"^```python\n(.*?)^```", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_every_block_of_python_is_valid(page):
    for block in blocks(page):
        compile(block, str(page), "exec")


def imports(page):
    for block in blocks(page):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("isr"):
                yield from ((node.module, alias.name) for alias in node.names)


@pytest.mark.parametrize("page", [*PAGES, README], ids=lambda page: page.name)
def test_whatever_is_imported_from_isr_exists(page):
    for module, name in imports(page):
        assert hasattr(importlib.import_module(module), name), f"{module}.{name}"


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs all blocks of a page in a folder of their own and returns the names they leave."""
    monkeypatch.chdir(tmp_path)

    def run(name):
        names = {}
        for block in blocks(DOCS / f"{name}.md"):
            exec(compile(block, f"{name}.md", "exec"), names)  # noqa: S102
        return names

    return run


@pytest.mark.slow
def test_the_density_tutorial_finds_the_parabola(run, tmp_path):
    names = run("tutorials/density")
    model = names["model"]
    assert model.score(names["fresh"]) > names["normal"].logpdf(names["fresh"]).mean() + 0.3
    assert "speed**2" in str([e.expand() for e in model.expressions_.composed().outputs])
    assert {p.name for p in tmp_path.iterdir()} >= {"throws.isr", "throws.html"}


@pytest.mark.slow
def test_the_simulator_tutorial_reaches_the_reference(run, tmp_path):
    names = run("tutorials/simulator")
    assert names["error"] < 0.002
    assert names["draws"]["height"].between(0.5, 2.0).all()
    assert names["calibration"].tests["passed"].all()
    assert "unlike the training data" in str(names["caught"][0].message)
    assert (tmp_path / "landing.html").stat().st_size < 3_000_000


@pytest.mark.slow
def test_the_geoacoustics_tutorial_finds_the_water_depth(run):
    names = run("tutorials/geoacoustics")
    draws = names["post"].sample(2000)
    low, high = np.quantile(draws[:, 0], [0.01, 0.99])
    assert low < names["TRUTH"][0] < high
    assert high - low < 8


@pytest.mark.slow
def test_the_comparison_of_libraries_prefers_the_one_with_the_function(run, capsys):
    run("primitives")
    without, with_sine = (
        float(line.split("±")[0].split()[-1]) for line in capsys.readouterr().out.splitlines()
    )
    assert with_sine > without + 0.02

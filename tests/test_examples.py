"""Every script of the folder ``examples`` runs top to bottom, prints an equation and saves a figure."""

import re
import runpy
from pathlib import Path

import matplotlib as mpl
import pytest

mpl.use("Agg")
SCRIPTS = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_an_example_prints_an_equation_and_saves_a_figure(script, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(script))
    mpl.pyplot.close("all")
    assert re.search(r"^\w+ += ", capsys.readouterr().out, re.MULTILINE)
    assert (tmp_path / f"{script.stem}.png").stat().st_size > 5000


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_an_example_is_short_and_uses_the_public_interface_alone(script):
    source = script.read_text("utf-8")
    assert len(source.splitlines()) < 80
    assert not re.search(r"^from isr\.(?!problems)|import isr\.(?!problems)", source, re.MULTILINE)

"""Every script of the folder ``examples`` runs top to bottom, prints what it found and saves a figure."""

import re
import runpy
import warnings
from pathlib import Path

import matplotlib as mpl
import pytest

mpl.use("Agg")
EXAMPLES = Path(__file__).parents[1] / "examples"
GALLERY = sorted((EXAMPLES / "gallery").glob("*.py"))
SCRIPTS = [*sorted(EXAMPLES.glob("*.py")), *GALLERY]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_an_example_prints_what_it_found_and_saves_a_figure(script, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("default", UserWarning)
        runpy.run_path(str(script))
    mpl.pyplot.close("all")
    assert re.search(r"^\w+ += |converged", capsys.readouterr().out, re.MULTILINE)
    assert (tmp_path / f"{script.stem}.png").stat().st_size > 5000


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_an_example_is_short_and_uses_the_public_interface_alone(script):
    source = script.read_text("utf-8")
    assert len(source.splitlines()) < 80
    assert not re.search(r"^(from|import) isr\.(?!problems|ocean|posterior)", source, re.MULTILINE)


@pytest.mark.parametrize("script", GALLERY, ids=lambda path: path.stem)
def test_a_script_of_the_gallery_has_under_60_lines_of_code_and_ends_with_when_not_to_trust_it(script):
    source = script.read_text("utf-8")
    code = [line for line in source.splitlines() if line.strip() and not line.startswith("#")]
    assert len(code) < 60
    assert "plt.savefig" in code[-1]
    assert "# **When not to trust it.**" in source.split("# %% [markdown]")[-1]


def test_the_gallery_has_eight_scripts():
    assert len(GALLERY) == 8

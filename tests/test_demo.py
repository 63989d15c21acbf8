"""The demonstration does what it says, even when it is trained far too briefly."""

import pytest

import isr
from isr.demo import run
from isr.estimators.settings import Effort

# `make demo` runs it as it is.
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def demonstration(tmp_path_factory):
    folder, lines = tmp_path_factory.mktemp("demo"), []
    result = run(lines.append, folder, effort=Effort(200, 0, 0, peak=3e-3))
    return result, "\n".join(lines), folder


def test_the_equations_hold(demonstration):
    result, text, _ = demonstration
    assert result.passed
    assert "height" in text
    assert "maximum mean discrepancy" in text


def test_the_page_works_without_a_network_and_draws_the_arm(demonstration):
    _, _, folder = demonstration
    page = (folder / "report.html").read_text("utf-8")
    assert "An arm, run backwards" in page
    assert "<math" in page
    assert "https://" not in page
    assert len(page) < 3_000_000


def test_the_model_is_saved_and_loads(demonstration):
    _, _, folder = demonstration
    assert isr.load(folder / "arm.isr").posterior([0.0, 1.5]).sample(3).shape == (3, 4)

"""The documentation as a reader opens it: from a file, without a network, searched, with its mathematics set."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from report.conftest import browser  # noqa: F401

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The pages, built as `make docs` builds them."""
    pytest.importorskip("material", reason="the docs extra is not installed")
    if shutil.which("npm") is None:
        pytest.skip("npm, which fetches KaTeX, is not installed")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def page(browser):  # noqa: F811
    """A page of the browser; what leaves the computer or is complained about fails the test."""
    tab, complaints = browser.new_page(), []
    tab.on("console", lambda m: complaints.append(m.text) if m.type == "error" else None)
    tab.on("pageerror", lambda error: complaints.append(str(error)))
    tab.on("request", lambda r: None if re.match("file:|blob:|data:", r.url) else complaints.append(r.url))
    yield tab
    tab.close()
    assert complaints == []


def test_every_page_opens_from_a_file_without_complaint(site, page):
    pages = sorted(p for p in site.rglob("*.html") if p.name != "404.html")  # which only a server shows
    assert len(pages) > 35
    for path in pages:
        page.goto(path.as_uri())
        assert page.locator("h1").count() >= 1, path
        assert (
            page.locator(".arithmatex").count()
            == page.locator(".arithmatex > .katex-display, .arithmatex > .katex").count()
        )


def test_mathematics_is_set(site, page):
    page.goto((site / "how-it-works.html").as_uri())
    assert page.locator(".katex-display").count() >= 10
    assert "KaTeX" in page.evaluate(
        "getComputedStyle(document.querySelector('.katex .mathnormal')).fontFamily"
    )
    page.evaluate("document.fonts.ready")
    assert page.evaluate(
        "[...document.fonts].some(f => f.family.startsWith('KaTeX') && f.status === 'loaded')"
    )


def test_search_finds_a_word_from_a_file(site, page):
    page.goto((site / "index.html").as_uri())
    page.locator("[data-md-component=search-query]").first.click()
    page.keyboard.type("bounds", delay=30)
    results = page.locator(".md-search-result__item")
    results.first.wait_for(timeout=20_000)
    assert "bounds" in results.first.inner_text().lower()
    assert results.count() >= 3


def test_every_notebook_of_the_gallery_is_executed(site):
    notebooks = sorted((site / "gallery").glob("*.ipynb"))
    assert len(notebooks) == 8
    for path in notebooks:
        cells = json.loads(path.read_text("utf-8"))["cells"]
        outputs = [o["output_type"] for c in cells if c["cell_type"] == "code" for o in c["outputs"]]
        assert {"stream", "display_data"} <= set(outputs), path
        assert "When not to trust it" in cells[-1]["source"]

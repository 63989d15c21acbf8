"""A real browser for the pages, where there is one; the tests are skipped where there is none."""

import shutil

import pytest

from isr.report import write_report
from report.report_models import PAGES, hostile, spiked

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@pytest.fixture(scope="session")
def browser():
    """Chromium without a window."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    program = next((path for path in map(shutil.which, BROWSERS) if path), None)
    if program is None:
        pytest.skip(f"no browser on PATH, looked for {', '.join(BROWSERS)}")
    with playwright.sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture(scope="session")
def page_of(tmp_path_factory):
    """Gives the path of a model's page, written once."""
    written = {}

    def path(name):
        if name not in written:
            make = {**PAGES, "hostile": hostile, "spiked": spiked}[name]
            data = make()
            written[name] = (write_report(data, tmp_path_factory.mktemp("report") / f"{name}.html"), data)
        return written[name]

    return path

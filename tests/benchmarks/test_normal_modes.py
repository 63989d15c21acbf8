"""pykrak beside the normal modes: why its row is empty, and what the page shows with and without it."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

import normal_modes
import page
from isr.ocean import FREQUENCIES, pressure
from sections import SECTIONS

TABLES = next(section.body for section in SECTIONS if section.title == "Normal modes")
RATE = {"benchmark": "normal_modes", "measure": "rate", "threads": 1, "environments": 200}
OURS = [
    RATE | {"cpu_ms_per_environment": 1.6, "times_kraken_per_core": 37.5},
    {"benchmark": "normal_modes", "measure": "baseline", "engine": "kraken", "assumed_cpu_ms_per_environment": 60.0},
]  # fmt: skip


def written(rows):
    return [{"benchmark": "normal_modes", "seed": 0} | row for row in rows]


@pytest.fixture
def absent(monkeypatch):
    def missing(name):
        raise normal_modes.PackageNotFoundError(name)

    monkeypatch.setattr(normal_modes, "version", missing)


@pytest.fixture
def installed(monkeypatch):
    """Put a pykrak in place that solves by the function it is given."""

    def put(solve):
        monkeypatch.setattr(normal_modes, "version", lambda name: "3.0.1")
        module = SimpleNamespace(pressure=solve)
        monkeypatch.setitem(sys.modules, "peers", SimpleNamespace(pykrak_modes=module))

    return put


def broken(environment, frequencies, *, points_per_wavelength):
    raise AttributeError("module 'numpy' has no attribute 'trapz'\nin a long report")


def ours(environment, frequencies, *, points_per_wavelength):
    return pressure(environment, frequencies, n_jobs=1)


def test_without_pykrak_its_row_and_the_page_say_so(absent):
    (row,) = normal_modes.pykrak_rows(2, 0, quick=False)
    assert row == {"measure": "baseline", "engine": "pykrak", "skipped": "it is not installed"}
    assert "pykrak is not in the table: it is not installed." in TABLES(OURS + written([row]))


@pytest.mark.slow
def test_where_pykrak_breaks_the_page_gives_the_first_line_of_its_error(installed):
    installed(broken)
    rows = normal_modes.pykrak_rows(2, 0, quick=False)
    reason = "AttributeError: module 'numpy' has no attribute 'trapz'"
    assert [row["skipped"] for row in rows] == [reason]
    assert f"pykrak is not in the table: {reason}." in TABLES(OURS + written(rows))


def test_the_quick_form_does_not_wait_for_pykrak_to_compile(installed):
    installed(broken)
    (row,) = normal_modes.pykrak_rows(2, 0, quick=True)
    assert row["skipped"].endswith("run without --quick")


@pytest.mark.slow  # compiles for 25 s
def test_what_pykrak_gives_is_measured_against_kraken_and_stays_on_the_page(installed, absent):
    skipped = written(normal_modes.pykrak_rows(2, 0, quick=False))
    installed(ours)
    rows = written(normal_modes.pykrak_rows(2, 0, quick=False))
    default = next(r for r in normal_modes.accuracy_rows() if r["mesh"].startswith("default"))
    assert [row["mesh"] for row in rows] == ["20 points per wavelength", "60 points per wavelength"]
    assert [row["worst_error_against_kraken"] for row in rows] == pytest.approx(
        2 * [default["worst_error_against_kraken"]]
    )
    assert all(row["failures"] == 0 and row["cpu_ms_per_environment"] > 0 for row in rows)
    text = TABLES(page.chosen([*OURS, *rows, *skipped]))
    assert f"| pykrak 3.0.1 with NumPy {np.__version__}, 20 points per wavelength | 1 | 2 |" in text
    assert "| pykrak | 60 points per wavelength | 0.000119 |" in text
    assert "not in the table" not in text
    assert text.count("| KRAKEN, as measured with the reference |") == 1


def test_pykrak_is_asked_for_every_frequency_and_environment(installed):
    asked = []

    def counted(environment, frequencies, *, points_per_wavelength):
        asked.append((tuple(frequencies), points_per_wavelength))
        return ours(environment, frequencies, points_per_wavelength=points_per_wavelength)

    installed(counted)
    normal_modes.pykrak_rows(3, 0, quick=False)
    n_calls = 3 + 3 + 4  # to compile, to be timed, the references
    assert asked == [(FREQUENCIES, points) for points in normal_modes.PYKRAK_POINTS for _ in range(n_calls)]

"""What README and the results page say of known laws is what the rows in results/ hold."""

import re
from pathlib import Path

import pytest

from isr.paper import laws, records

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "docs/results.md")


@pytest.fixture(scope="module")
def rows():
    return records.latest(records.read(ROOT / "results" / "laws.jsonl"), "kind", "name", "seed")


def test_the_table_of_laws_is_that_of_the_rows(rows):
    assert (ROOT / "results" / "laws.md").read_text() == laws.table(rows)


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("kind", ["law", "function"])
def test_the_page_states_the_number_of_exact_runs_of_the_rows(rows, page, kind):
    runs = [row["exact"] for row in rows if row["kind"] == kind]
    stated = re.findall(rf"(\d+) of {len(runs)}\b", (ROOT / page).read_text())
    assert stated == [str(sum(runs))]


def test_the_results_page_names_the_laws_that_were_missed(rows):
    missed = {row["name"]: [] for row in rows if row["kind"] == "law" and not row["exact"]}
    for row in rows:
        if row["name"] in missed and not row["exact"]:
            missed[row["name"]].append(str(row["seed"]))
    page = " ".join((ROOT / "docs/results.md").read_text().split())
    for name, (*first, last) in missed.items():
        listed = f"seeds {', '.join(first)} and {last}" if first else f"seed {last}"
        assert re.search(rf"{name},[^.]*\({listed}\)", page)

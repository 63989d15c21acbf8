"""Files that version 0.1.0 saved still load, with the same numbers, equations and code.

The files in tests/saved were written by that version and are never written again, and so is what they gave then.
"""

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

from isr.bijections.affine import Shift, Standardise
from isr.bijections.flow import Flow
from isr.equations.check import check
from isr.storage import Bundle, from_bytes, layout, load, to_bytes

SAVED = Path(__file__).parent / "saved"
EXPECTED = json.loads((SAVED / "expected-0.1.0.json").read_text())
FLOWS = {"ring": "SymbolicFlow", "sensor": "ConditionalISR", "baseline": "ISR"}


@pytest.fixture(scope="module", params=FLOWS)
def old(request):
    """An old model, the rows that it was tried on and what it gave."""
    rows = {k: None if v is None else np.array(v) for k, v in EXPECTED[request.param].items()}
    saved = load(SAVED / f"{request.param}-0.1.0.isr")
    assert saved.kind == FLOWS[request.param]
    return saved, rows


def test_an_old_model_gives_the_numbers_it_gave(old):
    saved, rows = old
    y = rows["y"] if saved.flow.condition_map is not None else None
    z, log_det = saved.flow.forward(rows["x"], y)
    assert_allclose(z, rows["z"], rtol=1e-9, atol=1e-9)
    assert_allclose(log_det, rows["log_det"], rtol=1e-9, atol=1e-9)
    assert_allclose(saved.flow.inverse(z, y)[0], rows["x"], rtol=1e-9, atol=1e-9)
    assert_allclose(saved.log_prob(rows["x"], rows["y"]), rows["log_prob"], rtol=1e-9, atol=1e-9)


def test_an_old_model_prints_and_exports_its_equations(old):
    saved, rows = old
    assert saved.x_names[0] in saved.expressions.text()
    y = rows["y"] if saved.flow.condition_map is not None else None
    assert check(saved.flow, saved.expressions, rows=rows["x"], y=y).passed
    space = {}
    exec(saved.expressions.code("python"), space)  # noqa: S102
    given = (rows["x"],) if y is None else (rows["x"], y)
    assert_allclose(space["forward"](*given), rows["z"], rtol=1e-9, atol=1e-9)
    assert_allclose(space["log_prob"](rows["x"], rows["y"]), rows["log_prob"], rtol=1e-9, atol=1e-9)
    assert all("log_prob" in saved.expressions.code(language) for language in ("c", "javascript"))


def test_an_old_model_is_saved_as_a_file_of_today(old):
    saved, rows = old
    again = from_bytes(to_bytes(saved))
    assert_allclose(again.log_prob(rows["x"], rows["y"]), rows["log_prob"], rtol=1e-9, atol=1e-9)
    assert (again.kind, again.x_names, again.units) == (saved.kind, saved.x_names, saved.units)


def test_a_class_that_was_renamed_and_a_field_that_changed_are_brought_up_to_date(monkeypatch):
    data = to_bytes(Bundle(Flow(Standardise((2.0,), (0.5,)))))

    def renamed(old):
        return "Shift", {"offset": np.array(old.pop("shift"))}

    monkeypatch.setattr(layout, "CHANGES", {99: {"Standardise": renamed}})
    bijection = from_bytes(data).flow.bijection
    assert isinstance(bijection, Shift)
    assert bijection.offset.tolist() == [2.0]

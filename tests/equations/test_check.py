"""The check finds equations that do not hold, and passes those that do."""

from dataclasses import replace

import numpy as np
import pytest

from equations.expression_models import make
from isr.equations import check, extract
from isr.equations.check import CheckFailed


@pytest.mark.parametrize("name", ["formulas", "joint", "padded"])
def test_the_equations_of_a_model_pass(name):
    result = check(make(name), n=200)
    assert result.passed, str(result)
    assert len(result.rows) == 7
    assert result.raise_if_failed() is result


def test_wrong_equations_are_found_and_named():
    flow = make("formulas")
    good = extract(flow)
    outputs = (good.forward.outputs[0] * 1.001, good.forward.outputs[1])
    result = check(flow, replace(good, forward=replace(good.forward, outputs=outputs)), n=100)
    assert not result.passed
    assert [row.name for row in result.rows if not row.passed] == [
        "forward equations = model",
        "inverse undoes forward, equations",
    ]
    with pytest.raises(CheckFailed, match=r"do not hold: forward equations = model: error .*, allowed 1e-09"):
        result.raise_if_failed()


def test_a_wrong_log_determinant_is_found():
    flow = make("formulas")
    good = extract(flow)
    result = check(
        flow, replace(good, forward=replace(good.forward, log_det=good.forward.log_det + 1)), n=100
    )
    assert [row.name for row in result.rows if not row.passed] == ["forward log-det equations = model"]


def test_the_result_prints_a_table():
    result = check(make("formulas"), n=50)
    text = str(result)
    assert "log-det = autodiff Jacobian" in text
    assert text.count("\n") == 7
    assert "inverse equations = model" in result._repr_html_()


def test_the_same_seed_draws_the_same_points():
    flow = make("formulas")
    first, second = check(flow, n=50, seed=1), check(flow, n=50, seed=1)
    assert [r.error for r in first.rows] == [r.error for r in second.rows]
    assert np.isfinite([r.error for r in first.rows]).all()

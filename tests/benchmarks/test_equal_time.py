"""The comparison at equal time, quick and by isr alone: it trains until the budget is spent and is judged."""

import numpy as np
import pytest

import equal_time


@pytest.mark.parametrize("flow", ["isr cISR", "isr cINN"])
def test_the_quick_form_trains_for_its_budget_and_tells_its_error(flow):
    (row,) = equal_time.measure("two_moons", flow, 1.0, quick=True, seed=0)
    assert "failure" not in row
    assert row["n_rows"] == equal_time.QUICK_ROWS
    assert row["n_steps"] > 0
    assert row["train_cpu_seconds"] >= 1.0
    assert 0.4 < row["c2st"] <= 1.0
    assert row["n_not_finite"] == 0


def test_a_budget_is_spent_from_the_peak_down_to_nothing():
    clock = equal_time.Clock(1e-9)
    assert clock.rate() == pytest.approx(0.0)
    assert equal_time.Clock(1e9).rate() == pytest.approx(equal_time.PEAK)
    assert np.isfinite(clock.spent())

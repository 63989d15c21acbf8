"""The paper's experiments in their quick form: small, but what they claim is checked."""

import json

import numpy as np
import pytest

from isr.paper import densities, kinematics, laws, records
from isr.posterior.calibration import check_calibration
from isr.problems.densities import DENSITIES
from isr.problems.laws import LAWS


@pytest.fixture(scope="module")
def banana():
    return densities.fit_one("banana", "ISR", densities.MODELS["banana"]["ISR"], 0, quick=False)


def test_the_banana_comes_back_as_its_law(banana):
    row, model = banana
    composed = model.expressions_.composed()
    assert LAWS["banana"].compare(list(composed.outputs), symbols=model.expressions_.forward.inputs).same
    assert row["kl"] < 0.003
    assert "sin" not in row["equations"]


def test_the_banana_is_better_than_a_gaussian_could_be(banana):
    row, _ = banana
    x = DENSITIES["banana"].sample(20_000, random_state=0)
    gaussian = 0.5 * np.linalg.slogdet(2 * np.pi * np.e * np.cov(x.T))[1] - DENSITIES["banana"].entropy
    assert row["kl"] < 0.1 * gaussian


def test_rows_tables_and_figures_are_written(banana, tmp_path):
    row, model = banana
    records.append(tmp_path / "densities.jsonl", row)
    (written,) = records.read(tmp_path / "densities.jsonl")
    assert {"commit", "machine", "versions", "seed", "kl", "seconds", "equations"} <= set(written)
    assert json.dumps(written)
    assert "| banana | ISR |" in densities.table([row])
    densities.figure({("banana", "ISR"): model.sample(500)}, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 10_000


def test_a_row_made_again_counts_once():
    rows = [{"a": 1, "b": 2}, {"a": 1, "b": 3}, {"a": 2, "b": 4}]
    assert records.latest(rows, "a") == [{"a": 1, "b": 3}, {"a": 2, "b": 4}]


@pytest.mark.slow
def test_a_function_of_kim_comes_back_and_holds_outside():
    row = laws.function_row("product_and_linear", 0)
    assert row["exact"]
    assert row["rmse_outside"] < 1e-6


@pytest.fixture(scope="module")
def arm_model():
    return kinematics.train("cISR", 0, quick=True)[0]


def test_a_quick_cisr_is_far_closer_to_the_exact_posterior_than_the_prior_is(arm_model):
    row = kinematics.judge(arm_model, kinematics.draw_targets(30, 200), n_stability=100_000)
    assert row["err_post"] < 0.1  # the prior scores 0.23
    assert row["err_resim"] < 0.1  # the prior scores 2.7
    assert row["n_not_finite"] == 0


def test_a_quick_cisr_is_roughly_calibrated(arm_model):
    x, y = kinematics.arm.sample(150, random_state=3)
    tests = check_calibration(x, arm_model.sample(y, 99))
    assert tests["passed"].mean() >= 0.5


def test_the_table_sets_the_paper_beside_ours():
    row = {
        "err_post": 0.001,
        "err_resim": 3e-4,
        "paper_err_post": 0.01,
        "paper_err_resim": 1e-3,
        "seconds": 9.0,
    }
    counts = {"n_constants": 10, "n_not_finite": 0, "n_stability": 100}
    assert "| cISR | 0.0010 | 3.00e-04 | 0.0221 | 0.0134 |" in kinematics.table(
        [{"model": "cISR", **row, **counts}]
    )

"""Tiny models of each kind, fitted once, and a way to run commands in this process."""

import warnings
from types import SimpleNamespace
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import ConvergenceWarning

import isr
from isr.bijections.formula import Formulas
from isr.cli import main
from isr.estimators.settings import Effort
from isr.formulas.front import Point
from isr.training.checkpoint import History

DENSE = {
    "n_blocks": 1, "n_layers": 1, "library": {"constant": 1, "id": 1, "square": 1}, "units": {"depth": "m"},
    "training": isr.Training(Effort(30, 0, 0), n_restarts=1, penalty=None, verbose=False), "random_state": 0,
}  # fmt: skip


class Outcome(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str


@pytest.fixture
def run(capsys, monkeypatch, tmp_path):
    """Run a command in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: object) -> Outcome:
        with pytest.raises(SystemExit) as leave:
            main([str(a) for a in arguments])
        return Outcome(leave.value.code, *capsys.readouterr())

    return run


def rows() -> pd.DataFrame:
    """200 rows of a depth and a speed, with what two instruments read."""
    rng = np.random.default_rng(0)
    depth, speed = rng.uniform(200, 240, 200), rng.uniform(1500, 1600, 200)
    d, s = (depth - 220) / 20, (speed - 1550) / 50
    return pd.DataFrame({"depth": depth, "speed": speed, "p1": d + s / 2, "p2": d - s})


@pytest.fixture(scope="session")
def regressor() -> isr.EQLRegressor:
    """A regressor with a front of two laws for p1, put together by hand since a fit takes long."""
    slope = ("add", ("constant", 0), ("mul", ("constant", 1), ("input", 0)))
    law = ("add", *slope[1:], ("mul", ("constant", 2), ("input", 1)), ("call", "sin2pi", ("input", 0)))
    laws = [
        Formulas(jnp.array([-11.0, 0.05]), (slope,), 1, 2),
        Formulas(jnp.array([-26.5, 0.05, 0.01]), (law,), 1, 2),
    ]
    errors = np.array([0.5, 0.002, np.nan])
    front = [
        Point(laws[0], 5, 2, 0.1, 0.1, np.zeros(3)),
        Point(laws[1], 13, 3, -0.9, -0.9, np.zeros(3), errors=errors, labels={2: "1/100"}),
    ]
    model = isr.EQLRegressor(units={"depth": "m", "y": "Pa"})
    model.feature_names_in_, model.n_features_in_ = np.array(["depth", "speed"], dtype=object), 2
    model.y_names_ = ("y",)
    model.fit_ = SimpleNamespace(front=front, chosen=1, n_train=160)
    curves = [np.array([loss, 2 * loss]) for loss in (3.0, 2.0, 1.5)]
    history = History(["warm up", "warm up", "refit"], curves, curves)
    model.status_, model.seed_, model.history_ = "converged", 0, history
    model._use(1)
    return model


@pytest.fixture(scope="session")
def models(tmp_path_factory, regressor):
    """Paths of saved models by method, and of the rows they were fitted to."""
    folder, frame = tmp_path_factory.mktemp("models"), rows()
    x, y = frame[["depth", "speed"]], frame[["p1"]]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # they are hardly trained
        fitted = {
            "flow": isr.SymbolicFlow(**DENSE).fit(x),
            "cisr": isr.ConditionalISR(**DENSE).fit(x, y),
            "isr": isr.ISR(**DENSE).fit(x, y),
            "eql": regressor,
        }
    for name, model in fitted.items():
        model.save(folder / f"{name}.isr")
    frame.to_csv(folder / "rows.csv", index=False)
    return {name: folder / f"{name}.isr" for name in fitted} | {"rows": folder / "rows.csv"}

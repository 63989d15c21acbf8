"""The stories of ``isr demo --list``: small problems, each found, inverted and written as a page in a minute."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from isr.report import write_report

STORIES = {
    "arm": "a robot arm backwards: which heights and angles reach a point?",
    "sensor": "temperature and pressure from two voltages",
    "density": "a bent cloud of points as a formula, and drawn from again",
    "regression": "how a pendulum's period follows from its length, with units and noise",
    "ocean": "water depth and sediment from sound (needs the ocean extra; a minute more at first)",
}
Say = Callable[[str], object]


def run(name: str, out: Say, folder: Path) -> None:
    """Print a story other than the arm's, and write its model and page into a folder."""
    model, data, y_star = _TOLD[name](out)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.isr"
    model.save(path)
    page = write_report(path, folder / f"{name}.html", data=data, title=STORIES[name], y_star=y_star)
    out(f"\nwritten: {page} (open it in a browser) and {path}\n\nNext")
    names = model.to_bundle().y_names
    if y_star is not None:
        given = ",".join(f"{n}={v:.4g}" for n, v in zip(names[:3], y_star, strict=False))
        out(
            f"  isr posterior {path} --y {given}"
            if len(names) <= 3
            else f"  isr posterior {path} --y-file rows.csv"
        )
    out(f"  isr show {path}")


def _sensor(out: Say) -> tuple[Any, Any, Any]:
    from isr.estimators.inversion import Inversion

    rng = np.random.default_rng(0)
    x = pd.DataFrame({"temperature": rng.uniform(10, 80, 1000), "pressure": rng.uniform(1, 3, 1000)})
    u1 = 0.02 * x["temperature"] * x["pressure"] + 0.02 * rng.normal(size=1000)
    u2 = 0.5 * x["pressure"] + 0.001 * x["temperature"] + 0.02 * rng.normal(size=1000)
    y = pd.DataFrame({"u1": u1, "u2": u2})
    units = {"temperature": "°C", "pressure": "bar", "u1": "V", "u2": "V"}
    out("Two voltages depend on temperature and pressure. From 1,000 calibration rows:\n")
    model = Inversion(units=units, random_state=0).fit(x, y)
    out(
        f"{_indented(str(model.law_))}\n\n{model.verdict_}\n\n"
        "Backwards: u1 = 1.6 V and u2 = 1.04 V (truth: 40 °C, 2 bar)\n"
    )
    out(_indented(model.posterior([1.6, 1.04]).summary().round(3).reset_index().to_string(index=False)))
    return model, (x, y), (1.6, 1.04)


def _density(out: Say) -> tuple[Any, Any, Any]:
    from isr.estimators.settings import Training
    from isr.estimators.symbolic_flow import SymbolicFlow

    rng = np.random.default_rng(0)
    bend = rng.normal(0, 2, 5000)
    rows = pd.DataFrame({"x0": bend, "x1": 0.2 * (bend**2 - 4) + rng.normal(size=5000)})
    out("5,000 points along a parabola. Their law, forwards to standard normal z, and backwards:\n")
    model = SymbolicFlow(training=Training("quick"), random_state=0).fit(rows)
    out(
        f"{_indented(str(model.expressions_))}\n\n"
        f"{model.score(rows):.3f} nats per row; the truth has -3.53; {model.status_}"
    )
    return model, rows, None


def _regression(out: Say) -> tuple[Any, Any, Any]:
    from isr.estimators.law_regressor import LawRegressor

    rng = np.random.default_rng(0)
    x = pd.DataFrame({"length": rng.uniform(0.1, 2.0, 200)})
    y = pd.DataFrame({"period": 2 * np.pi * np.sqrt(x["length"] / 9.81) + 0.01 * rng.normal(size=200)})
    out(
        "200 pendulums, their periods taken to 10 ms. The truth is 2 pi sqrt(length / g) = 2.006 sqrt(length):\n"
    )
    model = LawRegressor(units={"length": "m", "period": "s"}, random_state=0).fit(x, y)
    out(
        f"{_indented(str(model.expressions_))}\n\nscatter around it {float(np.ravel(model.residual_sd_)[0]):.4f} s"
    )
    return model, (x, y), None


def _ocean(out: Say) -> tuple[Any, Any, Any]:
    from isr.estimators.inverse import ConditionalISR
    from isr.estimators.settings import Training
    from isr.ocean import TRUTH, pressure, swellex96

    tones = [49.0, 79.0, 112.0]
    field = pressure(swellex96(m1=TRUTH[0], m2=TRUTH[1]), tones, n_jobs=1)[:, -1]

    def hear(x: np.ndarray) -> np.ndarray:
        sites = [swellex96(m1=depth, m2=speed) for depth, speed in x]
        return pressure(sites, tones, n_jobs=1, progress=False, on_error="nan")[:, :, -1] / np.abs(field)

    out("Three tones from a source 3 km away, heard by one hydrophone; 2,000 simulated sites:\n")
    model = ConditionalISR(
        n_blocks=3, n_layers=2, library={"constant": 1, "id": 2, "sin": 3, "product": 2}, noise=0.1,
        units={"depth": "m", "speed": "m/s"}, training=Training("quick", n_restarts=1, penalty=None), random_state=0,
    )  # fmt: skip
    model.fit_simulator({"depth": (200.5, 236.5), "speed": (1532.0, 1592.0)}, hear, 2000)
    heard = field / np.abs(field)
    y_star = tuple(np.stack([heard.real, heard.imag], axis=1).ravel().tolist())
    out(
        f"{model.expressions_.n_constants} constants, {model.status_}; truth: {TRUTH[0]} m, {TRUTH[1]:.1f} m/s\n"
    )
    out(_indented(model.posterior(y_star).summary().round(2).reset_index().to_string(index=False)))
    return model, None, y_star


_TOLD: dict[str, Callable[[Say], tuple[Any, Any, Any]]] = {
    "sensor": _sensor, "density": _density, "regression": _regression, "ocean": _ocean,
}  # fmt: skip


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())

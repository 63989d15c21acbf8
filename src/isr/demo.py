"""What `isr demo` tells: small problems, each found, inverted, saved as a model and written as a page."""

from __future__ import annotations

import shlex
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.exceptions import ConvergenceWarning

from isr.equations.check import CheckResult, check
from isr.estimators.inverse import ConditionalISR
from isr.estimators.inversion import Inversion
from isr.estimators.law_regressor import LawRegressor
from isr.estimators.settings import Effort, Training
from isr.estimators.symbolic_flow import SymbolicFlow
from isr.inversion.written import sections
from isr.posterior.metrics import mmd2, resimulation_error
from isr.problems import kinematics as arm
from isr.report import Calibration, write_report

N_ROWS, N_TRAIN, N_TARGETS, N_DRAWS = 2000, 100_000, 50, 500
EFFORT = Effort(6000, 0, 0, peak=3e-3)
UNITS = {"height": "m", "angle1": "rad", "angle2": "rad", "angle3": "rad", "vertical": "m", "horizontal": "m"}
LIBRARY = {"constant": 1, "id": 2, "sin": 4, "product": 1}
Say = Callable[[str], object]


def run(out: Say = print, folder: str | Path = "demo", *, effort: Effort = EFFORT) -> CheckResult:
    """Print the story of an arm, write ``report.html`` and models into ``folder``, and return the check of the flow.

    Args:
        out: Takes each piece of text.
        folder: Where page and models go; made when it is not there.
        effort: How long to train the flow that the page draws with.
    """
    out("A planar arm: a joint on a rail, three segments. Its end point follows from its height and angles;")
    out(
        f"which arms reach a given point? From {N_ROWS:,} arms and their end points, measured to {arm.SIGMA_Y}:\n"
    )
    rows = _named(*arm.sample(N_ROWS, random_state=0))
    laws = Inversion(units=UNITS, random_state=0).fit(rows[list(arm.X_NAMES)], rows[list(arm.Y_NAMES)])
    found = sections(laws.law_, laws.prior_, laws.proposal_)
    for title, text in found:
        out(f"{title}\n{_indented(text)}\n")
    out(f"{laws.verdict_}\n\nThe posterior for the end point (0, 1.5):\n")
    out(_summary(laws, arm.TARGET, 3))
    _judge(laws, out)

    model = fit(effort)
    result = check(model.flow_, model.expressions_, n=2000)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    laws.save(folder / "arm.isr")
    model.save(folder / "flow.isr")
    truths, observed = arm.sample(300, random_state=9)
    page = write_report(
        model,
        folder / "report.html",
        data=_named(truths, observed),
        title="An arm, run backwards",
        calibration=Calibration.of(truths, laws.sample(observed, 99), arm.X_NAMES),
        checks=result,
        provenance={"command": "isr demo"},
        y_star=arm.TARGET,
        laws=[("Verdict", laws.verdict_), *found],
    )
    _close(out, page, folder / "arm.isr", laws, arm.TARGET)
    return result.raise_if_failed()


def _judge(laws: Inversion, out: Say) -> None:
    """Print how far posteriors are from exact ones."""
    _, y = arm.sample(N_TARGETS, random_state=7)
    drawn = laws.sample(y, N_DRAWS)
    exact = arm.sample_posteriors(y, N_DRAWS, random_state=8)
    prior = np.stack([arm.sample_prior(N_DRAWS, i) for i in range(N_TARGETS)])
    out(f"\nAgainst exact posteriors of {N_TARGETS} other end points (the prior in brackets):")
    out(
        f"  maximum mean discrepancy, squared   {np.mean(mmd2(drawn, exact)):.4f}   ({np.mean(mmd2(prior, exact)):.3f})"
    )
    error, unknowing = (np.mean(resimulation_error(d, y, arm.forward)) for d in (drawn, prior))
    out(f"  squared distance from the target    {error:.2g}   ({unknowing:.2f})")


def fit(effort: Effort = EFFORT) -> ConditionalISR:
    """Return a conditional model of the arm, trained briefly, for the page to draw with."""
    x = arm.sample_prior(N_TRAIN, random_state=0)
    frame = _named(x, arm.forward(x))
    model = ConditionalISR(
        n_blocks=4,
        n_layers=2,
        library=LIBRARY,
        noise=arm.SIGMA_Y,
        units=UNITS,
        training=Training(effort, penalty=None, n_restarts=1),
        random_state=0,
    )
    with warnings.catch_warnings():
        # It is trained for seconds; the page shows its status beside the laws.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(frame[list(arm.X_NAMES)], frame[list(arm.Y_NAMES)])


def _named(x: np.ndarray, y: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame(np.hstack([x, y]), columns=[*arm.X_NAMES, *arm.Y_NAMES])


def tell(story: str, out: Say, folder: Path) -> None:
    """Print another story, and write its model and page into a folder."""
    told = {"sensor": _sensor, "density": _density, "regression": _regression, "ocean": _ocean}
    model, data, y_star = told[story](out)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{story}.isr"
    model.save(path)
    page = write_report(path, folder / f"{story}.html", data=data, y_star=y_star)
    _close(out, page, path, model, y_star)


def _close(out: Say, page: Path, path: Path, model: Any, y_star: Any) -> None:
    """Say what was written, and what to do next."""
    saved, names = shlex.quote(str(path)), model.to_bundle().y_names
    out(f"\nwritten: {page} (open it in a browser) and {path}\n\nNext\n  isr show {saved}")
    if y_star is not None:
        out(
            f"  isr posterior {saved} --y {','.join(f'{n}={v:.4g}' for n, v in zip(names, y_star, strict=True))}"
        )
    elif not names:
        out(f"  isr sample {saved} -n 1000")
    out("  isr demo --list")


def _sensor(out: Say) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(0)
    x = pd.DataFrame({"temperature": rng.uniform(10, 80, 1000), "pressure": rng.uniform(1, 3, 1000)})
    u1 = 0.02 * x["temperature"] * x["pressure"] + 0.02 * rng.normal(size=1000)
    u2 = 0.5 * x["pressure"] + 0.001 * x["temperature"] + 0.02 * rng.normal(size=1000)
    y = pd.DataFrame({"u1": u1, "u2": u2})
    units = {"temperature": "°C", "pressure": "bar", "u1": "V", "u2": "V"}
    out("Two voltages depend on temperature and pressure. From 1,000 calibration rows:\n")
    model = Inversion(units=units, random_state=0).fit(x, y)
    out(f"{_indented(str(model.law_))}\n\n{model.verdict_}\n")
    out("Backwards: u1 = 1.6 V and u2 = 1.04 V (truth: 40 °C, 2 bar)\n")
    out(_summary(model, [1.6, 1.04], 3))
    return model, (x, y), (1.6, 1.04)


def _density(out: Say) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(0)
    bend = rng.normal(0, 2, 5000)
    rows = pd.DataFrame({"x0": bend, "x1": 0.2 * (bend**2 - 4) + rng.normal(size=5000)})
    out("5,000 points along a parabola. Their law, forwards to standard normal z, and backwards:\n")
    model = SymbolicFlow(training=Training("quick"), random_state=0).fit(rows)
    out(f"{_indented(str(model.expressions_))}\n")
    out(f"{model.score(rows):.3f} nats per row; the truth has -3.53; {model.status_}")
    return model, rows, None


def _regression(out: Say) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(0)
    x = pd.DataFrame({"length": rng.uniform(0.1, 2.0, 200)})
    y = pd.DataFrame({"period": 2 * np.pi * np.sqrt(x["length"] / 9.81) + 0.01 * rng.normal(size=200)})
    out("200 pendulums, periods taken to 10 ms. The truth is 2 pi sqrt(length / g) = 2.006 sqrt(length):\n")
    model = LawRegressor(units={"length": "m", "period": "s"}, random_state=0).fit(x, y)
    out(f"{_indented(str(model.expressions_))}\n\nscatter around it {np.ravel(model.residual_sd_)[0]:.4f} s")
    return model, (x, y), None


def _ocean(out: Say) -> tuple[Any, Any, Any]:
    from isr.ocean import TRUTH, pressure, swellex96

    tones = [49.0, 79.0, 112.0]
    field = pressure(swellex96(m1=TRUTH[0], m2=TRUTH[1]), tones, n_jobs=1)[:, -1]

    def hear(x: np.ndarray) -> np.ndarray:
        sites = [swellex96(m1=depth, m2=speed) for depth, speed in x]
        return pressure(sites, tones, n_jobs=1, progress=False, on_error="nan")[:, :, -1] / np.abs(field)

    out("Three tones from a source 3 km away, heard by one hydrophone; 2,000 simulated sites:\n")
    model = ConditionalISR(
        n_blocks=3,
        n_layers=2,
        library={"constant": 1, "id": 2, "sin": 3, "product": 2},
        noise=0.1,
        units={"depth": "m", "speed": "m/s"},
        training=Training("quick", n_restarts=1, penalty=None),
        random_state=0,
    )
    model.fit_simulator({"depth": (200.5, 236.5), "speed": (1532.0, 1592.0)}, hear, 2000)
    heard = field / np.abs(field)
    y_star = tuple(np.stack([heard.real, heard.imag], axis=1).ravel().tolist())
    out(f"{model.status_}; truth: {TRUTH[0]} m, {TRUTH[1]:.1f} m/s\n")
    out(_summary(model, y_star, 2))
    return model, None, y_star


def _summary(model: Any, y_star: Any, digits: int) -> str:
    rows = model.posterior(y_star).summary().round(digits).reset_index()
    return _indented(rows.to_string(index=False))


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())

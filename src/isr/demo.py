"""The demonstration: the law of an arm found from rows, its inverse, its posterior, and a page to play with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

from isr.equations.check import CheckResult, check
from isr.estimators.inverse import ConditionalISR
from isr.estimators.inversion import Inversion
from isr.estimators.settings import Effort, Training
from isr.inversion.written import sections
from isr.posterior.metrics import mmd2, resimulation_error
from isr.problems import kinematics as arm
from isr.report import Calibration, write_report

N_ROWS, N_TRAIN, N_TARGETS, N_DRAWS = 2000, 100_000, 50, 500
EFFORT = Effort(6000, 0, 0, peak=3e-3)
UNITS = {"height": "m", "angle1": "rad", "angle2": "rad", "angle3": "rad", "vertical": "m", "horizontal": "m"}
LIBRARY = {"constant": 1, "id": 2, "sin": 4, "product": 1}


def run(
    out: Callable[[str], object] = print, folder: str | Path = "demo", *, effort: Effort = EFFORT
) -> CheckResult:
    """Print the demonstration, write ``report.html`` and models into ``folder``, and return the check of the flow.

    Args:
        out: Takes each piece of text.
        folder: Where page and models go; made when it is not there.
        effort: How long to train the flow that the page draws with.
    """
    out("A planar arm: a joint on a rail, three segments. Its end point follows from its height and angles;")
    out(
        f"which arms reach a given point? From {N_ROWS:,} arms and their end points, measured to {arm.SIGMA_Y}:\n"
    )
    laws = find()
    found = sections(laws.law_, laws.prior_, laws.proposal_)
    for title, text in found:
        out(f"{title}\n{_indented(text)}\n")
    out(f"{laws.verdict_}\n\nThe posterior for the end point (0, 1.5):\n")
    out(_indented(laws.posterior(arm.TARGET).summary(4000).round(3).reset_index().to_string(index=False)))
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
    out(f"\nwritten: {page} (open it in a browser and drag the target) and {folder / 'arm.isr'}")
    return result.raise_if_failed()


def _judge(laws: Inversion, out: Callable[[str], object]) -> None:
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


def find() -> Inversion:
    """Return the laws of the arm, found from rows."""
    frame = _named(*arm.sample(N_ROWS, random_state=0))
    return Inversion(units=UNITS, random_state=0).fit(frame[list(arm.X_NAMES)], frame[list(arm.Y_NAMES)])


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
    return model.fit(frame[list(arm.X_NAMES)], frame[list(arm.Y_NAMES)])


def _named(x: np.ndarray, y: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame(np.hstack([x, y]), columns=[*arm.X_NAMES, *arm.Y_NAMES])


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())

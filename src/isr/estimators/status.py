"""How a fit ended, in words, and the warning that says so."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from isr.training.population import Population


class DivergedError(ValueError):
    """No member of a population ended with a finite loss, so there is no model."""

    def __init__(self) -> None:
        super().__init__(
            "every restart diverged, so there is no model; check the data for outliers and scale, lower the "
            "learning rate (peak of an Effort), or use fewer blocks or layers"
        )


@dataclass(frozen=True)
class Status:
    """How a fit ended.

    Args:
        ok: Whether the result is what the settings asked for.
        reason: What happened.
        remedy: What to do about it; empty when all went well.
    """

    ok: bool
    reason: str
    remedy: str = ""

    def __str__(self) -> str:
        return self.reason if not self.remedy else f"{self.reason}; {self.remedy}"


def status_of(population: Population, n_steps: int) -> Status:
    """Return how training went: finished, stopped early, or lost many steps to numbers that were not finite."""
    if population.stopped:
        return Status(False, f"the fit ended early: {population.stopped}", "the best model so far is kept")
    alive = np.isfinite(population.held_out)
    share = float(np.max(population.skipped[alive])) / max(1, n_steps)
    if share > 0.1:
        return Status(
            False, f"up to {share:.0%} of the steps were skipped because the loss was not finite",
            "check the data for outliers or use fewer layers",
        )  # fmt: skip
    return Status(
        True, "converged" if alive.all() else f"{int((~alive).sum())} of {len(alive)} members diverged"
    )


def warn_unless_ok(status: Status) -> None:
    """Issue a `ConvergenceWarning` for a status that is not all right."""
    if not status.ok:
        warnings.warn(str(status), ConvergenceWarning, stacklevel=3)

"""How long and how hard a fit tries: named efforts, turned into a schedule for a given data set."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from isr.training.loop import Phase
from isr.training.penalties import AbstractPenalty, parse_penalty
from isr.training.population import Schedule


@dataclass(frozen=True)
class Effort:
    """Steps of each phase, and where the learning rate peaks."""

    warm: int
    sparsify: int
    refit: int
    peak: float = 1e-2


EFFORTS = {
    "quick": Effort(600, 1200, 200),
    "normal": Effort(3000, 6000, 800),
    "thorough": Effort(15000, 15000, 3000),
}


# Fewer steps than this a compiled call would leave most of the time to Python.
MIN_STEPS = 50


def make_schedule(
    effort: str | Effort,
    n_rows: int,
    *,
    batch_size: int,
    strengths: tuple[float, ...],
    penalty: str | AbstractPenalty | None,
    sparse: bool = True,
    peak: float = 1e-2,
) -> Schedule:
    """Return the schedule of a fit.

    Args:
        effort: ``"quick"``, ``"normal"``, ``"thorough"`` or an `Effort`.
        n_rows: Training rows.
        batch_size: Rows a step.
        strengths: Ladder of penalty strengths.
        penalty: What is penalised how; ``None`` for a dense model, whose steps all go into one phase.
        sparse: Whether weights are driven to zero at all; the same as no penalty.
        peak: Highest learning rate of a named effort; an `Effort` brings its own.
    """
    if isinstance(effort, str) and effort not in EFFORTS:
        raise ValueError(f"unknown effort {effort!r}; known: {', '.join(EFFORTS)}, or an Effort")
    steps = replace(EFFORTS[effort], peak=peak) if isinstance(effort, str) else effort
    size = int(min(batch_size, n_rows))
    common: dict[str, Any] = {
        "batch_size": size, "penalty": parse_penalty(penalty or "l0.5"), "least_steps": MIN_STEPS
    }  # fmt: skip
    per_epoch = Schedule(**common).steps_of_epoch(n_rows)

    def epochs(n: int) -> int:
        return int(np.ceil(n / per_epoch))

    if not sparse or penalty is None:
        phases = (Phase("train", epochs(steps.warm + steps.sparsify), steps.peak, 1e-5),
                  Phase("sparsify", 0), Phase("refit", 0))  # fmt: skip
        return Schedule(phases, (0.0,), threshold=0.0, **common)
    phases = (
        Phase("warm up", epochs(steps.warm), steps.peak, steps.peak / 3),
        Phase("sparsify", epochs(steps.sparsify), steps.peak, 1e-4),
        Phase("refit", epochs(steps.refit), 3e-3, 1e-5),
    )
    return Schedule(phases, strengths, **common)


def seed_of(random_state: Any) -> int:
    """Return the seed that scikit-learn's ``random_state`` stands for."""
    if isinstance(random_state, int | np.integer):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))

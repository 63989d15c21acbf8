"""How long and how hard a fit tries: named efforts, turned into a schedule for a given data set."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

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
    penalty: str | AbstractPenalty,
    sparse: bool = True,
) -> Schedule:
    """Return the schedule of a fit.

    Args:
        effort: ``"quick"``, ``"normal"``, ``"thorough"`` or an `Effort`.
        n_rows: Training rows.
        batch_size: Rows a step.
        strengths: Ladder of penalty strengths.
        penalty: What is penalised how.
        sparse: Whether weights are driven to zero at all; without, the steps go into the warm-up.
    """
    if isinstance(effort, str) and effort not in EFFORTS:
        raise ValueError(f"unknown effort {effort!r}; known: {', '.join(EFFORTS)}, or an Effort")
    steps = EFFORTS[effort] if isinstance(effort, str) else effort
    size = int(min(batch_size, n_rows))
    n_passes = max(1, MIN_STEPS * size // n_rows)
    per_epoch = max(1, n_rows // size) * n_passes

    def epochs(n: int) -> int:
        return int(np.ceil(n / per_epoch))

    if not sparse:
        phases = (Phase("train", epochs(steps.warm + steps.sparsify), steps.peak, 1e-5),
                  Phase("sparsify", 0), Phase("refit", 0))  # fmt: skip
        return Schedule(phases, (0.0,), batch_size=size, penalty=parse_penalty(penalty), threshold=0.0,
                        n_passes=n_passes)  # fmt: skip
    phases = (
        Phase("warm up", epochs(steps.warm), steps.peak, steps.peak / 3),
        Phase("sparsify", epochs(steps.sparsify), steps.peak, 1e-4),
        Phase("refit", epochs(steps.refit), 3e-3, 1e-5),
    )
    return Schedule(phases, strengths, batch_size=size, penalty=parse_penalty(penalty), n_passes=n_passes)

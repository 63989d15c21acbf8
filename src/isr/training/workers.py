"""Restarts shared out among joblib's workers: each trains its share as a population, then they are one again.

Threads by default; ``with joblib.parallel_config(backend="loky")``, or a cluster's backend, moves the shares elsewhere.
"""

from __future__ import annotations

from itertools import zip_longest
from pathlib import Path

import jax
import joblib
import numpy as np
from jaxtyping import PRNGKeyArray

from isr.bijections.keys import fold_in, words_of, wrapped
from isr.tables.workers import all_together
from isr.training.blocks import Blocks
from isr.training.cache import keep_compiled_programs
from isr.training.history import History
from isr.training.loop import Noise, Objective
from isr.training.monitor import Monitor
from isr.training.population import Population, Schedule, train


def train_shared(
    objective: Objective,
    weights: np.ndarray,
    data: dict[str, np.ndarray] | Blocks,
    held_out: dict[str, np.ndarray],
    schedule: Schedule,
    key: PRNGKeyArray,
    *,
    n_jobs: int | None = None,
    monitor: Monitor | None = None,
    path: Path | None = None,
    penalised: np.ndarray | None = None,
    masks: np.ndarray | None = None,
    groups: np.ndarray | None = None,
    noise: Noise | None = None,
    about: str = "",
    n_devices: int | None = None,
) -> Population:
    """Train restarts as `train` does, shared out among ``n_jobs`` workers.

    The bad restarts of each share are dropped within it. The result depends on the number of shares, not on who
    trains them or in which order.

    The arguments are those of `train`, and ``n_jobs``: shares, as joblib counts workers; one program for all restarts
    when None or 1. The monitor shows the progress of the first share and stops all. Each share after the first writes
    its checkpoints to a file of its own beside ``path``.
    """
    n_shares = min(_n_shares(n_jobs), len(weights))
    if n_shares > 1 and (n_devices or 1) > 1:
        raise ValueError(
            f"n_jobs={n_jobs} and n_devices={n_devices}: programs over the same devices would wait for each other; "
            "share out either restarts or rows"
        )
    monitor = monitor or Monitor(verbose=False)
    words = words_of(key)  # a key itself does not travel to another process

    def share(number: int) -> Population:
        keep_compiled_programs()  # a worker on another machine has its own
        rows, own = slice(number, None, n_shares), wrapped(words)
        with jax.enable_x64(True):  # a thread has its own setting
            return train(
                objective, weights[rows], data, held_out, schedule,
                own if number == 0 else fold_in(own, number),
                monitor=monitor if number == 0 else monitor.silent(), penalised=penalised,
                path=path if path is None or number == 0 else path.with_name(f"{path.name}.{number}"),
                masks=None if masks is None else masks[rows],
                groups=None if groups is None else groups[rows], noise=noise, about=about, n_devices=n_devices,
            )  # fmt: skip

    if n_shares == 1:
        return share(0)
    jobs = (joblib.delayed(share)(number) for number in range(n_shares))
    return _joined(all_together(jobs, n_jobs=n_shares, prefer="threads"))


def _n_shares(n_jobs: int | None) -> int:
    """A number of shares that is asked for does not depend on how many workers a cluster has at the moment."""
    if n_jobs is None or n_jobs > 0:
        return n_jobs or 1
    return joblib.effective_n_jobs(n_jobs)


def _joined(parts: list[Population]) -> Population:
    """All members of all shares, the best first."""
    held = np.concatenate([part.held_out for part in parts])
    order = np.argsort(held, kind="stable")

    def together(name: str) -> np.ndarray:
        return np.concatenate([getattr(part, name) for part in parts])[order]

    stopped = next((part.stopped for part in parts if part.stopped), None)
    return Population(
        together("weights"), together("strengths"), held[order], together("skipped"),
        _joined_history([part.history for part in parts]), stopped,
    )  # fmt: skip


def _joined_history(parts: list[History]) -> History:
    joined = History()
    for epochs in zip_longest(*(zip(h.phases, h.train, h.held_out, strict=True) for h in parts)):
        present = [epoch for epoch in epochs if epoch is not None]
        joined.add(
            present[0][0],
            np.concatenate([train for _, train, _ in present]),
            np.concatenate([held for _, _, held in present]),
        )
    return joined

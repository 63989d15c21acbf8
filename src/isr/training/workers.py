"""Restarts shared out among joblib's workers: each trains its share as a population, then they are one again.

Threads by default; ``with joblib.parallel_config(backend="loky")``, or a cluster's backend, moves the shares elsewhere.
"""

from __future__ import annotations

import warnings
from contextlib import suppress
from itertools import zip_longest
from pathlib import Path

import jax
import joblib
import numpy as np

from isr.bijections.parameters import Seed, child, sequence_of
from isr.tables.names import visible
from isr.tables.whole_files import cache_dir, is_private
from isr.tables.workers import all_together
from isr.training.checkpoint import History
from isr.training.monitor import Monitor
from isr.training.population import Population, Restarts, Schedule, Task, train

LEAST_SECONDS = 0.3


def keep_compiled_programs() -> None:
    """Turn JAX's persistent compilation cache on, unless there is no folder for it or the user has set one.

    What lies there is run, so a user's own folder must be as private as ours, or it is not used (one that is made later
    or lies elsewhere is JAX's); and what others left in ours is removed.
    """
    given, folder = getattr(jax.config, "jax_compilation_cache_dir", None), cache_dir()
    if given is not None and Path(given).is_dir() and not is_private(Path(given)):
        jax.config.update("jax_compilation_cache_dir", None)
        warnings.warn(
            f"JAX's cache of compiled programs, {visible(given)}, belongs to somebody else or others may write to it; "
            "it is not used, since what lies there is run. Make it private (chmod 700), or leave it to isr",
            stacklevel=2,
        )
    if given is not None or folder is None:
        return
    for path in folder.iterdir():
        with suppress(OSError):
            if not is_private(path):
                path.unlink()
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", LEAST_SECONDS)


# Seeds of further shares stand below the run's own, after the places that a population uses itself.
SHARES = 1000


def train_shared(
    task: Task,
    restarts: Restarts,
    schedule: Schedule,
    seed: Seed,
    *,
    n_jobs: int | None = None,
    monitor: Monitor | None = None,
    path: Path | None = None,
) -> Population:
    """Train restarts as `train` does, shared out among ``n_jobs`` workers, as joblib counts them.

    The bad restarts of each share are dropped within it. The result depends on the number of shares, not on who trains
    them or in which order. The monitor shows the progress of the first share and stops all. Each share after the first
    writes its checkpoints to a file of its own beside ``path``.
    """
    n_shares = min(_n_shares(n_jobs), len(restarts.weights))
    monitor, root = monitor or Monitor(verbose=False), sequence_of(seed)  # a key itself does not travel

    def train_share(number: int) -> Population:
        keep_compiled_programs()  # a worker on another machine has its own
        own = path if path is None or number == 0 else path.with_name(f"{path.name}.{number}")
        with jax.enable_x64(True):  # a thread has its own setting
            return train(
                task,
                restarts.every(n_shares, first=number),
                schedule,
                root if number == 0 else child(root, SHARES + number),
                monitor=monitor if number == 0 else monitor.silent(),
                path=own,
            )

    if n_shares == 1:
        return train_share(0)
    jobs = (joblib.delayed(train_share)(number) for number in range(n_shares))
    return joined(all_together(jobs, n_jobs=n_shares, prefer="threads"))


def _n_shares(n_jobs: int | None) -> int:
    """Return how many shares there are; a number that is asked for does not depend on the workers of a cluster."""
    if n_jobs is None or n_jobs > 0:
        return n_jobs or 1
    return joblib.effective_n_jobs(n_jobs)


def joined(parts: list[Population]) -> Population:
    """Return all members of all shares, the best first."""
    order = np.argsort(np.concatenate([part.held_out for part in parts]), kind="stable")
    names = ("weights", "held_out", "skipped")
    together = (np.concatenate([getattr(part, name) for part in parts])[order] for name in names)
    history, curves = History(), (part.history for part in parts)
    for epochs in zip_longest(*(zip(h.phases, h.train, h.held_out, strict=True) for h in curves)):
        phases, train, held_out = zip(*(epoch for epoch in epochs if epoch is not None), strict=True)
        history.add(phases[0], np.concatenate(train), np.concatenate(held_out))
    stopped = next((part.stopped for part in parts if part.stopped), None)
    return Population(*together, history, stopped, any(part.still_falls for part in parts))

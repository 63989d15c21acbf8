"""Population: restarts and penalty strengths trained side by side, the bad ones dropped on the way.

Phases: *warm up* every restart without penalty, keep the best; *sparsify* each of them under a ladder of
penalty strengths; *cut* what became small; *refit* what is left without penalty.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from isr.training import checkpoint
from isr.training.checkpoint import Progress
from isr.training.history import History
from isr.training.loop import Data, Objective, Phase, State, make_epoch, make_evaluate, start
from isr.training.monitor import Monitor
from isr.training.penalties import AbstractPenalty, SmoothHalfNorm

CHECKPOINT_SECONDS = 10.0


@dataclass(frozen=True)
class Schedule:
    """How a population is trained.

    Args:
        phases: Warm up, sparsify, refit; a phase of no epochs is left out.
        strengths: The ladder of penalty strengths.
        keep: Fraction of the restarts that outlive the warm-up.
        threshold: Weights below this size are cut after sparsifying.
        batch_size: Rows a step.
        penalty: What is penalised how.
    """

    phases: tuple[Phase, Phase, Phase] = (
        Phase("warm up", 20),
        Phase("sparsify", 40),
        Phase("refit", 5, 3e-3),
    )
    strengths: tuple[float, ...] = (1e-3, 3e-3, 1e-2)
    keep: float = 0.5
    threshold: float = 0.01
    batch_size: int = 64
    penalty: AbstractPenalty = field(default_factory=SmoothHalfNorm)


@dataclass(frozen=True)
class Population:
    """What training leaves: members with their held-out losses, the best first.

    Args:
        weights: One row a member, zero where cut.
        strengths: Penalty strength each member was trained under.
        held_out: Held-out loss of each member.
        skipped: Steps of each member that were skipped because something was not finite.
        history: The curves.
        stopped: Why the run ended early; ``None`` if it did not.
    """

    weights: np.ndarray
    strengths: np.ndarray
    held_out: np.ndarray
    skipped: np.ndarray
    history: History
    stopped: str | None = None


def train(
    objective: Objective,
    weights: np.ndarray,
    data: dict[str, np.ndarray],
    held_out: dict[str, np.ndarray],
    schedule: Schedule,
    key: PRNGKeyArray,
    *,
    monitor: Monitor | None = None,
    path: Path | None = None,
    penalised: np.ndarray | None = None,
) -> Population:
    """Train a population and return it.

    Args:
        objective: Mean loss of a batch as a function of flat weights.
        weights: Initial weights, one row a restart.
        data: Training arrays, rows along the last axis.
        held_out: Held-out arrays of the same kind.
        schedule: Phases, penalty and batch size.
        key: Seed of everything drawn.
        monitor: Progress, deadline and interruption.
        path: Where checkpoints go; a file found there is resumed from.
        penalised: 1 where the penalty counts a weight; all of them when left out.
    """
    run = _Run(
        objective, data, held_out, schedule, key, monitor or Monitor(verbose=False), path, penalised, weights
    )
    return run.to_the_end()


class _Run:
    """The moving parts of one `train` call."""

    def __init__(self, objective, data, held_out, schedule, key, monitor, path, penalised, weights):
        self.objective, self.schedule, self.key = objective, schedule, key
        self.monitor, self.path = monitor, path
        self.data = _on_device(data)
        self.held_out = _on_device(held_out)
        self.n_rows = next(iter(data.values())).shape[-1]
        self.n = weights.shape[1]
        self.n_gates = schedule.penalty.n_gates * self.n
        self.penalised = jnp.asarray(np.ones(self.n) if penalised is None else penalised, jnp.float32)
        self.evaluate = make_evaluate(objective, schedule.penalty)
        self.history = History()
        self.mark = checkpoint.fingerprint(
            schedule.phases, schedule.strengths, schedule.keep, schedule.threshold, schedule.batch_size,
            repr(schedule.penalty), np.asarray(jax.random.key_data(key)), np.asarray(weights), *data.values(),
        )  # fmt: skip
        self.written = time.monotonic()
        gates = np.zeros((len(weights), self.n_gates))
        first = jnp.asarray(np.concatenate([weights, gates], axis=1), jnp.float32)
        self.progress = Progress(
            0,
            0,
            np.zeros(len(weights), np.float32),
            np.ones(weights.shape, np.float32),
            self._fresh(0, first),
        )
        if path is not None and path.exists():
            self._resume(path)

    def _n_steps(self, phase: Phase) -> int:
        return max(1, self.n_rows // self.schedule.batch_size) * max(1, phase.n_epochs)

    def _fresh(self, phase: int, weights: jax.Array) -> State:
        return start(self.schedule.phases[phase], self._n_steps(self.schedule.phases[phase]), weights)

    def _resume(self, path: Path) -> None:
        def template(members: int) -> State:
            return self._fresh(0, jnp.zeros((members, self.n + self.n_gates), jnp.float32))

        self.progress, self.history = checkpoint.read(path, self.mark, template)

    def to_the_end(self) -> Population:
        while True:
            self._run_phase()
            if self.progress.phase == len(self.schedule.phases) - 1 or self.monitor.should_stop():
                return self._result()
            self._next_phase()

    def _run_phase(self) -> None:
        index, done, strengths, masks, state = self.progress
        phase = self.schedule.phases[index]
        if done >= phase.n_epochs:
            return
        epoch = make_epoch(
            self.objective,
            self.schedule.penalty,
            phase,
            n_rows=self.n_rows,
            batch_size=self.schedule.batch_size,
        )
        self.monitor.begin(phase.name, phase.n_epochs)
        for number in range(done, phase.n_epochs):
            if self.monitor.should_stop():
                break
            key = jax.random.fold_in(jax.random.fold_in(self.key, index), number)
            state, loss = epoch(
                state, self.data, jnp.asarray(strengths), jnp.asarray(masks), self.penalised, key
            )
            held = np.asarray(self._held_out(state.weights, masks))
            self.history.add(phase.name, np.asarray(loss), held)
            self.progress = Progress(index, number + 1, strengths, masks, state)
            self.monitor.advance(f"loss {np.nanmin(loss):.4f}  held-out {np.nanmin(held):.4f}")
            self._keep_checkpoint()

    def _held_out(self, weights: jax.Array, masks: np.ndarray) -> jax.Array:
        return self.evaluate(
            weights, jnp.asarray(masks), self.held_out, jax.random.fold_in(self.key, 1 << 20)
        )

    def _keep_checkpoint(self) -> None:
        last = self.progress.epoch == self.schedule.phases[self.progress.phase].n_epochs
        if self.path is not None and (last or time.monotonic() - self.written > CHECKPOINT_SECONDS):
            checkpoint.write(self.path, self.progress, self.history, self.mark)
            self.written = time.monotonic()

    def _next_phase(self) -> None:
        index, _, strengths, masks, state = self.progress
        weights = state.weights
        if index == 0:  # the best restarts go on, each under every strength
            held = np.nan_to_num(np.asarray(self._held_out(weights, masks)), nan=np.inf)
            n_kept = max(1, int(np.ceil(self.schedule.keep * len(held))))
            kept = np.repeat(np.argsort(held, kind="stable")[:n_kept], len(self.schedule.strengths))
            strengths = np.tile(np.asarray(self.schedule.strengths, np.float32), n_kept)
            weights, masks = weights[kept], masks[kept]
        else:
            raw = self._effective(weights, masks)
            masks = (np.abs(raw) > self.schedule.threshold).astype(np.float32) * masks
            weights = jnp.concatenate([jnp.asarray(raw * masks), weights[:, self.n :] + 20.0], axis=1)
            strengths = np.zeros_like(strengths)
        self.progress = Progress(index + 1, 0, strengths, masks, self._fresh(index + 1, weights))

    def _effective(self, raw: jax.Array, masks: np.ndarray) -> np.ndarray:
        gate = jax.vmap(lambda r, m: self.schedule.penalty.gate(r[: self.n] * m, r[self.n :], None))
        return np.asarray(gate(raw, jnp.asarray(masks)))

    def _result(self) -> Population:
        _, _, strengths, masks, state = self.progress
        held = np.nan_to_num(np.asarray(self._held_out(state.weights, masks)), nan=np.inf)
        order = np.argsort(held, kind="stable")
        weights = self._effective(state.weights, masks)
        return Population(
            weights[order], strengths[order], held[order], np.asarray(state.skipped)[order], self.history,
            self.monitor.stopped,
        )  # fmt: skip


def _on_device(data: dict[str, np.ndarray]) -> Data:
    return {name: jnp.asarray(values, jnp.float32) for name, values in data.items()}


def ladder(low: float, high: float, n: int) -> Sequence[float]:
    """Return ``n`` penalty strengths in equal ratios from ``low`` to ``high``."""
    return tuple(float(s) for s in np.geomspace(low, high, n))

"""Population: restarts and penalty strengths trained side by side, the bad ones dropped on the way.

Phases: *warm up* every restart without penalty, keep the best; *sparsify* each of them under a ladder of
penalty strengths; *cut* what became small; *refit* what is left without penalty. A phase without penalty hands on each
member's weights of the epoch with the least held-out loss, and ends early where that loss only rises.
"""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass, field
from pathlib import Path

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from isr.bijections.arrays import on_device
from isr.bijections.keys import fold_in, fold_words, split_words, words_of
from isr.tables.whole_files import refuse_unwritable
from isr.training import checkpoint
from isr.training.blocks import Blocks
from isr.training.checkpoint import Progress
from isr.training.devices import everywhere, here, rows_mesh
from isr.training.history import History
from isr.training.loop import (
    Data,
    Noise,
    Objective,
    Phase,
    State,
    evaluated_together,
    make_epoch,
    make_evaluate,
    rates,
    start,
    step_keys,
)
from isr.training.monitor import Monitor
from isr.training.orders import Orders
from isr.training.penalties import AbstractPenalty, SmoothHalfNorm

CHECKPOINT_SECONDS = 10.0
# A phase ends where, for so many of its epochs and at least so many, every member has a held-out loss this much (nats)
# above its best while its training loss went on falling.
PATIENCE_SHARE = 0.25
LEAST_PATIENCE = 10
RISE = 0.05


@dataclass(frozen=True)
class Schedule:
    """How a population is trained.

    Args:
        phases: Warm up, sparsify, refit; a phase of no epochs is left out.
        strengths: The ladder of penalty strengths.
        threshold: Weights below this size are cut after sparsifying.
        batch_size: Rows a step.
        penalty: What is penalised how.
        least_steps: Steps of an epoch at least, by several passes over the data where they are few.
        most_steps: Steps of an epoch at most, by a part of a pass where they are many: a run can be stopped, saved
            and judged after every epoch.
    """

    phases: tuple[Phase, Phase, Phase] = (
        Phase("warm up", 20),
        Phase("sparsify", 40),
        Phase("refit", 5, 3e-3),
    )
    strengths: tuple[float, ...] = (1e-3, 3e-3, 1e-2)
    threshold: float = 0.01
    batch_size: int = 64
    penalty: AbstractPenalty = field(default_factory=SmoothHalfNorm)
    least_steps: int = 1
    most_steps: int = 2000

    def steps_of_epoch(self, n_rows: int) -> int:
        """Return how many steps an epoch over so many rows takes."""
        one_pass = max(1, n_rows // self.batch_size)
        n_passes = -(-self.least_steps // one_pass)
        return n_passes * one_pass if one_pass <= self.most_steps else self.most_steps

    def n_steps(self, n_rows: int) -> int:
        """Return how many steps the longest phase takes over so many rows; skipped steps are counted by phase."""
        return self.steps_of_epoch(n_rows) * max(phase.n_epochs for phase in self.phases)


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
    data: dict[str, np.ndarray] | Blocks,
    held_out: dict[str, np.ndarray],
    schedule: Schedule,
    key: PRNGKeyArray,
    *,
    monitor: Monitor | None = None,
    path: Path | None = None,
    penalised: np.ndarray | None = None,
    masks: np.ndarray | None = None,
    groups: np.ndarray | None = None,
    noise: Noise | None = None,
    about: str = "",
    n_devices: int | None = None,
) -> Population:
    """Train a population and return it.

    Args:
        objective: Mean loss of a batch as a function of flat weights.
        weights: Initial weights, one row a restart.
        data: Training arrays, rows along the last axis; or blocks of them, a new one each epoch.
        held_out: Held-out arrays of the same kind.
        schedule: Phases, penalty and batch size.
        key: Seed of everything drawn.
        monitor: Progress, deadline and interruption.
        path: Where checkpoints go; a file found there is resumed from.
        penalised: 1 where the penalty counts a weight; all of them when left out.
        masks: For each restart 1 where it may use a weight; all of them when left out.
        groups: For each restart its sub-library, of which the best goes on; all are one when left out.
        noise: What is added to y at every step.
        about: What the objective depends on besides the data, so that a checkpoint of another one is refused.
        n_devices: Devices of JAX among which the rows of a batch are divided; one when None.
    """
    run = _Run(
        objective,
        data,
        held_out,
        schedule,
        key,
        monitor or Monitor(verbose=False),
        path,
        penalised,
        weights,
        masks,
        groups,
        noise,
        about,
        n_devices,
    )
    return run.to_the_end()


class _Run:
    """The moving parts of one `train` call."""

    def __init__(
        self, objective, data, held_out, schedule, key, monitor, path, penalised, weights, masks, groups, noise,
        about, n_devices
    ):  # fmt: skip
        self.objective, self.schedule, self.key = objective, schedule, key
        self.monitor, self.path = monitor, path
        self.blocks: Blocks | None = data if isinstance(data, Blocks) else None
        rows: dict[str, np.ndarray] = data.block(0) if isinstance(data, Blocks) else data
        self.n_rows = next(iter(rows.values())).shape[-1]
        self.mesh = rows_mesh(n_devices, min(schedule.batch_size, self.n_rows))
        self.data = everywhere(_on_device(rows), self.mesh)
        self.held_out = everywhere(_on_device(held_out), self.mesh)
        self.n_steps = schedule.steps_of_epoch(self.n_rows)
        self.noise = None if noise is None else jax.tree.map(lambda v: on_device(v, np.float32), noise)
        self.n = weights.shape[1]
        self.groups = np.zeros(len(weights), int) if groups is None else groups
        self.n_gates = schedule.penalty.n_gates * self.n
        self.judging = everywhere((fold_in(key, 1 << 20), self.noise), self.mesh)
        self.penalised = on_device(np.ones(self.n) if penalised is None else penalised, np.float32)
        self.evaluate = make_evaluate(objective, schedule.penalty)
        self.together = evaluated_together(len(weights), next(iter(held_out.values())).shape[-1])
        self.epoch = make_epoch(objective, schedule.penalty, mesh=self.mesh)
        self.orders = Orders(n_rows=self.n_rows, batch_size=schedule.batch_size, n_steps=self.n_steps)
        self.history = History()
        self.mark = checkpoint.fingerprint(
            schedule.phases, schedule.strengths, schedule.threshold, schedule.batch_size, schedule.least_steps,
            schedule.most_steps, repr(schedule.penalty), words_of(key), np.asarray(weights),
            *rows.values(), *held_out.values(), masks, penalised, about, "best weights kept",
        )  # fmt: skip
        self.written = time.monotonic()
        gates = np.zeros((len(weights), self.n_gates))
        first = np.concatenate([weights, gates], axis=1, dtype=np.float32)
        self.progress = Progress(
            0,
            0,
            np.zeros(len(weights), np.float32),
            np.asarray(np.ones(weights.shape) if masks is None else masks, np.float32),
            start(first),
            first,
        )
        if path is not None:
            refuse_unwritable(path)
            if path.exists():
                self._resume(path)

    def _resume(self, path: Path) -> None:
        def template(members: int) -> State:
            return start(np.zeros((members, self.n + self.n_gates), np.float32))

        self.progress, self.history = checkpoint.read(path, self.mark, template)

    def to_the_end(self) -> Population:
        while True:
            self._run_phase()
            if self.progress.phase == len(self.schedule.phases) - 1 or self.monitor.should_stop():
                self._keep_checkpoint(now=self.monitor.stopped is not None)
                return self._result()
            self._next_phase()

    def _run_phase(self) -> None:
        index, done, strengths, masks, state, best = self.progress
        phase = self.schedule.phases[index]
        if done >= phase.n_epochs:
            return
        all_rates = rates(phase, self.n_steps * phase.n_epochs).reshape(phase.n_epochs, -1)
        phase_words, n_parts = fold_words(words_of(self.key), index), self.orders.n_parts
        self.monitor.begin(phase.name, phase.n_epochs)
        for number in range(done, phase.n_epochs):
            if self.monitor.should_stop() or self._is_past_its_best(number):
                break
            words, _ = split_words(fold_words(phase_words, number), 2)
            _, order_words = split_words(fold_words(phase_words, number // n_parts), 2)
            inputs = (
                all_rates[number], strengths, masks, self.penalised, step_keys(words, self.n_steps, len(masks)),
                self.orders.rows(order_words, number % n_parts), self.noise,
            )  # fmt: skip
            state, loss = self.epoch(
                everywhere(state, self.mesh), self._data_of(number), *everywhere(inputs, self.mesh)
            )
            held = self._held_out(state.weights, masks)
            self.history.add(phase.name, np.asarray(loss), held)
            best = self._best_so_far(number, state.weights, best)
            self.progress = Progress(index, number + 1, strengths, masks, state, best)
            self.monitor.advance(f"loss {_least(loss):.4f}  held-out {_least(held):.4f}")
            self._keep_checkpoint()
        self.progress = self.progress._replace(state=here(self.progress.state, self.mesh))

    def _best_so_far(self, number: int, weights: jax.Array, best: np.ndarray) -> np.ndarray:
        """The weights of each member with the least held-out loss since the phase began."""
        if number == 0:
            return np.array(weights)
        held = np.nan_to_num(np.stack(self.history.held_out[-number - 1 :]), nan=np.inf)
        improved = held[-1] < np.min(held[:-1], axis=0)
        return np.where(improved[:, None], np.asarray(weights), best) if improved.any() else best

    def _is_past_its_best(self, number: int) -> bool:
        """Whether every member only learns its training rows by heart, told by the curves of the phase alone."""
        patience = max(
            LEAST_PATIENCE, int(PATIENCE_SHARE * self.schedule.phases[self.progress.phase].n_epochs)
        )
        if number <= patience or np.any(self.progress.strengths):
            return False
        train, held = (
            np.nan_to_num(np.stack(curves[-number:]), nan=np.inf, posinf=np.inf)
            for curves in (self.history.train, self.history.held_out)
        )
        members, least = np.arange(held.shape[1]), np.argmin(held, axis=0)
        rises = held[-1] > held[least, members] + RISE
        still_falls = train[-1] < train[least, members]
        return bool(np.all((number - 1 - least >= patience) & rises & still_falls | ~np.isfinite(held[-1])))

    def _weights(self) -> np.ndarray:
        """The weights to go on with: the best on held-out rows; under a penalty the last, which are the sparsest."""
        is_best = self.progress.epoch and not np.any(self.progress.strengths)
        return np.asarray(self.progress.best if is_best else self.progress.state.weights)

    def _data_of(self, number: int) -> Data:
        """The rows of an epoch: all of them, or the block whose turn it is."""
        if self.blocks is None or self.blocks.n_blocks == 1:
            return self.data
        return everywhere(_on_device(self.blocks.block(number % self.blocks.n_blocks)), self.mesh)

    def _held_out(self, weights: jax.Array | np.ndarray, masks: np.ndarray) -> np.ndarray:
        return self.evaluate(np.asarray(weights), masks, self.held_out, *self.judging, size=self.together)

    def _keep_checkpoint(self, *, now: bool | None = None) -> None:
        if now is None:
            last = self.progress.epoch == self.schedule.phases[self.progress.phase].n_epochs
            now = last or time.monotonic() - self.written > CHECKPOINT_SECONDS
        if self.path is not None and now:
            self.written = time.monotonic()
            try:
                checkpoint.write(self.path, self.progress, self.history, self.mark)
            except OSError as error:  # a full disk must not cost what was trained so far
                warnings.warn(f"{error}; the fit goes on without this checkpoint", stacklevel=2)

    def _next_phase(self) -> None:
        index, _, strengths, masks, _, _ = self.progress
        weights = self._weights()
        if index == 0:  # the best restarts go on, each under every strength
            held = np.nan_to_num(self._held_out(weights, masks), nan=np.inf)
            best = _best_of_each(held, self.groups, max(1, (len(held) + 1) // 2))
            kept, n_kept = np.repeat(best, len(self.schedule.strengths)), len(best)
            strengths = np.tile(np.asarray(self.schedule.strengths, np.float32), n_kept)
            weights, masks = weights[kept], masks[kept]
        else:
            raw = self._effective(weights, masks)
            masks = (np.abs(raw) > self.schedule.threshold).astype(np.float32) * masks
            weights = np.concatenate([raw * masks, weights[:, self.n :] + 20.0], axis=1, dtype=np.float32)
            strengths = np.zeros_like(strengths)
        self.progress = Progress(index + 1, 0, strengths, masks, start(weights), weights)

    def _effective(self, raw: np.ndarray, masks: np.ndarray) -> np.ndarray:
        gate = self.schedule.penalty.gate
        return np.array(
            [np.asarray(gate(r[: self.n] * m, r[self.n :], None)) for r, m in zip(raw, masks, strict=True)]
        )

    def _result(self) -> Population:
        index, _, strengths, masks, state, _ = self.progress
        best = self._weights()
        if index == len(self.schedule.phases) - 1:  # the refit has no penalty; tell which one made the member
            ladder = np.asarray(self.schedule.strengths, np.float32)
            strengths = np.tile(ladder, len(strengths) // len(ladder))
        held = np.nan_to_num(self._held_out(best, masks), nan=np.inf)
        order = np.argsort(held, kind="stable")
        weights = self._effective(best, masks)
        return Population(
            weights[order], strengths[order], held[order], np.asarray(state.skipped)[order], self.history,
            self.monitor.stopped,
        )  # fmt: skip


def _best_of_each(held_out: np.ndarray, groups: np.ndarray, n: int) -> np.ndarray:
    """Return ``n`` members: the best of each sub-library first, so that none is crowded out before it is pruned."""
    order = np.argsort(held_out, kind="stable")
    first = [i for k, i in enumerate(order) if groups[i] not in groups[order[:k]]]
    rest = [i for i in order if i not in first]
    return np.array([*first, *rest][: max(n, len(first))])


def _least(losses: np.ndarray | jax.Array) -> float:
    finite = np.asarray(losses)[np.isfinite(losses)]
    return float(np.min(finite)) if len(finite) else np.nan


def _on_device(data: dict[str, np.ndarray]) -> Data:
    return {name: on_device(values, np.float32) for name, values in data.items()}

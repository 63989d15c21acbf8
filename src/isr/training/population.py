"""Population: restarts and penalty strengths trained side by side, the bad ones dropped on the way.

Phases: *warm up* every restart without penalty, keep the best; *sparsify* each of them under a ladder of
penalty strengths; *cut* what became small; *refit* what is left without penalty. A phase without penalty hands on each
member's weights of the epoch with the least held-out loss. A phase with `patience` has the mean of the last epochs'
weights as well; it lowers its rate where no loss falls any more, then ends.
"""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path

import jax
import numpy as np

from isr.bijections.parameters import Seed, child, jax_keys, on_device, sequence_of
from isr.tables.whole_files import refuse_unwritable
from isr.training import checkpoint
from isr.training.checkpoint import History, Progress
from isr.training.loop import Data, Noise, Objective, Phase, batches, make_epoch, make_evaluate, rates, start
from isr.training.monitor import Monitor
from isr.training.penalties import AbstractPenalty, SmoothHalfNorm

CHECKPOINT_SECONDS = 10.0
# In a phase with patience: by what a held-out loss (nats, the members' mean) must fall to count, what the learning rate
# is divided by where it does not, how often before the phase ends, and the share of what went before in the average.
FALL, DROP, N_DROPS, KEPT = 1e-3, 4.0, 3, 0.8
# By what the last tenth of such a phase, and of so many epochs, lowers the loss where it is undertrained.
STEEP, LEAST_EPOCHS = 0.02, 10
# Places below the seed of a run: each phase has one of its own after these.
JUDGING, PHASES = 0, 1
STEP_KEYS, ROW_ORDER = 0, 1


@dataclass(frozen=True)
class Task:
    """What is learned from which rows, along the last axis."""

    objective: Objective
    data: dict[str, np.ndarray]
    held_out: dict[str, np.ndarray]
    noise: Noise | None = None  # what is added to y at every step
    penalised: np.ndarray | None = None  # 1 where the penalty counts a weight; all of them when left out
    about: str = ""  # what the objective depends on besides data: a checkpoint of another one is refused


@dataclass(frozen=True)
class Restarts:
    """Where training begins: one row of weights per restart."""

    weights: np.ndarray
    masks: np.ndarray | None = None  # 1 where a restart may use a weight; everywhere when left out
    groups: np.ndarray | None = None  # sub-libraries, of which the best go on; all are one when left out


@dataclass(frozen=True)
class Schedule:
    """How a population is trained; a phase of no epochs is left out."""

    phases: tuple[Phase, Phase, Phase] = (
        Phase("warm up", 20),
        Phase("sparsify", 40),
        Phase("refit", 5, 3e-3),
    )
    strengths: tuple[float, ...] = (1e-3, 3e-3, 1e-2)
    threshold: float = 0.01  # weights below this size are cut after sparsifying
    batch_size: int = 64
    penalty: AbstractPenalty = field(default_factory=SmoothHalfNorm)
    # An epoch is several passes over few rows or a part of one over many: a run can be stopped and judged after each.
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
    """What training leaves: members with their held-out losses, the best first."""

    weights: np.ndarray  # one row per member, zero where cut
    held_out: np.ndarray
    skipped: np.ndarray  # steps of each member at which something was not finite
    history: History
    stopped: str | None = None  # why the run ended early, if it did
    still_falls: bool = False  # whether steps ran out while the held-out loss fell, in a phase with patience


def joined(parts: list[Population]) -> Population:
    """Return the members of several populations as one, the best first."""
    order = np.argsort(np.concatenate([part.held_out for part in parts]), kind="stable")
    names = ("weights", "held_out", "skipped")
    together = (np.concatenate([getattr(part, name) for part in parts])[order] for name in names)
    history, curves = History(), (part.history for part in parts)
    for epochs in zip_longest(*(zip(h.phases, h.train, h.held_out, strict=True) for h in curves)):
        phases, train, held_out = zip(*(epoch for epoch in epochs if epoch is not None), strict=True)
        history.add(phases[0], np.concatenate(train), np.concatenate(held_out))
    stopped = next((part.stopped for part in parts if part.stopped), None)
    return Population(*together, history, stopped, any(part.still_falls for part in parts))


def train(
    task: Task,
    restarts: Restarts,
    schedule: Schedule,
    seed: Seed,
    *,
    monitor: Monitor | None = None,
    path: Path | None = None,
) -> Population:
    """Train a population and return it. Checkpoints go to ``path``; a file found there is resumed from."""
    run = _Run(task, restarts, schedule, sequence_of(seed), monitor or Monitor(verbose=False), path)
    while True:
        run.train_phase()
        if run.phase is schedule.phases[-1] or run.monitor.should_stop():
            run.write_checkpoint(now=run.monitor.stopped is not None)
            return run.result()
        run.begin_next_phase()


class _Run:
    """One `train` call: what does not change in it, and ``progress`` and ``history``, which say where it stands."""

    def __init__(
        self, task: Task, restarts: Restarts, schedule: Schedule, seed: np.random.SeedSequence, monitor: Monitor,
        path: Path | None,
    ) -> None:  # fmt: skip
        rows, (n_members, n) = task.data, restarts.weights.shape
        n_rows = next(iter(rows.values())).shape[-1]
        self.schedule, self.seed, self.monitor = schedule, seed, monitor
        self.path, self.history, self.written = path, History(), time.monotonic()
        self.n_steps = schedule.steps_of_epoch(n_rows)
        self.groups = np.zeros(n_members, int) if restarts.groups is None else restarts.groups
        self.data, self.held_out = _on_device(rows), _on_device(task.held_out)
        self.noise = task.noise and jax.tree.map(lambda v: on_device(v, np.float32), task.noise)
        self.penalised = on_device(np.ones(n) if task.penalised is None else task.penalised, np.float32)
        self.epoch = make_epoch(task.objective, schedule.penalty)
        self.evaluate = make_evaluate(task.objective)
        self.judging_key = jax_keys(child(self.seed, JUDGING))
        self.shape = {"n_rows": n_rows, "batch_size": schedule.batch_size, "n_steps": self.n_steps}
        first = np.asarray(restarts.weights, np.float32)
        masks = np.asarray(np.ones((n_members, n)) if restarts.masks is None else restarts.masks, np.float32)
        self.progress = Progress(0, 0, np.zeros(n_members, np.float32), masks, start(first), first, first)
        self.mark = checkpoint.fingerprint(
            schedule, self.seed.entropy, self.seed.spawn_key, np.asarray(restarts.weights), *rows.values(),
            *task.held_out.values(), restarts.masks, task.penalised, task.about,
        )  # fmt: skip
        if path is not None:
            refuse_unwritable(path)
            if path.exists():
                width = first.shape[1]
                self.progress, self.history = checkpoint.read(
                    path, self.mark, lambda members: start(np.zeros((members, width), np.float32))
                )

    @property
    def phase(self) -> Phase:
        return self.schedule.phases[self.progress.phase]

    def curves(self) -> np.ndarray:
        """Return held-out losses of the phase so far, ``(epochs, members)``, infinite where not finite."""
        losses = np.stack(self.history.held_out[-self.progress.epoch :])
        return np.where(np.isfinite(losses), losses, np.inf)

    def train_phase(self) -> None:
        """Train the phase under way to its end, or until it should stop."""
        phase = self.phase
        if self.progress.epoch >= phase.n_epochs:
            return
        all_rates = rates(phase, self.n_steps * phase.n_epochs).reshape(phase.n_epochs, -1)
        self.monitor.begin(phase.name, phase.n_epochs)
        for number in range(self.progress.epoch, phase.n_epochs):
            n_drops, drops_now = 0, False
            if number and phase.patience is not None:
                n_drops, drops_now = _drops(self.curves(), phase.patience)
            if n_drops > N_DROPS or self.monitor.should_stop():
                break
            if drops_now:
                best = self.progress.best
                state = self.progress.state._replace(weights=on_device(best, np.float32))
                self.progress = self.progress._replace(state=state, average=best)
            self._train_epoch(phase, all_rates[number] / np.float32(DROP**n_drops))
            self.write_checkpoint()

    def _train_epoch(self, phase: Phase, rates_of_steps: np.ndarray) -> None:
        index, number, strengths, masks, state, best, average = self.progress
        seed = child(self.seed, PHASES + index)
        keys = jax_keys(child(seed, number, STEP_KEYS), self.n_steps, len(masks))
        order = batches(child(seed, number, ROW_ORDER), **self.shape)
        state, loss = self.epoch(
            state, self.data, rates_of_steps, strengths, masks, self.penalised, keys, order, self.noise,
            np.float32(phase.decay),
        )  # fmt: skip
        found, held = np.asarray(state.weights), self._held_out(state.weights, masks)
        if phase.patience is not None:
            average = KEPT * average + (1 - KEPT) * found if number else found
            of_average = self._held_out(average, masks)
            is_better = of_average < held
            found, held = np.where(is_better[:, None], average, found), np.where(is_better, of_average, held)
        improved = held < np.min(self.curves(), axis=0) if number else np.ones(len(held), bool)
        best = np.where(improved[:, None], found, best)
        self.history.add(phase.name, np.asarray(loss), held)
        self.progress = Progress(index, number + 1, strengths, masks, state, best, average)
        self.monitor.advance(f"loss {_least(np.asarray(loss)):.4f}  held-out {_least(held):.4f}")

    def begin_next_phase(self) -> None:
        """Choose who goes on after the warm-up; cut what became small after sparsifying."""
        index, _, strengths, masks, *_ = self.progress
        weights = self._weights()
        if index == 0:  # the best restarts go on, each under every strength
            held = self._held_out(weights, masks)
            best = _best_of_each(held, self.groups, max(1, (len(held) + 1) // 2))
            kept = np.repeat(best, len(self.schedule.strengths))
            strengths = np.tile(np.asarray(self.schedule.strengths, np.float32), len(best))
            weights, masks = weights[kept], masks[kept]
        else:
            masks = (np.abs(weights) > self.schedule.threshold).astype(np.float32) * masks
            weights = weights * masks
            strengths = np.zeros_like(strengths)
        self.progress = Progress(index + 1, 0, strengths, masks, start(weights), weights, weights)

    def result(self) -> Population:
        """Return the members as they are, the best first."""
        weights, masks, skipped = self._weights(), self.progress.masks, self.progress.state.skipped
        held = self._held_out(weights, masks)
        order = np.argsort(held, kind="stable")
        phase = max(self.schedule.phases, key=lambda p: p.n_epochs)
        named = zip(self.history.phases, self.history.held_out, strict=True)
        losses = [_least(losses) for name, losses in named if name == phase.name]
        is_whole = phase.patience is not None and len(losses) >= max(phase.n_epochs, LEAST_EPOCHS)
        still_falls = is_whole and bool(min(losses) < min(losses[: -(len(losses) // 10)]) - STEEP)
        return Population(
            (weights * masks)[order], held[order], np.asarray(skipped)[order], self.history, self.monitor.stopped,
            still_falls,
        )  # fmt: skip

    def write_checkpoint(self, *, now: bool = False) -> None:
        """Write a checkpoint at the end of a phase, when the last one is old, or now."""
        is_due = now or self.progress.epoch == self.phase.n_epochs
        if self.path is None or not (is_due or time.monotonic() - self.written > CHECKPOINT_SECONDS):
            return
        self.written = time.monotonic()
        try:
            checkpoint.write(self.path, self.progress, self.history, self.mark)
        except OSError as error:  # a full disk must not cost what was trained so far
            warnings.warn(f"{error}; the fit goes on without this checkpoint", stacklevel=2)

    def _weights(self) -> np.ndarray:
        """Return weights to go on with: the best on held-out rows; under a penalty the last, which are the sparsest."""
        is_best = self.progress.epoch and not np.any(self.progress.strengths)
        return np.asarray(self.progress.best if is_best else self.progress.state.weights)

    def _held_out(self, weights: jax.Array | np.ndarray, masks: np.ndarray) -> np.ndarray:
        """Return the held-out loss of each member, infinite where it is not a number."""
        found = np.asarray(self.evaluate(weights, masks, self.held_out, self.judging_key, self.noise), float)
        return np.where(np.isnan(found), np.inf, found)


def _drops(held_out: np.ndarray, patience: int) -> tuple[int, bool]:
    """Return how often the rate has dropped in a phase with patience, and whether it does now, told by its curves."""
    losses = np.minimum.accumulate(held_out, axis=0)
    alive = np.isfinite(losses[-1])
    reached, since, n_drops = np.inf, 0, 0
    for loss in np.mean(losses[:, alive], axis=1) if alive.any() else []:
        since += 1
        if loss < reached - FALL:
            reached, since = loss, 0
        elif since >= patience:
            n_drops, since = n_drops + 1, 0
    return n_drops, n_drops > 0 and since == 0 and loss >= reached - FALL


def _best_of_each(held_out: np.ndarray, groups: np.ndarray, n: int) -> np.ndarray:
    """Return ``n`` members: the best of each sub-library first, so that none is crowded out before it is pruned."""
    order = np.argsort(held_out, kind="stable")
    first = [i for k, i in enumerate(order) if groups[i] not in groups[order[:k]]]
    rest = [i for i in order if i not in first]
    return np.array([*first, *rest][: max(n, len(first))])


def _least(losses: np.ndarray) -> float:
    return float(np.min(losses[np.isfinite(losses)], initial=np.inf))


def _on_device(data: dict[str, np.ndarray]) -> Data:
    return {name: on_device(values, np.float32) for name, values in data.items()}

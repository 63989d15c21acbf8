"""The compiled training loop: epochs as scans over batches of rows, many members side by side.

A *member* is one flat vector of weights with its own restart and its own penalty strength. All members read
the same batches; the batch is the last axis of the data.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from isr.bijections.parameters import Seed, generator, on_device
from isr.tables.names import visible
from isr.tables.whole_files import cache_dir, is_private
from isr.training.penalties import AbstractPenalty


def batches(seed: Seed, *, n_rows: int, batch_size: int, n_steps: int) -> Int[np.ndarray, "steps size"]:
    """Return the rows of an epoch's batches: several passes over few rows, each in a new order, or a part of one."""
    size, rng, rows = min(batch_size, n_rows), generator(seed), np.arange(n_rows, dtype=np.int32)
    steps_of_pass = max(1, n_rows // batch_size)
    n_passes = max(1, n_steps // steps_of_pass)
    passes = [rng.permutation(rows)[: steps_of_pass * size] for _ in range(n_passes)]
    return np.concatenate(passes)[: n_steps * size].reshape(n_steps, size)


Data = dict[str, Float[Array, "width n"]]


class Noise(NamedTuple):
    """Fresh noise of y in training: its spread in standardised units, and the learning rate at which more is added,
    infinite where none is.
    """

    spread: Float[Array | np.ndarray, " width"]
    highest_rate: Float[Array, ""] | float = np.inf


class Moment(NamedTuple):
    """When a loss is computed: some terms are due every few steps, others only while steps are long."""

    number: Int[Array, ""] | int  # of the step in its epoch
    rate: Float[Array, ""] | float  # of learning; 0 where a model is judged
    noise: Noise | None = None  # what is added to y; none where y has its noise already


Objective = Callable[[Float[Array, " n"], Data, PRNGKeyArray, Moment], Float[Array, ""]]
"""The mean loss of a batch for flat weights, a key and the moment of training."""


class State(NamedTuple):
    """Where a phase of training stands: everything needed to go on, bit for bit."""

    weights: Float[Array, "members n"]
    optimiser: Any  # Adam's moments
    skipped: Int[Array, " members"]  # steps at which loss or gradient was not finite


class Phase(NamedTuple):
    """One phase of training: the learning rate rises to its peak in the ramp, then falls by a cosine.

    After ``patience`` epochs without a better held-out loss the rate drops and members go on from their best weights;
    at last the phase ends.
    """

    name: str
    n_epochs: int
    peak: float = 1e-2
    final: float = 1e-4
    ramp: float = 0.05  # as a share of the steps
    patience: int | None = None
    decay: float = 0.0  # share of each weight that a step takes away, in units of the learning rate


# Longer gradients are shortened to this length: by hand, because their length also tells whether all is finite.
CLIP = 1.0
# Programs that took so many seconds to compile are kept on disk.
LEAST_SECONDS = 0.3
# Programs of so many kinds of fits are kept in memory: rounds, folds and repeats share theirs.
MOST_KEPT = 6
# Members evaluated at once: their values for all rows must not fill the memory.
EVALUATED_TOGETHER = 8
# The learning rate is no part of it: rates come in with every epoch, so that all phases share one compiled program.
ADAM = optax.scale_by_adam()


def rates(phase: Phase, n_steps: int) -> Float[np.ndarray, " steps"]:
    """Return the learning rate of every step of a phase: a linear ramp, then a cosine decay."""
    ramp = max(1, int(phase.ramp * n_steps))
    step = np.arange(n_steps)
    rising = phase.peak * (0.01 + 0.99 * step / ramp)
    passed = np.clip((step - ramp) / (max(n_steps, ramp + 1) - ramp), 0.0, 1.0)
    falling = phase.final + (phase.peak - phase.final) * 0.5 * (1 + np.cos(np.pi * passed))
    return np.where(step < ramp, rising, falling).astype(np.float32)


def start(weights: Float[np.ndarray, "members n"]) -> State:
    """Return the state at the beginning of a phase, whose moments are zero."""
    like = jax.eval_shape(jax.vmap(ADAM.init), weights)
    moments = jax.tree.map(lambda moment: on_device(np.zeros(moment.shape, moment.dtype)), like)
    return State(on_device(weights), moments, on_device(np.zeros(len(weights), np.int32)))


@lru_cache(maxsize=MOST_KEPT)
def make_epoch(
    objective: Objective, penalty: AbstractPenalty
) -> Callable[..., tuple[State, Float[Array, " members"]]]:
    """Return the compiled function that takes a state through one epoch and gives each member's mean loss.

    Its arguments are ``state, data, rates, strengths, masks, penalised, keys, order, noise, decay``. For each step
    there is a learning rate, the rows of a batch (``order``) and a key per member; ``masks`` is 1 where a weight is in
    use, ``penalised`` where the penalty counts it. Objectives that are equal share the function, and with it what was
    compiled.
    """

    def loss_of(raw, strength, mask, penalised, batch, key, moment):
        weights = raw * mask
        fit = objective(weights, batch, key, moment)
        return fit + strength * penalty.value(weights * penalised), fit

    def step_of_member(raw, moments, skipped, strength, mask, penalised, batch, moment, key, decay):
        (_, fit), gradient = jax.value_and_grad(loss_of, has_aux=True)(
            raw, strength, mask, penalised, batch, key, moment
        )
        norm = jnp.sqrt(jnp.sum(jnp.square(gradient)))
        fine = jnp.isfinite(fit) & jnp.isfinite(norm)
        with jax.numpy_dtype_promotion("standard"):  # Optax mixes its step count with floats
            update, new_moments = ADAM.update(gradient * (CLIP / jnp.maximum(norm, CLIP)), moments, raw)
        keep = partial(jnp.where, fine)
        moments = jax.tree.map(keep, new_moments, moments)
        raw = keep(raw - moment.rate * (update + decay * penalised * raw), raw)
        return raw, moments, skipped + (~fine).astype(jnp.int32), jnp.where(fine, fit, 0.0)

    members = jax.vmap(step_of_member, in_axes=(0, 0, 0, 0, 0, None, None, None, 0, None))

    @jax.jit
    def epoch(
        state: State, data: Data, rates, strengths, masks, penalised, keys, order, noise=None, decay=0.0
    ):
        def step(state: State, inputs):
            rows, number, rate, own_keys = inputs
            batch = {name: jnp.take(values, rows, axis=-1) for name, values in data.items()}
            moment = Moment(number, rate, noise)
            *moved, fit = members(*state, strengths, masks, penalised, batch, moment, own_keys, decay)
            return State(*moved), fit

        state, fits = jax.lax.scan(step, state, (order, jnp.arange(len(order)), rates, keys))
        return state, jnp.mean(fits, axis=0)

    return epoch


@lru_cache(maxsize=MOST_KEPT)
def make_evaluate(objective: Objective) -> Callable[..., Float[Array, " members"]]:
    """Return the compiled function that gives each member's mean loss over all of ``data``, without penalty."""

    @jax.jit
    def evaluate(raw, masks, data: Data, key, noise=None):
        def loss_of(weights):
            return objective(weights, data, key, Moment(0, 0.0, noise))

        return jax.lax.map(loss_of, raw * masks, batch_size=EVALUATED_TOGETHER)

    return evaluate


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

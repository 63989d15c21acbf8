"""What an estimator is told besides its model: how to train, and what condenses y; and the schedule made of it."""

from __future__ import annotations

import functools
import inspect
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state

from isr.tables.names import did_you_mean
from isr.training.loop import Phase
from isr.training.monitor import Monitor
from isr.training.penalties import AbstractPenalty, parse_penalty
from isr.training.population import Schedule

Kind = TypeVar("Kind", bound=type)


def explains_wrong_options(cls: Kind) -> Kind:
    """Make the constructor of a class say what to write instead of an option that it does not have."""
    init = cls.__init__
    known = list(inspect.signature(init).parameters)[1:]

    @functools.wraps(init)
    def checked(self, *args, **options) -> None:
        kind, of_training = type(self).__name__, inspect.signature(Training).parameters
        for name, value in options.items():
            if name in known:
                continue
            if name in of_training and "training" in known:
                raise TypeError(
                    f"{name!r} is now part of training: {kind}(training=isr.Training({name}={value!r}))"
                )
            instead = did_you_mean(name, known) or f"; its options are {', '.join(known)}"
            raise TypeError(f"{kind} has no option {name!r}{instead}")
        init(self, *args, **options)

    cls.__init__ = checked
    return cls


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
# Blocks, hidden layers and subnetwork of a model of x given y, for each goal.
SIZES = {
    "short": {"n_blocks": 2, "n_layers": 2, "subnet": "eql"},
    "accurate": {"n_blocks": 6, "n_layers": 3, "subnet": "mlp"},
}
# Strengths of the penalty, one for each copy of a restart.
STRENGTHS = (1e-3, 3e-3, 1e-2, 3e-2)
# A dense fit lowers its learning rate after so many steps without a better held-out loss, and at least so many epochs
# and such a share of all.
PATIENCE, LEAST_PATIENCE, PATIENCE_SHARE = 500, 5, 0.05
# Share of a dense fit's weights that a step takes away, in units of the learning rate and per row: a normal prior.
DECAY = 1000.0
# Fewer steps than this a compiled call would leave most of the time to Python.
MIN_STEPS = 50


@explains_wrong_options
@dataclass(repr=False)
class Training(BaseEstimator):
    """How a fit is trained and what is chosen of it; None is the estimator's own choice.

    Args:
        effort: ``"quick"``, ``"normal"``, ``"thorough"`` or an `Effort`.
        n_restarts: Random starts trained side by side.
        penalty: ``"l0.5"``, ``"l1"`` or a penalty object; None keeps every weight, for accuracy alone.
        batch_size: Rows per step.
        backward: Weight of the term that keeps samples drawn backwards where data lie (flows only).
        selection: Rule that picks from the front: ``"bic"``, ``"accuracy"`` or ``"simple"``.
        ensemble: Whether the model is a mixture of one flow for each of ``n_restarts`` folds (not for ``"l0.5"``).
        snap: Whether constants are set to simple values where the data cannot tell the difference.
        max_time: Seconds after which the best so far is kept.
        checkpoint: File to write progress to and to resume from.
        verbose: Progress on (True), off (False) or on a terminal only (None).

    Example:
        >>> Training("quick", n_restarts=2)
        Training(effort='quick', n_restarts=2)
    """

    effort: str | Effort = "normal"
    _: KW_ONLY
    n_restarts: int | None = None
    penalty: str | AbstractPenalty | None = "l0.5"
    batch_size: int | None = None
    backward: float | None = None
    selection: str = "bic"
    ensemble: bool = False
    snap: bool = True
    max_time: float | None = None
    checkpoint: str | Path | None = None
    verbose: bool | None = None


def training_of(given: Training | Effort | str | None, usual: Training | None = None) -> Training:
    """Return the training that an estimator was given, its effort alone or nothing at all; None is as usual."""
    training = Training() if given is None else Training(given) if isinstance(given, str | Effort) else given
    if not isinstance(training, Training):
        raise TypeError(
            f"training must be an isr.Training, an effort such as 'quick', or None, got {given!r}; "
            "write isr.Training(effort=..., n_restarts=...)"
        )
    for name, least in (("n_restarts", 1), ("batch_size", 1), ("max_time", 0)):
        value = getattr(training, name)
        if value is not None and not value >= least:
            raise ValueError(f"{name} must be at least {least}, got {value}")
    own = ("n_restarts", "batch_size", "backward") if usual else ()
    return replace(training, **{n: getattr(usual, n) for n in own if getattr(training, n) is None})


@explains_wrong_options
@dataclass(repr=False)
class Condenser(BaseEstimator):
    """What makes a few features of many observations before the blocks of a `ConditionalISR` read them.

    Args:
        n_features: How many.
        kind: A ``"network"`` of leaky ReLUs, a ``"wide network"`` with twice as many, or a ``"linear"`` map, which
            can be read.

    Example:
        >>> Condenser(8, kind="linear")
        Condenser(kind='linear', n_features=8)
    """

    n_features: int
    kind: str = "network"


def condenser_of(given: Condenser | int | None) -> Condenser:
    """Return the condenser that an estimator was given, as an object, a number of features or nothing at all."""
    if given is None or (isinstance(given, int | np.integer) and not isinstance(given, bool)):
        return Condenser(int(given or 0))
    if not isinstance(given, Condenser):
        raise TypeError(
            f"condenser must be an isr.Condenser or a number of features, got {given!r}; "
            "write isr.Condenser(n_features=8, kind='linear')"
        )
    return given


def make_schedule(
    training: Training, n_rows: int, *, sparse: bool = True, peak: float | None = None
) -> Schedule:
    """Return the schedule of a fit; that of a dense model (no penalty, or not ``sparse``) has all steps in one phase.

    ``peak`` is the highest learning rate of a named effort, where it is not the usual one; an `Effort` brings its own.
    """
    steps, penalty = training.effort, training.penalty
    if isinstance(steps, str):
        if steps not in EFFORTS:
            raise ValueError(f"unknown effort {steps!r}; known: {', '.join(EFFORTS)}, or an Effort")
        steps = replace(EFFORTS[steps], peak=peak or EFFORTS[steps].peak)
    common: dict[str, Any] = {"penalty": parse_penalty(penalty or "l0.5"), "least_steps": MIN_STEPS}
    common["batch_size"] = int(min(training.batch_size or n_rows, n_rows))
    per_epoch = Schedule(**common).steps_of_epoch(n_rows)

    def epochs(n: int) -> int:
        return int(np.ceil(n / per_epoch))

    if not sparse or penalty is None:
        n = epochs(steps.warm + steps.sparsify)
        patience = max(LEAST_PATIENCE, epochs(PATIENCE), int(PATIENCE_SHARE * n))
        train = Phase("train", n, steps.peak, 1e-5, patience=patience, decay=min(3.0, DECAY / n_rows))
        phases = (train, Phase("sparsify", 0), Phase("refit", 0))
        return Schedule(phases, (0.0,), threshold=0.0, **common)
    phases = (
        Phase("warm up", epochs(steps.warm), steps.peak, steps.peak / 3),
        Phase("sparsify", epochs(steps.sparsify), steps.peak, 1e-4),
        Phase("refit", epochs(steps.refit), 3e-3, 1e-5),
    )
    return Schedule(phases, STRENGTHS, **common)


@dataclass(frozen=True)
class Plan:
    """How a fit goes about it: the user's options, complete; the schedule made of them; the seed; and progress."""

    training: Training
    schedule: Schedule
    seed: int
    monitor: Monitor

    @property
    def is_sparse(self) -> bool:
        """Whether what is short is preferred."""
        return self.training.penalty is not None


def seed_of(random_state: Any) -> int:
    """Return the seed that scikit-learn's ``random_state`` stands for."""
    if isinstance(random_state, int | np.integer) and random_state >= 0:
        return int(random_state)
    try:
        return int(check_random_state(random_state).randint(2**31 - 1))
    except ValueError:
        raise ValueError(
            f"random_state must be a whole number from 0, a numpy RandomState or None, got {random_state!r}"
        ) from None

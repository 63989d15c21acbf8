"""What is said of an option that a class does not have: what it is called, or where it lives."""

from __future__ import annotations

import functools
import inspect
from typing import TypeVar

from isr.tables.names import did_you_mean

_TRAINING = (
    "effort", "n_restarts", "penalty", "batch_size", "loss", "backward", "selection", "snap", "n_jobs", "max_time",
    "checkpoint", "verbose",
)  # fmt: skip
Kind = TypeVar("Kind", bound=type)


def explains_wrong_options(cls: Kind) -> Kind:
    """Make the constructor of a class say what to write instead of an option that it does not have."""
    init = cls.__init__
    known = list(inspect.signature(init).parameters)[1:]

    @functools.wraps(init)
    def checked(self, *args, **options) -> None:
        for name, value in options.items():
            if name not in known:
                raise TypeError(_instead(type(self).__name__, name, value, known))
        init(self, *args, **options)

    cls.__init__ = checked
    return cls


def _instead(kind: str, name: str, value: object, known: list[str]) -> str:
    if name in _TRAINING and "training" in known:
        return f"{name!r} is now part of training: {kind}(training=isr.Training({name}={value!r}))"
    if name == "n_features" and "condenser" in known:
        return f"{name!r} is now part of condenser: {kind}(condenser=isr.Condenser({value!r}))"
    if name == "primitives" and "library" in known:
        return f"{name!r} is now called 'library': {kind}(library={value!r})"
    if name == "n_devices":
        return f"{kind} has no option 'n_devices' any more; share restarts out with isr.Training(n_jobs=...)"
    return (
        f"{kind} has no option {name!r}{did_you_mean(name, known) or '; its options are ' + ', '.join(known)}"
    )

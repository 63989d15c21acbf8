"""Saved models as the commands use them: opened, at a chosen complexity, asked in the words of the command line."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isr.cli.options import numbers_in
from isr.tables.memory import refuse_small_address_space
from isr.tables.names import did_you_mean

if TYPE_CHECKING:
    from isr.equations.check import CheckResult
    from isr.storage import Bundle


LEAST_ADDRESS_SPACE = 2.5e9
"""Bytes that JAX takes to load a model and draw from it."""


def open_model(path: Path, complexity: int | None = None) -> Bundle:
    """Return a saved model; with ``complexity``, the best of its front no more complex than that."""
    if not path.exists():
        near = [p.name for p in path.parent.glob("*.isr") if p.exists()] if path.parent.is_dir() else []
        raise FileNotFoundError(f"there is no file {path}{did_you_mean(path.name, near)}; isr fit makes one")
    refuse_small_address_space(LEAST_ADDRESS_SPACE)
    from isr.storage import load

    return load(path) if complexity is None else load(path).choose(complexity)


def example(names: Sequence[str], values: Iterable[float] | None = None) -> str:
    """Return how values of these variables are written on the command line; of many, the first when none are given."""
    shown = names[:4] if values is None else names
    numbers = [0.1] * len(shown) if values is None else values
    quoted = [
        f'"{name}={v:.4g}"' if "," in name else f"{name}={v:.4g}"
        for name, v in zip(shown, numbers, strict=True)
    ]
    return shlex.quote(",".join(quoted)) + (",…" if len(shown) < len(names) else "")


def observation(bundle: Bundle, texts: list[str]) -> list[float]:
    """Return what the user gave as ``--y p1=0.1,p2=0.3``, one number for every observed variable, in order."""
    if "posterior" not in bundle.abilities:
        raise ValueError(f"this {bundle.title} observes nothing; leave --y out")
    return values_in(texts, "--y", bundle.y_names)


def values_in(texts: list[str], option: str, names: Sequence[str]) -> list[float]:
    """Return one number for each name, in order, from texts such as ``p1=0.1,p2=0.3``."""
    way = f"write {option} {example(names)}"
    if any(re.search(r"=\s*[+-]?\d+,\d+\s*(,|$)", text) for text in texts):
        raise ValueError(
            f"{option} {' '.join(texts)!r}: numbers need a point, since commas stand between names; {way}"
        )
    values = numbers_in(texts, option, example(names))
    for name in values:
        if name not in names:
            raise ValueError(
                f"{option} names {name!r}, which this model does not have there{did_you_mean(name, names)}; {way}"
            )
    missing = [name for name in names if name not in values]
    if missing:
        raise ValueError(f"{option} has no value for {', '.join(map(repr, missing))}; {way}")
    return [values[name] for name in names]


def errors_of(bundle: Bundle) -> dict[float, float]:
    """Return the standard error of each printed constant that has one, by its absolute value, the largest first."""
    if bundle.errors is None:
        return {}
    from isr.equations.errors import printed_errors

    known = printed_errors(bundle.model, bundle.expressions, bundle.errors)
    return dict(sorted(known.items(), reverse=True))


def front_of(bundle: Bundle) -> list[dict[str, Any]]:
    """Return complexity, loss, number of constants and choice of each model of the front, from simple to complex."""
    names = ("complexity", "nll", "n_parameters", "chosen")
    return [
        dict(zip(names, (p.complexity, p.held_out_nats, p.n_constants, i == bundle.chosen), strict=True))
        for i, p in enumerate(bundle.points)
    ]


def check_model(bundle: Bundle, rows: Any = None, y: Any = None) -> CheckResult:
    """Return how well equations and model agree, both ways where there are two."""
    from isr.equations.check import check

    model: Any = bundle.model
    return check(model, bundle.expressions, rows=rows, y=y if getattr(model, "condition_map", None) else None)

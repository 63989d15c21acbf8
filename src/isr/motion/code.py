"""Source of a law of motion that stands alone: its formulas as the rest of isr writes them, and an integrator."""

from __future__ import annotations

from importlib import resources
from typing import Any

import sympy

from isr.equations.code import ALIASES, templates
from isr.equations.expressions import Expressions
from isr.equations.program import Program
from isr.search.evaluate import symbol
from isr.tables.names import symbol_names

EXTENSIONS = {"python": "py", "c": "c", "javascript": "js"}


def source(law: Any, language: str) -> str:
    """Return source of a `MotionLaw` in ``"python"`` (with NumPy), ``"c"`` or ``"javascript"``."""
    name = ALIASES.get(str(language).lower(), str(language).lower())
    if name not in EXTENSIONS:
        raise ValueError(
            f"unknown language {language!r}; a law of motion is written in {', '.join(EXTENSIONS)}"
        )
    channels = list(enumerate(law.channels))
    values = [c.rate.expression for _, c in channels] + [c.start.expression for _, c in channels if c.start]
    inputs = [*(c.name for c in law.channels), *law.x_names]
    wanted = [f"rate_{i}" for i, _ in channels] + [f"start_{i}" for i, c in channels if c.start]
    outputs = symbol_names([*inputs, *wanted])[len(inputs) :]
    symbols, goals = tuple(map(symbol, inputs)), tuple(map(symbol, outputs))
    program = Program(symbols, (), (), tuple(values), sympy.S.Zero, output_symbols=goals)
    given = [*(f"y[{i}]" for i, _ in channels), *(f"x[{j}]" for j in range(len(law.x_names)))]
    text = resources.files("isr.motion").joinpath("templates", f"motion.{EXTENSIONS[name]}.j2")
    parts = {
        "about": law.lines(), "formulas": Expressions(program, None, tuple(inputs), tuple(outputs), {}).code(name),
        "given": ", ".join(given), "rates": outputs[: len(channels)], "n": len(channels), "steps": law.steps,
        "starts": dict(zip((i for i, c in channels if c.start), outputs[len(channels) :], strict=True)),
        "logs": [int(c.log) for _, c in channels],
    }  # fmt: skip
    return templates().from_string(text.read_text("utf-8")).render(**parts)

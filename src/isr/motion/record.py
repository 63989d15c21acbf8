"""Laws of motion as plain data, for files: formulas are text that is parsed again, never run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from isr.motion.law import Channel, MotionLaw
from isr.search.formula import Formula, parse


def of_motion(law: MotionLaw) -> dict[str, Any]:
    """Return a law of motion as plain data.

    Example:
        >>> rate = Formula(parse("-2.0*m", ["m"]))
        >>> to_motion(of_motion(MotionLaw((), (Channel("m", rate),))))
        m' = -2*m
    """
    channels = [
        {**asdict(c), "rate": c.rate.text(None), "start": None if c.start is None else c.start.text(None)}
        for c in law.channels
    ]
    return {
        "x_names": list(law.x_names), "n_y": len(law.y_names), "y_names": list(law.y_names), "steps": law.steps,
        "times": [float(t) for t in law.times], "channels": [{**c, "columns": list(c["columns"])} for c in channels],
    }  # fmt: skip


def to_motion(record: Mapping[str, Any]) -> MotionLaw:
    """Return the law that `of_motion` took apart."""
    x_names = tuple(str(n) for n in record["x_names"])
    names = [*x_names, *(str(c["name"]) for c in record["channels"])]
    channels = tuple(
        Channel(
            str(c["name"]), Formula(parse(c["rate"], names)), bool(c["log"]),
            None if c["start"] is None else Formula(parse(c["start"], x_names)), str(c["noise"]), float(c["scale"]),
            tuple(int(j) for j in c["columns"]),
        )
        for c in record["channels"]
    )  # fmt: skip
    times = tuple(float(t) for t in record["times"])
    return MotionLaw(x_names, channels, times, int(record["steps"]), tuple(str(n) for n in record["y_names"]))

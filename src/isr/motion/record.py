"""Laws of motion as plain data, for files: formulas are text that is parsed again, never run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import equinox as eqx
import numpy as np

from isr.motion.law import MOST_STEPS, Channel, MotionLaw
from isr.motion.noise import Noise
from isr.search.formula import Formula, parse


class SavedMotion(eqx.Module):
    """A law of motion as a file holds it, that of a `MotionRegressor`.

    Args:
        law: What `of_motion` made of it.

    Example:
        >>> rate = Formula(parse("-2.0*m", ["m"]))
        >>> saved = SavedMotion(of_motion(MotionLaw((), (Channel("m", rate),))))
        >>> saved.to_law(), saved.trajectory([0.0, 1.0], [1.0]).round(3).tolist()
        (m' = -2*m, [[1.0], [0.135]])
    """

    law: dict[str, Any]

    def to_law(self) -> MotionLaw:
        """Return the law of motion."""
        return to_motion(self.law)

    def refuse_unreadable(self) -> None:
        """Raise unless every formula can be read."""
        self.to_law()

    def sections(self, x_names: tuple[str, ...]) -> list[tuple[str, str]]:
        """Return what was found as text, under a heading."""
        return [("The law of motion", str(self.to_law()))]

    def trajectory(self, times: Any, start: Any, x: Any = None) -> np.ndarray:
        """Return the trajectory at times from a start, see `MotionLaw.trajectory`."""
        return self.to_law().trajectory(times, start, x)

    def followed(self, times: Any, values: Any, x: Any = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return times of trajectories, what was measured, and the law begun where it follows each one best."""
        law = self.to_law()
        series = law.read(times, values, x)
        return series.times, series.values, law.followed(series)


def of_motion(law: MotionLaw) -> dict[str, Any]:
    """Return a law of motion as plain data."""
    channels = [
        {
            **asdict(c), "rate": c.rate.text(None), "start": None if c.start is None else c.start.text(None),
            "noise": str(c.noise), "columns": list(c.columns),
        }
        for c in law.channels
    ]  # fmt: skip
    return {
        "x_names": list(law.x_names), "n_y": len(law.y_names), "y_names": list(law.y_names), "steps": law.steps,
        "times": [float(t) for t in law.times], "channels": channels,
    }  # fmt: skip


def to_motion(record: Mapping[str, Any]) -> MotionLaw:
    """Return the law that `of_motion` took apart."""
    x_names = tuple(str(n) for n in record["x_names"])
    names = [*x_names, *(str(c["name"]) for c in record["channels"])]
    channels = []
    for c in record["channels"]:
        start = None if c["start"] is None else Formula(parse(c["start"], x_names))
        noise = Noise.read(str(c["noise"])) if c["noise"] else Noise("")
        columns = tuple(int(j) for j in c["columns"])
        rate = Formula(parse(c["rate"], names))
        channels.append(
            Channel(str(c["name"]), rate, bool(c["log"]), start, noise, float(c["scale"]), columns)
        )
    times = tuple(float(t) for t in record["times"])
    steps, n_y = int(record["steps"]), len(record["y_names"])
    places = [(len(c.columns), j) for c in channels for j in c.columns]
    if not (
        channels and 0 < steps <= MOST_STEPS and all(n == len(times) and 0 <= j < n_y for n, j in places)
    ):
        raise ValueError("a law of motion has channels, a number of steps, and columns of y at its times")
    y_names = tuple(str(n) for n in record["y_names"])
    return MotionLaw(x_names, tuple(channels), times, steps, y_names)

"""Draws of x put through the simulator again: do they explain the observation?"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from isr.tables.names import quoted

Simulator = Callable[[np.ndarray], Any]


@dataclass(frozen=True)
class Resimulation:
    """Simulations of draws, and how far they fall from the observation.

    Args:
        x: The draws.
        y: Their simulated observations; NaN where the draw or the simulation failed.
        errors: Squared distance of each row of ``y`` from the observation, or from the mean of several.
        n_failed: How many rows of ``y`` are not finite.

    Example:
        >>> resimulate(np.ones((3, 2)), lambda x: x[:, :1], np.array([1.5]), ["force"]).error
        0.25
    """

    x: Float[np.ndarray, "n d_x"]
    y: Float[np.ndarray, "n d_y"]
    errors: Float[np.ndarray, " n"]
    n_failed: int

    @property
    def error(self) -> float:
        """Mean squared distance from the observation; no draw is left out, so a failed one makes it NaN."""
        return float(np.mean(self.errors))


def resimulate(
    draws: Float[np.ndarray, "n d_x"],
    simulator: Simulator,
    target: Float[np.ndarray, " d_y"],
    names: Sequence[str],
) -> Resimulation:
    """Return what ``simulator`` makes of the finite draws, beside ``target``.

    Args:
        draws: Rows of x.
        simulator: Rows of x to rows of y; complex columns become neighbouring real and imaginary parts.
        target: The observation.
        names: Of its values, for the error message.

    Example:
        >>> resimulate(np.array([[1.0], [3.0]]), lambda x: 2 * x, np.array([4.0]), ["y"]).errors
        array([4., 4.])
    """
    finite = np.isfinite(draws).all(axis=1)
    found = _real_columns(simulator(draws[finite]))
    if found.shape != (finite.sum(), len(target)):
        raise ValueError(
            f"the simulator made an array of shape {found.shape} of {finite.sum()} rows; expected one row each, "
            f"with {len(target)} columns: {quoted(names)}"
        )
    y = np.full((len(draws), len(target)), np.nan)
    y[finite] = found
    errors = np.sum((y - target) ** 2, axis=1)
    return Resimulation(draws, y, errors, int(np.sum(~np.isfinite(errors))))


def _real_columns(y: Any) -> np.ndarray:
    rows = np.asarray(y)
    rows = rows[:, None] if rows.ndim == 1 else rows
    if np.iscomplexobj(rows):
        return np.stack([np.real(rows), np.imag(rows)], axis=-1).reshape(len(rows), -1)
    return rows.astype(float)

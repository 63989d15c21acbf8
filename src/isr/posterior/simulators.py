"""Simulators: functions from rows of x to rows of y, where some rows may fail, also on draws of a posterior."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Num

from isr.tables.names import quoted

Simulator = Callable[[np.ndarray], Any]


def evaluate(
    simulator: Simulator, x: Float[np.ndarray, "n d_x"]
) -> tuple[Num[np.ndarray, "n d_y"], list[str | None]]:
    """Return y for rows of x, NaN where that failed, and why; rows are tried one by one if they fail together.

    Example:
        >>> from math import sqrt
        >>> evaluate(lambda x: [sqrt(x[0, 0])], np.array([[4.0], [-1.0]]))
        (array([[ 2.], [nan]]), [None, 'ValueError: ...'])
    """
    try:
        y = _rows(simulator(x.copy()), len(x))
    except _ContractError:
        raise
    except Exception:
        return _one_by_one(simulator, x)
    return y, _reasons(y)


def _one_by_one(simulator: Simulator, x: np.ndarray) -> tuple[np.ndarray, list[str | None]]:
    found: dict[int, np.ndarray] = {}
    reasons: list[str | None] = []
    for number, row in enumerate(x):
        try:
            found[number] = _rows(simulator(row[None].copy()), 1)[0]
            reasons += _reasons(found[number][None])
        except _ContractError:
            raise
        except Exception as error:
            reasons.append(f"{type(error).__name__}: {error}")
    if not found:
        return np.empty((len(x), 0)), reasons
    check_widths({y.size for y in found.values()})
    y = np.full((len(x), next(iter(found.values())).size), np.nan, np.result_type(*found.values()))
    y[list(found)] = list(found.values())
    return y, reasons


def _reasons(y: np.ndarray) -> list[str | None]:
    return [None if finite else "y is not finite" for finite in np.all(np.isfinite(y), axis=1)]


class _ContractError(TypeError):
    """The simulator's output can never be rows of numbers; no use trying again."""


def _rows(output: Any, n_rows: int) -> np.ndarray:
    y = np.asarray(output)
    if y.dtype.kind == "O":  # None among the rows, perhaps; one by one they can be told apart
        raise ValueError(f"the simulator returned no numbers: {y.tolist()!r:.200}")
    if y.dtype.kind not in "biufc":
        raise _ContractError(
            f"the simulator must return rows of numbers, got {type(output).__name__}: {y!r:.200}"
        )
    if y.ndim > 2:
        raise _ContractError(
            f"the simulator returned {y.ndim} dimensions (shape {y.shape}); give it rows and columns: "
            "y.reshape(len(x), -1)"
        )
    if y.ndim == 0 or len(y) != n_rows:
        raise ValueError(f"the simulator returned shape {y.shape} for {n_rows} rows")
    y = y[:, None] if y.ndim == 1 else y
    if not y.shape[1]:
        raise _ContractError(f"the simulator returned no columns (shape {y.shape})")
    return y.astype(complex if y.dtype.kind == "c" else float)


def check_widths(widths: set[int]) -> None:
    """Raise unless all rows of y have as many columns.

    Example:
        >>> check_widths({2})
    """
    if len(widths) > 1:
        raise _ContractError(
            f"the simulator returned rows of different lengths: {sorted(widths)}; y needs the same columns always"
        )


@dataclass(frozen=True)
class Resimulation:
    """Draws put through the simulator again, and how far they fall from the observation.

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
    """Return what ``simulator`` makes of the finite draws, beside the observation ``target`` with its ``names``.

    Complex columns of y become neighbouring real and imaginary parts.

    Example:
        >>> resimulate(np.array([[1.0], [3.0]]), lambda x: 2 * x, np.array([4.0]), ["y"]).errors
        array([4., 4.])
    """
    finite = np.isfinite(draws).all(axis=1)
    found = np.asarray(simulator(draws[finite]))
    found = found[:, None] if found.ndim == 1 else found
    if np.iscomplexobj(found):
        found = np.ascontiguousarray(found, dtype=complex).view(float)
    if found.shape != (finite.sum(), len(target)):
        raise ValueError(
            f"the simulator made an array of shape {found.shape} of {finite.sum()} rows; expected one row each, "
            f"with {len(target)} columns: {quoted(names)}"
        )
    y = np.full((len(draws), len(target)), np.nan)
    y[finite] = found
    errors = np.sum((y - target) ** 2, axis=1)
    return Resimulation(draws, y, errors, int(np.sum(~np.isfinite(errors))))

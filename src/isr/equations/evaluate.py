"""Numbers from a program: its Python source over whole columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float
from scipy.special import expit, ndtr, ndtri

from isr.equations.program import Program

_FUNCTIONS: dict[str, Callable] = {
    "isr_square": np.square,
    "isr_cube": lambda a: a * a * a,
    "isr_sigmoid": expit,
    "isr_phi": ndtr,
    "isr_phi_inverse": ndtri,
}


def compile_numpy(program: Program) -> Callable:
    """Return a function of a list of input columns and a list of condition columns: outputs and log-determinant."""
    from isr.equations.code.sources import numpy_function

    return numpy_function(program, _FUNCTIONS)


def evaluate(
    program: Program,
    rows: Float[np.ndarray, "n inputs"],
    y: Float[np.ndarray, "m conditions"] | None = None,
    *,
    function: Callable | None = None,
    parameters: Sequence[float] = (),
) -> tuple[Float[np.ndarray, "n outputs"], Float[np.ndarray, " n"]]:
    """Return the outputs and the log-determinants of a program for rows of inputs.

    Args:
        program: The equations.
        rows: One column per input.
        y: One column per condition, as many rows as ``rows`` or a single one; left out without conditions.
        function: What `compile_numpy` made of the program, to save compiling again.
        parameters: Values of its last inputs, the same for all rows.
    """
    rows = _columns(rows, len(program.inputs) - len(parameters), "the input")
    given = None
    if program.conditions:
        if y is None:
            raise ValueError(
                f"these equations read a condition: give y with {len(program.conditions)} columns"
            )
        given = _columns(y, len(program.conditions), "y")
        if len(given) not in (1, len(rows)):
            raise ValueError(f"y must hold one row or as many as the input ({len(rows)}), got {len(given)}")
        given = np.broadcast_to(given, (len(rows), given.shape[1])).T
    with np.errstate(all="ignore"):
        results, log_det = (function or compile_numpy(program))(
            [*np.ascontiguousarray(rows.T), *parameters], given
        )
    columns = [np.broadcast_to(np.asarray(r, np.float64), len(rows)) for r in (*results, log_det)]
    return np.stack(columns[:-1], axis=1), columns[-1].copy()


def _columns(rows: np.ndarray, width: int, what: str) -> np.ndarray:
    rows = np.asarray(rows, np.float64)
    if rows.ndim == 1:
        rows = rows[None, :] if len(rows) == width and width > 1 else rows[:, None]
    if rows.ndim != 2 or rows.shape[1] != width:
        raise ValueError(f"{what} must have {width} columns, got an array of shape {rows.shape}")
    return rows

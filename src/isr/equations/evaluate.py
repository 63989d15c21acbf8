"""Numbers from a program: its equations as one NumPy function over whole columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import sympy
from jaxtyping import Float
from scipy.special import expit, ndtr, ndtri
from sympy.printing.numpy import NumPyPrinter

from isr.equations.program import Program

_FUNCTIONS = {"Phi": ndtr, "PhiInverse": ndtri, "sigmoid": expit}


class _Printer(NumPyPrinter):
    """NumPy code with every digit of a double, and limits that broadcast."""

    def __init__(self) -> None:
        super().__init__({"fully_qualified_modules": False, "inline": True, "allow_unknown_functions": True})

    def _print_Float(self, expr: sympy.Float) -> str:
        return repr(float(expr))

    # Brackets everywhere: where one may be left out is what printing spends most of its time on.

    def _print_Add(self, expr: sympy.Add, order: str | None = None) -> str:
        return f"({' + '.join(self._print(a) for a in expr.args)})"

    def _print_Mul(self, expr: sympy.Mul) -> str:
        return f"({'*'.join(self._print(a) for a in expr.args)})"

    def _print_Rational(self, expr: sympy.Rational) -> str:
        return f"({expr.p}/{expr.q})"

    def _print_Integer(self, expr: sympy.Integer) -> str:
        return f"({expr.p}.0)"

    def _print_Pow(self, expr: Any, rational: bool = False) -> str:
        base, power = f"({self._print(expr.base)})", expr.exp
        if power == -1:
            return f"(1.0/{base})"
        if power.is_Rational and abs(power) == sympy.Rational(1, 2):
            root = f"{self._module_format('numpy.sqrt')}{base}"
            return root if power > 0 else f"(1.0/{root})"
        return f"{base}**{power.p}" if power.is_Integer and power > 0 else f"{base}**({self._print(power)})"

    def _print_Max(self, expr: sympy.Max) -> str:
        return self._nested("maximum", expr.args)

    def _print_Min(self, expr: sympy.Min) -> str:
        return self._nested("minimum", expr.args)

    def _nested(self, function: str, arguments: tuple) -> str:
        text = self._print(arguments[0])
        for argument in arguments[1:]:
            text = f"{self._module_format('numpy.' + function)}({text}, {self._print(argument)})"
        return text


def compile_numpy(program: Program, parameters: tuple[sympy.Symbol, ...] = ()) -> Callable:
    """Return a function of input, condition and parameter columns that gives outputs and log-determinant.

    Args:
        program: The equations.
        parameters: Symbols in them that are to be arguments as well.
    """
    arguments = [*program.inputs, *program.conditions, *parameters]
    replacements = [(a.target, a.value) for a in program.assignments]
    return sympy.lambdify(
        arguments,
        [*program.outputs, program.log_det],
        modules=[_FUNCTIONS, "numpy"],
        printer=_Printer(),
        # The assignments are the common subexpressions already; looking for more would be slow.
        cse=cast(bool, lambda expressions: (replacements, expressions)),
        docstring_limit=-1,
    )


def evaluate(
    program: Program,
    rows: Float[np.ndarray, "n inputs"],
    y: Float[np.ndarray, "m conditions"] | None = None,
    *,
    function: Callable | None = None,
    parameters: tuple[float, ...] = (),
) -> tuple[Float[np.ndarray, "n outputs"], Float[np.ndarray, " n"]]:
    """Return the outputs and the log-determinants of a program for rows of inputs.

    Args:
        program: The equations.
        rows: One column an input.
        y: One column a condition, as many rows as ``rows`` or a single one; left out without conditions.
        function: What `compile_numpy` made of the program, to save compiling again.
        parameters: Values of the parameters ``function`` was compiled with.
    """
    rows = _columns(rows, len(program.inputs), "the input")
    arguments = list(rows.T)
    if program.conditions:
        if y is None:
            raise ValueError(
                f"these equations read a condition: give y with {len(program.conditions)} columns"
            )
        given = _columns(y, len(program.conditions), "y")
        if len(given) not in (1, len(rows)):
            raise ValueError(f"y must hold one row or as many as the input ({len(rows)}), got {len(given)}")
        arguments += list(np.broadcast_to(given, (len(rows), given.shape[1])).T)
    with np.errstate(all="ignore"):
        results = (function or compile_numpy(program))(*arguments, *parameters)
    columns = [np.broadcast_to(np.asarray(r, np.float64), len(rows)) for r in results]
    outputs = np.stack(columns[:-1], axis=1)
    for i, (low, high) in enumerate(program.bounds):
        if low is not None or high is not None:
            outputs[:, i] = np.clip(outputs[:, i], low, high)
    return outputs, columns[-1].copy()


def _columns(rows: np.ndarray, width: int, what: str) -> np.ndarray:
    rows = np.asarray(rows, np.float64)
    if rows.ndim == 1:
        rows = rows[None, :] if len(rows) == width and width > 1 else rows[:, None]
    if rows.ndim != 2 or rows.shape[1] != width:
        raise ValueError(f"{what} must have {width} columns, got an array of shape {rows.shape}")
    return rows

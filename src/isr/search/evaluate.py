"""Values of an expression at rows, with their derivatives by its constants; nothing is compiled.

Constants are the decimal numbers of an expression, exponents among them; whole numbers, fractions and π are its form.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import sympy
from scipy.special import expit, ndtr, ndtri

Rows = np.ndarray
Dual = tuple[Any, dict[int, Any]]

_FUNCTIONS: dict[str, tuple[Callable[[Any], Any], Callable[[Any, Any], Any]]] = {
    "exp": (np.exp, lambda u, f: f),
    "log": (np.log, lambda u, f: 1 / u),
    "sin": (np.sin, lambda u, f: np.cos(u)),
    "cos": (np.cos, lambda u, f: -np.sin(u)),
    "tan": (np.tan, lambda u, f: 1 + f * f),
    "asin": (np.arcsin, lambda u, f: 1 / np.sqrt(1 - u * u)),
    "acos": (np.arccos, lambda u, f: -1 / np.sqrt(1 - u * u)),
    "atan": (np.arctan, lambda u, f: 1 / (1 + u * u)),
    "sinh": (np.sinh, lambda u, f: np.cosh(u)),
    "cosh": (np.cosh, lambda u, f: np.sinh(u)),
    "tanh": (np.tanh, lambda u, f: 1 - f * f),
    "asinh": (np.arcsinh, lambda u, f: 1 / np.sqrt(1 + u * u)),
    "acosh": (np.arccosh, lambda u, f: 1 / np.sqrt(u * u - 1)),
    "atanh": (np.arctanh, lambda u, f: 1 / (1 - u * u)),
    "sigmoid": (expit, lambda u, f: f * (1 - f)),
    "Abs": (np.abs, lambda u, f: np.sign(u)),
    "sign": (np.sign, lambda u, f: np.zeros_like(u)),
    "Phi": (ndtr, lambda u, f: np.exp(-u * u / 2) / np.sqrt(2 * np.pi)),
    "PhiInverse": (ndtri, lambda u, f: np.sqrt(2 * np.pi) * np.exp(f * f / 2)),
}
"""Functions with their derivatives, given the argument and the value."""


def symbol(name: str) -> sympy.Symbol:
    """Return the symbol that stands for a variable in every formula."""
    return sympy.Symbol(name, real=True)


@dataclass(frozen=True, eq=False)
class Opened:
    """An expression with its constants apart, ready to be evaluated.

    Args:
        program: Steps, each of which reads earlier ones.
        constants: The decimal numbers, in order of appearance, each place its own.
        is_power: Which of them are exponents.
    """

    program: tuple[tuple[Any, ...], ...]
    constants: np.ndarray
    is_power: tuple[bool, ...] = ()

    def values(self, columns: Sequence[Rows], constants: np.ndarray | None = None) -> Rows:
        """Return the values at columns of rows."""
        c = self.constants if constants is None else constants
        return _run(self.program, columns, c, derive=False)[0]

    def duals(self, columns: Sequence[Rows], constants: np.ndarray) -> tuple[Rows, Rows]:
        """Return values (n) and their derivatives (constants, n) by the constants."""
        value, slopes = _run(self.program, columns, constants, derive=True)
        jacobian = np.zeros((len(constants), len(value)))
        for i, slope in slopes.items():
            jacobian[i] = slope
        return value, jacobian


def opened(expression: sympy.Expr, names: Sequence[sympy.Symbol]) -> Opened:
    """Return an expression with its decimal numbers open.

    Example:
        >>> x = symbol("x")
        >>> law = opened(2.5 * x**2 + 1, [x])
        >>> law.constants, law.values([np.array([1.0, 2.0])])
        (array([2.5]), array([ 3.5, 11. ]))
    """
    places = {s: j for j, s in enumerate(names)}
    program: list[tuple[Any, ...]] = []
    known: dict[Any, int] = {}
    constants: list[float] = []
    exponents: set[int] = set()

    def put(step: tuple[Any, ...]) -> int:
        program.append(step)
        return len(program) - 1

    def walk(e: Any) -> int:
        if e.is_Float:
            constants.append(float(e))
            return put(("constant", len(constants) - 1))
        if e in known:
            return known[e]
        if e in places:
            step = put(("column", places[e]))
        elif e.is_number and not e.has(sympy.Float):
            value = complex(e)
            step = put(("number", value.real if value.imag == 0 else float("nan")))
        elif e.is_Add or e.is_Mul:
            step = put(("add" if e.is_Add else "mul", *map(walk, e.args)))
        elif e.is_Pow and e.exp.is_number and not e.exp.has(sympy.Float):
            step = put(("power", walk(e.base), float(e.exp)))
        elif e.is_Pow:
            base, before = walk(e.base), len(constants)
            power = walk(e.exp)
            exponents.update(range(before, len(constants)) if e.exp.is_number else ())
            step = put(("raise", base, power))
        elif type(e).__name__ in _FUNCTIONS and len(e.args) == 1:
            step = put(("call", type(e).__name__, walk(e.args[0])))
        else:
            raise ValueError(f"a law holds {e!r}, which the search cannot evaluate")
        if not e.has(sympy.Float):
            known[e] = step
        return step

    walk(sympy.sympify(expression, strict=True))
    return Opened(tuple(program), np.array(constants), tuple(i in exponents for i in range(len(constants))))


def with_constants(expression: sympy.Expr, values: Sequence[Any]) -> sympy.Expr:
    """Return an expression with other numbers, or any expressions, in the places of its constants."""
    given = iter(values)

    def walk(e: Any) -> Any:
        if e.is_Float:
            value = next(given)
            return sympy.Float(value) if isinstance(value, float) else value
        if not e.has(sympy.Float):
            return e
        return e.func(*[walk(a) for a in e.args])

    return walk(sympy.sympify(expression, strict=True))


def _run(
    program: Sequence[tuple[Any, ...]], columns: Sequence[Rows], constants: Any, *, derive: bool
) -> Dual:
    done: list[Dual] = []
    with np.errstate(all="ignore"):
        for kind, *rest in program:
            if kind == "column":
                done.append((columns[rest[0]], {}))
            elif kind == "number":
                done.append((rest[0], {}))
            elif kind == "constant":
                done.append((constants[rest[0]], {rest[0]: 1.0} if derive else {}))
            else:
                done.append(_step(kind, rest, done))
    value, slopes = done[-1]
    return value + np.zeros(len(columns[0])), slopes


def _step(kind: str, rest: list[Any], done: list[Dual]) -> Dual:
    """The value of an operation with its slopes, by the chain rule."""
    if kind == "add":
        return sum((done[i][0] for i in rest), 0.0), _chained(*((1.0, done[i][1]) for i in rest))
    if kind == "mul":
        value, slopes = done[rest[0]]
        for i in rest[1:]:
            other, more = done[i]
            value, slopes = value * other, _chained((other, slopes), (value, more))
        return value, slopes
    if kind == "call":
        function, slope = _FUNCTIONS[rest[0]]
        u, du = done[rest[1]]
        value = function(u)
        return value, _chained((slope(u, value), du)) if du else {}
    u, du = done[rest[0]]
    if kind == "power":
        p = rest[1]
        value = u * u if p == 2 else 1 / u if p == -1 else np.sqrt(u) if p == 0.5 else u**p
        return value, _chained((p * u ** (p - 1), du)) if du else {}
    p, dp = done[rest[1]]
    value = u**p
    return value, _chained((p * u ** (p - 1), du), (np.log(u) * value if dp else 0.0, dp))


def _chained(*parts: tuple[Any, dict[int, Any]]) -> dict[int, Any]:
    """Sums of slopes, each times a factor."""
    found: dict[int, Any] = {}
    for factor, slopes in parts:
        for i, slope in slopes.items():
            found[i] = found[i] + factor * slope if i in found else factor * slope
    return found

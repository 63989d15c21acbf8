"""Formula: one expression in the variables of x, as text that a file may hold, as numbers, and as a function to refit.

Its decimal numbers are its constants, in the order in which SymPy lists them; whole numbers, fractions and π are part
of its form.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import sympy
from scipy.special import expit, ndtr, ndtri

from isr.equations.functions import Phi, PhiInverse
from isr.equations.program import replaced
from isr.equations.text import TextPrinter
from isr.search.evaluate import symbol

FUNCTIONS: dict[str, Any] = {
    **{n: getattr(sympy, n) for n in ("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh")},
    **{n: getattr(sympy, n) for n in ("acosh", "atanh", "exp", "log", "sqrt", "sign", "atan2", "erf", "Min", "Max")},
    "abs": sympy.Abs, "Abs": sympy.Abs, "ln": sympy.log, "Phi": Phi, "PhiInverse": PhiInverse,
    "sigmoid": lambda u: 1 / (1 + sympy.exp(-u)),
}  # fmt: skip
"""What the text of a law may call."""
_NUMPY = {"Phi": ndtr, "PhiInverse": ndtri, "sigmoid": expit}
_OPERATORS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: lambda a, b: a + b, ast.Sub: lambda a, b: a - b, ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b, ast.Pow: lambda a, b: a**b,
}  # fmt: skip
_LONGEST = 100_000
# Beyond these a text is no law, and SymPy would work on it for ever.
_MOST_NODES = 10_000
_LARGEST = 1e300


# The standard error that is printed behind a number.
_ERROR = re.compile(r"(?<=[0-9])\(\d+\)")


def parse(text: str, names: Sequence[str]) -> sympy.Expr:
    """Return the expression that a text says, built from arithmetic and `FUNCTIONS` alone; nothing is run.

    Args:
        text: Such as ``"0.5*sin(a) + h"``; ``^`` is ``**``, and errors as in ``0.5003(12)`` are passed over.
        names: The variables it may name, identifiers.

    Example:
        >>> parse("0.5*sin(a)^2 + h", ["h", "a"])
        h + 0.5*sin(a)**2
        >>> parse("0.5*sin(b)", ["h", "a"])
        Traceback (most recent call last):
        ...
        ValueError: the law '0.5*sin(b)' names 'b'; it may name: h, a, pi
    """
    if len(text) > _LONGEST:
        raise ValueError(f"a law of {len(text)} characters is too long; at most {_LONGEST} are read")
    known = {name: symbol(name) for name in names} | {"pi": sympy.pi}
    shown = text if len(text) <= 200 else f"{text[:200]}…"
    try:
        plain = _ERROR.sub("", text.strip()).replace("^", "**")
        tree = ast.parse(plain, mode="eval").body
        if sum(1 for _ in ast.walk(tree)) > _MOST_NODES:
            raise ValueError(f"the law {shown!r} has more than {_MOST_NODES} parts")
        return sympy.sympify(_built(tree, known, shown), strict=True)
    except (SyntaxError, TypeError, RecursionError, MemoryError) as error:
        raise ValueError(f"the law {shown!r} is no expression: {error or type(error).__name__}") from None


def _built(node: ast.AST, known: dict[str, Any], text: str) -> Any:
    """The expression of a node; every number that comes up on the way is small enough to go on with."""
    value = sympy.sympify(_combined(node, known, text), strict=True)
    for number in (value.as_coeff_Mul()[0], value.as_coeff_Add()[0], *([value] if value.is_number else [])):
        if number.is_Rational and max(abs(int(number.p)), int(number.q)) > _LARGEST:
            raise ValueError(f"the law {text!r} holds a number beyond {_LARGEST:g}")
    if value.is_number:
        _float(value, text)
    return value


def _float(value: sympy.Expr, text: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError, MemoryError):
        number = np.inf
    if not abs(number) <= _LARGEST:
        raise ValueError(f"the law {text!r} holds a number beyond {_LARGEST:g}")
    return number


def _combined(node: ast.AST, known: dict[str, Any], text: str) -> Any:
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return sympy.Integer(node.value) if isinstance(node.value, int) else sympy.Float(node.value)
    if isinstance(node, ast.Name):
        if node.id not in known:
            raise ValueError(f"the law {text!r} names {node.id!r}; it may name: {', '.join(known)}")
        return known[node.id]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        value = _built(node.operand, known, text)
        return -value if isinstance(node.op, ast.USub) else value
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        a, b = _built(node.left, known, text), _built(node.right, known, text)
        if isinstance(node.op, ast.Pow) and b.is_number and abs(_float(b, text)) > 100:
            raise ValueError(f"the law {text!r} holds the power {b}; at most 100 is read")
        return _OPERATORS[type(node.op)](a, b)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
        if node.func.id not in FUNCTIONS:
            raise ValueError(
                f"the law {text!r} calls {node.func.id!r}; known: {', '.join(sorted(FUNCTIONS))}"
            )
        return FUNCTIONS[node.func.id](*(_built(argument, known, text) for argument in node.args))
    raise ValueError(f"the law {text!r} holds {ast.unparse(node)!r}; only arithmetic and functions are read")


@dataclass(frozen=True)
class Formula:
    """An expression in variables of x.

    Args:
        expression: In symbols made by `symbol`.
        errors: Standard error of each constant, NaN where it has none; empty where none is known.

    Example:
        >>> area = Formula(parse("3.1*r**2", ["r"]))
        >>> area, area.text(), area.constants, area.variables, area.with_constants([3.2])
        (3.1*r**2, '3.1*r**2', (3.1,), ('r',), 3.2*r**2)
    """

    expression: sympy.Expr
    errors: tuple[float, ...] = ()

    @property
    def constants(self) -> tuple[float, ...]:
        """The decimal numbers in it."""
        return tuple(float(c) for c in _floats(self.expression))

    @property
    def variables(self) -> tuple[str, ...]:
        """Names of the variables that it reads, sorted."""
        return tuple(sorted(str(s) for s in self.expression.free_symbols))

    def with_constants(self, values: Sequence[float], errors: Sequence[float] = ()) -> Formula:
        """Return the same form with other constants."""
        table = {c: sympy.Float(v) for c, v in zip(_floats(self.expression), values, strict=True)}
        return Formula(replaced(self.expression, table), tuple(errors))

    def open(self, prefix: str) -> tuple[sympy.Expr, tuple[sympy.Symbol, ...]]:
        """Return the form with a symbol in place of each constant, and those symbols."""
        found = _floats(self.expression)
        symbols = tuple(sympy.Symbol(f"{prefix}{i}", real=True) for i in range(len(found)))
        return replaced(self.expression, dict(zip(found, symbols, strict=True))), symbols

    def text(self, digits: int | None = 4) -> str:
        """Return it as text: constants with their standard errors, or with all digits for ``None``."""
        return TextPrinter(digits, {} if digits is None else self.known_errors).doprint(self.expression)

    @property
    def known_errors(self) -> dict[float, float]:
        """The standard error of each constant that has one, by its absolute value."""
        pairs = zip(self.constants, self.errors, strict=False)
        return {abs(c): float(e) for c, e in pairs if np.isfinite(e) and 0 < e < abs(c)}

    def __repr__(self) -> str:
        return self.text()


def _floats(expression: sympy.Expr) -> list[sympy.Float]:
    """Decimal numbers, each value once, in the order of a walk through the expression.

    Powers, and the places of steps, are part of the form.
    """
    found: dict[sympy.Float, None] = {}

    def walk(e: Any) -> None:
        if isinstance(e, sympy.Float):
            found[e] = None
        elif e.is_Pow and e.exp.is_number:
            walk(e.base)
        elif not isinstance(e, sympy.sign):
            for part in e.args:
                walk(part)

    walk(expression)
    return list(found)


@dataclass(frozen=True, eq=False)
class Compiled:
    """A function of rows of x that gives a column, or a number, for each expression; a copy compiles them again."""

    expressions: tuple[sympy.Expr, ...]
    names: tuple[str, ...]

    @cached_property
    def _function(self) -> Callable[..., list[np.ndarray | float]]:
        symbols = [symbol(name) for name in self.names]
        return sympy.lambdify(symbols, list(self.expressions), modules=[_NUMPY, "numpy"], cse=True)

    def __call__(self, x: np.ndarray) -> list[np.ndarray | float]:
        with np.errstate(all="ignore"):
            return self._function(*np.asarray(x, dtype=float).T)

    def __reduce__(self) -> tuple[Any, ...]:
        return Compiled, (self.expressions, self.names)


def compiled(expressions: Sequence[sympy.Expr], names: Sequence[str]) -> Compiled:
    """Return a function of rows of x that gives a column, or a number, for each expression.

    Example:
        >>> compiled([parse("a + h", ["h", "a"])], ["h", "a"])(np.array([[1.0, 2.0]]))
        [array([3.])]
    """
    return Compiled(tuple(expressions), tuple(names))

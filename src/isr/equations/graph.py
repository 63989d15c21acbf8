"""Graph: the values a program computes, as sums, products and function calls that share what is equal.

A value is a Python float or a `Node`. Arithmetic on floats is done at once, equal nodes are one node, and sums and
products are kept in one form: ``constant + Σ coefficient · node`` and ``Π node ^ power``. SymPy sees a value only when
all is known: how often it is read, how large it is, and what it should be called.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction
from typing import Any, cast

import numpy as np
import sympy

from isr.equations.functions import CALLS, STEPS

# Sums of at most so many terms are merged into sums that read them; longer ones stay as they are.
SHORT_SUM = 6
# A constant larger than this that comes from scaling a sum would cancel against the variable and cost digits.
LARGEST_OFFSET = 1e3


class Node:
    """A value that depends on an input.

    Attributes:
        op: ``"symbol"``, ``"name"``, ``"sum"``, ``"product"``, ``"where"``, a comparison or a function.
        args: What it is made of.
        order: Number of creation; what a node reads was created before it.
        part: Which part of the model made it, such as ``"block 1"``.
    """

    __slots__ = ("args", "op", "order", "part")

    def __init__(self, op: str, args: tuple[Any, ...], order: int, part: str) -> None:
        self.op, self.args, self.order, self.part = op, args, order, part

    @property
    def reads(self) -> list[Node]:
        """The nodes it is made of."""
        if self.op == "sum":
            return [node for node, _ in self.args[1]]
        if self.op == "product":
            return [node for node, _ in self.args]
        return [a for a in self.args if isinstance(a, Node)]


Value = float | Node


class Graph:
    """Makes nodes, each once.

    Attributes:
        part: Which part of the model is being read.
        seen: The values that the model gave a name to, by part and name, whether they needed one or not.
    """

    def __init__(self) -> None:
        self.part = ""
        self.seen: dict[tuple[str, str], list[Value]] = {}
        self._known: dict[tuple[Any, ...], Node] = {}
        self._names: dict[Node, Node] = {}

    def node(self, op: str, *args: Any) -> Node:
        """Return the node of an operation."""
        key = (op, *args)
        if key not in self._known:
            self._known[key] = Node(op, args, len(self._known), self.part)
        return self._known[key]

    def named(self, value: Value, label: str, role: str) -> Value:
        """Return a value that will have a name of its own; numbers, inputs and named values need none."""
        if not isinstance(value, Node) or value.op in ("symbol", "name"):
            return value
        if value not in self._names:
            self._names[value] = self.node("name", value, label, role, self.part)
        return self._names[value]

    def sum(self, terms: Iterable[tuple[float, Value]], constant: float = 0.0) -> Value:
        """Return ``constant + Σ coefficient · value``."""
        merged: dict[Node, float] = {}
        for coefficient, value in terms:
            if coefficient == 0:
                continue
            if not isinstance(value, Node):
                constant += coefficient * value
                continue
            own, parts = _terms(value)
            if abs(coefficient * own) > LARGEST_OFFSET and coefficient not in (1, -1):
                own, parts = 0.0, ((self.named(value, "centred", "centred"), 1.0),)
            constant += coefficient * own
            for node, weight in cast(Any, parts):
                merged[node] = merged.get(node, 0.0) + coefficient * weight
        kept = tuple((node, weight) for node, weight in merged.items() if weight)
        if not kept:
            return constant
        if len(kept) == 1 and not constant and kept[0][1] == 1:
            return kept[0][0]
        return self.node("sum", constant, tuple(sorted(kept, key=lambda pair: pair[0].order)))

    def add(self, a: Value, b: Value) -> Value:
        """Return ``a + b``; a number joins a sum however long."""
        for number, value in ((a, b), (b, a)):
            if not isinstance(number, Node) and isinstance(value, Node) and value.op == "sum":
                total = number + value.args[0]
                return self.node("sum", total, value.args[1]) if number else value
        return self.sum(((1.0, a), (1.0, b)))

    def multiply(self, a: Value, b: Value) -> Value:
        """Return ``a · b``."""
        if not isinstance(a, Node):
            return self.sum(((a, b),))
        if not isinstance(b, Node):
            return self.sum(((b, a),))
        (c, p), (d, q) = _factors(a), _factors(b)
        return self._product(c * d, [*p, *q])

    def power(self, base: Value, exponent: Fraction | float) -> Value:
        """Return ``base ^ exponent`` for a constant exponent."""
        if not isinstance(base, Node):
            return _float_power(base, float(exponent))
        exponent = Fraction(exponent).limit_denominator(12) if _is_simple(exponent) else exponent
        coefficient, factors = _factors(base)
        is_whole = float(exponent).is_integer()
        if is_whole or (len(factors) == 1 and coefficient > 0 and factors[0][1] == 1):
            powers = [(node, power * exponent) for node, power in factors]
            return self._product(_float_power(coefficient, float(exponent)), powers)
        return self._product(1.0, [(base, exponent)])

    def call(self, name: str, *arguments: Value) -> Value:
        """Return a function of values, by its name in `isr.equations.functions.FORMS`; one name for one function."""
        if any(isinstance(a, Node) for a in arguments):
            return self.node({"logistic": "sigmoid", "atan": "arctan"}.get(name, name), *arguments)
        if name in STEPS:
            return np.asarray(STEPS[name][0](*arguments)).item()
        return float(CALLS[name](*(sympy.Float(a) for a in arguments)).evalf(20))

    def extreme(self, name: str, a: Value, b: Value) -> Value:
        """Return the smaller (``"min"``) or larger (``"max"``) of two values."""
        if not (isinstance(a, Node) or isinstance(b, Node)):
            return max(a, b) if name == "max" else min(a, b)
        (a, b), nothing = sorted((a, b), key=_order), -math.inf if name == "max" else math.inf
        return a if a is b or b == nothing else self.node(name, a, b)

    def where(self, condition: Any, then: Value, otherwise: Value) -> Value:
        """Return one of two values."""
        if not isinstance(condition, Node):
            return then if condition else otherwise
        return (
            then if then is otherwise or then == otherwise else self.node("where", condition, then, otherwise)
        )

    def _product(self, coefficient: float, factors: list[tuple[Node, Any]]) -> Value:
        merged: dict[Node, Any] = {}
        for node, power in factors:
            merged[node] = merged.get(node, 0) + power
        kept = sorted(((n, p) for n, p in merged.items() if p), key=lambda pair: pair[0].order)
        if not kept:
            return coefficient
        whole = kept[0][0] if len(kept) == 1 and kept[0][1] == 1 else self.node("product", *kept)
        return self.sum(((coefficient, whole),)) if coefficient != 1 else whole


def _order(value: Value) -> float:
    return value.order if isinstance(value, Node) else math.inf


def _terms(node: Node) -> tuple[float, tuple[tuple[Node, float], ...]]:
    if node.op == "sum" and len(node.args[1]) <= SHORT_SUM:
        return node.args
    return 0.0, ((node, 1.0),)


def _factors(node: Node) -> tuple[float, list[tuple[Node, Any]]]:
    """The coefficient and the powers that a node is a product of."""
    if node.op == "sum" and not node.args[0] and len(node.args[1]) == 1:
        inner, weight = node.args[1][0]
        return weight, _factors(inner)[1]
    return 1.0, list(node.args) if node.op == "product" else [(node, Fraction(1))]


def _float_power(base: float, exponent: float) -> float:
    try:
        return float(base**exponent) if base >= 0 or exponent.is_integer() else math.nan
    except (OverflowError, ZeroDivisionError):
        return math.inf


def _is_simple(exponent: Any) -> bool:
    return float(Fraction(exponent).limit_denominator(12)) == float(exponent)

"""Graph: the values a program computes, as sums, products and function calls that share what is equal; and their
writing in SymPy.

A value is a Python float or a `Node`. Arithmetic on floats is done at once, equal nodes are one node, and sums and
products are kept in one form: ``constant + Σ coefficient · node`` and ``Π node ^ power``. SymPy sees a value only when
all is known: how often it is read, how large it is, and what it should be called.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import Any, cast

import numpy as np
import sympy
from sympy.core.add import _addsort

from isr.equations.functions import CALLS, FORMS, STEPS
from isr.equations.program import Assignment

# Sums of at most so many terms are merged into sums that read them; longer ones stay as they are.
SHORT_SUM = 6
# A constant larger than this that comes from scaling a sum would cancel against the variable and cost digits.
LARGEST_OFFSET = 1e3


class Node:
    """A value that depends on an input: operation, what it is made of, order of creation (after what it reads), and the
    part of the model that made it, such as ``"block 1"``.
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
    """Makes nodes, each once. ``part`` is the part of the model being read; ``seen`` holds what the model named,
    by part and name, whether it needed a name or not.
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
            is_short = value.op == "sum" and len(value.args[1]) <= SHORT_SUM
            own, parts = value.args if is_short else (0.0, ((value, 1.0),))
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
        simple = Fraction(exponent).limit_denominator(12)
        exponent = simple if float(simple) == float(exponent) else exponent
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
        a, b = sorted((a, b), key=lambda v: v.order if isinstance(v, Node) else math.inf)
        nothing = -math.inf if name == "max" else math.inf
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


# What is written with at most so many operations needs no hidden units beside it.
INLINE = 60
# A value of more operations that is read more than once gets a name, hidden unit or not.
LEAST_SHARED = 12
# So does a longer sum inside a function: SymPy looks long for something to evaluate there.
LONGEST_ARGUMENT = 6


class Writer:
    """Writes values of a graph as SymPy expressions, with equations for those that `name` gave names to.

    ``number_of`` writes a constant and ``form_of`` gives a function by its name.
    """

    def __init__(
        self,
        graph: Graph,
        *,
        number_of: Callable[[float], Any] | None = None,
        form_of: Callable[[str], Callable[..., Any]] | None = None,
    ) -> None:
        self.assignments: list[Assignment] = []
        self._number, self._form = number_of or number, form_of or FORMS.__getitem__
        self._several = len({part for part, _ in graph.seen if part.startswith("block")}) > 1
        self._taken: set[str] = set()
        self._known: dict[Node, Any] = {}

    def name(self, results: Iterable[Value], taken: set[str]) -> None:
        """Write an equation for each value that results read and that deserves a name, none of those ``taken``."""
        self._taken |= taken
        for node in _named(list(results)):
            self.assignments.append(self._assignment(node))

    def expression(self, value: Value) -> Any:
        """Return a value as a SymPy expression."""
        if not isinstance(value, Node):
            return self._number(value)
        if value not in self._known:
            self._known[value] = self._written(value)
        return self._known[value]

    def _assignment(self, node: Node) -> Assignment:
        if node.op == "name":
            inner, label, role, part = node.args
        else:
            inner, label, role, part = node, "h", "hidden", node.part
        numbered = role == "hidden"
        lead = f"b{part.split()[-1]}_" if self._several and part.startswith("block ") else ""
        value = self.expression(inner) if node.op == "name" else self._written(node)
        name = f"{lead}h" if numbered else lead + label
        number, candidate = 1, f"{name}1" if numbered else name
        while candidate in self._taken:
            number += 1
            candidate = f"{name}{number}" if numbered else f"{name}_v{number}"
        self._taken.add(candidate)
        self._known[node] = symbol = sympy.Symbol(candidate, real=True)
        return Assignment(symbol, value, part, role)

    def _written(self, node: Node) -> Any:
        if node.op == "symbol":
            return node.args[0]
        if node.op == "name":
            return self.expression(node.args[0])
        if node.op == "sum":
            constant, terms = node.args
            return linear([(self._number(c), self.expression(n)) for n, c in terms], self._number(constant))
        if node.op == "product":
            powers = (sympy.Rational(p) if isinstance(p, Fraction) else number(p) for _, p in node.args)
            return sympy.Mul(*(self.expression(n) ** p for (n, _), p in zip(node.args, powers, strict=True)))
        name, arguments = (node.args[0], node.args[1:]) if node.op == "primitive" else (node.op, node.args)
        return self._form(name)(*(self.expression(a) for a in arguments))


def _named(results: Sequence[Value]) -> list[Node]:
    """The nodes that get a name: those the model names, and of hidden units and other values what saves writing."""
    ends = {v for v in results if isinstance(v, Node)}
    seen, waiting = set(ends), list(ends)
    while waiting:
        new = set(waiting.pop().reads) - seen
        seen |= new
        waiting += new
    reached = sorted(seen, key=lambda node: node.order)  # each after those it reads
    readers: dict[Node, list[Node]] = {node: [] for node in reached}
    for node in reached:
        for read in node.reads:
            readers[read].append(node)
    firm = {n for n in reached if n.op == "name" and n.args[2] != "hidden"}
    full: dict[Node, float] = {}
    for node in reached:
        full[node] = 1 + sum(1 if n in firm else full[n] + 1 for n in node.reads)
    is_large: dict[Node, bool] = {}
    for node in reversed(reached):
        is_large[node] = any(full[n] > INLINE if n in firm else is_large[n] for n in readers[node])
        is_large[node] |= node in ends and full[node] > INLINE
    named, size = set(firm), {}
    for node in reached:
        size[node] = own = 1 + sum(1 if n in named else size[n] + 1 for n in node.reads)
        if node.op in ("symbol", "name", *_CONDITIONS) and not (node.op == "name" and node not in firm):
            continue
        is_shared = len(readers[node]) + (node in ends) > 1 and is_large[node]
        inside = [n.op for n in readers[node] if n.op not in _NO_FUNCTIONS]
        is_long = bool(inside) and node.op == "sum" and len(node.args[1]) > LONGEST_ARGUMENT
        # A leaky ReLU is written with its argument twice.
        is_argument = is_large[node] and (is_long or "leaky_relu" in inside)
        is_unit = node.op == "name" and is_shared
        is_clamped = is_long and "soft_clamp" in inside
        if is_unit or is_argument or is_clamped or (is_shared and own > LEAST_SHARED):
            named.add(node)
    # What a name stands for needs no second one.
    doubles = {n.args[0] for n in named if n.op == "name"}
    return [node for node in reached if node in named and node not in doubles]


_CONDITIONS = ("lt", "le", "gt", "ge", "eq", "ne", "and", "or", "not")
_NO_FUNCTIONS = ("sum", "product", "name", "where", "max", "min", "inside", *_CONDITIONS)


def number(value: float) -> Any:
    """Return a number for a formula: whole ones as integers, the others with all the digits of a double."""
    value = float(value)
    return sympy.Integer(int(value)) if value.is_integer() and abs(value) < 1e9 else sympy.Float(value)


_SPECIAL = (sympy.Integer(1), sympy.pi, 1 / sympy.pi, sympy.pi**2, 1 / sympy.pi**2, sympy.sqrt(2), sympy.sqrt(3),
            sympy.sqrt(sympy.pi), 1 / sympy.sqrt(sympy.pi), 1 / sympy.sqrt(2 * sympy.pi))  # fmt: skip
ROUNDING = 4e-16


def recognised(expression: Any) -> Any:
    """Return an expression in which doubles that are thirds, multiples of π and the like stand as such.

    Example:
        >>> x = sympy.Symbol("x")
        >>> recognised(0.07957747154594767 * x + 0.25)
        x/(4*pi) + 0.25
    """

    def simple(value: float) -> Any:
        for special in _SPECIAL:
            size = float(special)
            fraction = Fraction(value / size).limit_denominator(24)
            if special == 1 and fraction.denominator % 3 and fraction.denominator % 7:
                continue  # a decimal number says as much
            near = abs(float(fraction) * size - value) <= ROUNDING * abs(value)
            if near and 0 < abs(fraction.numerator) < 1000:
                return sympy.Rational(fraction.numerator, fraction.denominator) * special
        return None

    # Beyond these sizes there is nothing to recognise, and the largest doubles would overflow.
    found = {f: simple(float(f)) for f in expression.atoms(sympy.Float) if 1e-3 < abs(f) < 1e5}
    return expression.xreplace({f: e for f, e in found.items() if e is not None})


def folded(value: Any) -> Any:
    """Return ``value`` as one number when it holds no variable."""
    if value.is_Symbol or value.is_Rational or value.is_Float or value.free_symbols:
        return value
    return number(float(value.evalf(20)))


def linear(terms: Sequence[tuple[Any, Any]], constant: Any) -> Any:
    """Return the sum of ``coefficient * value`` over ``terms``, plus ``constant``."""
    values = [value for _, value in terms]
    if not all(c.is_Float and v.is_Symbol for c, v in terms) or len(set(values)) < len(values):
        return sympy.Add(*(c * v for c, v in terms), constant)
    # Nothing is left to combine, so the sum is put together as SymPy would leave it, many times faster.
    products = [sympy.Mul._from_args((c, v), is_commutative=True) for c, v in terms]
    _addsort(products)
    if constant != 0:
        products.insert(0, constant)
    return cast(sympy.Expr, sympy.Add._from_args(products, is_commutative=True))

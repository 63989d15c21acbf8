"""From a graph of values to SymPy: what gets a name of its own, and what each value looks like."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import Any, cast

import sympy
from sympy.core.add import _addsort

from isr.bijections.primitives import lookup
from isr.equations.functions import FORMS
from isr.equations.graph import Graph, Node, Value
from isr.equations.program import Assignment

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
        self._number, self._form = number_of or number, form_of or _form
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


def _form(name: str) -> Callable[..., Any]:
    return FORMS[name] if name in FORMS else cast(Any, lookup(name).symbol)


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

    found = {f: simple(float(f)) for f in expression.atoms(sympy.Float)}
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

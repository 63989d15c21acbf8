"""Graph: the values a program computes, as sums, products and function calls that share what is equal.

A value is a Python float or a `Node`. Arithmetic on floats is done at once, equal nodes are one node, and sums and
products are kept in one form: ``constant + Σ coefficient · node`` and ``Π node ^ power``. SymPy sees a value only when
all is known: how often it is read, how large it is, and what it should be called.

Below stands what each step of a JAX program does to numbers, and what to values of a graph; `read` asks by the name
that JAX gives a step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any, cast

import jax
import numpy as np
from scipy import special

from isr.bijections import probits

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

    def _product(self, coefficient: float, factors: list[tuple[Node, Any]]) -> Value:
        merged: dict[Node, Any] = {}
        for node, power in factors:
            merged[node] = merged.get(node, 0) + power
        kept = sorted(((n, p) for n, p in merged.items() if p), key=lambda pair: pair[0].order)
        if not kept:
            return coefficient
        whole = kept[0][0] if len(kept) == 1 and kept[0][1] == 1 else self.node("product", *kept)
        return self.sum(((coefficient, whole),)) if coefficient != 1 else whole


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


def _exactly(function: Callable[..., Any]) -> Callable[..., np.ndarray]:
    """A function written in JAX on numbers, in double precision."""

    def of(*arguments: Any) -> np.ndarray:
        with jax.enable_x64(True):
            return np.asarray(function(*(np.asarray(a, np.float64) for a in arguments)))

    return of


_PROBITS = (
    "number_of_logistic", "number_of_gumbel", "gumbel_of_number", "number_of_laplace", "mixture_number",
    "mixture_quantile",
)  # fmt: skip
# Functions that stay whole, by the name JAX knows them by, with what they are on numbers.
WHOLE: dict[str, Callable[..., Any]] = {
    "sin2pi": lambda g: np.sin(2 * np.pi * g),
    "arctan": np.arctan,
    "soft_clamp": lambda s, bound: bound * (2 / np.pi) * np.arctan(s / bound),
    "inside": lambda x, low, high: np.clip(x, low, high),
    "ndtr": special.ndtr,
    "ndtri": special.ndtri,
    "log_ndtr": special.log_ndtr,
    "log_cosh": lambda w: np.logaddexp(w, -w) - np.log(2),
    **{name: _exactly(getattr(probits, name)) for name in _PROBITS},
    "logaddexp": np.logaddexp,
    "sigmoid": special.expit,
    "sin": np.sin,
    "cos": np.cos,
    "leaky_relu": lambda g, slope: np.maximum(g, slope * g),
}
# Elementary functions of one argument: JAX's name, and what they are on numbers.
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "exp": np.exp, "log": np.log, "sin": np.sin, "cos": np.cos, "tan": np.tan,
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh,
    "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh, "logistic": special.expit, "erf": special.erf,
    "erfc": special.erfc, "erf_inv": special.erfinv, "abs": np.abs, "sign": np.sign, "floor": np.floor, "ceil": np.ceil,
    "lgamma": special.gammaln,
}  # fmt: skip
COMPARISONS: dict[str, Callable[..., Any]] = {
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal,
}  # fmt: skip


def primitive_value(graph: Graph, name: str, limits: tuple[Any, Any], *arguments: Value) -> Value:
    if name == "sin2pi":  # the factor joins the constants inside, which makes frequencies readable
        return graph.node("sin", graph.sum(((2 * np.pi, arguments[0]),)))
    for end, held in zip(limits, ("max", "min"), strict=True):
        arguments = arguments if end is None else tuple(extreme(held)(graph, a, end) for a in arguments)
    return graph.node("primitive", name, *arguments)


def whole_value(graph: Graph, name: str, *arguments: Value) -> Value:
    if not any(isinstance(a, Node) for a in arguments):
        return float(WHOLE[name](*arguments))
    return graph.node(_ALIASES.get(name, name), *arguments)


# One node for one function, whatever JAX calls it.
_ALIASES = {"logistic": "sigmoid", "atan": "arctan"}


def _function(name: str, numeric: Callable[..., Any]) -> Callable[..., Value]:
    def of(graph: Graph, *arguments: Value) -> Value:
        if not any(isinstance(a, Node) for a in arguments):
            return numeric(*arguments).item()
        return graph.node(_ALIASES.get(name, name), *arguments)

    return of


def extreme(name: str) -> Callable[..., Value]:
    numeric = max if name == "max" else min

    def of(graph: Graph, a: Value, b: Value) -> Value:
        if a is b:
            return a
        if not (isinstance(a, Node) or isinstance(b, Node)):
            return numeric(a, b)
        return graph.node(name, *sorted((a, b), key=lambda v: v.order if isinstance(v, Node) else 10**9))

    return of


def _where(graph: Graph, condition: Any, otherwise: Value, then: Value) -> Value:
    if not isinstance(condition, Node):
        return then if condition else otherwise
    return then if then is otherwise or then == otherwise else graph.node("where", condition, then, otherwise)


def _power(graph: Graph, a: Value, b: Value) -> Value:
    if not isinstance(b, Node):
        return graph.power(a, b)
    return graph.node("exp", graph.multiply(b, _function("log", np.log)(graph, a)))


def elementwise(name: str, params: dict[str, Any]) -> tuple[Callable[..., Any], Callable[..., Value]] | None:
    """What a step does to numbers and to values of a graph, element by element."""
    if name in FUNCTIONS:
        return FUNCTIONS[name], _function(name, FUNCTIONS[name])
    if name in COMPARISONS:
        return COMPARISONS[name], _function(name, COMPARISONS[name])
    if name == "integer_pow":
        n = params["y"]
        return lambda a: np.asarray(a, float) ** n, lambda g, a: g.power(a, Fraction(n))
    if name == "select_n":
        return lambda *v: select(list(v)), _where
    return _ARITHMETIC.get(name)


_ARITHMETIC: dict[str, tuple[Callable[..., Any], Callable[..., Value]]] = {
    "log1p": (np.log1p, lambda g, a: _function("log", np.log)(g, g.add(1.0, a))),
    "expm1": (np.expm1, lambda g, a: g.add(-1.0, _function("exp", np.exp)(g, a))),
    "add": (np.add, Graph.add),
    "add_any": (np.add, Graph.add),
    "sub": (np.subtract, lambda g, a, b: g.add(a, g.sum(((-1.0, b),)))),
    "mul": (np.multiply, Graph.multiply),
    "div": (np.divide, lambda g, a, b: g.multiply(a, g.power(b, Fraction(-1)))),
    "neg": (np.negative, lambda g, a: g.sum(((-1.0, a),))),
    "square": (np.square, lambda g, a: g.power(a, Fraction(2))),
    "sqrt": (np.sqrt, lambda g, a: g.power(a, Fraction(1, 2))),
    "rsqrt": (lambda a: 1 / np.sqrt(a), lambda g, a: g.power(a, Fraction(-1, 2))),
    "cbrt": (np.cbrt, lambda g, a: g.power(a, Fraction(1, 3))),
    "pow": (np.power, _power),
    "max": (np.maximum, extreme("max")),
    "min": (np.minimum, extreme("min")),
    "clamp": (
        lambda low, x, high: np.clip(x, low, high),
        lambda g, low, x, high: extreme("min")(g, extreme("max")(g, x, low), high),
    ),
    "atan2": (np.arctan2, _function("atan2", np.arctan2)),
    "round": (np.round, _function("round", np.round)),
    "and": (np.logical_and, lambda g, a, b: g.node("and", a, b)),
    "or": (np.logical_or, lambda g, a, b: g.node("or", a, b)),
    "not": (np.logical_not, lambda g, a: g.node("not", a)),
}


def select(values: list[Any]) -> np.ndarray:
    which = np.asarray(values[0]).astype(int)
    cases = np.broadcast_arrays(*(np.asarray(v) for v in values[1:]))
    which = np.broadcast_to(which, cases[0].shape)
    result = np.array(
        cases[0], copy=True, dtype=np.result_type(*cases) if cases[0].dtype != object else object
    )
    for number, case in enumerate(cases[1:], 1):
        result = np.where(which == number, case, result)
    return result


def _broadcast(values: list[Any], params: dict[str, Any]) -> list[Any]:
    array = np.asarray(values[0])
    shape = [1] * len(params["shape"])
    for axis, place in enumerate(params["broadcast_dimensions"]):
        shape[place] = array.shape[axis]
    return [np.broadcast_to(array.reshape(shape), params["shape"])]


def _cast(values: list[Any], params: dict[str, Any]) -> list[Any]:
    array = np.asarray(values[0])
    return [array if array.dtype == object else array.astype(params["new_dtype"])]


def _slice(values: list[Any], params: dict[str, Any]) -> list[Any]:
    ends = zip(
        params["start_indices"],
        params["limit_indices"],
        params["strides"] or [1] * values[0].ndim,
        strict=True,
    )
    return [values[0][tuple(slice(*end) for end in ends)]]


def _joined(values: list[Any], params: dict[str, Any]) -> list[Any]:
    return [np.concatenate(values, axis=params["dimension"])]


# Steps that only move values about.
SHAPES: dict[str, Callable[[list[Any], dict[str, Any]], list[Any]]] = {
    "broadcast_in_dim": _broadcast,
    "concatenate": _joined,
    "convert_element_type": _cast,
    "copy": lambda v, _: v,
    "copy_p": lambda v, _: v,
    "expand_dims": lambda v, p: [np.expand_dims(v[0], p["dimensions"])],
    "optimization_barrier": lambda v, _: v,
    "reshape": lambda v, p: [np.reshape(v[0], p["new_sizes"])],
    "rev": lambda v, p: [np.flip(v[0], p["dimensions"])],
    "slice": _slice,
    "split": lambda v, p: np.split(v[0], np.cumsum(p["sizes"])[:-1], axis=p["axis"]),
    "squeeze": lambda v, p: [np.squeeze(v[0], tuple(p["dimensions"]))],
    "stack": lambda v, p: [np.stack(v, axis=p["axis"])],
    "stop_gradient": lambda v, _: v,
    "transpose": lambda v, p: [np.transpose(v[0], p["permutation"])],
}


def moved(step: Any, values: list[Any]) -> list[Any] | None:
    """The result of a step that only moves values about, such as a gather: found by moving their numbers."""
    floats = [np.issubdtype(v.aval.dtype, np.floating) for v in step.invars]
    if step.primitive.name not in ("gather", "scatter", "dynamic_slice", "dynamic_update_slice", "pad"):
        return None
    if any(is_symbolic(v) for v, is_float in zip(values, floats, strict=True) if not is_float):
        return None
    pool: list[Any] = [0.0]
    numbered = []
    for value, is_float in zip(values, floats, strict=True):
        array = np.asarray(value)
        if is_float:
            numbered.append(np.arange(len(pool), len(pool) + array.size, dtype=float).reshape(array.shape))
            pool += list(array.flat)
        else:
            numbered.append(np.asarray(value, step.invars[len(numbered)].aval.dtype))
    places = step.primitive.bind(*map(jax.device_put, numbered), **step.params)
    source = np.empty(len(pool), object)
    source[:] = pool
    return [
        source[np.asarray(p).astype(int)] for p in (places if step.primitive.multiple_results else [places])
    ]


def is_symbolic(value: Any) -> bool:
    array = np.asarray(value)
    return array.dtype == object and any(isinstance(v, Node) for v in array.flat)

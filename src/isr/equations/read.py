"""Reading equations from a program: run what JAX recorded of a function on symbols instead of numbers.

`jax.make_jaxpr` lists the elementary steps of any function written in JAX. Here each step is done on arrays whose
elements are values of a `Graph`: numbers are computed, symbols collect what happens to them. So whatever can be run
can be read, and an equation is the program it was read from.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from typing import Any

import jax
import numpy as np
from scipy import special

from isr.bijections.marks import marked_primitives
from isr.bijections.primitives import PRIMITIVES
from isr.equations.graph import Graph, Node, Value

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
    "logaddexp": np.logaddexp,
    "sigmoid": special.expit,
    "sin": np.sin,
    "cos": np.cos,
    "leaky_relu": lambda g, slope: np.maximum(g, slope * g),
}
# Elementary functions of one argument: JAX's name, and what they are on numbers.
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "exp": np.exp, "log": np.log, "log1p": np.log1p, "expm1": np.expm1, "sin": np.sin, "cos": np.cos, "tan": np.tan,
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh,
    "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh, "logistic": special.expit, "erf": special.erf,
    "erfc": special.erfc, "erf_inv": special.erfinv, "abs": np.abs, "sign": np.sign, "floor": np.floor, "ceil": np.ceil,
    "lgamma": special.gammaln,
}  # fmt: skip
COMPARISONS: dict[str, Callable[..., Any]] = {
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal,
}  # fmt: skip
INSIDE_CALLS = (
    "jit",
    "pjit",
    "closed_call",
    "core_call",
    "custom_jvp_call",
    "custom_vjp_call",
    "checkpoint",
    "remat2",
)


def read(
    function: Callable[..., Any], inputs: Sequence[np.ndarray], graph: Graph, *, keep_primitives: bool = False
) -> list[np.ndarray]:
    """Return what a JAX function of arrays gives, as arrays of values of the graph.

    Args:
        function: Takes as many arrays as there are inputs, in double precision, and returns arrays.
        inputs: Arrays of values, such as `symbols` makes.
        graph: Takes the nodes.
        keep_primitives: Whether functions of the library stay calls of their own names, for formulas.
    """
    shapes = [jax.ShapeDtypeStruct(np.shape(array), np.float64) for array in inputs]
    kept = [p.name for p in PRIMITIVES.values() if p.symbol or (keep_primitives and p.name not in POLYNOMIAL)]
    with jax.enable_x64(True), marked_primitives(kept):
        recorded = jax.make_jaxpr(function)(*shapes)
        return _Reader(graph, keep_primitives).run(
            recorded.jaxpr, [np.asarray(c) for c in recorded.consts], list(inputs), graph.part
        )


def symbols(graph: Graph, names: Sequence[Any]) -> np.ndarray:
    """Return an array of inputs, one for each name."""
    array = np.empty(len(names), object)
    array[:] = [graph.node("symbol", name) for name in names]
    return array


class _Reader:
    def __init__(self, graph: Graph, keep_primitives: bool) -> None:
        self.graph = graph
        self.keep_primitives = keep_primitives

    def run(self, program: Any, constants: list[Any], inputs: list[Any], part: str) -> list[Any]:
        """Return the outputs of recorded steps."""
        known = dict(zip((*program.constvars, *program.invars), (*constants, *inputs), strict=True))

        def value(name: Any) -> Any:
            return np.asarray(name.val) if hasattr(name, "val") else known[name]

        for step in program.eqns:
            here = _part(str(step.source_info.name_stack)) or part
            self.graph.part = here
            results = self.step(step, [_numbers(value(v)) for v in step.invars], here)
            known.update(zip(step.outvars, results, strict=True))
        self.graph.part = part
        return [value(v) for v in program.outvars]

    def step(self, step: Any, values: list[Any], part: str) -> list[Any]:
        """Return the results of one step."""
        name, params = step.primitive.name, step.params
        if name in INSIDE_CALLS:
            return self._call(params, values, part)
        is_symbolic = any(_is_symbolic(v) for v in values)
        if name in _SHAPES:
            return _SHAPES[name](values, params)
        if name == "dot_general":
            return [self._dot(*values, params["dimension_numbers"])]
        if name == "scan":
            return self._scan(params, values, part)
        if name == "cond" and not _is_symbolic(values[0]):
            branch = params["branches"][int(values[0])]
            return self.run(branch.jaxpr, list(branch.consts), values[1:], part)
        elementwise = _elementwise(name, params)
        if not is_symbolic:
            if elementwise is not None:
                with np.errstate(all="ignore"):
                    return [np.asarray(elementwise[0](*values))]
            return self._numerically(step, values)
        if name == "name":
            return [self._named(values[0], params["name"])]
        if name == "reduce_sum":
            return [self._sum(values[0], params["axes"])]
        if name == "select_n" and not _is_symbolic(values[0]):
            return [_select(values)]
        if elementwise is not None:
            return [self._each(partial(elementwise[1], self.graph), values)]
        moved = _moved(step, values)
        if moved is not None:
            return moved
        raise TypeError(
            f"the program uses {name!r} on its inputs, which has no form as an equation; write it with elementary "
            f"functions such as {', '.join(sorted(FUNCTIONS)[:12])}"
        )

    def _call(self, params: dict[str, Any], values: list[Any], part: str) -> list[Any]:
        inner = params.get("call_jaxpr", params.get("jaxpr", params.get("fun_jaxpr")))
        program = getattr(inner, "jaxpr", inner)
        name = str(params.get("name") or program.debug_info.func_name)
        constants = list(getattr(inner, "consts", ()))
        if name in WHOLE:
            if not any(_is_symbolic(v) for v in values):
                return [np.asarray(WHOLE[name](*values))]
            return [self._each(partial(_whole, self.graph, name), values)]
        if name.startswith("primitive "):
            primitive = PRIMITIVES[name.removeprefix("primitive ")]
            if any(_is_symbolic(v) for v in values):
                limits = (None, None) if self.keep_primitives else primitive.domain
                return [self._each(partial(_primitive, self.graph, primitive.name, limits), values)]
        if name == "inverse_and_log_det" and not _is_symbolic(values[0]):
            matrix = values[0].astype(float)
            return [np.linalg.inv(matrix), np.asarray(np.linalg.slogdet(matrix)[1])]
        return self.run(program, constants, values, part)

    def _each(self, function: Callable[..., Value], values: list[Any]) -> np.ndarray:
        arrays = np.broadcast_arrays(*(np.asarray(v, object) for v in values))
        results = np.empty(arrays[0].shape, object)
        for place in np.ndindex(results.shape):
            results[place] = function(*(_plain(a[place]) for a in arrays))
        return results

    def _named(self, array: np.ndarray, label: str) -> np.ndarray:
        named = np.empty(array.shape, object)
        for i, place in enumerate(np.ndindex(array.shape)):
            numbered = label if array.size == 1 else f"{label}_{i + 1}"
            named[place] = self.graph.named(_plain(array[place]), numbered, label)
            self.graph.seen.setdefault((self.graph.part, label), []).append(_plain(array[place]))
        return named

    def _sum(self, array: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
        kept = [i for i in range(array.ndim) if i not in axes]
        rows = np.transpose(array, (*kept, *axes)).reshape(*(array.shape[i] for i in kept), -1)
        return self._each_row(rows, lambda row: self.graph.sum((1.0, v) for v in row))

    def _dot(self, a: np.ndarray, b: np.ndarray, numbers: Any) -> np.ndarray:
        (ca, cb), (ba, bb) = numbers
        fa = [i for i in range(a.ndim) if i not in (*ca, *ba)]
        fb = [i for i in range(b.ndim) if i not in (*cb, *bb)]
        shape = [*(a.shape[i] for i in ba), *(a.shape[i] for i in fa), *(b.shape[i] for i in fb)]
        n_batch, n_sum = int(np.prod([a.shape[i] for i in ba])), int(np.prod([a.shape[i] for i in ca]))
        left = np.transpose(a, (*ba, *fa, *ca)).reshape(n_batch, -1, n_sum)
        right = np.transpose(b, (*bb, *fb, *cb)).reshape(n_batch, -1, n_sum)
        if not (_is_symbolic(a) or _is_symbolic(b)):
            return np.einsum("bik,bjk->bij", left, right).reshape(shape)
        pairs = np.empty((n_batch, left.shape[1], right.shape[1]), object)
        for place in np.ndindex(pairs.shape):
            pairs[place] = self._inner(left[place[0], place[1]], right[place[0], place[2]])
        return pairs.reshape(shape)

    def _inner(self, a: np.ndarray, b: np.ndarray) -> Value:
        terms = []
        for p, q in zip(map(_plain, a), map(_plain, b), strict=True):
            if isinstance(p, Node) and isinstance(q, Node):
                terms.append((1.0, self.graph.multiply(p, q)))
            elif isinstance(p, Node):
                terms.append((q, p))
            else:
                terms.append((p, q))
        return self.graph.sum(terms)

    def _each_row(self, rows: np.ndarray, function: Callable[[Any], Value]) -> np.ndarray:
        results = np.empty(rows.shape[:-1], object)
        for place in np.ndindex(results.shape):
            results[place] = function([_plain(v) for v in rows[place]])
        return results

    def _scan(self, params: dict[str, Any], values: list[Any], part: str) -> list[Any]:
        n_fixed, n_carry = params["num_consts"], params["num_carry"]
        fixed, carry, rows = (
            values[:n_fixed],
            values[n_fixed : n_fixed + n_carry],
            values[n_fixed + n_carry :],
        )
        inner, given = params["jaxpr"], []
        places = range(params["length"])
        for i in reversed(places) if params["reverse"] else places:
            results = self.run(inner.jaxpr, list(inner.consts), [*fixed, *carry, *(r[i] for r in rows)], part)
            carry = results[:n_carry]
            given.append(results[n_carry:])
        given = given[::-1] if params["reverse"] else given
        return [
            *carry,
            *(np.stack([np.asarray(v, object) for v in column]) for column in zip(*given, strict=True)),
        ]

    def _numerically(self, step: Any, values: list[Any]) -> list[Any]:
        types = [v.aval.dtype for v in step.invars]
        results = step.primitive.bind(
            *(jax.device_put(np.asarray(v, t)) for v, t in zip(values, types, strict=True)), **step.params
        )
        return [np.asarray(r) for r in (results if step.primitive.multiple_results else [results])]


# Parts of the library that formulas write as powers and products.
POLYNOMIAL = ("id", "square", "cube", "product")


def _part(stack: str) -> str:
    """The part of the model that a step belongs to: the outermost scope that `Chain` opened."""
    match = re.match(r"[a-z]+( \d+)?", stack.split("/")[0])
    return match[0] if match else ""


def _is_symbolic(value: Any) -> bool:
    array = np.asarray(value)
    return array.dtype == object and any(isinstance(v, Node) for v in array.flat)


def _numbers(value: Any) -> Any:
    """An array of numbers as one that NumPy calculates with; one that holds symbols as it is."""
    array = np.asarray(value)
    return array.astype(float) if array.dtype == object and not _is_symbolic(array) else array


def _plain(value: Any) -> Any:
    return value if isinstance(value, Node | float) else value.item() if hasattr(value, "item") else value


def _primitive(graph: Graph, name: str, limits: tuple[Any, Any], *arguments: Value) -> Value:
    if name == "sin2pi":  # the factor joins the constants inside, which makes frequencies readable
        return graph.node("sin", graph.sum(((2 * np.pi, arguments[0]),)))
    for end, held in zip(limits, ("max", "min"), strict=True):
        arguments = arguments if end is None else tuple(_extreme(held)(graph, a, end) for a in arguments)
    return graph.node("primitive", name, *arguments)


def _whole(graph: Graph, name: str, *arguments: Value) -> Value:
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


def _extreme(name: str) -> Callable[..., Value]:
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


def _divided(graph: Graph, a: Value, b: Value) -> Value:
    return graph.multiply(a, graph.power(b, Fraction(-1)))


def _power(graph: Graph, a: Value, b: Value) -> Value:
    if not isinstance(b, Node):
        return graph.power(a, b)
    return graph.node("exp", graph.multiply(b, _function("log", np.log)(graph, a)))


def _elementwise(name: str, params: dict[str, Any]) -> tuple[Callable[..., Any], Callable[..., Value]] | None:
    """What a step does to numbers and to values of a graph, element by element."""
    if name in FUNCTIONS:
        if name == "log1p":
            return (
                np.log1p,
                lambda g, a: g.node("log", g.add(1.0, a)) if isinstance(a, Node) else float(np.log1p(a)),
            )
        if name == "expm1":
            return np.expm1, lambda g, a: g.add(-1.0, _function("exp", np.exp)(g, a))
        return FUNCTIONS[name], _function(name, FUNCTIONS[name])
    if name in COMPARISONS:
        return COMPARISONS[name], _function(name, COMPARISONS[name])
    if name == "integer_pow":
        n = params["y"]
        return lambda a: np.asarray(a, float) ** n, lambda g, a: g.power(a, Fraction(n))
    if name == "select_n":
        return lambda *v: _select(list(v)), _where
    return _ARITHMETIC.get(name)


_ARITHMETIC: dict[str, tuple[Callable[..., Any], Callable[..., Value]]] = {
    "add": (np.add, Graph.add),
    "add_any": (np.add, Graph.add),
    "sub": (np.subtract, lambda g, a, b: g.add(a, g.sum(((-1.0, b),)))),
    "mul": (np.multiply, Graph.multiply),
    "div": (np.divide, _divided),
    "neg": (np.negative, lambda g, a: g.sum(((-1.0, a),))),
    "square": (np.square, lambda g, a: g.power(a, Fraction(2))),
    "sqrt": (np.sqrt, lambda g, a: g.power(a, Fraction(1, 2))),
    "rsqrt": (lambda a: 1 / np.sqrt(a), lambda g, a: g.power(a, Fraction(-1, 2))),
    "cbrt": (np.cbrt, lambda g, a: g.power(a, Fraction(1, 3))),
    "pow": (np.power, _power),
    "max": (np.maximum, _extreme("max")),
    "min": (np.minimum, _extreme("min")),
    "clamp": (
        lambda low, x, high: np.clip(x, low, high),
        lambda g, low, x, high: _extreme("min")(g, _extreme("max")(g, x, low), high),
    ),
    "atan2": (np.arctan2, _function("atan2", np.arctan2)),
    "round": (np.round, _function("round", np.round)),
    "and": (np.logical_and, lambda g, a, b: g.node("and", a, b)),
    "or": (np.logical_or, lambda g, a, b: g.node("or", a, b)),
    "not": (np.logical_not, lambda g, a: g.node("not", a)),
}


def _select(values: list[Any]) -> np.ndarray:
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
_SHAPES: dict[str, Callable[[list[Any], dict[str, Any]], list[Any]]] = {
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


def _moved(step: Any, values: list[Any]) -> list[Any] | None:
    """The result of a step that only moves values about, such as a gather: found by moving their numbers."""
    floats = [np.issubdtype(v.aval.dtype, np.floating) for v in step.invars]
    if step.primitive.name not in (
        "gather",
        "scatter",
        "dynamic_slice",
        "dynamic_update_slice",
        "pad",
    ):
        return None
    if any(_is_symbolic(v) for v, is_float in zip(values, floats, strict=True) if not is_float):
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

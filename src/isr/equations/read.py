"""Reading equations from a program: run what JAX recorded of a function on symbols instead of numbers.

`jax.make_jaxpr` lists the elementary steps of any function written in JAX. Here each step is done on arrays whose
elements are values of a `Graph`: numbers are computed, symbols collect what happens to them. So whatever can be run
can be read, and an equation is the program it was read from.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import jax
import numpy as np

from isr import bijections
from isr.bijections.primitives import PRIMITIVES, marked_primitives
from isr.equations.functions import CALLS, STEPS
from isr.equations.graph import Graph, Node, Value

# Primitives that formulas write as powers and products.
POLYNOMIAL = ("id", "square", "cube", "product")
# Functions of these packages are known by their names; what a user calls a sine may be none.
_TRUSTED = tuple(module.__path__[0] for module in (jax, bijections))


def read(
    function: Callable[..., Any], inputs: Sequence[np.ndarray], graph: Graph, *, keep_primitives: bool = False
) -> list[np.ndarray]:
    """Return what a JAX function of arrays, in double precision, gives: arrays of values of the graph.

    With ``keep_primitives`` functions of the library stay calls of their own names, for formulas.
    """
    shapes = [jax.ShapeDtypeStruct(np.shape(array), np.float64) for array in inputs]
    kept = [name for name in PRIMITIVES if keep_primitives and name not in POLYNOMIAL]
    with jax.enable_x64(True), marked_primitives(kept):
        recorded = jax.make_jaxpr(function)(*shapes)
        constants = [np.asarray(c) for c in recorded.consts]
        return _Reader(graph).run(recorded.jaxpr, constants, list(inputs), graph.part)


def symbols(graph: Graph, names: Sequence[Any]) -> np.ndarray:
    """Return an array of inputs, one for each name."""
    array = np.empty(len(names), object)
    array[:] = [graph.node("symbol", name) for name in names]
    return array


class _Reader:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def run(self, program: Any, constants: Sequence[Any], inputs: Sequence[Any], part: str) -> list[Any]:
        """Return the outputs of recorded steps; a step belongs to the outermost scope that `Chain` opened."""
        known = dict(zip((*program.constvars, *program.invars), (*constants, *inputs), strict=True))

        def value(name: Any) -> Any:
            return np.asarray(name.val) if hasattr(name, "val") else known[name]

        for step in program.eqns:
            scope = re.match(r"[a-z]+( \d+)?", str(step.source_info.name_stack).split("/")[0])
            self.graph.part = scope[0] if scope else part
            results = self.step(step, [_numbers(value(v)) for v in step.invars])
            known.update(zip(step.outvars, results, strict=True))
        self.graph.part = part
        return [value(v) for v in program.outvars]

    def step(self, step: Any, values: list[Any]) -> list[Any]:
        """Return the results of one step."""
        name, params = step.primitive.name, step.params
        symbolic = [is_symbolic(v) for v in values]
        if name in _CALLING:
            return self._call(params, values, any(symbolic))
        if name in _MOVING:
            return _MOVING[name](values, params)
        if name == "dot_general":
            return [self._dot(values[0], values[1], params["dimension_numbers"])]
        if name == "scan":
            return self._scan(params, values)
        if name == "cond":
            return self._cond(params["branches"], values[0], values[1:])
        if name == "select_n" and not symbolic[0]:
            return [np.choose(np.asarray(values[0], int), values[1:])]
        if not any(symbolic):
            if name in _ARITHMETIC or name in STEPS:
                numeric = _ARITHMETIC[name][0] if name in _ARITHMETIC else STEPS[name][0]
                with np.errstate(all="ignore"):
                    return [np.asarray(numeric(*values))]
            return _bound(step, values)
        if name == "name":
            return [self._named(values[0], params["name"])]
        if name.startswith("reduce_") and name[7:] in _FOLDS:
            return [self._folded(_FOLDS[name[7:]], values[0], params["axes"])]
        if name.startswith("cum") and name[3:] in _FOLDS:
            return [self._running(_FOLDS[name[3:]], values[0], params["axis"], params["reverse"])]
        if name == "integer_pow":
            return [self._each(lambda g, a: g.power(a, Fraction(params["y"])), values)]
        if name == "select_n":
            return [self._each(lambda g, *v: g.where(v[0], v[2], v[1]), values)]
        if name in _ARITHMETIC or name in STEPS:
            own = _ARITHMETIC[name][1] if name in _ARITHMETIC else None
            return [self._each(own or (lambda g, *v: g.call(name, *v)), values)]
        is_float = [np.issubdtype(v.aval.dtype, np.floating) for v in step.invars]
        if name in _GATHERING and not any(s and not f for s, f in zip(symbolic, is_float, strict=True)):
            return _moved(step, values, is_float)
        raise TypeError(
            f"the program uses {name!r} on its inputs, which has no form as an equation; write it with elementary "
            f"functions such as {', '.join(sorted(STEPS)[:12])}"
        )

    def _call(self, params: dict[str, Any], values: list[Any], has_symbols: bool) -> list[Any]:
        inner = params.get("call_jaxpr", params.get("jaxpr", params.get("fun_jaxpr")))
        program: Any = getattr(inner, "jaxpr", inner)
        is_ours = any(folder in str(program.debug_info.func_src_info) for folder in _TRUSTED)
        name = str(params.get("name") or program.debug_info.func_name) if is_ours else ""
        if has_symbols and name in CALLS:
            return [self._each(lambda g, *v: g.call(name, *v), values)]
        if has_symbols and name.startswith("primitive "):
            own = name.removeprefix("primitive ")
            if own == "sin2pi":  # the factor joins the constants inside, which makes frequencies readable
                return [self._each(lambda g, a: g.call("sin", g.sum(((2 * np.pi, a),))), values)]
            return [self._each(lambda g, *v: g.node("primitive", own, *v), values)]
        if name == "inverse_and_log_det" and not is_symbolic(values[0]):
            matrix = values[0].astype(float)
            return [np.linalg.inv(matrix), np.asarray(np.linalg.slogdet(matrix)[1])]
        return self.run(program, getattr(inner, "consts", ()), values, self.graph.part)

    def _each(self, function: Callable[..., Value], values: list[Any]) -> np.ndarray:
        arrays = np.broadcast_arrays(*(np.asarray(v, object) for v in values))
        results = np.empty(arrays[0].shape, object)
        for place in np.ndindex(results.shape):
            results[place] = function(self.graph, *(_plain(a[place]) for a in arrays))
        return results

    def _named(self, array: np.ndarray, label: str) -> np.ndarray:
        named = np.empty(array.shape, object)
        for i, place in enumerate(np.ndindex(array.shape)):
            numbered = label if array.size == 1 else f"{label}_{i + 1}"
            named[place] = self.graph.named(_plain(array[place]), numbered, label)
            self.graph.seen.setdefault((self.graph.part, label), []).append(_plain(array[place]))
        return named

    def _folded(self, fold: Callable[..., Value], array: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
        kept = [i for i in range(array.ndim) if i not in axes]
        rows = np.transpose(array, (*kept, *axes)).reshape(*(array.shape[i] for i in kept), -1)
        results = np.empty(rows.shape[:-1], object)
        for place in np.ndindex(results.shape):
            results[place] = fold(self.graph, [_plain(v) for v in rows[place]])
        return results

    def _running(self, fold: Callable[..., Value], array: np.ndarray, axis: int, reverse: bool) -> np.ndarray:
        rows = np.moveaxis(array, axis, 0)[:: -1 if reverse else 1]
        totals = [rows[0]]
        for row in rows[1:]:
            totals.append(self._each(lambda g, *v: fold(g, v), [totals[-1], row]))
        return np.moveaxis(np.stack(totals)[:: -1 if reverse else 1], 0, axis)

    def _cond(self, branches: Sequence[Any], which: Any, values: list[Any]) -> list[Any]:
        """One of several branches; both of two where it depends on the inputs."""
        if not is_symbolic(which):
            branches = [branches[int(which)]]
        elif len(branches) > 2:
            raise TypeError("the program switches between more than two branches; write it with jnp.where")
        results = [self.run(b.jaxpr, b.consts, values, self.graph.part) for b in branches]
        if len(results) == 1:
            return results[0]
        pairs = zip(*results, strict=True)
        return [self._each(lambda g, *v: g.where(v[0], v[2], v[1]), [which, *pair]) for pair in pairs]

    def _dot(self, a: np.ndarray, b: np.ndarray, numbers: Any) -> np.ndarray:
        (ca, cb), (ba, bb) = numbers
        fa = [i for i in range(a.ndim) if i not in (*ca, *ba)]
        fb = [i for i in range(b.ndim) if i not in (*cb, *bb)]
        shape = [*(a.shape[i] for i in ba), *(a.shape[i] for i in fa), *(b.shape[i] for i in fb)]
        n_batch, n_sum = int(np.prod([a.shape[i] for i in ba])), int(np.prod([a.shape[i] for i in ca]))
        left = np.transpose(a, (*ba, *fa, *ca)).reshape(n_batch, -1, n_sum)
        right = np.transpose(b, (*bb, *fb, *cb)).reshape(n_batch, -1, n_sum)
        if not (is_symbolic(a) or is_symbolic(b)):
            return np.einsum("bik,bjk->bij", left, right).reshape(shape)
        pairs = np.empty((n_batch, left.shape[1], right.shape[1]), object)
        for place in np.ndindex(pairs.shape):
            pairs[place] = self._inner(left[place[0], place[1]], right[place[0], place[2]])
        return pairs.reshape(shape)

    def _inner(self, a: np.ndarray, b: np.ndarray) -> Value:
        terms = []
        for p, q in zip(map(_plain, a), map(_plain, b), strict=True):
            if isinstance(p, Node):
                p, q = (1.0, self.graph.multiply(p, q)) if isinstance(q, Node) else (q, p)
            terms.append((p, q))
        return self.graph.sum(terms)

    def _scan(self, params: dict[str, Any], values: list[Any]) -> list[Any]:
        first, n_carry = params["num_consts"], params["num_carry"]
        fixed, carry, rows = values[:first], values[first : first + n_carry], values[first + n_carry :]
        inner, given, order = params["jaxpr"], [], -1 if params["reverse"] else 1
        for i in range(params["length"])[::order]:
            here = [*fixed, *carry, *(r[i] for r in rows)]
            results = self.run(inner.jaxpr, inner.consts, here, self.graph.part)
            carry = results[:n_carry]
            given.append(results[n_carry:])
        columns = zip(*given[::order], strict=True)
        return [*carry, *(np.stack([np.asarray(v, object) for v in column]) for column in columns)]


def is_symbolic(value: Any) -> bool:
    """Whether an array holds values that depend on inputs."""
    array = np.asarray(value)
    return array.dtype == object and any(isinstance(v, Node) for v in array.flat)


def _numbers(value: Any) -> Any:
    """An array of numbers as one that NumPy calculates with; one that holds symbols as it is."""
    array = np.asarray(value)
    return array.astype(float) if array.dtype == object and not is_symbolic(array) else array


def _plain(value: Any) -> Any:
    return value if isinstance(value, Node | float) else value.item() if hasattr(value, "item") else value


_CALLING = (
    "jit", "pjit", "closed_call", "core_call", "custom_jvp_call", "custom_vjp_call", "checkpoint", "remat2",
)  # fmt: skip
_GATHERING = ("gather", "scatter", "dynamic_slice", "dynamic_update_slice", "pad")


def _power(graph: Graph, a: Value, b: Value) -> Value:
    if not isinstance(b, Node):
        return graph.power(a, b)
    return graph.call("pow", a, b)


# What ``reduce_sum`` and ``cumsum``, ... do to values of a graph.
_FOLDS: dict[str, Callable[[Graph, Sequence[Value]], Value]] = {
    "sum": lambda graph, values: graph.sum((1.0, v) for v in values),
    "prod": lambda graph, values: functools.reduce(graph.multiply, values, 1.0),
    "max": lambda graph, values: functools.reduce(functools.partial(graph.extreme, "max"), values),
    "min": lambda graph, values: functools.reduce(functools.partial(graph.extreme, "min"), values),
}


# What steps do to numbers and to values of a graph, element by element, where they are more than a function by name.
_ARITHMETIC: dict[str, tuple[Callable[..., Any], Callable[..., Value]]] = {
    "add": (np.add, Graph.add),
    "add_any": (np.add, Graph.add),
    "sub": (np.subtract, lambda g, a, b: g.add(a, g.sum(((-1.0, b),)))),
    "mul": (np.multiply, Graph.multiply),
    "div": (np.divide, lambda g, a, b: g.multiply(a, g.power(b, Fraction(-1)))),
    "neg": (np.negative, lambda g, a: g.sum(((-1.0, a),))),
    "square": (np.square, lambda g, a: g.power(a, Fraction(2))),
    "sqrt": (np.sqrt, lambda g, a: g.power(a, Fraction(1, 2))),
    "rsqrt": (lambda a: 1 / np.sqrt(a), lambda g, a: g.power(a, Fraction(-1, 2))),
    "exp2": (np.exp2, lambda g, a: g.call("exp", g.multiply(float(np.log(2)), a))),
    "is_finite": (np.isfinite, lambda g, a: True),  # an equation is written for finite numbers
    "pow": (np.power, _power),
    "max": (np.maximum, lambda g, a, b: g.extreme("max", a, b)),
    "min": (np.minimum, lambda g, a, b: g.extreme("min", a, b)),
    "clamp": (
        lambda low, x, high: np.clip(x, low, high),
        lambda g, low, x, high: g.extreme("min", g.extreme("max", x, low), high),
    ),
}


def _broadcast(values: list[Any], params: dict[str, Any]) -> list[Any]:
    array = np.asarray(values[0])
    shape = [1] * len(params["shape"])
    for axis, place in enumerate(params["broadcast_dimensions"]):
        shape[place] = array.shape[axis]
    return [np.broadcast_to(array.reshape(shape), params["shape"])]


def _slice(values: list[Any], params: dict[str, Any]) -> list[Any]:
    steps = params["strides"] or [1] * values[0].ndim
    ends = zip(params["start_indices"], params["limit_indices"], steps, strict=True)
    return [values[0][tuple(slice(*end) for end in ends)]]


_MOVING: dict[str, Callable[[list[Any], dict[str, Any]], list[Any]]] = {
    "broadcast_in_dim": _broadcast,
    "concatenate": lambda v, p: [np.concatenate(v, axis=p["dimension"])],
    "convert_element_type": lambda v, p: [v[0] if v[0].dtype == object else v[0].astype(p["new_dtype"])],
    "expand_dims": lambda v, p: [np.expand_dims(v[0], p["dimensions"])],
    "reshape": lambda v, p: [np.reshape(v[0], p["new_sizes"])],
    "rev": lambda v, p: [np.flip(v[0], p["dimensions"])],
    "slice": _slice,
    "split": lambda v, p: np.split(v[0], np.cumsum(p["sizes"])[:-1], axis=p["axis"]),
    "squeeze": lambda v, p: [np.squeeze(v[0], tuple(p["dimensions"]))],
    "stack": lambda v, p: [np.stack(v, axis=p["axis"])],
    "transpose": lambda v, p: [np.transpose(v[0], p["permutation"])],
    **dict.fromkeys(("copy", "copy_p", "optimization_barrier", "stop_gradient"), lambda v, _: v),
}


def _bound(step: Any, values: Sequence[Any]) -> list[np.ndarray]:
    """Do a step on numbers as JAX does it."""
    typed = [np.asarray(v, name.aval.dtype) for v, name in zip(values, step.invars, strict=True)]
    results = step.primitive.bind(*map(jax.device_put, typed), **step.params)
    return [np.asarray(r) for r in (results if step.primitive.multiple_results else [results])]


def _moved(step: Any, values: Sequence[Any], is_float: Sequence[bool]) -> list[Any]:
    """Do a step that only moves values about, such as a gather, by moving their numbers."""
    pool: list[Any] = [0.0]
    numbered: list[Any] = []
    for array, counts in zip(map(np.asarray, values), is_float, strict=True):
        places = np.arange(len(pool), len(pool) + array.size).reshape(array.shape)
        numbered.append(places if counts else array)
        pool += list(array.flat) if counts else []
    source = np.empty(len(pool), object)
    source[:] = pool
    return [source[places.astype(int)] for places in _bound(step, numbered)]

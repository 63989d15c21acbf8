"""Reading equations from a program: run what JAX recorded of a function on symbols instead of numbers.

`jax.make_jaxpr` lists the elementary steps of any function written in JAX. Here each step is done on arrays whose
elements are values of a `Graph`: numbers are computed, symbols collect what happens to them. So whatever can be run
can be read, and an equation is the program it was read from.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np

from isr import bijections
from isr.bijections.primitives import PRIMITIVES, marked_primitives
from isr.equations.graph import (
    FUNCTIONS,
    SHAPES,
    WHOLE,
    Graph,
    Node,
    Value,
    elementwise,
    is_symbolic,
    moved,
    primitive_value,
    select,
    whole_value,
)

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
    """Return what a JAX function of arrays, in double precision, gives: arrays of values of the graph.

    With ``keep_primitives`` functions of the library stay calls of their own names, for formulas.
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
        has_symbols = any(is_symbolic(v) for v in values)
        if name in SHAPES:
            return SHAPES[name](values, params)
        if name == "dot_general":
            return [self._dot(values[0], values[1], params["dimension_numbers"])]
        if name == "scan":
            return self._scan(params, values, part)
        if name == "cond" and not is_symbolic(values[0]):
            branch = params["branches"][int(values[0])]
            return self.run(branch.jaxpr, list(branch.consts), values[1:], part)
        done = elementwise(name, params)
        if not has_symbols:
            if done is not None:
                with np.errstate(all="ignore"):
                    return [np.asarray(done[0](*values))]
            return self._numerically(step, values)
        if name == "name":
            return [self._named(values[0], params["name"])]
        if name == "reduce_sum":
            return [self._sum(values[0], params["axes"])]
        if name == "select_n" and not is_symbolic(values[0]):
            return [select(values)]
        if done is not None:
            return [self._each(partial(done[1], self.graph), values)]
        places = moved(step, values)
        if places is not None:
            return places
        raise TypeError(
            f"the program uses {name!r} on its inputs, which has no form as an equation; write it with elementary "
            f"functions such as {', '.join(sorted(FUNCTIONS)[:12])}"
        )

    def _call(self, params: dict[str, Any], values: list[Any], part: str) -> list[Any]:
        inner = params.get("call_jaxpr", params.get("jaxpr", params.get("fun_jaxpr")))
        program: Any = getattr(inner, "jaxpr", inner)
        name = str(params.get("name") or program.debug_info.func_name) if _is_ours(program) else ""
        constants = list(getattr(inner, "consts", ()))
        if name in WHOLE:
            if not any(is_symbolic(v) for v in values):
                return [np.asarray(WHOLE[name](*values))]
            return [self._each(partial(whole_value, self.graph, name), values)]
        if name.startswith("primitive "):
            primitive = PRIMITIVES[name.removeprefix("primitive ")]
            if any(is_symbolic(v) for v in values):
                limits = (None, None) if self.keep_primitives else primitive.domain
                return [self._each(partial(primitive_value, self.graph, primitive.name, limits), values)]
        if name == "inverse_and_log_det" and not is_symbolic(values[0]):
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
        if not (is_symbolic(a) or is_symbolic(b)):
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


def _is_ours(program: Any) -> bool:
    """Whether a function is one of JAX's or of this library; what a user calls a sine may be none."""
    source = str(program.debug_info.func_src_info)
    return any(folder in source for folder in _TRUSTED)


_TRUSTED = tuple(module.__path__[0] for module in (jax, bijections))


def _part(stack: str) -> str:
    """The part of the model that a step belongs to: the outermost scope that `Chain` opened."""
    match = re.match(r"[a-z]+( \d+)?", stack.split("/")[0])
    return match[0] if match else ""


def _numbers(value: Any) -> Any:
    """An array of numbers as one that NumPy calculates with; one that holds symbols as it is."""
    array = np.asarray(value)
    return array.astype(float) if array.dtype == object and not is_symbolic(array) else array


def _plain(value: Any) -> Any:
    return value if isinstance(value, Node | float) else value.item() if hasattr(value, "item") else value

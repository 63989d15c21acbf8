"""Extraction: a flow, formulas, or any JAX function, as equations that mean the same numbers; and their errors.

A printed constant is often a function of a fitted number, such as ``exp(s)``, so its error follows from its derivative,
taken by moving one fitted number at a time. Where several enter, their covariance would be needed, and none is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import sympy

from isr.bijections.flow import Flow
from isr.bijections.formula import Formulas
from isr.bijections.parameters import cast, flatten
from isr.equations.expressions import Expressions
from isr.equations.functions import NAMES
from isr.equations.graph import Graph, Node, Value, Writer, folded, recognised
from isr.equations.program import LOG_DET, Block, Program, without_dead_code
from isr.equations.read import read, symbols
from isr.tables.names import names_given, symbol_names

Symbols = tuple[sympy.Symbol, ...]


def extract(
    model: Flow | Formulas,
    x_names: Sequence[str] | None = None,
    y_names: Sequence[str] | None = None,
    units: Mapping[str, str] | None = None,
) -> Expressions:
    """Return the equations of a model, exactly as it computes them: both directions of a flow, or y = f(x).

    Args:
        model: A flow, or the formulas of a regressor.
        x_names: What the variables of x are called; x1, x2, ... when left out. Any text will do.
        y_names: What the variables of y are called; y1, y2, ... when left out, and y the only output of a regressor.
        units: Unit of a variable, by name.

    Example:
        >>> import jax
        >>> from isr.bijections.build import build_flow
        >>> expressions = extract(build_flow(jax.random.key(0), 2), ["length", "angle (deg)"])
        >>> expressions.forward.inputs
        (length, angle_deg)
        >>> expressions.evaluate("forward", [[0.1, 0.2]])[0].shape
        (1, 2)
        >>> expressions.blocks[0].number, len(expressions.blocks[0].s1)
        (1, 1)
        >>> law = Formulas(jax.numpy.array([2.0]), (("mul", ("constant", 0), ("pow", ("input", 0), 2)),), 1, 1)
        >>> area = extract(law, ["length"], ["area"], {"length": "m"})
        >>> area
        # length in m
        area = 2*length**2
        >>> area.evaluate("forward", [[3.0]])[0], area.complexity, area.n_constants
        (array([[18.]]), 5, 1)
        >>> "return 2.0*(length*length);" in area.code("js")
        True
    """
    known = dict(units or {})
    if isinstance(model, Formulas):
        return _of_formulas(model, x_names, y_names, known)
    if not isinstance(model, Flow):
        raise TypeError(
            f"extract takes a Flow or Formulas, got a {type(model).__name__}; a fitted estimator has its equations in "
            ".expressions_"
        )
    names = _names_of(model, x_names, y_names)
    unknown = set(known) - set(names.labels.values())
    if unknown:
        raise ValueError(
            f"units name {sorted(unknown)}, which are no variables; known: {list(names.labels.values())}"
        )
    latent = (*names.y[: model.n_observed], *names.z)
    forward, blocks = _program(model, "forward_one", names.x, latent, names)
    inverse, _ = _program(model, "inverse_one", latent, names.x, names)
    padded = None
    if model.n_padding:
        padded, _ = _program(model, "latent_one", (*names.x, *names.padding), latent, names)
    return Expressions(
        forward, inverse, *(tuple(names.labels[s.name] for s in part) for part in (names.x, names.y)), known,
        model.noise, model.n_padding, padded, tuple(blocks),
    )  # fmt: skip


def _of_formulas(
    formulas: Formulas, x_names: Sequence[str] | None, y_names: Sequence[str] | None, units: dict[str, str]
) -> Expressions:
    inputs = names_given(x_names, "x", formulas.n_inputs)
    outputs = tuple(y_names or output_names(formulas.n_outputs, inputs))
    names = symbol_names([*inputs, *outputs], taken=NAMES)
    known, labels = _symbols(names), dict(zip(names, (*inputs, *outputs), strict=True))
    program = function_program(formulas, known[: len(inputs)], known[len(inputs) :], labels)
    program = replace(program, outputs=tuple(map(recognised, program.outputs)))
    return Expressions(program, None, inputs, outputs, units)


class Names(NamedTuple):
    """The symbols of x, of y whichever way it enters, of free latents and of a padding; the user's names of them."""

    x: Symbols
    y: Symbols
    z: Symbols
    padding: Symbols
    labels: Mapping[str, str]


def _names_of(flow: Flow, x_names: Sequence[str] | None, y_names: Sequence[str] | None) -> Names:
    """The symbols of a flow's variables; any text is a fine name: what is no safe identifier gets one like it."""
    x, y = names_given(x_names, "x", flow.dim), names_given(y_names, "y", flow.condition_dim)
    shared = sorted(set(x) & set(y))
    if shared:
        raise ValueError(f"x and y share the name {shared[0]!r}; give every variable its own name")
    given = symbol_names([*x, *y], taken=[LOG_DET, *NAMES])
    n_z = flow.bijection.dim - flow.n_observed
    own = symbol_names([*(f"z{i + 1}" for i in range(n_z)), "padding"], taken=given)
    parts = given[: len(x)], given[len(x) :], own[:n_z], own[n_z : n_z + flow.n_padding]
    return Names(*map(_symbols, parts), labels=dict(zip(given, (*x, *y), strict=True)))


def output_names(n: int, taken: Sequence[str] = ()) -> tuple[str, ...]:
    """Return names for ``n`` outputs that have none: y, or y1, y2, …, and none that an input has.

    Example:
        >>> output_names(2), output_names(1, ["x", "y"])
        (('y1', 'y2'), ('y_out',))
    """
    names = ("y",) if n == 1 else tuple(f"y{i + 1}" for i in range(n))
    while set(names) & set(taken):
        names = tuple(f"{name}_out" for name in names)
    return names


def _symbols(names: Sequence[str]) -> Symbols:
    return tuple(sympy.Symbol(name, real=True) for name in names)


def function_program(
    function: Callable[..., Any],
    inputs: Sequence[sympy.Symbol],
    outputs: Sequence[sympy.Symbol],
    labels: Mapping[str, str],
) -> Program:
    """Return a function of one vector, written in JAX, as equations without a log-determinant."""
    graph = Graph()
    (results,) = read(lambda x: jnp.ravel(function(x)), [symbols(graph, inputs)], graph)
    return _written(graph, list(results), 0.0, inputs, (), outputs, labels)[0]


def read_formulas(
    function: Callable[..., Any], inputs: Sequence[sympy.Symbol], *, whole_numbers: bool = False
) -> list[sympy.Expr]:
    """Return the outputs of a function of one vector as expressions, functions of the library under their own names.

    Every number but 1, -1 and exponents is a float, unless ``whole_numbers`` stay whole.
    """

    def constant(value: float) -> Any:
        is_whole = value.is_integer() and (whole_numbers or abs(value) <= 1)
        return sympy.Integer(int(value)) if is_whole else sympy.Float(value)

    graph = Graph()
    (results,) = read(lambda x: jnp.ravel(function(x)), [symbols(graph, inputs)], graph, keep_primitives=True)
    writer = Writer(graph, number_of=constant, form_of=sympy.Function)
    return [writer.expression(v) for v in results]


def _program(
    flow: Flow, method: str, inputs: Sequence[Any], outputs: Sequence[Any], names: Names
) -> tuple[Program, list[Block]]:
    leaves = jax.tree.leaves(eqx.filter(flow, eqx.is_inexact_array))
    if not all(np.all(np.isfinite(leaf)) for leaf in leaves):
        raise ValueError("the model holds weights that are not finite, so it has no equations; train it anew")
    graph, conditions = Graph(), names.y if flow.condition_map is not None else ()
    given = [symbols(graph, s) for s in (inputs, conditions) if s]
    with jax.enable_x64(True):
        function = getattr(cast(flow, jnp.float64), method)
    results, log_det = read(function, given, graph)
    taken = {s.name for s in (*names.x, *names.y, *names.z, *names.padding)}
    return _written(graph, list(results), log_det.item(), inputs, conditions, outputs, names.labels, taken)


def _written(
    graph: Graph, results: list[Value], log_det: Value, inputs: Any, conditions: Any, outputs: Any, labels: Any,
    taken: Iterable[str] = (),
) -> tuple[Program, list[Block]]:  # fmt: skip
    """Write values as a program; outputs that are held inside bounds give those to the program instead."""
    held = [v.args if isinstance(v, Node) and v.op == "inside" else (v, -np.inf, np.inf) for v in results]
    plain = [value for value, _, _ in held]
    bounds = tuple(tuple(float(end) if np.isfinite(end) else None for end in ends) for _, *ends in held)
    writer = Writer(graph)
    writer.name([*plain, log_det], {*taken, *(s.name for s in (*inputs, *outputs))})
    program = Program(
        inputs=tuple(inputs),
        conditions=tuple(conditions),
        assignments=tuple(writer.assignments),
        outputs=tuple(folded(writer.expression(v)) for v in plain),
        log_det=folded(writer.expression(log_det)),
        bounds=bounds if any(b != (None, None) for b in bounds) else (),
        output_symbols=tuple(outputs),
        labels=labels,
    )
    blocks: dict[str, dict[str, tuple[Any, ...]]] = {}
    for (part, role), values in graph.seen.items():
        if part.startswith("block "):
            blocks.setdefault(part, {})[role] = tuple(writer.expression(v) for v in values)
    return without_dead_code(program), [Block(i, values) for i, values in enumerate(blocks.values(), 1)]


# Equations are written out once for each fitted number; a model with more is no formula to read constants from.
MOST_CONSTANTS = 60
_STEP = 1e-6
# A derivative below this share of the largest is rounding.
_ROUNDING = 1e-6


def printed_errors(model: Any, expressions: Expressions, errors: Any) -> dict[float, float]:
    """Return the standard error of each printed constant that has one, by its absolute value."""
    names = expressions.x_names, expressions.y_names or None, dict(expressions.units)

    def write(model: Any) -> list[sympy.Expr]:
        found = extract(model, *names)
        return [e for direction in found.directions for e in found.program(direction).expressions]

    return {} if errors is None else constant_errors(model, np.asarray(errors), write)


def constant_errors(
    model: Any, errors: np.ndarray, write: Callable[[Any], Sequence[sympy.Expr]]
) -> dict[float, float]:
    """Return the standard error of each printed constant that has one, by its absolute value.

    ``errors`` are those of the model's learned numbers, NaN where there is none. ``write`` gives its equations; other
    numbers in the model must give equations of the same form.
    """
    with jax.enable_x64(True):
        theta, restore = flatten(cast(model, np.float64))
        theta = np.asarray(theta, np.float64)
    errors = np.asarray(errors, dtype=float)
    fitted = np.flatnonzero(np.isfinite(errors) & (errors > 0)) if errors.shape == theta.shape else []
    if not 0 < len(fitted) <= MOST_CONSTANTS:
        return {}
    constants = _floats(write(model))
    parts = np.zeros((len(fitted), len(constants)))
    for row, k in enumerate(fitted):
        moved = theta.copy()
        step = _STEP * max(abs(theta[k]), 1e-3)
        moved[k] += step
        with jax.enable_x64(True):
            values = _floats(write(restore(moved)))
        if values.shape != constants.shape or not np.allclose(values, constants, rtol=1e-3, atol=1e-6):
            return {}
        parts[row] = (values - constants) / step * errors[k]
    sizes = np.abs(parts)
    largest = sizes.max(axis=0, initial=0.0)
    alone = (sizes > _ROUNDING * largest).sum(axis=0) == 1
    known: dict[float, float] = {}
    for value, error in zip(np.abs(constants[alone]), largest[alone], strict=True):
        # The same digits with two different errors are two constants that cannot be told apart.
        before = known.get(float(value), float(error))
        known[float(value)] = float(error) if np.isclose(before, error) else np.nan
    return {value: error for value, error in known.items() if np.isfinite(error) and error > 0}


def _floats(expressions: Sequence[sympy.Expr]) -> np.ndarray:
    """Every number in the expressions, in order of size; whole ones are exact and left out.

    SymPy orders terms by their numbers too, so that the order of reading is not kept when one of them moves.
    """
    leaves: list[Any] = [leaf for e in expressions for leaf in sympy.preorder_traversal(e)]
    return np.sort([float(leaf) for leaf in leaves if leaf.is_Float])

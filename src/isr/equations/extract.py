"""Extraction: a flow, or any JAX function, as equations that mean the same numbers, and names of its variables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import sympy

from isr.bijections.flow import Flow
from isr.bijections.parameters import cast
from isr.equations.graph import Graph, Node, Value
from isr.equations.program import Block, Program, without_dead_code
from isr.equations.read import read, symbols
from isr.equations.written import Writer, folded
from isr.tables.names import check_names, symbol_names

Symbols = tuple[sympy.Symbol, ...]
LOG_DET = "log_det"
"""What the log-determinant is called where it is printed."""
FUNCTION_NAMES = ("Phi", "PhiInverse", "MixtureQuantile", "Probit", "sigmoid")
"""Functions that printed equations call; no variable may have their names."""


@dataclass(frozen=True)
class Names:
    """The symbols of x, of y whichever way it enters, of free latents and of a padding, and what the user calls
    them.
    """

    x: Symbols
    y: Symbols
    z: Symbols
    padding: Symbols
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def taken(self) -> set[str]:
        """Names that no intermediate may have."""
        return {symbol.name for symbol in (*self.x, *self.y, *self.z, *self.padding)}


def name_variables(
    flow: Flow, x_names: Sequence[str] | None = None, y_names: Sequence[str] | None = None
) -> Names:
    """Return the symbols of ``flow``'s variables; left out, they are x1, x2, ... and y1, y2, ...

    Any text is a fine name: what is no safe identifier gets one that looks like it.

    Example:
        >>> import jax
        >>> from isr.bijections.build import build_flow
        >>> name_variables(build_flow(jax.random.key(0), 2), ["sin", "p (Pa)"]).x
        (sin_, p_Pa)
    """
    x = _given(x_names, "x", flow.dim)
    y = _given(y_names, "y", flow.condition_dim)
    shared = sorted(set(x) & set(y))
    if shared:
        raise ValueError(f"x and y share the name {shared[0]!r}; give every variable its own name")
    symbols = symbol_names([*x, *y], taken=[LOG_DET, *FUNCTION_NAMES])
    latent = tuple(f"z{i + 1}" for i in range(flow.bijection.dim - flow.n_observed))
    own = symbol_names([*latent, "padding"], taken=symbols)
    n_x, n_z = len(x), len(latent)
    return Names(
        x=_symbols(symbols[:n_x]),
        y=_symbols(symbols[n_x:]),
        z=_symbols(own[:n_z]),
        padding=_symbols(own[n_z : n_z + flow.n_padding]),
        labels=dict(zip(symbols, (*x, *y), strict=True)),
    )


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


def _given(names: Sequence[str] | None, letter: str, n: int) -> tuple[str, ...]:
    if names is None:
        return tuple(f"{letter}{i + 1}" for i in range(n))
    checked = check_names(names, what=letter)
    if len(checked) != n:
        raise ValueError(f"{letter} has {n} variables, but {len(checked)} names were given: {checked}")
    return checked


def _symbols(names: Sequence[str]) -> Symbols:
    return tuple(sympy.Symbol(name, real=True) for name in names)


def forward_program(flow: Flow, names: Names, *, padding_is_zero: bool = True) -> tuple[Program, list[Block]]:
    """Return x to latent as equations, and the blocks they go through; the padding of a single variable is written
    as 0, or is an input of its own.
    """
    inputs = names.x if padding_is_zero else (*names.x, *names.padding)
    method = flow.forward_one if padding_is_zero else flow.latent_one
    return _program(flow, method, inputs, _latent(flow, names), names)


def inverse_program(flow: Flow, names: Names) -> Program:
    """Return latent to x as equations."""
    return _program(flow, flow.inverse_one, _latent(flow, names), names.x, names)[0]


def function_program(
    function: Callable[..., Any],
    inputs: Sequence[sympy.Symbol],
    outputs: Sequence[sympy.Symbol],
    labels: dict[str, str],
) -> Program:
    """Return a function of one vector, written in JAX, as equations without a log-determinant."""
    graph = Graph()
    (results,) = read(lambda x: jnp.ravel(function(x)), [symbols(graph, inputs)], graph)
    return _written(
        graph, list(results), 0.0, inputs, (), outputs, {s.name for s in (*inputs, *outputs)}, labels
    )[0]


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
    writer = Writer(graph, list(results), number_of=constant, inline=True, form_of=sympy.Function)
    return [writer.expression(v) for v in results]


def _program(
    flow: Flow, method: Callable[..., Any], inputs: Sequence[Any], outputs: Sequence[Any], names: Names
) -> tuple[Program, list[Block]]:
    leaves = jax.tree.leaves(eqx.filter(flow, eqx.is_inexact_array))
    if not all(np.all(np.isfinite(leaf)) for leaf in leaves):
        raise ValueError("the model holds weights that are not finite, so it has no equations; train it anew")
    graph, conditions = Graph(), names.y if flow.condition_map is not None else ()
    given = [symbols(graph, s) for s in (inputs, conditions) if s]
    with jax.enable_x64(True):
        precise = cast(flow, jnp.float64)
    function = getattr(precise, method.__name__)
    results, log_det = read(function, given, graph)
    return _written(
        graph, list(results), log_det.item(), inputs, conditions, outputs, names.taken, names.labels
    )


def _written(
    graph: Graph, results: list[Value], log_det: Value, inputs: Any, conditions: Any, outputs: Any, taken: set[str],
    labels: Any,
) -> tuple[Program, list[Block]]:  # fmt: skip
    """Write values as a program; outputs that are held inside bounds give those to the program instead."""
    bounds = tuple(_bounds(v) for v in results)
    plain = [v.args[0] if isinstance(v, Node) and v.op == "inside" else v for v in results]
    writer = Writer(graph, [*plain, log_det], taken)
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
    return without_dead_code(program), _blocks(graph, writer)


def _bounds(value: Value) -> tuple[float | None, float | None]:
    if not (isinstance(value, Node) and value.op == "inside"):
        return None, None
    low, high = (float(end) for end in value.args[1:])
    return (low if np.isfinite(low) else None), (high if np.isfinite(high) else None)


def _blocks(graph: Graph, writer: Writer) -> list[Block]:
    blocks: dict[str, dict[str, tuple[Any, ...]]] = {}
    for (part, role), values in graph.seen.items():
        if part.startswith("block "):
            blocks.setdefault(part, {})[role] = tuple(writer.expression(v) for v in values)
    return [Block(number, values) for number, values in enumerate(blocks.values(), 1)]


def _latent(flow: Flow, names: Names) -> tuple[sympy.Symbol, ...]:
    return (*names.y[: flow.n_observed], *names.z)

"""Expressions: everything a flow's equations can be turned into, behind one object."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import sympy
from jaxtyping import Float

from isr.bijections.flow import Flow
from isr.equations.complexity import complexity, n_constants
from isr.equations.evaluate import compile_numpy, evaluate
from isr.equations.extract import forward_program, inverse_program
from isr.equations.naming import name_variables
from isr.equations.program import Block, Program

if TYPE_CHECKING:
    from isr.equations.code.jax_functions import JaxFunctions
    from isr.equations.compose import Composed

DIRECTIONS = ("forward", "inverse")


@dataclass(frozen=True)
class Expressions:
    """The equations of a flow in both directions; made by `extract`.

    Args:
        forward: From x to the latent.
        inverse: From the latent to x.
        forward_padded: The forward equations with the padding of a single variable as an input of its own;
            ``forward`` itself where there is no padding.
        blocks: The functions of each coupling block, in forward order.
        x_names: Display names of x.
        y_names: Display names of y, whichever way it enters.
        units: Unit of a variable, by display name.
        noise: Standard deviations of the observed outputs (joint form), else empty.
        n_padding: Zeros appended to x.
        error: How far simplification has moved the values, relative; 0 straight from the model.

    Example:
        >>> from isr.bijections.affine import Standardise
        >>> equations = extract(Flow(Standardise((2.0,), (0.5,))), ["depth"], units={"depth": "m"})
        >>> print(equations.text("inverse"))
        # depth in m
        depth   = 0.5*z1 + 2
        log_det = -0.6931
        >>> equations
        <Expressions of depth: complexity 5, 2 constants; print them to read them>
        >>> equations.complexity, equations.n_constants, equations.log_det
        (5, 2, 0.693147180559945)
        >>> equations.program("inverse").outputs
        (0.5*z1 + 2,)
        >>> equations.evaluate("forward", np.array([[2.5]]))
        (array([[1.]]), array([0.69314718]))
        >>> equations.composed("inverse").outputs, equations.simplified(1e-3).error < 1e-3
        ((0.5*z1 + 2,), True)
        >>> "align*" in equations.latex("inverse"), equations.mathml()[:5]
        (True, '<math')
        >>> "double" in equations.code("c")
        True
        >>> equations.to_jax().forward(np.array([2.5]))[0]
        Array([1.], dtype=float64)
    """

    forward: Program
    inverse: Program
    forward_padded: Program
    blocks: tuple[Block, ...]
    x_names: tuple[str, ...]
    y_names: tuple[str, ...] = ()
    units: Mapping[str, str] = field(default_factory=dict)
    noise: tuple[float, ...] = ()
    n_padding: int = 0
    error: float = 0.0

    @property
    def log_det(self) -> sympy.Expr:
        """The forward map's log-determinant, in the forward program's intermediates."""
        return self.forward.log_det

    @property
    def complexity(self) -> int:
        """What the forward equations cost: 1 a constant or variable, each operation its primitive's cost."""
        return complexity(self.forward)

    @property
    def n_constants(self) -> int:
        """How many numbers stand in the forward equations."""
        return n_constants(self.forward)

    def program(self, direction: str = "forward") -> Program:
        """Return the equations of one direction, ``"forward"`` or ``"inverse"``."""
        if direction not in DIRECTIONS:
            raise ValueError(f"direction must be one of {', '.join(DIRECTIONS)}, got {direction!r}")
        return self.forward if direction == "forward" else self.inverse

    def evaluate(
        self,
        direction: str,
        rows: Float[np.ndarray, "n inputs"],
        y: Float[np.ndarray, "m condition"] | None = None,
    ) -> tuple[Float[np.ndarray, "n outputs"], Float[np.ndarray, " n"]]:
        """Return outputs and log-determinants of rows, from the equations alone.

        Args:
            direction: ``"forward"`` or ``"inverse"``.
            rows: x going forward; the latent (joint form: y, then z) going back.
            y: The condition, in the conditional form.
        """
        program = self.program(direction)
        if direction not in self._compiled:
            self._compiled[direction] = compile_numpy(program)
        return evaluate(program, rows, y, function=self._compiled[direction])

    @cached_property
    def _compiled(self) -> dict[str, Callable]:
        return {}

    def composed(self, direction: str = "forward", *, max_operations: int = 1000) -> Composed:
        """Return one direction without intermediates: each output and the log-determinant in the inputs alone.

        Args:
            direction: ``"forward"`` or ``"inverse"``.
            max_operations: Refuse with `ExpressionTooLarge` what would take more than this.
        """
        from isr.equations.compose import compose

        return compose(self.program(direction), max_operations=max_operations)

    def simplified(
        self,
        budget: float = 1e-3,
        rows: Float[np.ndarray, "n x"] | None = None,
        y: Float[np.ndarray, "n condition"] | None = None,
        *,
        collapse_guards: bool = False,
    ) -> Expressions:
        """Return shorter equations whose values stay within ``budget`` of these, relative.

        Forward and inverse are simplified each on its own, so they undo each other within the budget only. The
        blocks stay those of the model.

        Args:
            budget: Largest relative change of an output or log-determinant on the rows.
            rows: Rows of x to judge by; draws of the model when left out.
            y: Their conditions, in the conditional form.
            collapse_guards: Whether guards that never act on the rows may go; off the rows that changes values.
        """
        from isr.equations.simplify import simplify

        rng = np.random.default_rng(0)
        if rows is None:
            n_latent, n_condition = len(self.inverse.inputs), len(self.inverse.conditions)
            y = rng.normal(size=(1000, n_condition)) if n_condition and y is None else y
            rows = self.evaluate("inverse", rng.normal(size=(1000, n_latent)), y)[0]
        rows = np.asarray(rows, np.float64)
        latent = self.evaluate("forward", rows, y)[0]
        forward, error = simplify(self.forward, budget, rows, y, collapse_guards=collapse_guards)
        inverse, error_back = simplify(self.inverse, budget, latent, y, collapse_guards=collapse_guards)
        padded = forward
        if self.n_padding:
            wide = np.column_stack([rows, rng.normal(size=(len(rows), self.n_padding))])
            padded, _ = simplify(self.forward_padded, budget, wide, y, collapse_guards=collapse_guards)
        return replace(
            self, forward=forward, inverse=inverse, forward_padded=padded, error=max(error, error_back)
        )

    def text(self, direction: str = "forward", *, digits: int | None = 4, unicode: bool = False) -> str:
        """Return the equations as text for a terminal; without ``unicode`` SymPy can read each line."""
        from isr.equations.print.text import text

        return text(self.program(direction), digits=digits, unicode=unicode, units=self.units)

    def latex(self, direction: str = "forward", *, digits: int = 4) -> str:
        """Return the equations as a LaTeX ``align*`` environment."""
        from isr.equations.print.latex import latex

        return latex(self.program(direction), digits=digits, units=self.units)

    def mathml(self, direction: str = "forward", *, digits: int = 4) -> str:
        """Return the equations as a MathML element that browsers show."""
        from isr.equations.print.mathml import mathml

        return mathml(self.program(direction), digits=digits)

    def code(self, language: str) -> str:
        """Return the model as source in another language, standing alone."""
        from isr.equations.code import generate

        return generate(self, language)

    def to_jax(self) -> JaxFunctions:
        """Return the equations as JAX functions of one sample, to differentiate, compile and batch."""
        from isr.equations.code import to_jax

        return to_jax(self)

    def __str__(self) -> str:
        return (
            f"Forward\n{_indented(self.text('forward'))}\n\nInverse\n{_indented(self.text('inverse'))}\n\n"
            f"complexity {self.complexity}, {self.n_constants} constants"
        )

    def __repr__(self) -> str:
        given = f" given {', '.join(self.y_names)}" if self.y_names and not self.noise else ""
        return (
            f"<Expressions of {', '.join(self.x_names)}{given}: complexity {self.complexity}, "
            f"{self.n_constants} constants; print them to read them>"
        )

    def _repr_latex_(self) -> str:
        return self.latex()

    def _repr_html_(self) -> str:
        from isr.equations.print.listing import flow_listings, units_html

        return "".join(listing.section for listing in flow_listings(self)) + units_html(self.units)


def extract(
    flow: Flow,
    x_names: Sequence[str] | None = None,
    y_names: Sequence[str] | None = None,
    units: Mapping[str, str] | None = None,
) -> Expressions:
    """Return the equations of a flow, forward, inverse and log-determinant, exactly as the model computes them.

    Args:
        flow: The model.
        x_names: What the variables of x are called; x1, x2, ... when left out. Any text will do.
        y_names: What the variables of y are called; y1, y2, ... when left out.
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
    """
    if not isinstance(flow, Flow):
        raise TypeError(
            f"extract takes a Flow, got a {type(flow).__name__}; a fitted estimator has its equations in .expressions_"
        )
    names = name_variables(flow, x_names, y_names)
    known = dict(units or {})
    unknown = set(known) - set(names.labels.values())
    if unknown:
        raise ValueError(
            f"units name {sorted(unknown)}, which are no variables; known: {list(names.labels.values())}"
        )
    forward, blocks = forward_program(flow, names)
    padded = forward_program(flow, names, padding_is_zero=False)[0] if flow.n_padding else forward
    return Expressions(
        forward=forward,
        inverse=inverse_program(flow, names),
        forward_padded=padded,
        blocks=tuple(blocks),
        x_names=tuple(names.labels[s.name] for s in names.x),
        y_names=tuple(names.labels[s.name] for s in names.y),
        units=known,
        noise=flow.noise,
        n_padding=flow.n_padding,
    )


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())

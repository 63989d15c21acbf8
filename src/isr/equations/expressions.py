"""Expressions: the equations of a model, and everything they can be turned into, behind one object."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import sympy
from jaxtyping import Float
from scipy.special import expit, gammaln, ndtr, ndtri

from isr.bijections.shapes import mixture_quantile
from isr.equations.code import LANGUAGES, generate, plan, templates
from isr.equations.program import Block, Program, complexity, compose, n_constants


@dataclass(frozen=True)
class Expressions(Sequence):
    """The equations of a flow in both directions, or of a regressor ``y = f(x)``; made by `extract`.

    As a sequence it holds a SymPy expression for each forward output, without intermediates.

    Args:
        forward: From x to the latent, or to y.
        inverse: From the latent to x; None for a regressor, which has no density either.
        x_names: Display names of x.
        y_names: Display names of y, whichever way it enters.
        units: Unit of a variable, by display name.
        noise: Standard deviations of the observed outputs (joint form), else empty.
        n_padding: Zeros appended to x.
        forward_padded: The forward equations with that padding as an input of its own; None without padding.
        blocks: The functions of each coupling block, in forward order.

    Example:
        >>> from isr import Flow, extract
        >>> from isr.bijections.affine import Standardise
        >>> equations = extract(Flow(Standardise((2.0,), (0.5,))), ["depth"], units={"depth": "m"})
        >>> print(equations.text("inverse"))
        # depth in m
        depth   = 0.5*z1 + 2
        log_det = -0.6931
        >>> equations
        <Expressions of depth: complexity 5, 2 constants; print them to read them>
        >>> equations.complexity, equations.n_constants, equations.log_det, list(equations)
        (5, 2, 0.693147180559945, [2*depth - 4])
        >>> equations.directions, equations.program("inverse").outputs, equations.composed("inverse").outputs
        (('forward', 'inverse'), (0.5*z1 + 2,), (0.5*z1 + 2,))
        >>> equations.evaluate("forward", np.array([[2.5]]))
        (array([[1.]]), array([0.69314718]))
        >>> "align*" in equations.latex("inverse"), equations.mathml()[:5], "double" in equations.code("c")
        (True, '<math', True)
        >>> equations.to_jax().forward(np.array([2.5]))
        Array([1.], dtype=float64)
    """

    forward: Program
    inverse: Program | None
    x_names: tuple[str, ...]
    y_names: tuple[str, ...] = ()
    units: Mapping[str, str] = field(default_factory=dict)
    noise: tuple[float, ...] = ()
    n_padding: int = 0
    forward_padded: Program | None = None
    blocks: tuple[Block, ...] = ()

    @property
    def directions(self) -> tuple[str, ...]:
        """``("forward", "inverse")``, or ``("forward",)`` of a regressor."""
        return ("forward",) if self.inverse is None else ("forward", "inverse")

    @property
    def log_det(self) -> sympy.Expr:
        """The forward map's log-determinant, in the forward program's intermediates."""
        self.program("inverse")  # a regressor has none
        return self.forward.log_det

    @property
    def complexity(self) -> int:
        """What the forward equations cost: 1 per constant or variable, each operation its primitive's cost."""
        return complexity(self.forward)

    @property
    def n_constants(self) -> int:
        """How many numbers a reader of the forward equations meets, apart from 1, -1, exponents and π.

        Not the number of learned numbers (``front_["n_parameters"]``): standardisation and clamps bring numbers of
        their own, and several learned numbers may come together in one.
        """
        return n_constants(self.forward)

    def program(self, direction: str = "forward") -> Program:
        """Return the equations of one direction, ``"forward"`` or ``"inverse"``."""
        if direction == "forward":
            return self.forward
        if direction != "inverse":
            raise ValueError(f"direction must be one of forward, inverse, got {direction!r}")
        if self.inverse is None:
            raise ValueError(
                "a regressor's formulas give y from x alone; they have no inverse, log-determinant or density"
            )
        return self.inverse

    def evaluate(
        self,
        direction: str,
        rows: Float[np.ndarray, "n inputs"],
        y: Float[np.ndarray, "m condition"] | None = None,
    ) -> tuple[Float[np.ndarray, "n outputs"], Any]:
        """Return outputs and log-determinants (None of a regressor) of rows, from the equations alone.

        Args:
            direction: ``"forward"`` or ``"inverse"``.
            rows: x going forward; the latent (joint form: y, then z) going back.
            y: The condition, in the conditional form.
        """
        outputs, log_det = evaluate(self.program(direction), rows, y)
        return outputs, None if self.inverse is None else log_det

    def composed(self, direction: str = "forward", *, max_operations: float = 1000) -> Program:
        """Return one direction without intermediates, each output and the log-determinant in the inputs alone;
        refuse with `ExpressionTooLarge` what would take more operations than allowed.
        """
        return compose(self.program(direction), max_operations=max_operations)

    def text(
        self,
        direction: str = "forward",
        *,
        digits: int | None = 4,
        unicode: bool = False,
        errors: Mapping[float, float] | None = None,
    ) -> str:
        """Return the equations as text for a terminal; without ``unicode`` and ``errors`` SymPy can read each line.

        ``errors`` gives the standard error of a constant by its absolute value, which is printed as ``0.794(12)``.
        """
        from isr.equations.text import text

        return self._printed(text, direction, digits=digits, unicode=unicode, units=self.units, errors=errors)

    def latex(
        self, direction: str = "forward", *, digits: int = 4, errors: Mapping[float, float] | None = None
    ) -> str:
        """Return the equations as a LaTeX ``align*`` environment; ``errors`` as in `text`."""
        from isr.equations.typeset import latex

        return self._printed(latex, direction, digits=digits, units=self.units, errors=errors)

    def mathml(self, direction: str = "forward", *, digits: int = 4) -> str:
        """Return the equations as a MathML element that browsers show."""
        from isr.equations.typeset import mathml

        return self._printed(mathml, direction, digits=digits)

    def _printed(self, form: Callable[..., str], direction: str, **options: Any) -> str:
        return form(self.program(direction), log_det=self.inverse is not None, **options)

    def code(self, language: str) -> str:
        """Return the model as source that stands alone: ``"python"``, ``"c"``, ``"javascript"`` or ``"jax"``."""
        return generate(self, language)

    def to_jax(self) -> SimpleNamespace:
        """Return the functions of ``code("jax")``, to differentiate, compile and batch."""
        x, y = (tuple(map(str, range(len(names)))) for names in (self.x_names, self.y_names))
        nameless = replace(self, forward=replace(self.forward, labels={}), x_names=x, y_names=y, units={})
        return SimpleNamespace(**_run(generate(nameless, "jax"), {"__name__": "isr_equations"}))

    def __len__(self) -> int:
        return len(self.forward.outputs)

    def __getitem__(self, index: Any) -> Any:
        return self._outputs[index]

    def __iter__(self) -> Iterator[sympy.Expr]:
        return iter(self._outputs)

    @cached_property
    def _outputs(self) -> tuple[sympy.Expr, ...]:
        return self.composed(max_operations=float("inf") if self.inverse is None else 1000).outputs

    def __str__(self) -> str:
        if self.inverse is None:
            return self.text()
        forward, inverse = (self.text(way).replace("\n", "\n  ") for way in self.directions)
        counts = f"complexity {self.complexity}, {self.n_constants} constants"
        return f"Forward\n  {forward}\n\nInverse\n  {inverse}\n\n{counts}"

    def __repr__(self) -> str:
        if self.inverse is None:
            return self.text()
        given = f" given {', '.join(self.y_names)}" if self.y_names and not self.noise else ""
        return (
            f"<Expressions of {', '.join(self.x_names)}{given}: complexity {self.complexity}, "
            f"{self.n_constants} constants; print them to read them>"
        )

    def _repr_latex_(self) -> str:
        return self.latex()

    def _repr_html_(self, title: str = "", *, table: str = "", note: str = "", errors: Any = None) -> str:
        """Return the equations as HTML for notebooks, between a title and a table; ``errors`` as in `text`."""
        names = {"forward": "from x to the latent", "inverse": "from the latent to x"}
        sections = [
            (names[way] if self.inverse is not None else "", self.text(way, unicode=True, errors=errors))
            for way in self.directions
        ]
        return as_html(title, sections, table=table, note=note)


# What a notebook shows of a text: so many lines, each so long.
MOST_LINES, LONGEST = 40, 300
_PRE = "margin:.2em 0 .8em 1em;font-family:monospace;line-height:1.5;white-space:pre;overflow-x:auto;text-align:left"


def as_html(title: str, sections: Sequence[tuple[str, str]], *, table: str = "", note: str = "") -> str:
    """Return texts under their headings as HTML, every word escaped, long ones cut; ``table`` is HTML below them.

    Example:
        >>> "<b>y given x</b>" in as_html("a law", [("y given x", "y = 2*x")])
        True
    """
    body = f"<p><b>{html.escape(title)}</b></p>" if title else ""
    for name, text in sections:
        lines = [line if len(line) <= LONGEST else f"{line[:LONGEST]} …" for line in text.splitlines()]
        if len(lines) > MOST_LINES:
            lines[MOST_LINES:] = [f"… and {len(lines) - MOST_LINES} more lines; print it to read them"]
        heading, shown = f"<b>{html.escape(name)}</b>" if name else "", html.escape("\n".join(lines))
        body += f'<div>{heading}<pre style="{_PRE}">{shown}</pre></div>'
    return f"<div>{body}{table}{f'<p>{html.escape(note)}</p>' if note else ''}</div>"


def _run(source: str, names: Mapping[str, Any]) -> dict[str, Any]:
    """What a source defines. Its names are identifiers of ours; no text of a user stands in it."""
    found = dict(names)
    exec(source, found)  # noqa: S102
    return found


def _mixture_quantile(u: Any, parts: Sequence[Any]) -> np.ndarray:
    with jax.enable_x64(True):
        return np.asarray(mixture_quantile(*(np.asarray(a, np.float64) for a in (u, *parts))))


_RUNTIME: dict[str, Any] = {
    "np": np,
    "isr_square": np.square,
    "isr_cube": lambda a: a * a * a,
    "isr_sigmoid": expit,
    "isr_lgamma": gammaln,
    "isr_phi": ndtr,
    "isr_phi_inverse": ndtri,
    "isr_probit": lambda p, q: np.where(p < q, 1, -1) * ndtri(np.minimum(p, q)),
    "isr_mixture_quantile": _mixture_quantile,
}


@lru_cache(maxsize=16)
def compile_numpy(program: Program) -> Callable:
    """Return a function of a list of input columns and a list of condition columns: outputs and log-determinant."""
    direction: Any = templates().get_template("direction.py.j2").module
    return _run(str(direction.direction("map", plan(program, LANGUAGES["python"]))), _RUNTIME)["isr_map"]


def evaluate(
    program: Program,
    rows: Float[np.ndarray, "n inputs"],
    y: Float[np.ndarray, "m conditions"] | None = None,
) -> tuple[Float[np.ndarray, "n outputs"], Float[np.ndarray, " n"]]:
    """Return the outputs and the log-determinants of a program for rows of inputs, given as many conditions or one."""
    rows, given = _columns(rows, len(program.inputs), "the input"), None
    if program.conditions:
        if y is None:
            raise ValueError(
                f"these equations read a condition: give y with {len(program.conditions)} columns"
            )
        given = _columns(y, len(program.conditions), "y")
        if len(given) not in (1, len(rows)):
            raise ValueError(f"y must hold one row or as many as the input ({len(rows)}), got {len(given)}")
        given = np.broadcast_to(given, (len(rows), given.shape[1])).T
    with np.errstate(all="ignore"):
        results, log_det = compile_numpy(program)(list(np.ascontiguousarray(rows.T)), given)
    columns = [np.broadcast_to(np.asarray(r, np.float64), len(rows)) for r in (*results, log_det)]
    return np.stack(columns[:-1], axis=1), columns[-1].copy()


def _columns(rows: np.ndarray, width: int, what: str) -> np.ndarray:
    rows = np.asarray(rows, np.float64)
    if rows.ndim == 1:
        rows = rows[None, :] if len(rows) == width and width > 1 else rows[:, None]
    if rows.ndim != 2 or rows.shape[1] != width:
        raise ValueError(f"{what} must have {width} columns, got an array of shape {rows.shape}")
    return rows

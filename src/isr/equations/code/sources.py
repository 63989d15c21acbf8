"""Sources from equations: a plan for each direction, put into a template; Python and JAX are run here.

Names and units stand in comments that cannot break out. The normal distribution function follows W. J. Cody (1969), its
quantile M. J. Wichura's AS 241 (1988); both hold a relative error below 1e-15 over all doubles they can reach.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import sympy
from jaxtyping import Float
from jinja2 import Environment, PackageLoader, StrictUndefined
from scipy.special import expit, ndtr, ndtri

from isr.bijections.affine import LOG_SQRT_2PI
from isr.bijections.flow import N_PAD_NODES
from isr.equations.code.plan import LANGUAGES, Language, plan, wrapped
from isr.equations.code.printers import number
from isr.equations.graph import WHOLE
from isr.equations.print.text import legend
from isr.equations.program import Program, without_dead_code

if TYPE_CHECKING:
    from isr.equations.expressions import Expressions

_HOSTILE = {"*/": "* /", "/*": "/ *", "</": "< /", "<!": "< !", "->": "- >", "??": "? ?"}


def comment(text: str) -> str:
    """Return ``text`` as it may stand in a comment of any of the languages: one line that ends nothing.

    Example:
        >>> comment("a */ b")
        'a * / b'
    """
    line = "".join(c if c.isprintable() else " " for c in text)
    line = line.replace("\\", "/").replace('"', "'")
    for hostile, tame in _HOSTILE.items():
        while hostile in line:
            line = line.replace(hostile, tame)
    return re.sub(" +", " ", line).strip()[:200]


def text_list(names: Sequence[str]) -> str:
    """Return names as a list of string literals that Python and JavaScript read alike, safe inside HTML."""
    return json.dumps(list(names)).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def about(equations: Expressions) -> list[str]:
    """Return the lines that open a generated source: what it is, and its variables."""
    if equations.inverse is None:
        lines = ["Formulas y = f(x), one function per output.", _ORIGIN]
        remarks = [f"  {comment(line)}" for line in legend(equations.forward, equations.units)]
        return [*lines, "", "Variables:", *remarks] if remarks else lines
    if equations.noise:
        kind = "Joint map f(x) = [y, z] with its inverse and the density of x given y."
    elif equations.y_names:
        kind = "Conditional map f(x; y) = z with its inverse and the density of x given y."
    else:
        kind = "Map f(x) = z with its inverse and the density of x."
    lines = [kind, _ORIGIN, "", "Variables:"]
    lines += [f"  x[{i}]  {_named(equations, name)}" for i, name in enumerate(equations.x_names)]
    for i, name in enumerate(equations.y_names):
        sd = equations.noise[i] if equations.noise else None
        noise = "" if sd is None else f", observed with normal noise of standard deviation {sd!r}"
        lines.append(f"  y[{i}]  {_named(equations, name)}{noise}")
    lines.append(f"  the latent has {len(equations.inverse.inputs)} entries: {_latent(equations)}")
    if equations.n_padding:
        lines.append(
            "  the second one belongs to a padding of x by zero, which a coupling of one variable needs"
        )
    return lines


_ORIGIN = "Written by isr from a fitted model's equations; stands alone."


def _named(equations: Expressions, name: str) -> str:
    unit = equations.units.get(name, "")
    return comment(f"{name} ({unit})" if unit else name)


def _latent(equations: Expressions) -> str:
    n, n_latent = len(equations.noise), len(equations.forward.outputs)
    if not n:
        return "each is standard normal"
    leading = "the first is y" if n == 1 else f"the first {n} are y"
    return leading if n == n_latent else f"{leading}, the rest is standard normal"


_ALIASES = {"c99": "c", "js": "javascript", "numpy": "python", "py": "python"}


def generate(equations: Expressions, language: str) -> str:
    """Return equations as source in another language, standing alone.

    Args:
        equations: What `isr.extract` gave.
        language: ``"python"`` (NumPy alone), ``"c"`` (C99), ``"javascript"`` (an ES module) or ``"jax"``; ``"py"``,
            ``"numpy"``, ``"c99"`` and ``"js"`` are the same.

    Example:
        >>> import jax, isr
        >>> source = generate(isr.extract(isr.build_flow(jax.random.key(0), 2)), "c")
        >>> "double isr_log_prob(const double *x, const double *y)" in source
        True
    """
    name = _ALIASES.get(str(language).lower(), str(language).lower())
    if name not in LANGUAGES:
        raise ValueError(f"no code for language {language!r}; known: {', '.join(LANGUAGES)}")
    chosen = LANGUAGES[name]
    parts = _of_regressor(equations, chosen) if equations.inverse is None else _of_flow(equations, chosen)
    return _templates().get_template(chosen.template).render(about=about(equations), **parts)


def _of_regressor(equations: Expressions, language: Language) -> dict[str, Any]:
    """What a template needs of a regressor: a plan for each output."""
    program = equations.forward
    single = (
        without_dead_code(
            replace(program, outputs=(output,), output_symbols=(symbol,), bounds=(), log_det=sympy.S.Zero)
        )
        for output, symbol in zip(program.outputs, program.output_symbols, strict=True)
    )
    whole = replace(language, longest=None)
    return {"inverse": None, "functions": [plan(one, whole) for one in single]}


def _of_flow(equations: Expressions, language: Language) -> dict[str, Any]:
    """What a template needs of a flow: a plan for each direction, and how the latent is distributed."""
    forward, inverse = equations.forward_padded or equations.forward, equations.program("inverse")
    n_x, n_latent = len(equations.x_names), len(inverse.inputs)
    nodes, weights = np.polynomial.hermite_e.hermegauss(N_PAD_NODES)
    return {
        "forward": plan(forward, language),
        "inverse": plan(inverse, language, n_x),
        "n_x": n_x,
        "n_y": len(equations.y_names),
        "n_latent": n_latent,
        "x_names": equations.x_names,
        "y_names": equations.y_names,
        "noise": equations.noise,
        "n_padding": equations.n_padding,
        # Whether the equations themselves read y.
        "conditional": bool(forward.conditions or inverse.conditions)
        or bool(equations.y_names and not equations.noise),
        # Where x has no density: a box is closed, an end bounded alone is open.
        "outside": [
            (i, sign if None not in pair else f"{sign}=", end)
            for i, pair in enumerate(inverse.bounds)
            for sign, end in zip("<>", pair, strict=True)
            if end is not None
        ],
        # What the latent's log-density adds to -sum(standardised**2)/2.
        "base_constant": -float(sum(np.log(s) for s in equations.noise) + n_latent * LOG_SQRT_2PI),
        "nodes": nodes.tolist(),
        "log_weights": (np.log(weights) + 0.5 * nodes**2).tolist(),
    }


@functools.cache
def _templates() -> Environment:
    environment = Environment(
        loader=PackageLoader("isr.equations.code"),
        undefined=StrictUndefined,
        autoescape=False,  # what users wrote passes `comment` or `text_list`
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "comment": comment,
        "number": number,
        "text_list": text_list,
        "wrapped": wrapped,
        "in_brackets": _in_brackets,
    }
    return environment


def _in_brackets(text: str) -> str:
    """A long expression over several lines, which Python reads as one inside brackets only."""
    lines = wrapped(text, 8)
    return lines if "\n" not in lines else f"(\n        {lines}\n    )"


@dataclass(frozen=True)
class JaxFunctions:
    """Equations as JAX functions of one sample; batch them with ``jax.vmap``.

    A regressor has ``forward`` alone, its log-determinant None.

    Args:
        forward: ``(x, y) -> (latent, log_det)``.
        inverse: ``(latent, y) -> (x, log_det)``.
        log_prob: ``(x, y) -> log-density``.
        draw: ``(noise, y) -> x``, the x that standard-normal noise stands for.
        n_latent: Entries of the latent.
    """

    forward: Callable[..., tuple[jax.Array, Any]]
    inverse: Callable[..., tuple[jax.Array, jax.Array]]
    log_prob: Callable[..., jax.Array]
    draw: Callable[..., jax.Array]
    n_latent: int

    def log_det(self, x: jax.Array, y: jax.Array | None = None) -> jax.Array:
        """Return the log-determinant of forward at ``x``."""
        return self.forward(x, y)[1]

    def sample(self, key: jax.Array, n: int, y: jax.Array | None = None) -> jax.Array:
        """Return ``n`` rows of x, given one y."""
        noise = jax.random.normal(key, (n, self.n_latent))
        return jax.vmap(lambda row: self.draw(row, y))(noise)


def to_jax(equations: Expressions) -> JaxFunctions:
    """Return the equations as JAX functions of one sample, for ``jit``, ``grad`` and ``vmap``.

    Example:
        >>> import jax, isr, jax.numpy as jnp
        >>> functions = to_jax(isr.extract(isr.build_flow(jax.random.key(0), 2)))
        >>> jax.grad(functions.log_prob)(jnp.zeros(2)).shape
        (2,)
    """
    x, y = (tuple(map(str, range(len(names)))) for names in (equations.x_names, equations.y_names))
    forward_program = replace(equations.forward, labels={})
    nameless = replace(equations, forward=forward_program, x_names=x, y_names=y, units={})
    made = _run(generate(nameless, "jax"), {"__name__": "isr_equations"})
    if equations.inverse is None:
        outputs = plan(equations.forward, LANGUAGES["jax"]).names
        functions = [made[name] for name in outputs]

        def forward(x: jax.Array, y: jax.Array | None = None) -> tuple[jax.Array, None]:
            return jnp.stack([jnp.asarray(f(*x), x.dtype) for f in functions]), None

        return JaxFunctions(forward, _missing, _missing, _missing, len(outputs))
    forward, inverse = made["isr_forward_and_log_det"], made["isr_inverse_and_log_det"]
    return JaxFunctions(forward, inverse, made["log_prob"], made["draw"], len(equations.forward.outputs))


def _missing(*arguments: Any) -> Any:
    raise ValueError("a regressor's formulas give y from x alone; they have no inverse and no density")


def _run(source: str, names: dict[str, Any]) -> dict[str, Any]:
    """What a source of this module defines. Its names are identifiers of ours; no text of a user stands in it."""
    exec(source, names)  # noqa: S102
    return names


_FUNCTIONS: dict[str, Callable] = {
    "isr_square": np.square,
    "isr_cube": lambda a: a * a * a,
    "isr_sigmoid": expit,
    "isr_phi": ndtr,
    "isr_phi_inverse": ndtri,
    "isr_probit": lambda p, q: np.where(p < q, 1, -1) * ndtri(np.minimum(p, q)),
    "isr_mixture_quantile": lambda u, parts: WHOLE["mixture_quantile"](u, *parts),
}


def compile_numpy(program: Program) -> Callable:
    """Return a function of a list of input columns and a list of condition columns: outputs and log-determinant."""
    direction: Any = _templates().get_template("direction.py.j2").module
    source = str(direction.direction("map", plan(program, LANGUAGES["python"])))
    return _run(source, {"np": np, **_FUNCTIONS})["isr_map"]


def evaluate(
    program: Program,
    rows: Float[np.ndarray, "n inputs"],
    y: Float[np.ndarray, "m conditions"] | None = None,
    *,
    function: Callable | None = None,
    parameters: Sequence[float] = (),
) -> tuple[Float[np.ndarray, "n outputs"], Float[np.ndarray, " n"]]:
    """Return the outputs and the log-determinants of a program for rows of inputs, given as many conditions or a
    single one.

    ``function`` is what `compile_numpy` made of the program, to save compiling again; ``parameters`` are values of its
    last inputs, the same for all rows.
    """
    rows = _columns(rows, len(program.inputs) - len(parameters), "the input")
    given = None
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
        results, log_det = (function or compile_numpy(program))(
            [*np.ascontiguousarray(rows.T), *parameters], given
        )
    columns = [np.broadcast_to(np.asarray(r, np.float64), len(rows)) for r in (*results, log_det)]
    return np.stack(columns[:-1], axis=1), columns[-1].copy()


def _columns(rows: np.ndarray, width: int, what: str) -> np.ndarray:
    rows = np.asarray(rows, np.float64)
    if rows.ndim == 1:
        rows = rows[None, :] if len(rows) == width and width > 1 else rows[:, None]
    if rows.ndim != 2 or rows.shape[1] != width:
        raise ValueError(f"{what} must have {width} columns, got an array of shape {rows.shape}")
    return rows

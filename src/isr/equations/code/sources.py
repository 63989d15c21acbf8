"""Sources from equations: a plan for each direction, put into the template of the language; some are run here."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import sympy
from jinja2 import Environment, PackageLoader, StrictUndefined

from isr.bijections.affine import LOG_SQRT_2PI
from isr.bijections.flow import N_PAD_NODES
from isr.equations.code.comments import about, comment, text_list
from isr.equations.code.normal import ratio
from isr.equations.code.plan import LANGUAGES, Language, Plan, plan, wrapped
from isr.equations.code.printers import number
from isr.equations.program import Program

if TYPE_CHECKING:
    from isr.equations.expressions import Expressions

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
        replace(program, outputs=(output,), output_symbols=(symbol,), bounds=(), log_det=sympy.S.Zero)
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
    environment.globals["ratio"] = ratio
    return environment


def _in_brackets(text: str) -> str:
    """A long expression over several lines, which Python reads as one inside brackets only."""
    lines = wrapped(text, 8)
    return lines if "\n" not in lines else f"(\n        {lines}\n    )"


def numpy_function(program: Program, functions: dict[str, Callable]) -> Callable:
    """Return a program as a function of a list of input columns and a list of condition columns.

    Args:
        program: One direction of a model.
        functions: The runtime functions ``isr_...`` that its text may call.
    """
    todo: Plan = plan(program, LANGUAGES["python"])
    source = str(_templates().get_template("direction.py.j2").module.direction("map", todo))  # type: ignore[attr-defined]
    return _run(source, {"np": np, **functions})["isr_map"]


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

    Args:
        equations: What `isr.extract` gave.

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

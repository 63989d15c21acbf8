"""Equations run here: on rows of numbers, with NumPy, and as JAX functions of one sample."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jaxtyping import Float
from scipy.special import expit, gammaln, ndtr, ndtri

from isr.bijections.shapes import mixture_quantile
from isr.equations.code import LANGUAGES, generate, plan, templates
from isr.equations.program import Program

if TYPE_CHECKING:
    from isr.equations.expressions import Expressions


def _run(source: str, names: Mapping[str, Any]) -> dict[str, Any]:
    """What a source defines. Its names are identifiers of ours; no text of a user stands in it."""
    found = dict(names)
    exec(source, found)  # noqa: S102
    return found


def to_jax(equations: Expressions) -> SimpleNamespace:
    """Return the functions of ``equations.code("jax")`` without a file: of one sample, for ``jit``, ``grad``, ``vmap``.

    Example:
        >>> import jax, isr, jax.numpy as jnp
        >>> functions = to_jax(isr.extract(isr.build_flow(jax.random.key(0), 2)))
        >>> jax.grad(functions.log_prob)(jnp.zeros(2)).shape
        (2,)
    """
    x, y = (tuple(map(str, range(len(names)))) for names in (equations.x_names, equations.y_names))
    forward = replace(equations.forward, labels={})
    nameless = replace(equations, forward=forward, x_names=x, y_names=y, units={})
    return SimpleNamespace(**_run(generate(nameless, "jax"), {"__name__": "isr_equations"}))


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


def compile_numpy(program: Program) -> Callable:
    """Return a function of a list of input columns and a list of condition columns: outputs and log-determinant."""
    direction: Any = templates().get_template("direction.py.j2").module
    return _run(str(direction.direction("map", plan(program, LANGUAGES["python"]))), _RUNTIME)["isr_map"]


def evaluate(
    program: Program,
    rows: Float[np.ndarray, "n inputs"],
    y: Float[np.ndarray, "m conditions"] | None = None,
    *,
    function: Callable | None = None,
) -> tuple[Float[np.ndarray, "n outputs"], Float[np.ndarray, " n"]]:
    """Return the outputs and the log-determinants of a program for rows of inputs, given as many conditions or one.

    ``function`` is what `compile_numpy` made of the program, to save compiling again.
    """
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
        results, log_det = (function or compile_numpy(program))(list(np.ascontiguousarray(rows.T)), given)
    columns = [np.broadcast_to(np.asarray(r, np.float64), len(rows)) for r in (*results, log_det)]
    return np.stack(columns[:-1], axis=1), columns[-1].copy()


def _columns(rows: np.ndarray, width: int, what: str) -> np.ndarray:
    rows = np.asarray(rows, np.float64)
    if rows.ndim == 1:
        rows = rows[None, :] if len(rows) == width and width > 1 else rows[:, None]
    if rows.ndim != 2 or rows.shape[1] != width:
        raise ValueError(f"{what} must have {width} columns, got an array of shape {rows.shape}")
    return rows

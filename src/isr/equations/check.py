"""Check: the equations against the model, the inverse against the forward map, the log-determinant against autodiff.

An error is relative: the difference over the value's size plus the spread of its column.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from isr.bijections.affine import Bounded, Standardise
from isr.bijections.bijection import AbstractBijection, Chain
from isr.bijections.flow import Flow
from isr.bijections.formula import Formulas
from isr.bijections.parameters import cast
from isr.bijections.programs import compiled
from isr.equations.expressions import Expressions
from isr.equations.extract import extract

if TYPE_CHECKING:
    import pandas as pd

# Jacobians are expensive; this many show a wrong log-determinant as well as thousands do.
_N_JACOBIANS = 64


class CheckFailed(AssertionError):
    """Equations and model disagree."""


@dataclass(frozen=True)
class CheckRow:
    """One comparison: the largest relative error seen at ``n`` points, and the largest allowed.

    Example:
        >>> CheckRow("forward equations = model", error=2e-16, tolerance=1e-9, n=1000).passed
        True
    """

    name: str
    error: float
    tolerance: float
    n: int

    @property
    def passed(self) -> bool:
        """Whether the error stayed within its tolerance."""
        return bool(self.error <= self.tolerance)


@dataclass(frozen=True)
class CheckResult:
    """The outcome of `check`, a row per comparison; print it to see the table.

    Example:
        >>> from isr.bijections.affine import Standardise
        >>> result = check(Flow(Standardise((2.0,), (0.5,))), n=10)
        >>> result.passed, result.rows[0].passed, result.raise_if_failed() is result
        (True, True, True)
    """

    rows: tuple[CheckRow, ...]

    @property
    def passed(self) -> bool:
        """Whether every comparison stayed within its tolerance."""
        return all(row.passed for row in self.rows)

    def raise_if_failed(self) -> CheckResult:
        """Return the result itself, or raise `CheckFailed` with what went wrong."""
        if self.passed:
            return self
        failed = (
            f"{r.name}: error {r.error:.1e}, allowed {r.tolerance:.0e}" for r in self.rows if not r.passed
        )
        raise CheckFailed("the equations do not hold: " + "; ".join(failed))

    def _table(self) -> pd.DataFrame:
        import pandas as pd

        cells = {
            r.name: (f"{r.error:.1e}", f"{r.tolerance:.0e}", f"{r.n:,}", "ok" if r.passed else "FAILED")
            for r in self.rows
        }
        columns = ["worst error", "allowed", "points", "result"]
        return pd.DataFrame.from_dict(cells, orient="index", columns=columns)

    def __str__(self) -> str:
        return self._table().to_string()

    def _repr_html_(self) -> str:
        return self._table().to_html()


def check(
    model: Flow | Formulas,
    expressions: Expressions | None = None,
    *,
    n: int = 1000,
    seed: int = 0,
    tolerance: float = 1e-9,
    rows: Float[np.ndarray, "n x"] | None = None,
    y: Float[np.ndarray, "n condition"] | None = None,
) -> CheckResult:
    """Return how well equations and model agree, in both directions of a flow.

    Args:
        model: The model.
        expressions: Its equations; extracted when left out.
        n: Number of points drawn, typical of the data a flow was scaled to; normal for a regressor.
        seed: Seed of the points.
        tolerance: Largest relative error allowed.
        rows: Rows of x to use instead of drawn ones.
        y: Their conditions, in the conditional form.

    Example:
        >>> import jax
        >>> from isr.bijections.build import build_flow
        >>> check(build_flow(jax.random.key(0), 2), n=100).passed
        True
    """
    expressions, rng = expressions or extract(model), np.random.default_rng(seed)
    if isinstance(model, Formulas):
        x = rng.normal(size=(n, model.n_inputs)) if rows is None else np.asarray(rows, np.float64)
        error = _error_of_formulas(model, expressions, x)
        return CheckResult((CheckRow("formulas = model", error, tolerance, len(x)),))
    x = _typical(model.bijection, n, rng)[:, : model.dim] if rows is None else np.asarray(rows, np.float64)
    if model.condition_map is None:
        y = None
    elif y is None:
        y = _typical(model.condition_map.standardise, len(x), rng)
    latent, log_det = model.forward(x, y)
    found, found_log_det = expressions.evaluate("forward", x, y)
    back, back_log_det = model.inverse(latent, y)
    found_back, found_back_log_det = expressions.evaluate("inverse", latent, y)
    some = slice(0, _N_JACOBIANS)
    with jax.enable_x64(True):
        double, padded = cast(model, jnp.float64), np.pad(x[some], ((0, 0), (0, model.n_padding)))
        matrices = compiled(_jacobians, double)(double, padded, None if y is None else y[some])
    pairs: list[tuple[str, np.ndarray, np.ndarray, float]] = [
        ("forward equations = model", found, latent, tolerance),
        ("inverse equations = model", found_back, back, tolerance),
        ("forward log-det equations = model", found_log_det, log_det, tolerance),
        ("inverse log-det equations = model", found_back_log_det, back_log_det, tolerance),
        ("inverse undoes forward, model", back, x, tolerance),
        ("inverse undoes forward, equations", expressions.evaluate("inverse", found, y)[0], x, 2 * tolerance),
        ("log-det = autodiff Jacobian", log_det[some], np.linalg.slogdet(np.asarray(matrices))[1], tolerance),
    ]
    return CheckResult(tuple(CheckRow(name, relative_error(a, b), tol, len(a)) for name, a, b, tol in pairs))


def _error_of_formulas(formulas: Formulas, expressions: Expressions, x: np.ndarray) -> float:
    """The largest relative error; where the model is not finite its equations must not be either."""
    found = expressions.evaluate("forward", x)[0]
    with jax.enable_x64(True):
        expected = np.asarray(formulas.columns(jnp.asarray(x.T))[0]).T
    finite = np.isfinite(expected)
    if np.any(finite != np.isfinite(found)):
        return float("inf")
    found, expected = np.where(finite, found, 0.0), np.where(finite, expected, 0.0)
    return float(np.max(np.abs(found - expected) / (np.abs(expected) + np.std(expected, axis=0) + 1e-300)))


def _typical(bijection: AbstractBijection, n: int, rng: np.random.Generator) -> np.ndarray:
    """Rows like the data: normal draws taken back through the fixed maps that come first."""
    steps = bijection.bijections if isinstance(bijection, Chain) else (bijection,)
    rows = rng.normal(size=(n, bijection.dim))
    with jax.enable_x64(True):
        for step in reversed(list(takewhile(lambda step: isinstance(step, Bounded | Standardise), steps))):
            rows = step.inverse_columns(jnp.asarray(rows).T)[0].T
    return np.asarray(rows)


def _jacobians(flow: Flow, x: Any, y: Any) -> Any:
    def jacobian(row: Any, given: Any) -> Any:
        return jax.jacfwd(lambda r: flow.latent_one(r, given)[0])(row)

    return jax.vmap(jacobian, in_axes=(0, None if y is None else 0))(x, y)


def relative_error(found: np.ndarray, expected: np.ndarray) -> float:
    """Return the largest error in any column; infinite where one is not finite."""
    spread = np.std(expected, axis=0)
    scale = np.abs(expected) + np.where(spread > 0, spread, 1.0)
    if expected.ndim == 1:
        scale = np.maximum(scale, 1.0)  # a log-determinant is measured in nats
    with np.errstate(invalid="ignore"):
        error = np.max(np.abs(found - expected) / scale)
    return float(error) if np.isfinite(error) else float("inf")

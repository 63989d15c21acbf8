"""Refit: constants to convergence in double precision, with their standard errors.

A `Fit` is compiled once for a model's structure; cutting a constant only changes which ones are free.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.optimize import minimize

from isr.model.parameters import cast, flatten

# Above so many constants a Hessian at every step costs more than it saves.
MAX_NEWTON = 24
CHUNK = 4096
# Rows that a quick look at the curvature takes.
FEW_ROWS = 1024
# Hessians are compiled for these numbers of constants and filled up.
BUCKETS = (8, 24, 48, 100)

RowLoss = Callable[[Any, dict[str, Float[Array, "width n"]]], Float[Array, " n"]]


class Fit:
    """The loss of one model on one set of rows as a function of its constants.

    Args:
        model: Gives the structure and the starting constants.
        row_loss: Loss of every row, ``row_loss(model, data)``.
        data: Arrays with rows along the last axis; ``"weight"``, where present, weighs the rows.
        nats: Turns a mean loss into nats a row: the identity for a likelihood, ``log(loss) / 2`` for a mean
            squared error.
        newton: Whether few constants converge by Newton steps; without, by a quasi-Newton method, which needs no
            Hessian of every size compiled.
    """

    def __init__(
        self,
        model: Any,
        row_loss: RowLoss,
        data: dict[str, np.ndarray],
        nats: Callable[[float], float] = float,
        *,
        newton: bool = True,
    ) -> None:
        with jax.enable_x64(True):
            self._model = cast(model, jnp.float64)
            self.start = np.asarray(flatten(self._model)[0])
            self.n_rows = next(iter(data.values())).shape[-1]
            self.nats = nats
            self._newton = newton
            self._row_loss = row_loss
            self._rows = _chunked(data, self.n_rows)
            n_few = min(self.n_rows, FEW_ROWS)
            self._few = _chunked({name: v[..., :n_few] for name, v in data.items()}, n_few)

    def restore(self, theta: np.ndarray) -> Any:
        """Return the model with these constants."""
        with jax.enable_x64(True):
            return flatten(self._model)[1](np.asarray(theta, np.float64))

    def loss(self, theta: np.ndarray) -> float:
        """Return the mean loss; infinite where it is not a number."""
        value, _ = self._value_and_grad(theta)
        return value

    def _value_and_grad(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        with jax.enable_x64(True):
            value, grad = _value_and_grad(jnp.asarray(theta), self._model, self._row_loss, self._rows)
        value, grad = float(value), np.asarray(grad)
        return (
            (value, grad)
            if np.isfinite(value) and np.all(np.isfinite(grad))
            else (np.inf, np.zeros_like(grad))
        )

    def hessian(self, theta: np.ndarray, free: np.ndarray, *, fast: bool = False) -> np.ndarray:
        """Return the matrix of second derivatives with respect to the free constants; fast from fewer rows."""
        buckets = BUCKETS if self._newton else BUCKETS[-1:]
        size = next(b for b in (*buckets, len(free)) if b >= len(free))
        index = np.concatenate([free, np.full(size - len(free), len(theta))])
        with jax.enable_x64(True):
            full = _hessian(
                jnp.asarray(np.concatenate([theta[free], np.zeros(size - len(free))])), jnp.asarray(index),
                jnp.asarray(theta), self._model, self._row_loss, self._few if fast else self._rows,
            )  # fmt: skip
        return np.asarray(full)[: len(free), : len(free)]

    def converge(
        self, theta: np.ndarray, free: np.ndarray, *, max_iterations: int = 60, fast: bool = False
    ) -> tuple[np.ndarray, float]:
        """Return constants that minimise the loss over the free ones, and that loss; never a worse one.

        Args:
            theta: Where to start.
            free: Indices of the constants that may move.
            max_iterations: Newton steps at most; many constants take ten times as many quasi-Newton steps.
            fast: Whether the curvature may come from fewer rows.
        """
        before = self.loss(theta)
        if not len(free) or not np.isfinite(before):
            return theta, before
        size = np.maximum(np.abs(theta[free]), 0.05)  # badly scaled constants would starve a trust region

        def place(phi: np.ndarray) -> np.ndarray:
            full = theta.copy()
            full[free] = phi * size
            return full

        def value_and_grad(phi: np.ndarray) -> tuple[float, np.ndarray]:
            value, grad = self._value_and_grad(place(phi))
            return min(value, 1e300), grad[free] * size

        def curvature(phi: np.ndarray) -> np.ndarray:
            return _finite(self.hessian(place(phi), free, fast=fast) * np.outer(size, size))

        if self._newton and len(free) <= MAX_NEWTON:
            method, options = "trust-exact", {"maxiter": max_iterations, "gtol": 1e-6 if fast else 1e-9}
        else:
            method, options = "L-BFGS-B", {"maxiter": 10 * max_iterations}
        found = minimize(
            value_and_grad, theta[free] / size, jac=True, method=method, options=options,
            hess=curvature if method == "trust-exact" else None,
        )  # fmt: skip
        after = place(found.x)
        value = self.loss(after)
        return (after, value) if value <= before else (theta, before)

    def standard_errors(self, theta: np.ndarray, free: np.ndarray) -> np.ndarray:
        """Return the standard error of every constant from the observed information; NaN where none is free.

        For a mean squared error the information is scaled by the residual variance.
        """
        errors = np.full(len(theta), np.nan)
        if not len(free):
            return errors
        step = 1e-6 * max(self.loss(theta), 1e-300)
        slope = (self.nats(self.loss(theta) + step) - self.nats(self.loss(theta))) / step
        information = self.hessian(theta, free) * slope * self.n_rows
        covariance = np.linalg.pinv(information, hermitian=True)
        errors[free] = np.sqrt(np.clip(np.diag(covariance), 0.0, None))
        return errors


def _total(theta: Array, model: Any, row_loss: RowLoss, chunks: Any) -> Array:
    restored = flatten(model)[1](theta)

    def add(carry, piece):
        rows, weight = piece
        losses = row_loss(restored, rows)
        return carry + jnp.sum(jnp.where(weight > 0, losses, 0.0) * weight), None

    return jax.lax.scan(add, jnp.zeros((), theta.dtype), chunks)[0]


# Compiled once for a structure: which constants are free, and the rows, are arguments.
@eqx.filter_jit
def _value_and_grad(theta: Array, model: Any, row_loss: RowLoss, chunks: Any) -> tuple[Array, Array]:
    return jax.value_and_grad(_total)(theta, model, row_loss, chunks)


@eqx.filter_jit
def _hessian(phi: Array, index: Array, theta: Array, model: Any, row_loss: RowLoss, chunks: Any) -> Array:
    def at(phi):
        return _total(theta.at[index].set(phi, mode="drop"), model, row_loss, chunks)

    return jax.hessian(at)(phi)


def _finite(matrix: np.ndarray) -> np.ndarray:
    return matrix if np.all(np.isfinite(matrix)) else np.eye(len(matrix))


def _chunked(data: dict[str, np.ndarray], n: int) -> tuple[dict[str, Array], Array]:
    """Return the rows in pieces of equal length, filled up with rows of weight zero; weights sum to one."""
    weight = np.asarray(data.get("weight", np.ones((1, n)))[0], dtype=np.float64)
    weight = weight / np.sum(weight)
    length = min(CHUNK, n)
    n_pieces = -(-n // length)
    fill = n_pieces * length - n

    def pieces(values: np.ndarray) -> Array:
        filled = np.concatenate([values, np.repeat(values[:, -1:], fill, axis=1)], axis=1)
        return jnp.asarray(np.moveaxis(filled.reshape(len(values), n_pieces, length), 1, 0), jnp.float64)

    rows = {name: pieces(np.asarray(v, np.float64)) for name, v in data.items() if name != "weight"}
    padded = np.concatenate([weight, np.zeros(fill)]).reshape(n_pieces, length)
    return rows, jnp.asarray(padded, jnp.float64)


def flow_row_loss(flow: Any, data: dict[str, Float[Array, "width n"]]) -> Float[Array, " n"]:
    """Return minus the log-density of every row, in nats."""
    return -flow.joint_log_prob_columns(data["x"], data.get("y"))

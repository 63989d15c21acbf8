"""Refit: constants to convergence in double precision, with their standard errors.

A `Fit` is compiled once for a model's structure; cutting a constant only changes which ones are free.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.optimize import minimize

from isr.model.parameters import cast, flatten

# Above so many constants a dense Hessian costs more than it saves.
MAX_NEWTON = 250
CHUNK = 4096
# Rows that a quick look at the curvature takes.
FEW_ROWS = 4096

RowLoss = Callable[[Any, dict[str, Float[Array, "width n"]]], Float[Array, " n"]]


class Fit:
    """The loss of one model on one set of rows as a function of its constants.

    Args:
        model: Gives the structure and the starting constants.
        row_loss: Loss of every row, ``row_loss(model, data)``.
        data: Arrays with rows along the last axis; ``"weight"``, where present, weighs the rows.
        nats: Turns a mean loss into nats a row: the identity for a likelihood, ``log(loss) / 2`` for a mean
            squared error.
    """

    def __init__(
        self,
        model: Any,
        row_loss: RowLoss,
        data: dict[str, np.ndarray],
        nats: Callable[[float], float] = float,
    ) -> None:
        with jax.enable_x64(True):
            vector, self._restore = flatten(cast(model, jnp.float64))
            self.start = np.asarray(vector)
            self.n_rows = next(iter(data.values())).shape[-1]
            self.nats = nats
            chunks = _chunked(data, self.n_rows)
            few = _chunked({name: v[..., :FEW_ROWS] for name, v in data.items()}, min(self.n_rows, FEW_ROWS))

            def total(theta, chunks=chunks):
                def add(carry, piece):
                    rows, weight = piece
                    losses = row_loss(self._restore(theta), rows)
                    return carry + jnp.sum(jnp.where(weight > 0, losses, 0.0) * weight), None

                return jax.lax.scan(add, jnp.zeros(()), chunks)[0]

            self._value_and_grad = jax.jit(jax.value_and_grad(total))
            self._hessian = jax.jit(jax.hessian(total))
            self._fast_hessian = jax.jit(jax.hessian(lambda theta: total(theta, few)))
            self._value = jax.jit(total)

    def restore(self, theta: np.ndarray) -> Any:
        """Return the model with these constants."""
        with jax.enable_x64(True):
            return self._restore(jnp.asarray(theta, jnp.float64))

    def loss(self, theta: np.ndarray) -> float:
        """Return the mean loss."""
        with jax.enable_x64(True):
            value = float(self._value(jnp.asarray(theta, jnp.float64)))
        return value if np.isfinite(value) else np.inf

    def hessian(self, theta: np.ndarray, free: np.ndarray, *, fast: bool = False) -> np.ndarray:
        """Return the matrix of second derivatives with respect to the free constants; fast from fewer rows."""
        matrix = self._fast_hessian if fast else self._hessian
        with jax.enable_x64(True):
            full = np.asarray(matrix(jnp.asarray(theta, jnp.float64)))
        return full[np.ix_(free, free)]

    def converge(
        self, theta: np.ndarray, free: np.ndarray, *, max_iterations: int = 60, fast: bool = False
    ) -> tuple[np.ndarray, float]:
        """Return constants that minimise the loss over the free ones, and that loss; never a worse one.

        Args:
            theta: Where to start.
            free: Indices of the constants that may move.
            max_iterations: Newton steps at most.
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
            with jax.enable_x64(True):
                value, grad = self._value_and_grad(jnp.asarray(place(phi)))
            if not (np.isfinite(value) and np.all(np.isfinite(grad))):
                return 1e300, np.zeros(len(free))
            return float(value), np.asarray(grad)[free] * size

        newton = len(free) <= MAX_NEWTON
        found = minimize(
            value_and_grad,
            theta[free] / size,
            jac=True,
            hess=(lambda phi: _finite(self.hessian(place(phi), free, fast=fast) * np.outer(size, size)))
            if newton
            else None,
            method="trust-exact" if newton else "L-BFGS-B",
            options={
                "maxiter": max_iterations if newton else 500,
                **({"gtol": 1e-6 if fast else 1e-9} if newton else {}),
            },
        )
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
    x, y = data["x"], data.get("y")
    one = flow.joint_log_prob_one
    if y is None:
        return -jax.vmap(one, in_axes=(-1, None), out_axes=-1)(x, None)
    return -jax.vmap(one, in_axes=-1, out_axes=-1)(x, y)

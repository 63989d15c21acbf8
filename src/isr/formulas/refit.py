"""Refit: constants to convergence in double precision, with their standard errors.

A `Fit` is compiled once for a model's structure; cutting a constant only changes which ones are free.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.optimize import minimize

from isr.bijections.parameters import cast, flatten, on_device
from isr.bijections.programs import compiled

# Above so many constants a Hessian at every step costs more than it saves.
MAX_NEWTON = 24
# Rows are summed over in pieces of this length; the first alone serves for a quick look at the curvature.
CHUNK = 1024
# Sets of constants whose gradients one call of the compiled program takes at most.
TOGETHER = 16
# Step of the differences of gradients, in sizes of a constant: near the cube root of double precision.
STEP = 1e-5
# Slopes and curvatures beyond this overflow in the solver.
HUGE = 1e100
# Constants smaller than this count as being of this size.
LEAST_SIZE = 0.05

RowLoss = Callable[[Any, dict[str, Float[Array, "width n"]]], Float[Array, " n"]]


class Fit:
    """The loss of one model on one set of rows as a function of its constants.

    Args:
        model: Gives the structure and the starting constants.
        row_loss: Loss of every row, ``row_loss(model, data)``.
        data: Arrays with rows along the last axis; ``"weight"``, where present, weighs the rows.
        nats: Turns a mean loss into nats per row: the identity for a likelihood, ``log(loss) / 2`` for a mean
            squared error.
    """

    def __init__(
        self,
        model: Any,
        row_loss: RowLoss,
        data: dict[str, np.ndarray],
        nats: Callable[[float], float] = float,
        should_stop: Callable[[], bool] = bool,
    ) -> None:
        self.should_stop = should_stop
        with jax.enable_x64(True):
            self._model = cast(model, jnp.float64)
            self.start = np.asarray(flatten(self._model)[0])
            self.n_rows = next(iter(data.values())).shape[-1]
            self.nats = nats
            self._row_loss = row_loss
            self._pieces, self._share = _chunked(data, self.n_rows)

    def restore(self, theta: np.ndarray) -> Any:
        """Return the model with these constants."""
        with jax.enable_x64(True):
            return flatten(self._model)[1](np.asarray(theta, np.float64))

    def loss(self, theta: np.ndarray) -> float:
        """Return the mean loss; infinite where it is not a number."""
        return self._value_and_grad(theta)[0]

    def _value_and_grad(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        (value,), (grad,) = self._summed(theta[None], len(self._share))
        if np.isfinite(value) and np.all(np.abs(grad) < HUGE):
            return float(value), grad
        return np.inf, np.zeros_like(grad)

    def _summed(self, thetas: np.ndarray, n_pieces: int) -> tuple[np.ndarray, np.ndarray]:
        """Return mean losses and gradients for several sets of constants over the first pieces of the rows."""
        share = float(np.sum(self._share[:n_pieces]))
        values, grads = [], []
        for first in range(0, len(thetas), TOGETHER):
            some = thetas[first : first + TOGETHER]
            places = np.zeros((TOGETHER, thetas.shape[1]))  # one shape whatever is asked for, so one program
            places[: len(some)] = some
            with jax.enable_x64(True):
                value, grad = compiled(_values_and_grads, self._model, self._row_loss)(
                    places, self._model, self._pieces,
                    np.asarray(len(some)), np.asarray(n_pieces),
                )  # fmt: skip
            values.append(np.asarray(value)[: len(some)] / share)
            grads.append(np.asarray(grad)[: len(some)] / share)
        return np.concatenate(values), np.concatenate(grads)

    def hessian(self, theta: np.ndarray, free: np.ndarray, *, fast: bool = False) -> np.ndarray:
        """Return the matrix of second derivatives with respect to the free constants; fast from fewer rows.

        Central differences of gradients: correct to about eight digits, and nothing more is compiled for them.
        """
        if not len(free):
            return np.zeros((0, 0))
        steps = STEP * np.maximum(np.abs(theta), LEAST_SIZE)
        moves = np.diag(steps)[free]
        _, grads = self._summed(
            np.concatenate([theta + moves, theta - moves]), 1 if fast else len(self._share)
        )
        upper, lower = np.split(grads[:, free], 2)
        with np.errstate(over="ignore", invalid="ignore"):  # where the loss itself has no value
            matrix = (upper - lower) / (2 * steps[free, None])
            return 0.5 * (matrix + matrix.T)

    def converge(
        self, theta: np.ndarray, free: np.ndarray, *, max_iterations: int = 60, fast: bool = False
    ) -> tuple[np.ndarray, float]:
        """Return constants that minimise the loss over the free ones, and that loss; never a worse one.

        Many constants take ten times as many quasi-Newton steps; ``fast`` takes the curvature from fewer rows.
        """
        before = self.loss(theta)
        if not len(free) or not np.isfinite(before):
            return theta, before
        size = np.maximum(np.abs(theta[free]), LEAST_SIZE)  # badly scaled constants starve a trust region

        def place(phi: np.ndarray) -> np.ndarray:
            full = theta.copy()
            full[free] = phi * size
            return full

        best, best_value = theta, before

        def value_and_grad(phi: np.ndarray) -> tuple[float, np.ndarray]:
            nonlocal best, best_value
            if self.should_stop():
                raise TimeoutError
            value, grad = self._value_and_grad(place(phi))
            if value < best_value:
                best, best_value = place(phi), value
            return min(value, 1e300), grad[free] * size

        def curvature(phi: np.ndarray) -> np.ndarray:
            return _finite(self.hessian(place(phi), free, fast=fast) * np.outer(size, size))

        if len(free) <= MAX_NEWTON:
            method, options = "trust-exact", {"maxiter": max_iterations, "gtol": 1e-6 if fast else 1e-9}
        else:
            method, options = "L-BFGS-B", {"maxiter": 10 * max_iterations}
        # A step too far is refused, not an error.
        with np.errstate(over="ignore", invalid="ignore"), contextlib.suppress(TimeoutError):
            minimize(
                value_and_grad, theta[free] / size, jac=True, method=method, options=options,
                hess=curvature if method == "trust-exact" else None,
            )  # fmt: skip
        return best, best_value

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


# Compiled once for a structure: which constants are free, the rows and how many of them count are arguments.
def _values_and_grads(
    row_loss: RowLoss, thetas: Array, model: Any, pieces: Any, n_thetas: Array, n_pieces: Array
) -> tuple[Array, Array]:
    def total(theta: Array, rows: Any, weight: Array) -> Array:
        losses = row_loss(flatten(model)[1](theta), rows)
        return jnp.sum(jnp.where(weight > 0, losses, 0.0) * weight)

    def add(i: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        which, piece = i // n_pieces, i % n_pieces
        rows, weight = jax.tree.map(lambda values: values[piece], pieces)
        value, grad = jax.value_and_grad(total)(thetas[which], rows, weight)
        return carry[0].at[which].add(value), carry[1].at[which].add(grad)

    start = jnp.zeros(len(thetas), thetas.dtype), jnp.zeros_like(thetas)
    return jax.lax.fori_loop(0, n_thetas * n_pieces, add, start)


def _finite(matrix: np.ndarray) -> np.ndarray:
    return matrix if np.all(np.abs(matrix) < HUGE) else np.eye(len(matrix))


def _chunked(data: dict[str, np.ndarray], n: int) -> tuple[tuple[dict[str, Array], Array], np.ndarray]:
    """Return the rows in pieces of equal length, filled up with rows of weight zero, and each piece's share.

    Weights sum to one over all pieces.
    """
    weight = np.asarray(data.get("weight", np.ones((1, n)))[0], dtype=np.float64)
    weight = weight / np.sum(weight)
    length = min(CHUNK, n)
    n_pieces = -(-n // length)
    fill = n_pieces * length - n

    def pieces(values: np.ndarray) -> Array:
        filled = np.concatenate([values, np.repeat(values[:, -1:], fill, axis=1)], axis=1)
        return on_device(np.moveaxis(filled.reshape(len(values), n_pieces, length), 1, 0))

    rows = {name: pieces(np.asarray(v, np.float64)) for name, v in data.items() if name != "weight"}
    padded = np.concatenate([weight, np.zeros(fill)]).reshape(n_pieces, length)
    return (rows, on_device(padded)), padded.sum(axis=1)


def flow_row_loss(flow: Any, data: dict[str, Float[Array, "width n"]]) -> Float[Array, " n"]:
    """Return minus the log-density of every row, in nats."""
    return -flow.joint_log_prob_columns(data["x"], data.get("y"))

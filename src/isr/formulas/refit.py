"""Refit: constants to convergence in double precision, with their standard errors; cut a few at a time; made simple.

A `Fit` is compiled once for a model's structure; cutting a constant only changes which ones are free. What one is worth
is read off the Hessian (optimal brain surgeon: ``theta^2 / (2 H^-1_ii)``), and the cost after the refit decides.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

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

    ``data`` holds arrays with rows along the last axis; ``"weight"``, where present, weighs the rows. ``nats`` turns a
    mean loss into nats per row: the identity for a likelihood, ``log(loss) / 2`` for a mean squared error.
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
                counts = np.asarray(len(some)), np.asarray(n_pieces)
                summed = compiled(_values_and_grads, self._model, self._row_loss)
                value, grad = summed(places, self._model, self._pieces, *counts)
            values.append(np.asarray(value)[: len(some)] / share)
            grads.append(np.asarray(grad)[: len(some)] / share)
        return np.concatenate(values), np.concatenate(grads)

    def hessian(self, theta: np.ndarray, free: np.ndarray, *, fast: bool = False) -> np.ndarray:
        """Return the second derivatives by the free constants, from central differences of gradients (eight digits)."""
        if not len(free):
            return np.zeros((0, 0))
        steps = STEP * np.maximum(np.abs(theta), LEAST_SIZE)
        moves = np.diag(steps)[free]
        moved = np.concatenate([theta + moves, theta - moves])
        _, grads = self._summed(moved, 1 if fast else len(self._share))
        upper, lower = np.split(grads[:, free], 2)
        with np.errstate(over="ignore", invalid="ignore"):  # where the loss itself has no value
            matrix = (upper - lower) / (2 * steps[free, None])
            return 0.5 * (matrix + matrix.T)

    def converge(
        self, theta: np.ndarray, free: np.ndarray, *, max_iterations: int = 60, fast: bool = False,
        known: np.ndarray | None = None,
    ) -> tuple[np.ndarray, float]:  # fmt: skip
        """Return constants that minimise the loss over the free ones, and that loss; never a worse one.

        Many constants take ten times as many quasi-Newton steps; ``fast`` takes the curvature from fewer rows, and
        ``known`` is that of all constants somewhere near.
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
            matrix = self.hessian(place(phi), free, fast=fast) if known is None else known[np.ix_(free, free)]
            matrix = matrix * np.outer(size, size)
            return matrix if np.all(np.abs(matrix) < HUGE) else np.eye(len(matrix))

        options: dict[str, float] = {"maxiter": 10 * max_iterations}
        if is_small := len(free) <= MAX_NEWTON:
            options = {"maxiter": max_iterations, "gtol": 1e-6 if fast else 1e-9}
        # A step too far is refused, not an error.
        with np.errstate(over="ignore", invalid="ignore"), contextlib.suppress(TimeoutError):
            minimize(
                value_and_grad, theta[free] / size, jac=True, options=options, hess=curvature if is_small else None,
                method="trust-exact" if is_small else "L-BFGS-B",
            )  # fmt: skip
        return best, best_value

    def standard_errors(self, theta: np.ndarray, free: np.ndarray) -> np.ndarray:
        """Return the standard error of every constant from the observed information; NaN where none is free.

        For a mean squared error the information is scaled by the residual variance.
        """
        errors, loss = np.full(len(theta), np.nan), self.loss(theta)
        step = 1e-6 * max(abs(loss), 1e-300)  # the mean loss of a density may be negative
        slope = (self.nats(loss + step) - self.nats(loss)) / step
        information = self.hessian(theta, free) * slope * self.n_rows
        if not len(free) or not np.all(np.isfinite(information)):
            return errors
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


def _chunked(data: dict[str, np.ndarray], n: int) -> tuple[tuple[dict[str, Array], Array], np.ndarray]:
    """Return the rows in pieces of equal length, filled up with rows of weight zero, and each piece's share of one."""
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


class Constants(NamedTuple):
    """Constants of a model, zero where cut; their loss; indices of those still fitted; what others were set to."""

    theta: np.ndarray
    loss: float
    free: np.ndarray
    labels: dict[int, str]


# Constants may go together while the quadratic model predicts a cost below so many nats over all rows.
BULK_NATS = 0.5
STOP_NATS = 0.3
# How many of the least missed constants are tried where cutting the first one costs.
N_CANDIDATES = 3
# A bulk cut that really costs more than this is taken back and tried smaller.
ACTUAL_NATS = 2.0


def eliminate(
    fit: Fit, theta: np.ndarray, *, stop_nats: float = STOP_NATS, singly: bool = True
) -> list[Constants]:
    """Return the path of ever fewer constants, the converged start first; zeros stay zero.

    It ends where one more cut costs ``stop_nats`` per row and, unless constants go ``singly``, where none is free.
    """
    theta, loss = fit.converge(theta, np.flatnonzero(theta), max_iterations=20)
    path = [Constants(theta, loss, np.flatnonzero(theta), {})]
    while len(path[-1].free) and not fit.should_stop():
        here = path[-1]
        inverse = _inverse(fit.hessian(here.theta, here.free, fast=True))
        cut = _bulk(fit, here, inverse)
        if cut is None and not singly:
            break
        cut = cut or _single(fit, here, inverse)
        if fit.nats(cut.loss) - fit.nats(here.loss) > stop_nats:
            break
        path.append(cut)
    return path


def _bulk(fit: Fit, here: Constants, inverse: np.ndarray) -> Constants | None:
    """A cut of several constants at once that costs next to nothing, if there is one.

    The quadratic model lets constants go one by one: which, at which cost, and where the rest moves.
    """
    values, alive = here.theta[here.free].copy(), np.ones(len(here.free), bool)
    order, costs, guesses = [], [], []
    for _ in range(len(here.free)):
        worth = np.where(alive, values**2 / (2 * np.maximum(np.diag(inverse), 1e-300)), np.inf)
        place = int(np.argmin(worth))
        column = inverse[:, place] / inverse[place, place]
        values = values - column * values[place]
        inverse = inverse - np.outer(column, inverse[place])
        alive[place] = False
        values[~alive] = 0.0
        order.append(here.free[place])
        costs.append(worth[place])
        guesses.append(values)
    n = min(int(np.sum(np.cumsum(costs) < BULK_NATS / fit.n_rows)), max(2, len(here.free) // 3))
    while n > 1:
        guess = here.theta.copy()
        guess[here.free] = guesses[n - 1]
        cut = _without(fit, here, np.array(order[:n]), guess)
        if fit.nats(cut.loss) - fit.nats(here.loss) < ACTUAL_NATS / fit.n_rows:
            return cut
        n //= 2
    return None


def _single(fit: Fit, here: Constants, inverse: np.ndarray) -> Constants:
    worth = here.theta[here.free] ** 2 / (2 * np.diag(inverse))
    tried = []
    for place in np.argsort(worth)[:N_CANDIDATES]:
        guess = here.theta.copy()
        guess[here.free] -= inverse[:, place] * here.theta[here.free[place]] / inverse[place, place]
        tried.append(_without(fit, here, here.free[[place]], guess))
        if fit.nats(tried[-1].loss) - fit.nats(here.loss) < BULK_NATS / fit.n_rows:
            break
    return min(tried, key=lambda cut: cut.loss)


def _inverse(hessian: np.ndarray) -> np.ndarray:
    """The inverse of a matrix whose small and negative eigenvalues are raised."""
    if not np.all(np.isfinite(hessian)):
        return np.eye(len(hessian))
    values, vectors = np.linalg.eigh(hessian)
    return np.linalg.inv((vectors * np.maximum(values, 1e-9 * max(values.max(), 1e-30))) @ vectors.T)


def _without(fit: Fit, here: Constants, gone: np.ndarray, guess: np.ndarray) -> Constants:
    left = np.setdiff1d(here.free, gone)
    plain, moved = here.theta.copy(), guess.copy()
    plain[gone] = moved[gone] = 0.0
    start = moved if fit.loss(moved) < fit.loss(plain) else plain
    found, loss = fit.converge(start, left, max_iterations=5, fast=True)
    return Constants(found, loss, left, {})


# A snap may cost so many nats over all rows: the 95 % point of half a chi-square with one degree of freedom.
BUDGET_NATS = 1.92
# A value known no better than this says nothing about its neighbours: it is left as it is.
LARGEST_RELATIVE_ERROR = 0.1
# Numerator plus twice the denominator of the least simple fraction: beyond, some fraction is always near.
LARGEST_COST = 14
_SPECIAL = {"ln 2": np.log(2), "pi": np.pi, "2 pi": 2 * np.pi, "pi/2": np.pi / 2}
# A special number must be hit this well, relative: without that, one of them would often be near by chance.
SPECIAL_ERROR = 0.005


def simple_values(value: float, error: float) -> list[tuple[str, float]]:
    """Return simple values within two standard errors of ``value``, the simplest first."""
    reach = max(2 * error, 1e-9 * abs(value))  # without noise the error is rounding alone
    found: list[tuple[int, str, float]] = []
    for denominator in range(1, 6):
        fraction = Fraction(round(value * denominator), denominator)
        cost = abs(fraction.numerator) + 2 * denominator
        simple = fraction.denominator == denominator and fraction and cost <= LARGEST_COST
        if simple and abs(float(fraction) - value) <= reach:
            found.append((cost, str(fraction), float(fraction)))
    signed = ((sign + label, float(f"{sign}1") * v) for label, v in _SPECIAL.items() for sign in ("", "-"))
    for label, special in signed:
        if abs(special - value) <= reach and error <= SPECIAL_ERROR * abs(special):
            found.append((LARGEST_COST, label, special))
    return [(label, number) for _, label, number in sorted(found)]


def snap(fit: Fit, theta: np.ndarray, free: np.ndarray, *, budget: float = BUDGET_NATS) -> Constants:
    """Set constants to simple values one after the other, the best known first, refitting the rest each time.

    A snap is kept only where the constant lies within two standard errors of the simple value and all snaps
    together have cost no more than ``budget`` nats over all rows.
    """
    loss = fit.loss(theta)
    allowed = fit.nats(loss) + budget / fit.n_rows
    labels: dict[int, str] = {}
    errors, known = fit.standard_errors(theta, free), np.eye(len(theta))
    known[np.ix_(free, free)] = fit.hessian(theta, free)
    for index in sorted(free, key=lambda i: errors[i] / max(abs(theta[i]), 1e-300)):
        if fit.should_stop():
            break
        if not errors[index] <= LARGEST_RELATIVE_ERROR * abs(theta[index]):
            continue
        for label, number in simple_values(float(theta[index]), float(errors[index]))[:3]:
            trial = theta.copy()
            trial[index] = number
            left = free[free != index]
            trial, trial_loss = fit.converge(trial, left, max_iterations=15, known=known)
            if fit.nats(trial_loss) <= allowed:
                theta, loss, free, labels[index] = trial, trial_loss, left, label
                break
    return Constants(theta, loss, free, labels)


def fix_gauge(fit: Fit, theta: np.ndarray, free: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Fix constants that the loss cannot tell apart (a scale given twice), to zero or one where that is free.

    Returns constants and the indices that stay free; their information matrix is then regular.
    """
    while len(free) and not fit.should_stop():
        hessian = fit.hessian(theta, free)
        if not np.all(np.isfinite(hessian)):  # a step aside leaves the range of the model
            break
        scale = np.sqrt(np.maximum(np.diag(hessian), 1e-300))
        values, vectors = np.linalg.eigh(hessian / np.outer(scale, scale))
        if values[0] > 1e-9:
            break
        redundant = free[int(np.argmax(np.abs(vectors[:, 0] / scale) * (np.abs(theta[free]) + 1e-12)))]
        left = free[free != redundant]
        loss = fit.loss(theta)
        for number in (0.0, np.sign(theta[redundant]), theta[redundant]):
            trial = theta.copy()
            trial[redundant] = number
            trial, trial_loss = fit.converge(trial, left, fast=True)
            if fit.nats(trial_loss) <= fit.nats(loss) + 1e-6:
                theta = trial
                break
        free = left
    return theta, free

"""Shorter formulas: constants cut a few at a time, the least missed first, and the others set to simple values.

What a constant is worth is read off the Hessian (optimal brain surgeon: ``theta^2 / (2 H^-1_ii)``), updated in closed
form as constants go; the actual cost after the refit decides. The path from full to empty is the accuracy-complexity
front of one structure.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from isr.formulas.refit import Fit


class Cut(NamedTuple):
    """One point of the path: the constants, zero where cut, their loss, and the indices of those left."""

    theta: np.ndarray
    loss: float
    free: np.ndarray


# Constants may go together while the quadratic model predicts a cost below so many nats over all rows.
BULK_NATS = 0.5
STOP_NATS = 0.3
# How many of the least missed constants are tried where cutting the first one costs.
N_CANDIDATES = 3
# A bulk cut that really costs more than this is taken back and tried smaller.
ACTUAL_NATS = 2.0


def eliminate(
    fit: Fit,
    theta: np.ndarray,
    *,
    stop_nats: float = STOP_NATS,
    singly: bool = True,
    should_stop: Callable[[], bool] = bool,
) -> list[Cut]:
    """Return the path of ever fewer constants, the converged start first; zeros stay zero.

    It ends where one more cut costs ``stop_nats`` per row, where ``should_stop`` says so and, unless constants may go
    ``singly``, where nothing more can go for free.
    """
    theta, loss = fit.converge(theta, np.flatnonzero(theta), max_iterations=20)
    path = [Cut(theta, loss, np.flatnonzero(theta))]
    while len(path[-1].free) and not should_stop():
        cut = _bulk(fit, path[-1])
        if cut is None and not singly:
            break
        cut = cut or _single(fit, path[-1])
        if fit.nats(cut.loss) - fit.nats(path[-1].loss) > stop_nats:
            break
        path.append(cut)
    return path


def _bulk(fit: Fit, here: Cut) -> Cut | None:
    """Return a cut of several constants at once that costs next to nothing, if there is one."""
    order, costs, guesses = _plan(fit, here)
    budget = BULK_NATS / fit.n_rows
    n = min(int(np.sum(np.cumsum(costs) < budget)), max(2, len(here.free) // 3))
    while n > 1:
        cut = _without(fit, here, order[:n], guesses[n - 1])
        if fit.nats(cut.loss) - fit.nats(here.loss) < ACTUAL_NATS / fit.n_rows:
            return cut
        n //= 2
    return None


def _single(fit: Fit, here: Cut) -> Cut:
    hessian = _regular(fit.hessian(here.theta, here.free, fast=True))
    inverse = np.linalg.inv(hessian)
    worth = here.theta[here.free] ** 2 / (2 * np.diag(inverse))
    tried = []
    for place in np.argsort(worth)[:N_CANDIDATES]:
        guess = here.theta.copy()
        guess[here.free] -= inverse[:, place] * here.theta[here.free[place]] / inverse[place, place]
        tried.append(_without(fit, here, here.free[[place]], guess))
        if fit.nats(tried[-1].loss) - fit.nats(here.loss) < BULK_NATS / fit.n_rows:
            break
    return min(tried, key=lambda cut: cut.loss)


def _plan(fit: Fit, here: Cut) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """Return the order in which the quadratic model lets constants go, each one's cost and where the rest moves."""
    inverse = np.linalg.inv(_regular(fit.hessian(here.theta, here.free, fast=True)))
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
        guess = here.theta.copy()
        guess[here.free] = values
        order.append(here.free[place])
        costs.append(worth[place])
        guesses.append(guess)
    return np.array(order), np.array(costs), guesses


def _regular(hessian: np.ndarray) -> np.ndarray:
    """Return the matrix with its small and negative eigenvalues raised, so that it has an inverse."""
    if not np.all(np.isfinite(hessian)):
        return np.eye(len(hessian))
    values, vectors = np.linalg.eigh(hessian)
    return (vectors * np.maximum(values, 1e-9 * max(values.max(), 1e-30))) @ vectors.T


def _without(fit: Fit, here: Cut, gone: np.ndarray, guess: np.ndarray) -> Cut:
    left = np.setdiff1d(here.free, gone)
    plain, moved = here.theta.copy(), guess.copy()
    plain[gone] = moved[gone] = 0.0
    start = moved if fit.loss(moved) < fit.loss(plain) else plain
    found, loss = fit.converge(start, left, max_iterations=5, fast=True)
    return Cut(found, loss, left)


# A snap may cost so many nats over all rows: the 95 % point of half a chi-square with one degree of freedom.
BUDGET_NATS = 1.92
# A value known no better than this says nothing about its neighbours: it is left as it is.
LARGEST_RELATIVE_ERROR = 0.1
# Numerator plus twice the denominator of the least simple fraction: beyond, some fraction is always near.
LARGEST_COST = 14
_SPECIAL = {"ln 2": np.log(2), "pi": np.pi, "2 pi": 2 * np.pi, "pi/2": np.pi / 2}
# A special number must be hit this well, relative: without that, one of them would often be near by chance.
SPECIAL_ERROR = 0.005


class Snapped(NamedTuple):
    """Constants after snapping, their loss, the indices of those still fitted, and what the others were set to."""

    theta: np.ndarray
    loss: float
    free: np.ndarray
    labels: dict[int, str]


def simple_values(value: float, error: float) -> list[tuple[str, float]]:
    """Return simple values within two standard errors of ``value``, the simplest first."""
    reach = max(2 * error, 1e-9 * abs(value))  # without noise the error is rounding alone
    found: list[tuple[int, str, float]] = []
    for denominator in range(1, 6):
        numerator = round(value * denominator)
        fraction = Fraction(numerator, denominator)
        cost = abs(numerator) + 2 * denominator
        simple = fraction.denominator == denominator and numerator and cost <= LARGEST_COST
        if simple and abs(float(fraction) - value) <= reach:
            found.append((cost, str(fraction), float(fraction)))
    for label, special in _SPECIAL.items():
        for sign, name in ((1, label), (-1, f"-{label}")):
            if abs(sign * special - value) <= reach and error <= SPECIAL_ERROR * special:
                found.append((LARGEST_COST, name, sign * special))
    return [(label, number) for _, label, number in sorted(found)]


def snap(fit: Fit, theta: np.ndarray, free: np.ndarray, *, budget: float = BUDGET_NATS) -> Snapped:
    """Set constants to simple values one after the other, the best known first, refitting the rest each time.

    A snap is kept only where the constant lies within two standard errors of the simple value and all snaps
    together have cost no more than ``budget`` nats over all rows.
    """
    loss = fit.loss(theta)
    allowed = fit.nats(loss) + budget / fit.n_rows
    labels: dict[int, str] = {}
    errors = fit.standard_errors(theta, free)
    for index in sorted(free, key=lambda i: errors[i] / max(abs(theta[i]), 1e-300)):
        if fit.should_stop():
            break
        if not errors[index] <= LARGEST_RELATIVE_ERROR * abs(theta[index]):
            continue
        for label, number in simple_values(float(theta[index]), float(errors[index]))[:3]:
            trial = theta.copy()
            trial[index] = number
            left = free[free != index]
            trial, trial_loss = fit.converge(trial, left, max_iterations=15)
            if fit.nats(trial_loss) <= allowed:
                theta, loss, free, labels[index] = trial, trial_loss, left, label
                break
    return Snapped(theta, loss, free, labels)


def fix_gauge(fit: Fit, theta: np.ndarray, free: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Fix constants that the loss cannot tell apart (a scale given twice), to zero or one where that is free.

    Returns constants and the indices that stay free; their information matrix is then regular.
    """
    while len(free) and not fit.should_stop():
        hessian = fit.hessian(theta, free)
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
            trial, trial_loss = fit.converge(trial, left)
            if fit.nats(trial_loss) <= fit.nats(loss) + 1e-6:
                theta = trial
                break
        free = left
    return theta, free

"""Snapping: constants set to simple values where the data cannot tell the difference."""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

import numpy as np

from isr.formulas.refit import Fit

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

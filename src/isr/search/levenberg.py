"""Levenberg–Marquardt for the constants of an expression, in double, and their covariance."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from isr.search.evaluate import Opened

# How damping changes, where it starts and ends. A start of 0.1 holds back forms nearly linear in their numbers.
RISE, FALL, START, MOST = 3.0, 0.1, 1e-3, 1e8
# A step that gains less than this share ends a fit, unless damping above this held it back.
SMALL, FREE = 1e-7, 1e-6


def refit(
    law: Opened,
    columns: Sequence[np.ndarray],
    y: np.ndarray,
    root: np.ndarray,
    constants: np.ndarray | None = None,
    *,
    iterations: int = 30,
) -> tuple[np.ndarray, float]:
    """Return constants that minimise the weighted squares, from those of the law or those given, and that minimum.

    Example:
        >>> from isr.search.evaluate import opened, symbol
        >>> x, t = symbol("x"), np.linspace(0, 3, 50)
        >>> law = opened(1.5 * (0.9 * x).func(0.9, x), [x])
        >>> refit(law, [t], 2.0 * t, np.ones(50))[1] < 1e-20
        True
    """
    c = law.constants if constants is None else constants
    gaps, slopes, loss = _state(law, columns, y, root, c)
    damping = START
    if not np.isfinite(loss):
        return c, np.inf
    for _ in range(iterations if len(c) else 0):
        trial = c - _step(slopes, gaps, damping)
        new = _state(law, columns, y, root, trial)
        if new[2] < loss:
            is_done = new[2] > loss * (1 - SMALL)
            c, (gaps, slopes, loss) = trial, new
            if is_done and damping <= FREE:
                break
            damping = FREE if is_done else damping * FALL
        elif damping > MOST:
            break
        else:
            damping *= RISE
    return c, loss


def covariance(
    law: Opened, columns: Sequence[np.ndarray], root: np.ndarray, constants: np.ndarray
) -> np.ndarray:
    """Return the covariance of constants for residuals of unit weight; infinite where the rows leave them open."""
    slopes = (law.duals(columns, constants)[1] * root).T
    n, k = slopes.shape
    size = np.sqrt(np.sum(slopes**2, axis=0))
    if not np.all(np.isfinite(slopes)) or not np.all(size > 0) or n < k:
        return np.full((k, k), np.inf)
    r = np.linalg.qr(slopes / size, mode="r")
    if np.min(np.abs(np.diag(r)), initial=1.0) < 1e-11:
        return np.full((k, k), np.inf)
    inverse = np.linalg.inv(r)
    return inverse @ inverse.T / np.outer(size, size)


def _state(law: Opened, columns: Sequence[np.ndarray], y: np.ndarray, root: np.ndarray, c: np.ndarray):
    with np.errstate(all="ignore"):
        values, slopes = law.duals(columns, c)
        gaps, slopes = (values - y) * root, slopes * root
        loss = float(gaps @ gaps)
    is_fine = np.isfinite(loss) and np.isfinite(slopes).all()
    return gaps, slopes, loss if is_fine else np.inf


def _step(slopes: np.ndarray, gaps: np.ndarray, damping: float) -> np.ndarray:
    size = np.sqrt(np.einsum("kn,kn->k", slopes, slopes)) + 1e-140  # squares of smaller slopes are zero
    scaled = slopes / size[:, None]
    normal = scaled @ scaled.T + (damping + 1e-14) * np.eye(len(size))
    return np.linalg.solve(normal, scaled @ gaps) / size

"""Levenberg–Marquardt for the constants of an expression, many starts side by side, in double."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from isr.search.evaluate import Opened

RISE, FALL, MOST = 5.0, 0.2, 1e8


def refit(
    law: Opened,
    columns: Sequence[np.ndarray],
    y: np.ndarray,
    root: np.ndarray,
    starts: np.ndarray | None = None,
    *,
    iterations: int = 30,
) -> tuple[np.ndarray, np.ndarray]:
    """Return constants (starts, k) that minimise the weighted squares, and those sums of squares.

    Args:
        law: The expression.
        columns: Rows of each variable.
        y: What to meet.
        root: Square root of each row's weight.
        starts: Constants to start from; those of the expression when None.
        iterations: Steps at most.

    Example:
        >>> from isr.search.evaluate import opened, symbol
        >>> x, t = symbol("x"), np.linspace(0, 3, 50)
        >>> law = opened(1.5 * (0.9 * x).func(0.9, x), [x])
        >>> float(refit(law, [t], 2.0 * t, np.ones(50))[1][0]) < 1e-20
        True
    """
    c = np.array(law.constants[None] if starts is None else starts, dtype=float)
    if not c.shape[1]:
        gap = root * (law.values(columns) - y)
        return c, np.array([gap @ gap])
    gaps, slopes, loss = _state(law, columns, y, root, c)
    damping = np.full(len(c), 1e-4)
    active = np.isfinite(loss)
    loss = np.where(active, loss, np.inf)
    for _ in range(iterations):
        if not active.any():
            break
        trial = c[active] - _steps(slopes[active], gaps[active], damping[active])
        new = _state(law, columns, y, root, trial)
        better = new[2] < loss[active]
        index = np.flatnonzero(active)
        small = new[2] > loss[active] * (1 - 1e-9)
        won = index[better]
        c[won], gaps[won], slopes[won] = trial[better], new[0][better], new[1][better]
        active[index[(better & small) | (damping[active] > MOST)]] = False
        loss[won] = new[2][better]
        damping[won] *= FALL
        damping[index[~better]] *= RISE
    return c, loss


def covariance(
    law: Opened, columns: Sequence[np.ndarray], root: np.ndarray, constants: np.ndarray
) -> np.ndarray:
    """Return the covariance of constants for residuals of unit weight; infinite where the rows leave them open."""
    if not len(constants):
        return np.zeros((0, 0))
    slopes = law.duals(columns, constants[None])[1][0] * root[:, None]
    size = np.sqrt(np.sum(slopes**2, axis=0))
    if not np.all(np.isfinite(slopes)) or not np.all(size > 0) or len(slopes) < len(size):
        return np.full((len(size), len(size)), np.inf)
    r = np.linalg.qr(slopes / size, mode="r")
    if np.min(np.abs(np.diag(r))) < 1e-11:
        return np.full((len(size), len(size)), np.inf)
    inverse = np.linalg.inv(r)
    return inverse @ inverse.T / np.outer(size, size)


def _state(law: Opened, columns: Sequence[np.ndarray], y: np.ndarray, root: np.ndarray, c: np.ndarray):
    values, slopes = law.duals(columns, c)
    gaps, slopes = (values - y) * root, slopes * root[:, None]
    with np.errstate(all="ignore"):
        loss = np.einsum("sn,sn->s", gaps, gaps)
    fine = np.isfinite(loss) & np.isfinite(slopes).all(axis=(1, 2))
    return gaps, slopes, np.where(fine, loss, np.inf)


def _steps(slopes: np.ndarray, gaps: np.ndarray, damping: np.ndarray) -> np.ndarray:
    size = np.sqrt(np.einsum("snk,snk->sk", slopes, slopes)) + 1e-300
    scaled = slopes / size[:, None, :]
    normal = np.einsum("snk,snl->skl", scaled, scaled)
    normal = normal + (damping[:, None] + 1e-14)[:, :, None] * np.eye(normal.shape[-1])
    right = np.einsum("snk,sn->sk", scaled, gaps)
    return np.linalg.solve(normal, right[:, :, None])[:, :, 0] / size

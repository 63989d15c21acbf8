"""The normal law of columns with as few correlations as BIC asks for."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from isr.bijections.affine import LOG_SQRT_2PI, Linear
from isr.bijections.parameters import on_device


def find_normal(z: Float[np.ndarray, "n d"]) -> tuple[Linear, float]:
    """Return what makes columns of mean zero independent and standard, each by a few of those before it, and its price.

    Example:
        >>> z = np.random.default_rng(0).normal(size=(1000, 3))
        >>> z[:, 2] += 2 * z[:, 0]
        >>> find_normal(z)[0].matrix.round(0).tolist()
        [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [-2.0, 0.0, 1.0]]
    """
    n, d = z.shape
    matrix, price = np.zeros((d, d)), 0.0
    for i in range(d):
        chosen = _regressors(z[:, :i], z[:, i])
        slopes = np.linalg.lstsq(z[:, chosen], z[:, i], rcond=None)[0] if chosen else np.zeros(0)
        width = max(float(np.sqrt(np.mean((z[:, i] - z[:, chosen] @ slopes) ** 2))), 1e-9)
        matrix[i, i] = 1 / width
        matrix[i, chosen] = -slopes / width
        price += n * (np.log(width) + 0.5 + LOG_SQRT_2PI) + 0.5 * np.log(n) * (len(chosen) + 1)
    return Linear(on_device(matrix)), price


def _regressors(a: np.ndarray, b: np.ndarray) -> list[int]:
    """Columns added one by one while BIC gains."""
    n, chosen, rest = len(b), [], b
    deviance = n * np.log(max(float(b @ b), 1e-300))
    orthogonal = a.copy()
    while len(chosen) < min(a.shape[1], n // 3):
        sizes = np.sqrt(np.sum(orthogonal**2, axis=0))
        usable = sizes > 1e-6 * np.sqrt(np.sum(a**2, axis=0))
        gains = np.where(usable, np.abs(rest @ orthogonal) / np.maximum(sizes, 1e-300), 0.0)
        best = int(np.argmax(gains))
        direction = orthogonal[:, best] / max(sizes[best], 1e-300)
        left = rest - direction * (direction @ rest)
        lower = n * np.log(max(float(left @ left), 1e-300))
        if gains[best] == 0 or lower > deviance - np.log(n):
            break
        chosen.append(best)
        rest, deviance = left, lower
        orthogonal -= np.outer(direction, direction @ orthogonal)
    return sorted(chosen)

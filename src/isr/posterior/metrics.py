"""Distances between sets of draws, and between draws and their target.

Draws are rows: ``(n, dim)``. Where a function takes leading axes, ``(targets, n, dim)``, it returns one figure per
target. No draw is ever removed: a non-finite draw makes a non-finite figure.
"""

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import ArrayLike

SCALES = (0.05, 0.2, 0.9)
"""Widths of the default MMD kernel."""


def mmd2(
    x: ArrayLike, y: ArrayLike, *, unbiased: bool = True, scales: Sequence[float] = SCALES
) -> Float[np.ndarray, "..."]:
    """Return the squared maximum mean discrepancy for the kernel ``Σ_a a² / (a² + |x - y|²)`` with widths ``scales``.

    The unbiased estimator leaves out the pairs of a draw with itself, has mean zero for equal laws and may be
    negative; the biased one keeps them, which adds about ``k(0) (1/n + 1/m)``. Leading axes, ``(..., n, dim)``, are
    targets.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> x, y = rng.normal(size=(2, 200, 3))
        >>> bool(abs(mmd2(x, y)) < 0.02)
        True
    """
    wanted = np.float64 if jax.config.read("jax_enable_x64") else np.float32
    x, y = np.asarray(x, dtype=wanted), np.asarray(y, dtype=wanted)
    if x.ndim < 2 or x.shape[:-2] != y.shape[:-2] or x.shape[-1] != y.shape[-1]:
        raise ValueError(f"x and y must be (..., n, dim) and (..., m, dim), got {x.shape} and {y.shape}")
    if unbiased and min(x.shape[-2], y.shape[-2]) < 2:
        raise ValueError("the unbiased estimator needs at least two draws on each side")
    flat_x, flat_y = x.reshape(-1, *x.shape[-2:]), y.reshape(-1, *y.shape[-2:])
    return np.asarray(_mmd2_targets(flat_x, flat_y, unbiased, tuple(map(float, scales)))).reshape(
        x.shape[:-2]
    )


@partial(jax.jit, static_argnums=(2, 3))
def _mmd2_targets(
    x: Float[Array, "t n d"], y: Float[Array, "t m d"], unbiased: bool, scales: tuple[float, ...]
) -> Float[Array, " t"]:
    n, m, own = x.shape[1], y.shape[1], float(len(scales)) if unbiased else 0.0
    pairs = (n * (n - 1), m * (m - 1)) if unbiased else (n**2, m**2)

    def kernel_sum(x: Array, y: Array) -> Array:
        def row(point: Array) -> Array:
            # One row at a time keeps the memory at m; differences, not a Gram matrix, keep small distances accurate.
            d2 = jnp.sum((point[:, None] - y.T) ** 2, axis=0)
            return jnp.sum(jnp.stack([a * a / (a * a + d2) for a in scales]))

        return jnp.sum(jax.lax.map(row, x, batch_size=64))

    def one(pair: tuple[Array, Array]) -> Array:
        x, y = pair
        # Unbiased without the pairs of a draw with itself, whose kernel is the number of scales.
        xx, yy = kernel_sum(x, x) - n * own, kernel_sum(y, y) - m * own
        return xx / pairs[0] + yy / pairs[1] - 2 * kernel_sum(x, y) / (n * m)

    return jax.lax.map(one, (x, y))


def resimulation_error(
    samples: ArrayLike, y_star: ArrayLike, simulator: Callable[[np.ndarray], Any]
) -> Float[np.ndarray, "..."]:
    """Return the mean squared distance of simulated draws from their target, ``E |f(x) - y*|²``.

    Leading axes, ``(..., n, dim)`` of the draws and ``(..., dim_y)`` of ``y_star``, are targets. The simulator takes
    rows of parameters and gives rows of noise-free observations; complex columns count as real and imaginary parts.

    Example:
        >>> float(resimulation_error(np.array([[1.0], [3.0]]), [2.0], lambda x: x))
        1.0
    """
    samples, target = np.asarray(samples, dtype=float), np.asarray(y_star, dtype=float)
    if target.shape[:-1] != samples.shape[:-2]:
        raise ValueError(f"y_star {target.shape} must have the leading axes of samples {samples.shape}")
    rows, width = samples.reshape(-1, samples.shape[-1]), target.shape[-1]
    finite = np.isfinite(rows).all(axis=1)
    found = np.asarray(simulator(rows[finite]))
    found = found.astype(complex).view(float) if np.iscomplexobj(found) else found
    if found.size != finite.sum() * width:
        raise ValueError(
            f"the simulator made an array of shape {found.shape} of {finite.sum()} rows; expected one row each, with "
            f"{width} columns"
        )
    simulated = np.full((len(rows), width), np.nan)
    simulated[finite] = found.reshape(-1, width)
    simulated = simulated.reshape(*samples.shape[:-1], width)
    return np.mean(np.sum((simulated - target[..., None, :]) ** 2, axis=-1), axis=-1)


def c2st(x: ArrayLike, y: ArrayLike, *, classifier: Any = None, random_state: int = 0) -> float:
    """Return the cross-validated accuracy of a classifier that tells ``x`` from ``y``: 0.5 alike, 1 apart.

    Both sides are scaled by the mean and standard deviation of ``x``, the reference; a side with more draws is
    thinned, so that guessing scores one half. The classifier is any of scikit-learn's, a network with two hidden layers
    of ten times ``dim`` if left out.

    Example:
        >>> from sklearn.linear_model import LogisticRegression
        >>> rng = np.random.default_rng(0)
        >>> x, y = rng.normal(size=(200, 2)), rng.normal(9.0, 1.0, size=(200, 2))
        >>> c2st(x, y, classifier=LogisticRegression())
        1.0
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.model_selection import StratifiedKFold, cross_val_score
    from sklearn.neural_network import MLPClassifier
    from threadpoolctl import threadpool_limits

    rng = np.random.default_rng(random_state)
    x, y = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    size, width = min(len(x), len(y)), 10 * x.shape[1]
    x, y = rng.permutation(x)[:size], rng.permutation(y)[:size]
    scale = np.where(x.std(axis=0) > 0, x.std(axis=0), 1.0)
    data = (np.concatenate([x, y]) - x.mean(axis=0)) / scale
    labels = np.repeat([0, 1], size)
    folds = StratifiedKFold(5, shuffle=True, random_state=random_state)
    network = MLPClassifier((width, width), max_iter=200, early_stopping=True, random_state=random_state)
    # Nets this small run slower on many threads than on one.
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore", ConvergenceWarning)
        return float(
            np.mean(cross_val_score(network if classifier is None else classifier, data, labels, cv=folds))
        )

"""A curve without a form, against which a law must be shorter: otherwise it goes between rows, and explains nothing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from isr.inversion.law import Law
from isr.search.candidates import price
from isr.search.surrogate import polynomial_features

# Terms of the curve, and by how much a degree more shrinks them, and how large they are as a share of the spread.
MOST_TERMS, SHRINKING, SIZES = 120, (0.1, 0.2, 0.35, 0.5, 0.7), (0.3, 1.0, 3.0)
# Residuals count no more than this; a law is an interpolation where it is so many nats longer than the curve.
CLIP, LONGER = 4.0, 5.0


def curve_length(
    x: Float[np.ndarray, "n d"], y: Float[np.ndarray, " n"], sd: Float[np.ndarray, " n"]
) -> float:
    """Return how many nats it takes to tell a column, known up to noise, by a polynomial of unknown coefficients.

    That is minus the log-evidence of coefficients that are normal and shrink with their degree, at the best shrinking.

    Example:
        >>> x = np.random.default_rng(0).uniform(1, 3, size=(300, 1))
        >>> noise = np.random.default_rng(1).normal(size=300)
        >>> short, long = (curve_length(x, np.sin(k * x[:, 0]) + 0.1 * noise, np.full(300, 0.1)) for k in (1, 9))
        >>> bool(short < long)
        True
    """
    features, degrees = polynomial_features(x, MOST_TERMS)
    features, target = features / sd[:, None], (y - np.mean(y)) / sd
    gram, right = features.T @ features, features.T @ target
    lengths = []
    for size in np.std(y) * np.array(SIZES):
        for shrinking in SHRINKING:
            scale = size * shrinking**degrees
            # Not by Cholesky: where noise all but vanishes in some rows, rounding leaves no positive definite matrix.
            values, vectors = np.linalg.eigh(gram * np.outer(scale, scale))
            values = 1.0 + np.maximum(values, 0.0)
            weights = vectors @ (vectors.T @ (right * scale) / values)
            gap = target - features @ (scale * weights)
            lengths.append(0.5 * float(gap @ gap + weights @ weights + np.sum(np.log(values))))
    return min(lengths)


def interpolations(
    law: Law, x: Float[np.ndarray, "n d"], y: Float[np.ndarray, "n d_y"], known: Sequence[str] = ()
) -> list[str]:
    """Return a sentence for each column whose law is longer, rows and form together, than a curve without a form."""
    said, (means, sizes) = [], law.parts(x)
    for column, mean, size in zip(law.columns, means, sizes, strict=True):
        read = [law.x_names.index(name) for name in column.mean.variables]
        if column.name in known or column.is_exact or column.is_count or not read:
            continue
        gap = (np.asarray(column.transformed(y[:, column.index])) - mean) / size
        gap = np.clip(gap / max(float(np.sqrt(np.mean(gap**2))), 1.0), -CLIP, CLIP)
        own = price(column.mean.expression, len(x)) + 0.5 * float(gap @ gap)
        other = curve_length(x[:, read], mean + gap * size, size)
        if own > other + LONGER:
            said.append(
                f"the law of {column.name} is {own - other:.0f} nats longer than a curve without a form: it goes "
                "between the rows and explains nothing"
            )
    return said

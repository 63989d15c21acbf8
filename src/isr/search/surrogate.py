"""A surrogate: a polynomial of a few hundred terms through the rows, for slopes and for asking what y depends on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations

import numpy as np
from numpy.polynomial import legendre
from scipy.stats import f as f_distribution
from scipy.stats import norm

MOST_FEATURES = 160
HIGHEST = 10
# Errors of the two best polynomials this near are noise, where they are more than rounding.
LEVEL, ROUNDING = 0.85, 1e-6
# Columns of one sign that change by more than this factor are looked at in logarithms.
WIDE, VERY_WIDE = 1.5, 30.0


@lru_cache(maxsize=32)
def _terms(k: int, most: int) -> tuple[tuple[int, ...], ...]:
    """Degrees of the terms of the largest total degree that fits."""
    found: list[tuple[int, ...]] = [(0,) * k]
    for degree in range(1, HIGHEST + (6 if k == 1 else 0) + 1):
        level = []
        for bars in combinations(range(degree + k - 1), k - 1):
            edges = (-1, *bars, degree + k - 1)
            level.append(tuple(edges[i + 1] - edges[i] - 1 for i in range(k)))
            if len(found) + len(level) > most:
                return tuple(found)
        found += level
    return tuple(found)


@dataclass(frozen=True, eq=False)
class Surrogate:
    """A polynomial fitted by least squares.

    Args:
        error: Weighted root mean square of what it leaves of rows that it has not seen.
        values: At the rows.
        slopes: By each column, at the rows (n, k).
        is_noisy: Whether more terms explain no more, though they leave more than rounding.
    """

    error: float
    values: np.ndarray
    slopes: np.ndarray | None = None
    is_noisy: bool = False


def best_surrogate(columns: np.ndarray, target: np.ndarray, root: np.ndarray) -> Surrogate:
    """Return the better of a polynomial for a target and one for the logarithm of its size, with slopes."""
    plain = surrogate(columns, target, root, slopes=True)
    if not (np.all(target > 0) or np.all(target < 0)):
        return plain
    size = np.abs(target)
    logs = surrogate(columns, np.log(size), root * size, slopes=True)
    if logs.slopes is None or logs.error >= plain.error:
        return plain
    values = np.sign(target) * np.exp(np.clip(logs.values, -600, 600))
    return replace(logs, values=values, slopes=logs.slopes * values[:, None])


def surrogate(
    columns: np.ndarray,
    target: np.ndarray,
    root: np.ndarray,
    *,
    slopes: bool = False,
    most: int = MOST_FEATURES,
    both: bool = False,
) -> Surrogate:
    """Return a polynomial through rows, its error by leaving each out in turn.

    It is one of logarithms where columns are wide; ``both`` asks for the better of that and one without.

    Example:
        >>> x = np.random.default_rng(0).uniform(1, 3, size=(300, 2))
        >>> found = surrogate(x, x[:, 0] * np.exp(x[:, 1]), np.ones(300), slopes=True)
        >>> found.error < 1e-4, bool(np.allclose(found.slopes[:, 0], np.exp(x[:, 1]), rtol=1e-2))
        (True, True)
    """
    scalings = (WIDE, np.inf) if both else _scalings(columns)
    found = [_fitted(columns, target, root, most, slopes, wide) for wide in scalings]
    return min(found, key=lambda s: s.error)


def _fitted(
    columns: np.ndarray, target: np.ndarray, root: np.ndarray, most: int, slopes: bool, wide: float
) -> Surrogate:
    z, dz = _scaled(columns, wide)
    k = columns.shape[1]
    best, errors = None, []
    used = root > 0
    for limit in (most // 8, most // 3, most):
        terms = np.array(_terms(k, max(2, min(limit, int(used.sum() // 3)))))
        basis, features = _features(z, terms)
        q, r = np.linalg.qr((features * root[:, None])[used])
        if not np.min(np.abs(np.diag(r))) > 1e-9 * np.abs(r[0, 0]):
            continue
        goal = (target * root)[used]
        weights = q.T @ goal
        left_out = (goal - q @ weights) / np.maximum(1 - np.sum(q * q, axis=1), 1e-3)
        errors.append(float(np.sqrt(np.mean(left_out**2))))
        if best is None or errors[-1] < best.error:
            c = np.linalg.solve(r, weights)
            best = Surrogate(errors[-1], features @ c, _slopes(basis, terms, c, dz) if slopes else None)
    if best is None:
        return Surrogate(np.inf, np.zeros(len(target)), np.zeros(columns.shape))
    is_level = len(errors) > 1 and best.error > LEVEL * sorted(errors)[1]
    return replace(best, is_noisy=is_level and best.error > ROUNDING * float(np.sqrt(np.mean(goal**2))))


def polynomial_features(columns: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Return at most so many products of Legendre polynomials of columns, or of their logarithms, and their degrees."""
    terms = np.array(_terms(columns.shape[1], most))
    return _features(_scaled(columns)[0], terms)[1], terms.sum(axis=1)


def lack_of_fit(columns: np.ndarray, gaps: np.ndarray, root: np.ndarray, *, most: int = 60) -> float:
    """Return the p-value of "what is left depends on no column".

    By an F test against a polynomial, and one on whether rows next to each other in a column leave alike, as at a jump.

    Example:
        >>> x, noise = np.random.default_rng(0).normal(size=(2, 300))
        >>> lack_of_fit(x[:, None], noise, np.ones(300)) > 0.01, lack_of_fit(x[:, None], x + noise, np.ones(300)) > 0.01
        (True, False)
    """
    features = polynomial_features(columns, max(2, min(most, len(gaps) // 8)))[0] * root[:, None]
    goal = gaps * root
    rank = np.linalg.matrix_rank(features)
    left = goal - features @ np.linalg.lstsq(features, goal, rcond=None)[0]
    free = len(gaps) - rank
    gain = max(float(goal @ goal - left @ left), 0.0) / rank
    of_polynomial = float(f_distribution.sf(gain / (float(left @ left) / free + 1e-300), rank, free))
    rest = goal - goal.mean()
    alike = 0.0
    for column in columns.T:
        ordered = rest[np.argsort(column)]
        alike = max(alike, float(ordered[1:] @ ordered[:-1] / (np.var(rest) * np.sqrt(len(rest)) + 1e-300)))
    of_neighbours = min(1.0, columns.shape[1] * float(norm.sf(alike)))
    return min(1.0, 2 * min(of_polynomial, of_neighbours))


def _scalings(columns: np.ndarray) -> tuple[float, ...]:
    """Above which width columns are looked at in logarithms; both ways are tried where they may be too wide for it."""
    size = np.abs(columns)
    return (
        (WIDE, np.inf)
        if np.any(size.max(axis=0, initial=0) > VERY_WIDE * size.min(axis=0, initial=np.inf))
        else (WIDE,)
    )


def _scaled(columns: np.ndarray, wide: float = WIDE) -> tuple[np.ndarray, np.ndarray]:
    """Columns between -1 and 1, and the slope of that map."""
    z, dz = np.empty(columns.shape), np.empty(columns.shape)
    for j, u in enumerate(columns.T):
        low, high = np.abs(u).min(), np.abs(u).max()
        is_wide = (np.all(u > 0) or np.all(u < 0)) and high > wide * low
        v, dv = (np.log(np.abs(u)), 1 / u) if is_wide else (u, np.ones(len(u)))
        width = np.ptp(v) or 1.0
        z[:, j], dz[:, j] = 2 * (v - v.min()) / width - 1, 2 * dv / width
    return z, dz


def _features(z: np.ndarray, terms: np.ndarray) -> tuple[list[np.ndarray], np.ndarray]:
    """Legendre polynomials of each column, and the products of them that terms stand for."""
    basis = [legendre.legvander(column, int(terms.max())) for column in z.T]
    return basis, np.prod([b[:, terms[:, j]] for j, b in enumerate(basis)], axis=0)


def _slopes(basis: list[np.ndarray], terms: np.ndarray, c: np.ndarray, dz: np.ndarray) -> np.ndarray:
    found = np.empty(dz.shape)
    top = basis[0].shape[1] - 1
    change = legendre.legder(np.eye(top + 1))
    for j in range(len(basis)):
        parts = [b[:, :top] @ change if i == j else b for i, b in enumerate(basis)]
        features = np.prod([part[:, terms[:, i]] for i, part in enumerate(parts)], axis=0)
        found[:, j] = features @ c * dz[:, j]
    return found

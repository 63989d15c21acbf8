"""Densities that no default was made for: what strangers bring, each with its exact log-density."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import stats
from scipy.special import logsumexp

from isr.problems.densities import Density, mixture

Draw = Callable[[int, np.random.Generator], np.ndarray]
LogProb = Callable[[np.ndarray], np.ndarray]


def _density(name: str, dim: int, sample: Draw, log_prob: LogProb) -> Density:
    """A density known by its draws and its log-density; nobody asks for its entropy."""
    return Density(name, float("nan"), None, sample, log_prob, dim)


def _columns(name: str, *laws: Any) -> Density:
    """Independent variables."""
    return _density(
        name, len(laws),
        lambda n, rng: np.column_stack([law.rvs(n, random_state=rng) for law in laws]),
        lambda x: np.sum([law.logpdf(x[..., i]) for i, law in enumerate(laws)], axis=0),
    )  # fmt: skip


def _given(name: str, *laws: Callable[..., Any]) -> Density:
    """Each variable by a SciPy law that reads those before it."""

    def sample(n: int, rng: np.random.Generator) -> np.ndarray:
        columns: list[np.ndarray] = []
        for law in laws:
            columns.append(np.asarray(law(*columns).rvs(size=n, random_state=rng)))
        return np.column_stack(columns)

    def log_prob(x: np.ndarray) -> np.ndarray:
        columns = [x[..., i] for i in range(len(laws))]
        with np.errstate(all="ignore"):
            return np.sum([law(*columns[:i]).logpdf(columns[i]) for i, law in enumerate(laws)], axis=0)

    return _density(name, len(laws), sample, log_prob)


def _along(name: str, places: np.ndarray, weights: np.ndarray, std: float, draw: Draw) -> Density:
    """Round normal noise around a curve, whose points and weights make the density a fine mixture."""

    def log_prob(x: np.ndarray) -> np.ndarray:
        parts = [
            logsumexp(-0.5 * np.sum((some[:, None] - places) ** 2, axis=2) / std**2, b=weights, axis=1)
            for some in np.array_split(np.atleast_2d(x), max(1, len(np.atleast_2d(x)) // 2000))
        ]
        return np.concatenate(parts) - np.log(2 * np.pi * std**2) - np.log(np.sum(weights))

    def sample(n: int, rng: np.random.Generator) -> np.ndarray:
        return draw(n, rng) + std * rng.standard_normal((n, 2))

    return _density(name, 2, sample, log_prob)


def _spiral() -> Density:
    def curve(t: np.ndarray) -> np.ndarray:
        return np.column_stack([0.3 * t * np.cos(t), 0.3 * t * np.sin(t)])

    t = np.linspace(np.pi / 2, 4.5 * np.pi, 2001)
    return _along(
        "spiral", curve(t), np.ones(len(t)), 0.1, lambda n, rng: curve(rng.uniform(np.pi / 2, 4.5 * np.pi, n))
    )


def _moons() -> Density:
    def curve(t: np.ndarray, lower: np.ndarray) -> np.ndarray:
        x, y = np.where(lower, 1 - np.cos(t), np.cos(t)), np.where(lower, 0.5 - np.sin(t), np.sin(t))
        return np.column_stack([x, y])

    t = np.tile(np.linspace(0, np.pi, 401), 2)
    weights = np.tile(np.where((t[:401] == 0) | (t[:401] == np.pi), 0.5, 1.0), 2)
    return _along(
        "two moons", curve(t, np.arange(802) > 400), weights, 0.1,
        lambda n, rng: curve(rng.uniform(0, np.pi, n), rng.random(n) < 0.5),
    )  # fmt: skip


def _pinwheel(arms: int = 5, twist: float = 0.25) -> Density:
    """Normal arms (radius 1 ± 0.3, width 0.1) turned by an angle that grows with the exponential of the radius."""

    def sample(n: int, rng: np.random.Generator) -> np.ndarray:
        u = rng.standard_normal((n, 2)) * (0.3, 0.1) + (1.0, 0.0)
        angle = rng.integers(arms, size=n) * 2 * np.pi / arms + twist * np.exp(u[:, 0])
        c, s = np.cos(angle), np.sin(angle)
        return 2 * np.column_stack([c * u[:, 0] - s * u[:, 1], s * u[:, 0] + c * u[:, 1]])

    def log_prob(x: np.ndarray) -> np.ndarray:
        # The turn depends on u itself; it is unwound on a grid of arms, radii by Newton's method in one variable.
        r, theta = np.hypot(x[..., 0], x[..., 1]) / 2, np.arctan2(x[..., 1], x[..., 0])
        total = np.full(r.shape, -np.inf)
        grid = np.linspace(-1.0, 1.0, 801)
        for arm in range(arms):
            # u = r (cos b, sin b) for an angle b with b + turn(r cos b) = theta modulo a whole turn
            b = np.pi * grid
            gap = (
                b
                + twist * np.exp(np.multiply.outer(r, np.cos(b)))
                + arm * 2 * np.pi / arms
                - theta[..., None]
            )
            gap = (gap + np.pi) % (2 * np.pi) - np.pi
            crosses = (gap[..., :-1] * gap[..., 1:] <= 0) & (np.abs(gap[..., :-1] - gap[..., 1:]) < np.pi)
            part = gap[..., :-1] / np.where(crosses, gap[..., :-1] - gap[..., 1:], 1.0)
            root = b[:-1] + part * (b[1] - b[0])
            a, c = r[..., None] * np.cos(root), r[..., None] * np.sin(root)
            log_p = stats.norm.logpdf(a, 1.0, 0.3) + stats.norm.logpdf(c, 0.0, 0.1)
            slope = np.abs(1 - twist * np.exp(a) * c)
            terms = np.where(crosses, log_p - np.log(np.maximum(slope, 1e-12)), -np.inf)
            total = np.logaddexp(total, logsumexp(terms, axis=-1) - np.log(arms) - np.log(4))
        return total

    def chunked(x: np.ndarray) -> np.ndarray:
        return np.concatenate([log_prob(p) for p in np.array_split(x, max(1, len(x) // 2000))])

    return _density("pinwheel", 2, sample, chunked)


def _checkerboard() -> Density:
    def sample(n: int, rng: np.random.Generator) -> np.ndarray:
        x = rng.uniform(-4, 4, size=n)
        column = np.floor(x / 2).astype(int)
        return np.column_stack([x, rng.uniform(0, 2, n) + 4 * rng.integers(0, 2, n) - 4 + 2 * (column % 2)])

    def log_prob(x: np.ndarray) -> np.ndarray:
        inside = (np.abs(x) < 4).all(-1) & ((np.floor(x[..., 0] / 2) + np.floor(x[..., 1] / 2)) % 2 == 0)
        return np.where(inside, -np.log(32.0), -np.inf)

    return _density("checkerboard", 2, sample, log_prob)


def _normals(name: str, means: Any, covariances: Any) -> Density:
    """An even mixture of normal laws."""
    parts = [stats.multivariate_normal(m, c) for m, c in zip(means, covariances, strict=True)]

    def sample(n: int, rng: np.random.Generator) -> np.ndarray:
        drawn = np.stack([part.rvs(n, random_state=rng).reshape(n, -1) for part in parts])
        return drawn[rng.integers(len(parts), size=n), np.arange(n)]

    def log_prob(x: np.ndarray) -> np.ndarray:
        return logsumexp([part.logpdf(x) for part in parts], axis=0) - np.log(len(parts))

    return _density(name, len(means[0]), sample, log_prob)


def _log_normals() -> Density:
    law = stats.multivariate_normal([0.5, 1.0], [[0.25, 0.15], [0.15, 0.36]])
    return _density(
        "log-normals", 2, lambda n, rng: np.exp(law.rvs(n, random_state=rng)),
        lambda x: law.logpdf(np.log(x)) - np.sum(np.log(x), axis=-1),
    )  # fmt: skip


def _five_normals() -> Density:
    lower = np.tril(np.random.default_rng(5).normal(size=(5, 5)), -1) * 0.6 + np.diag(
        [1.0, 0.5, 2.0, 0.8, 1.5]
    )
    return _normals("five normals", [np.arange(5.0)], [lower @ lower.T])


def _shell() -> Density:
    def sample(n: int, rng: np.random.Generator) -> np.ndarray:
        u = rng.standard_normal((n, 3))
        return (3 + 0.1 * rng.standard_normal((n, 1))) * u / np.linalg.norm(u, axis=1, keepdims=True)

    def log_prob(x: np.ndarray) -> np.ndarray:
        r = np.linalg.norm(x, axis=-1)
        return stats.norm.logpdf(r, 3, 0.1) - np.log(4 * np.pi) - 2 * np.log(r)

    return _density("shell", 3, sample, log_prob)


def _arc() -> Density:
    def sample(n: int, rng: np.random.Generator) -> np.ndarray:
        angle, r = rng.normal(0, 0.6, n), rng.normal(2, 0.1, n)
        return np.column_stack([r * np.cos(angle), r * np.sin(angle)])

    def log_prob(x: np.ndarray) -> np.ndarray:
        r, angle = np.hypot(x[..., 0], x[..., 1]), np.arctan2(x[..., 1], x[..., 0])
        wrapped = logsumexp([stats.norm.logpdf(angle + 2 * np.pi * k, 0, 0.6) for k in (-1, 0, 1)], axis=0)
        return stats.norm.logpdf(r, 2, 0.1) + wrapped - np.log(r)

    return _density("arc", 2, sample, log_prob)


_CIRCLE = 3.0 * np.column_stack([np.cos(np.arange(8) * np.pi / 4), np.sin(np.arange(8) * np.pi / 4)])

LISTED: dict[str, Callable[[], Density]] = {
    "student": lambda: _columns("student", stats.t(3), stats.t(3)),
    "three normals": lambda: mixture([[-3.0, 0.0], [3.0, 0.0], [0.0, 4.0]], 0.5),
    "eight normals": lambda: mixture(_CIRCLE, 0.3),
    "square": lambda: _columns("square", stats.uniform(0, 1), stats.uniform(0, 1)),
    "sine ridge": lambda: _given(
        "sine ridge", lambda: stats.uniform(-3, 6), lambda x: stats.norm(np.sin(2 * x), 0.1)
    ),
    "spiral": _spiral,
    "log-normals": _log_normals,
    "exponential, gamma": lambda: _columns("exponential, gamma", stats.expon(scale=2.0), stats.gamma(2.5)),
    "five normals": _five_normals,
    "two moons": _moons,
    "pinwheel": _pinwheel,
    "checkerboard": _checkerboard,
}
"""Where flows of affine couplings were seen to fail, or are measured by everyone."""

OTHERS: dict[str, Callable[[], Density]] = {
    "line, exponential noise": lambda: _given(
        "line, exponential noise", lambda: stats.norm(0, 1), lambda x: stats.expon(1.5 * x)
    ),
    "parabola, growing noise": lambda: _given(
        "parabola, growing noise", lambda: stats.uniform(0, 4), lambda x: stats.norm(x**2, 0.1 + 0.3 * x)
    ),
    "weibull, logistic": lambda: _columns("weibull, logistic", stats.weibull_min(1.5), stats.logistic(4, 0.7)),
    "betas": lambda: _columns("betas", stats.beta(2, 5), stats.beta(0.5, 0.5)),
    "arc": _arc,
    "four tilted normals": lambda: _normals(
        "four tilted normals", [[0, 0], [2, 1], [-1, 3], [4, -2]],
        [[[1, 0.7], [0.7, 1]], [[0.3, -0.2], [-0.2, 0.5]], [[2, 0], [0, 0.1]], [[0.2, 0.1], [0.1, 0.6]]],
    ),
    "laplaces": lambda: _given("laplaces", lambda: stats.laplace(0, 1), lambda x: stats.laplace(0.5 * x, 0.3)),
    "chain of four": lambda: _given(
        "chain of four", lambda: stats.lognorm(0.5), lambda a: stats.lognorm(0.1, 0, a**1.5),
        lambda a, b: stats.uniform(-1, 2), lambda a, b, c: stats.norm(np.sin(3 * c), 0.1),
    ),
    "shell": _shell,
    "cross": lambda: _normals("cross", [[0, 0], [0, 0]], [np.diag([4.0, 0.04]), np.diag([0.04, 4.0])]),
    "funnel": lambda: _given(
        "funnel", lambda: stats.norm(0, 1.5), lambda v: stats.norm(0, np.exp(v / 2)),
        lambda v, a: stats.norm(0, np.exp(v / 2)),
    ),
    "triangle": lambda: _given("triangle", lambda: stats.beta(2, 1), lambda x: stats.uniform(0, x)),
}  # fmt: skip
"""Twelve more, written down before any of them was tried."""


def _round(name: str, angle: Any, radius: Callable[[np.ndarray], Any]) -> Density:
    """An angle, and a radius by a SciPy law that reads it."""

    def sample(n: int, rng: np.random.Generator) -> np.ndarray:
        theta = np.asarray(angle.rvs(size=n, random_state=rng))
        r = np.abs(radius(theta).rvs(size=n, random_state=rng))
        return np.column_stack([r * np.cos(theta), r * np.sin(theta)])

    def log_prob(x: np.ndarray) -> np.ndarray:
        r, theta = np.hypot(x[..., 0], x[..., 1]), np.arctan2(x[..., 1], x[..., 0])
        return angle.logpdf(theta) + radius(theta).logpdf(r) - np.log(r)

    return _density(name, 2, sample, log_prob)


def _rings() -> Density:
    radii, weights = np.array([1.0, 2.2, 3.5]), np.array([0.2, 0.3, 0.5])

    def sample(n: int, rng: np.random.Generator) -> np.ndarray:
        r = np.abs(rng.choice(radii, n, p=weights) + 0.1 * rng.standard_normal(n))
        theta = rng.uniform(-np.pi, np.pi, n)
        return np.column_stack([r * np.cos(theta), r * np.sin(theta)])

    def log_prob(x: np.ndarray) -> np.ndarray:
        r = np.hypot(x[..., 0], x[..., 1])
        parts = [np.log(w) + stats.norm.logpdf(r, m, 0.1) for w, m in zip(weights, radii, strict=True)]
        return logsumexp(parts, axis=0) - np.log(2 * np.pi * r)

    return _density("rings", 2, sample, log_prob)


def _disc() -> Density:
    def sample(n: int, rng: np.random.Generator) -> np.ndarray:
        r, theta = 2 * np.sqrt(rng.random(n)), rng.uniform(-np.pi, np.pi, n)
        return np.column_stack([1 + r * np.cos(theta), r * np.sin(theta)])

    def log_prob(x: np.ndarray) -> np.ndarray:
        return np.where(np.hypot(x[..., 0] - 1, x[..., 1]) <= 2, -np.log(4 * np.pi), -np.inf)

    return _density("disc", 2, sample, log_prob)


def _student_3() -> Density:
    law = stats.multivariate_t([1, -2, 0], [[1.0, 0.6, -0.3], [0.6, 2.0, 0.2], [-0.3, 0.2, 0.5]], df=4)
    return _density("tilted student", 3, lambda n, rng: law.rvs(n, random_state=rng), law.logpdf)


def _heavy_4() -> Density:
    lower = np.array([[1, 0, 0, 0], [0.5, 1, 0, 0], [-0.4, 0.3, 0.8, 0], [0.2, -0.6, 0.5, 1.0]])
    return _density(
        "four heavy tails", 4, lambda n, rng: rng.standard_t(3, (n, 4)) @ lower.T,
        lambda x: stats.t.logpdf(np.linalg.solve(lower, x.T), 3).sum(axis=0) - np.log(0.8),
    )  # fmt: skip


MORE: dict[str, Callable[[], Density]] = {
    "short line, exponential noise": lambda: _given(
        "short line, exponential noise", lambda: stats.uniform(-2, 4), lambda x: stats.expon(0.8 * x, 0.5)
    ),
    "laplace, normal": lambda: _columns("laplace, normal", stats.laplace(1, 0.5), stats.norm(-2, 3)),
    "skewed banana": lambda: _given(
        "skewed banana", lambda: stats.gumbel_r(0, 0.7), lambda x: stats.gumbel_r(0.5 * x**2, 0.2)
    ),
    "growing wave": lambda: _given(
        "growing wave", lambda: stats.uniform(-3, 6), lambda x: stats.norm(x * np.sin(3 * x), 0.1)
    ),
    "rings": _rings,
    "disc": _disc,
    "von mises": lambda: _round("von mises", stats.vonmises(2.0, 0.7), lambda _: stats.gamma(20, scale=0.1)),
    "cardioid": lambda: _round(
        "cardioid", stats.uniform(-np.pi, 2 * np.pi), lambda a: stats.lognorm(0.05, 0, 1.5 + np.cos(a))
    ),
    "tilted student": _student_3,
    "four heavy tails": _heavy_4,
    "bent band": lambda: _given(
        "bent band", lambda: stats.uniform(-1, 2), lambda x: stats.uniform(x**2, 0.5)
    ),
}
"""Eleven more with ends, rings and heavy tails, written down before they were tried."""

"""Four two-dimensional densities with exact samplers, log densities and entropies.

Everything is in nats. ``law`` is an exact map from data to a standard normal latent, known up to the order and the
signs of the latents, in the symbols ``x0`` and ``x1``; ``None`` where no short law exists.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import sympy as sp
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy.special import logsumexp

RandomState = int | np.random.Generator | None

_LOG_2PI = float(np.log(2 * np.pi))


@dataclass(frozen=True)
class Density:
    """A density with its truth.

    Args:
        name: One word, lower case.
        entropy: Differential entropy in nats.
        law: Exact latents ``z_i(x0, x1)``, or ``None``.
        dim: Number of variables.

    Example:
        >>> BANANA.sample(3, random_state=0).shape, BANANA.log_prob([0.0, 0.0]).round(3)
        ((3, 2), np.float64(-2.851))
        >>> round(BANANA.kl(3.6), 3), round(BANANA.kl_of(BANANA.log_prob, n=100), 3)
        (0.069, 0.0)
    """

    name: str
    entropy: float
    law: tuple[sp.Expr, ...] | None
    _sample: Callable[[int, np.random.Generator], np.ndarray] = field(repr=False)
    _log_prob: Callable[[np.ndarray], np.ndarray] = field(repr=False)
    dim: int = 2

    def sample(self, n: int, random_state: RandomState = None) -> Float[np.ndarray, "n dim"]:
        """Return ``n`` independent draws, one per row.

        Example:
            >>> BANANA.sample(3, random_state=0).shape
            (3, 2)
        """
        return self._sample(n, np.random.default_rng(random_state))

    def log_prob(self, x: ArrayLike) -> Float[np.ndarray, "..."]:
        """Return the exact log density of points along the last axis.

        Example:
            >>> bool(np.isclose(GAUSSIAN.log_prob([0.0, 3.0]), -np.log(0.2 * np.pi)))
            True
        """
        x = np.asarray(x, dtype=float)
        if x.shape[-1:] != (self.dim,):
            raise ValueError(f"{self.name} has {self.dim} variables along the last axis, got shape {x.shape}")
        return self._log_prob(x)

    def kl(self, test_nll: float) -> float:
        """Return the Kullback–Leibler divergence of a model from its mean negative log likelihood on fresh draws.

        The figure is ``test_nll - entropy`` in nats; it may come out slightly negative, since the mean is over a
        finite number of draws. :meth:`kl_of` has less noise.
        """
        return float(test_nll) - self.entropy

    def kl_of(
        self, model_log_prob: Callable[[np.ndarray], ArrayLike], n: int = 100_000, seed: int = 0
    ) -> float:
        """Return the mean of ``log_prob(x) - model_log_prob(x)`` over ``n`` fresh draws, in nats."""
        x = self.sample(n, seed)
        return float(np.mean(self.log_prob(x) - np.asarray(model_log_prob(x), dtype=float)))


def _normal_log_prob(x: np.ndarray, mean: ArrayLike, std: float) -> np.ndarray:
    return -0.5 * ((x - mean) / std) ** 2 - np.log(std) - 0.5 * _LOG_2PI


def _gauss_hermite(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights of the standard normal expectation."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(n)
    return nodes, weights / weights.sum()


_X0, _X1 = sp.symbols("x0 x1", real=True)


def gaussian(mean: tuple[float, float] = (0.0, 3.0), variance: float = 0.1) -> Density:
    """Return the paper's isotropic Gaussian, mean ``(0, 3)`` and covariance ``0.1 I``.

    Example:
        >>> round(gaussian().entropy, 3)
        0.535
    """
    std = float(np.sqrt(variance))
    scale = 1 / sp.sqrt(sp.nsimplify(variance))
    law = tuple(scale * (x - sp.nsimplify(m)) for x, m in zip((_X0, _X1), mean, strict=True))
    return Density(
        name="gaussian",
        entropy=1 + _LOG_2PI + float(np.log(variance)),
        law=law,
        _sample=lambda n, rng: np.asarray(mean) + std * rng.standard_normal((n, 2)),
        _log_prob=lambda x: _normal_log_prob(x, mean, std).sum(-1),
    )


def banana(std: float = 2.0, bend: float = 0.2) -> Density:
    """Return ``x0 ~ N(0, std²)``, ``x1 ~ N(bend (x0² - std²), 1)``.

    Example:
        >>> banana(std=1.0).law
        (x0, -x0**2/5 + x1 + 1/5)
    """

    def sample(n: int, rng: np.random.Generator) -> np.ndarray:
        z = rng.standard_normal((n, 2))
        x0 = std * z[:, 0]
        return np.stack([x0, z[:, 1] + bend * (x0**2 - std**2)], axis=1)

    def log_prob(x: np.ndarray) -> np.ndarray:
        x0, x1 = x[..., 0], x[..., 1]
        return _normal_log_prob(x0, 0.0, std) + _normal_log_prob(x1, bend * (x0**2 - std**2), 1.0)

    b, s = sp.nsimplify(bend), sp.nsimplify(std)
    return Density(
        name="banana",
        entropy=1 + _LOG_2PI + float(np.log(std)),
        law=(_X0 / s, _X1 - b * _X0**2 + b * s**2),
        _sample=sample,
        _log_prob=log_prob,
    )


def ring(radius: float = 5.0, width: float = 0.2) -> Density:
    """Return a ring: angle uniform, radius normal about ``radius`` with standard deviation ``width``.

    The density carries ``1 / (2 π r)``. The law is polar: ``z0 = (r - radius) / width`` and
    ``z1 = √2 erfinv(θ/π)``, the probit of the angle.

    Example:
        >>> round(ring().entropy, 3)
        3.256
    """
    if width <= 0 or radius < 6 * width:
        raise ValueError(
            f"the ring needs radius >= 6 width > 0 so that the radius stays positive, "
            f"got radius={radius}, width={width}"
        )

    def sample(n: int, rng: np.random.Generator) -> np.ndarray:
        angle = rng.uniform(-np.pi, np.pi, n)
        r = radius + width * rng.standard_normal(n)
        return np.stack([r * np.cos(angle), r * np.sin(angle)], axis=1)

    def log_prob(x: np.ndarray) -> np.ndarray:
        r = np.hypot(x[..., 0], x[..., 1])
        return _normal_log_prob(r, radius, width) - _LOG_2PI - np.log(r)

    r = sp.sqrt(_X0**2 + _X1**2)
    law = (
        (r - sp.nsimplify(radius)) / sp.nsimplify(width),
        sp.sqrt(2) * sp.erfinv(sp.atan2(_X1, _X0) / sp.pi),
    )
    return Density(
        name="ring",
        entropy=0.5 * (1 + _LOG_2PI) + float(np.log(width)) + _LOG_2PI + _mean_log(radius, width),
        law=law,
        _sample=sample,
        _log_prob=log_prob,
    )


def _mean_log(mean: float, std: float) -> float:
    r = np.linspace(max(mean - 12 * std, 1e-9), mean + 12 * std, 20_001)
    return float(np.trapezoid(np.exp(_normal_log_prob(r, mean, std)) * np.log(r), r))


def mixture(centres: ArrayLike = ((-4.0, 0.0), (4.0, 0.0)), std: float = 0.5) -> Density:
    """Return an even mixture of round Gaussians, by default two at ``(±4, 0)`` with standard deviation 0.5.

    Example:
        >>> round(mixture().entropy, 3)
        2.145
    """
    means = np.asarray(centres, dtype=float)

    def sample(n: int, rng: np.random.Generator) -> np.ndarray:
        return means[rng.integers(len(means), size=n)] + std * rng.standard_normal((n, 2))

    def log_prob(x: np.ndarray) -> np.ndarray:
        parts = _normal_log_prob(x[..., None, :], means, std).sum(-1)
        return logsumexp(parts, axis=-1) - np.log(len(means))

    nodes, weights = _gauss_hermite(60)
    offsets = std * np.stack(np.meshgrid(nodes, nodes, indexing="ij"), axis=-1)
    expectation = np.einsum("i,j,kij->k", weights, weights, log_prob(means[:, None, None, :] + offsets))
    return Density(
        name="mog", entropy=float(-expectation.mean()), law=None, _sample=sample, _log_prob=log_prob
    )


GAUSSIAN = gaussian()
BANANA = banana()
RING = ring()
MOG = mixture()

DENSITIES: dict[str, Density] = {density.name: density for density in (GAUSSIAN, BANANA, RING, MOG)}
"""The paper's four densities by name."""

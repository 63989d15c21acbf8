"""Two small inverse problems whose posteriors are known exactly: a Gaussian mixture and two moons.

Both follow the benchmark of Lueckmann et al. (2021): two parameters uniform on a box, two observations.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy.special import logsumexp

RandomState = int | np.random.Generator | None


@dataclass(frozen=True)
class Toy:
    """A prior uniform on ``[-bound, bound]²``, a simulator with its likelihood, and the exact posterior.

    Args:
        name: Of the problem.
        bound: Half the side of the prior box.

    Example:
        >>> toy = two_moons()
        >>> x, y = toy.sample(3, random_state=0)
        >>> toy.simulate(toy.sample_prior(3, random_state=0), random_state=1).shape
        (3, 2)
        >>> toy.log_prior(x).round(3), toy.log_likelihood(y, x).shape
        (array([-1.386, -1.386, -1.386]), (3,))
    """

    name: str
    bound: float
    _simulate: Callable[[np.ndarray, np.random.Generator], np.ndarray] = field(repr=False)
    _log_likelihood: Callable[[np.ndarray, np.ndarray], np.ndarray] = field(repr=False)
    _propose: Callable[[np.ndarray, int, np.random.Generator], np.ndarray] = field(repr=False)

    def sample_prior(self, n: int, random_state: RandomState = None) -> Float[np.ndarray, "n 2"]:
        """Return ``n`` parameters from the prior."""
        return np.random.default_rng(random_state).uniform(-self.bound, self.bound, (n, 2))

    def log_prior(self, x: ArrayLike) -> Float[np.ndarray, "..."]:
        """Return the log density of the prior, ``-inf`` outside the box."""
        inside = np.all(np.abs(np.asarray(x, dtype=float)) <= self.bound, axis=-1)
        return np.where(inside, -2 * np.log(2 * self.bound), -np.inf)

    def simulate(self, x: ArrayLike, random_state: RandomState = None) -> Float[np.ndarray, "n 2"]:
        """Return one noisy observation for each row of parameters."""
        return self._simulate(np.asarray(x, dtype=float), np.random.default_rng(random_state))

    def sample(
        self, n: int, random_state: RandomState = None
    ) -> tuple[Float[np.ndarray, "n 2"], Float[np.ndarray, "n 2"]]:
        """Return ``n`` pairs of parameters and observations."""
        rng = np.random.default_rng(random_state)
        x = self.sample_prior(n, rng)
        return x, self._simulate(x, rng)

    def log_likelihood(self, y: ArrayLike, x: ArrayLike) -> Float[np.ndarray, "..."]:
        """Return ``log p(y | x)`` for arrays whose leading axes broadcast."""
        return self._log_likelihood(np.asarray(y, dtype=float), np.asarray(x, dtype=float))

    def sample_posterior(
        self, y_star: ArrayLike, n: int, *, random_state: RandomState = None, max_proposals: int = 10_000_000
    ) -> Float[np.ndarray, "n 2"]:
        """Return ``n`` independent draws of the exact posterior.

        The noise is drawn and the parameters solved for; what falls outside the prior's box is drawn again.

        Example:
            >>> TWO_MOONS.sample_posterior((0.0, 0.0), 10, random_state=0).shape
            (10, 2)
        """
        target = np.asarray(y_star, dtype=float)
        if target.shape != (2,):
            raise ValueError(f"y_star must be one observation of shape (2,), got {target.shape}")
        rng = np.random.default_rng(random_state)
        kept, n_kept, proposed = [], 0, 0
        while n_kept < n:
            if proposed >= max_proposals:
                raise ValueError(
                    f"only {n_kept} of {n} draws for y*={target.tolist()} fall within the prior's box"
                )
            x = self._propose(target, 2 * n + 100, rng)
            x = x[np.all(np.abs(x) <= self.bound, axis=1)]
            kept.append(x)
            n_kept += len(x)
            proposed += 2 * n + 100
        return np.concatenate(kept)[:n]


def gaussian_mixture(bound: float = 10.0, stds: tuple[float, float] = (1.0, 0.1)) -> Toy:
    """Return the toy ``y ~ ½ N(x, stds[0]² I) + ½ N(x, stds[1]² I)``.

    Example:
        >>> gaussian_mixture().name
        'gaussian_mixture'
    """
    widths = np.asarray(stds)

    def noise(n: int, rng: np.random.Generator) -> np.ndarray:
        return widths[rng.integers(2, size=n), None] * rng.standard_normal((n, 2))

    def log_likelihood(y: np.ndarray, x: np.ndarray) -> np.ndarray:
        d2 = np.sum((y - x) ** 2, axis=-1)[..., None]
        return logsumexp(-0.5 * d2 / widths**2 - 2 * np.log(widths), axis=-1) - np.log(4 * np.pi)

    return Toy(
        name="gaussian_mixture",
        bound=bound,
        _simulate=lambda x, rng: x + noise(len(x), rng),
        _log_likelihood=log_likelihood,
        _propose=lambda y, n, rng: y - noise(n, rng),
    )


def two_moons(bound: float = 1.0, radius: float = 0.1, width: float = 0.01, offset: float = 0.25) -> Toy:
    """Return two moons: a noisy half circle shifted by ``(-|x0 + x1|, x1 - x0) / √2``, so that ``x`` has two images.

    Example:
        >>> two_moons().sample_posterior([0.0, 0.0], 3, random_state=0).shape
        (3, 2)
    """

    def noise(n: int, rng: np.random.Generator) -> np.ndarray:
        angle, r = rng.uniform(-np.pi / 2, np.pi / 2, n), radius + width * rng.standard_normal(n)
        return np.stack([r * np.cos(angle) + offset, r * np.sin(angle)], axis=1)

    def shift(x: np.ndarray) -> np.ndarray:
        return np.stack([-np.abs(x[..., 0] + x[..., 1]), x[..., 1] - x[..., 0]], axis=-1) / np.sqrt(2)

    def log_likelihood(y: np.ndarray, x: np.ndarray) -> np.ndarray:
        p = y - shift(x) - np.array([offset, 0.0])
        r = np.hypot(p[..., 0], p[..., 1])
        normal = -0.5 * ((r - radius) / width) ** 2 - np.log(width * np.sqrt(2 * np.pi))
        with np.errstate(divide="ignore"):
            return np.where(p[..., 0] >= 0, normal - np.log(np.pi * r), -np.inf)

    def propose(y: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
        q = y - noise(n, rng)
        q = q[q[:, 0] <= 0]
        total = -np.sqrt(2) * q[:, 0] * rng.choice([-1.0, 1.0], len(q))
        gap = np.sqrt(2) * q[:, 1]
        return np.stack([total - gap, total + gap], axis=1) / 2

    return Toy(
        name="two_moons",
        bound=bound,
        _simulate=lambda x, rng: shift(x) + noise(len(x), rng),
        _log_likelihood=log_likelihood,
        _propose=propose,
    )


GAUSSIAN_MIXTURE = gaussian_mixture()
TWO_MOONS = two_moons()

TOYS: dict[str, Toy] = {toy.name: toy for toy in (GAUSSIAN_MIXTURE, TWO_MOONS)}
"""The toys by name."""

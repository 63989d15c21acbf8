"""Where a thrown object lands: four launch parameters, one observed distance.

``x = (x0, y0, angle, speed)`` in m, m, rad and m/s; ``y`` is the impact distance in m. Linear drag ``k`` on mass ``m``
under gravity ``g`` gives the flight in closed form, and the impact time by Lambert's W, so that no time grid is needed.
The problem is that of Kruse et al. (2021), with observation noise added to keep the posterior regular.
"""

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy.special import lambertw

RandomState = int | np.random.Generator | None

GRAVITY, DRAG, MASS = 9.81, 0.25, 0.2
SIGMA_Y = 0.05
"""Default observation noise in metres."""
X_NAMES = ("x0", "y0", "angle", "speed")
Y_NAMES = ("distance",)
ANGLES = (0.05 * np.pi, 0.45 * np.pi)
"""Launch angles of the prior, 9° to 81°."""
X0_STD, Y0_MEAN, Y0_STD, SPEED_MEAN = 0.5, 1.5, 0.5, 15.0

_TAU = MASS / DRAG


def sample_prior(n: int, random_state: RandomState = None) -> Float[np.ndarray, "n 4"]:
    """Return ``n`` launches; heights below ground are set to 0, speeds are Poisson counts.

    Example:
        >>> sample_prior(3, random_state=0).shape
        (3, 4)
    """
    rng = np.random.default_rng(random_state)
    x0 = X0_STD * rng.standard_normal(n)
    return np.column_stack([x0, *_sample_rest(n, rng)])


def _sample_rest(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    y0 = np.maximum(Y0_MEAN + Y0_STD * rng.standard_normal(n), 0.0)
    return y0, rng.uniform(*ANGLES, n), rng.poisson(SPEED_MEAN, n).astype(float)


def flight_time(x: ArrayLike) -> Float[np.ndarray, "..."]:
    """Return the time of impact, the later root of ``height(t) = 0``.

    With ``τ = t k / m`` the height vanishes where ``τ = a - b exp(-τ)``, so ``τ = a + W(-b exp(-a))``.

    Example:
        >>> round(float(flight_time([0.0, 1.5, 0.8, 15.0])), 2)
        1.91
    """
    x = np.asarray(x, dtype=float)
    rise = x[..., 3] * np.sin(x[..., 2])
    b = 1.0 + rise / (GRAVITY * _TAU)
    a = b + x[..., 1] / (GRAVITY * _TAU**2)
    # At b = a = 1 rounding may step over the branch point -1/e, where SciPy gives NaN.
    argument = np.maximum(-b * np.exp(-a), -np.exp(-1.0) * (1 - 1e-15))
    return _TAU * (a + lambertw(argument).real)


def trajectory(x: ArrayLike, t: ArrayLike) -> Float[np.ndarray, "... 2"]:
    """Return the position ``(distance, height)`` at times ``t``, whose shape broadcasts against ``x[..., 0]``.

    Example:
        >>> trajectory([0.0, 1.5, 0.8, 15.0], 0.0).round(3)
        array([0. , 1.5])
    """
    x, t = np.asarray(x, dtype=float), np.asarray(t, dtype=float)
    slowed = _TAU * -np.expm1(-t / _TAU)
    along = x[..., 0] + x[..., 3] * np.cos(x[..., 2]) * slowed
    fall = GRAVITY * _TAU
    height = x[..., 1] + (x[..., 3] * np.sin(x[..., 2]) + fall) * slowed - fall * t
    return np.stack([along, height], axis=-1)


def forward(x: ArrayLike) -> Float[np.ndarray, "... 1"]:
    """Return the impact distance of launches, ``(..., 4)`` to ``(..., 1)``.

    Example:
        >>> forward([0.0, 1.5, np.pi / 4, 15.0]).round(3).tolist()
        [7.693]
    """
    x = np.asarray(x, dtype=float)
    return trajectory(x, flight_time(x))[..., :1]


def sample(
    n: int, *, sigma_y: float = SIGMA_Y, random_state: RandomState = None
) -> tuple[Float[np.ndarray, "n 4"], Float[np.ndarray, "n 1"]]:
    """Return ``n`` pairs: launches from the prior and their impact distances with noise ``sigma_y``.

    Example:
        >>> x, y = sample(3, random_state=0)
        >>> x.shape, y.shape
        ((3, 4), (3, 1))
    """
    rng = np.random.default_rng(random_state)
    x = sample_prior(n, rng)
    return x, forward(x) + sigma_y * rng.standard_normal((n, 1))


def sample_posterior(
    y_star: ArrayLike,
    n: int,
    *,
    sigma_y: float = SIGMA_Y,
    random_state: RandomState = None,
    max_proposals: int = 50_000_000,
) -> Float[np.ndarray, "n 4"]:
    """Return ``n`` independent launches from the exact posterior.

    Height, angle and speed come from the prior; the start solves ``x0 = y* + σ ε - flown distance``, whose Jacobian is
    one; the launch is accepted with probability ``prior(x0) / prior(0)``.

    Example:
        >>> x = sample_posterior(5.0, 100, sigma_y=0.0, random_state=0)
        >>> bool(np.allclose(forward(x), 5.0))
        True
    """
    target = np.asarray(y_star, dtype=float).reshape(-1)
    if target.shape != (1,):
        raise ValueError(f"y_star must be one distance, got shape {np.shape(y_star)}")
    rng = np.random.default_rng(random_state)
    kept, n_kept, proposed = [], 0, 0
    while n_kept < n:
        if proposed >= max_proposals:
            raise ValueError(
                f"only {n_kept} of {n} launches land at {target[0]} after {proposed} proposals; "
                "is it within the prior's reach? If so, raise max_proposals"
            )
        batch = min(max(10 * n, 10_000), 1_000_000)
        x = np.column_stack([np.zeros(batch), *_sample_rest(batch, rng)])
        x[:, 0] = target[0] + sigma_y * rng.standard_normal(batch) - forward(x)[:, 0]
        accepted = rng.uniform(size=batch) < np.exp(-0.5 * (x[:, 0] / X0_STD) ** 2)
        kept.append(x[accepted])
        n_kept += int(accepted.sum())
        proposed += batch
    return np.concatenate(kept)[:n]

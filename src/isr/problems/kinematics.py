"""The planar arm: a joint on a vertical rail, three segments, and the posterior over arms that reach a point.

Order, as in the paper: ``x = (height, angle 1, angle 2, angle 3)`` and ``y = (vertical, horizontal)`` of the end
point. Other code bases swap the two coordinates. Angles are relative to the segment before, in radians.

:func:`sample_posterior` is exact. Three schemes propose arms: each draws two joint angles from the prior and solves
the third angle and the height in closed form for the end point ``u = y* + σ ε``; a fourth draws height and first
angle and solves the two elbows. All branches count. An arm ``x`` has the importance weight
``p(x) / Σ_k p(drawn_k) |J_k(x)| / 4``, where ``J_k`` is the Jacobian of the end point by the solved parameters
(the balance heuristic over schemes), and is accepted with probability weight over largest weight.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy.stats import gaussian_kde

from isr.problems.references import Rejection, rejection

if TYPE_CHECKING:
    from matplotlib.axes import Axes

RandomState = int | np.random.Generator | None

LENGTHS = (0.5, 0.5, 1.0)
"""Segment lengths."""
PRIOR_STD = (0.25, 0.5, 0.5, 0.5)
"""Standard deviations of the zero-mean normal prior."""
SIGMA_Y = 0.01
"""Default observation noise: without it the posterior lies on a surface and has no density."""
TARGET = (0.0, 1.5)
"""The end point of the paper's figure."""
X_NAMES = ("height", "angle1", "angle2", "angle3")
Y_NAMES = ("vertical", "horizontal")

_STD = np.asarray(PRIOR_STD)
_L = np.asarray(LENGTHS)


def forward(x: Any) -> Any:
    """Return the end points of arms, ``(..., 4)`` to ``(..., 2)``; NumPy in, NumPy out, and likewise for JAX.

    ``y0 = x0 + Σ l_j sin a_j`` and ``y1 = Σ l_j cos a_j`` with ``a_j`` the sum of the first ``j`` angles.

    Example:
        >>> forward(np.zeros(4)).tolist()
        [0.0, 2.0]
    """
    return joints(x)[..., -1, :]


def joints(x: Any) -> Any:
    """Return the four joints of arms, rail first, as ``(..., 4, 2)`` points ``(vertical, horizontal)``.

    Example:
        >>> joints(np.zeros(4)).tolist()
        [[0.0, 0.0], [0.0, 0.5], [0.0, 1.0], [0.0, 2.0]]
    """
    xp = _namespace(x)
    height, a1 = x[..., 0], x[..., 1]
    a2 = a1 + x[..., 2]
    a3 = a2 + x[..., 3]
    points = [(height, xp.zeros_like(height))]
    for length, angle in zip(LENGTHS, (a1, a2, a3), strict=True):
        up, along = points[-1]
        points.append((up + length * xp.sin(angle), along + length * xp.cos(angle)))
    return xp.stack([xp.stack(point, axis=-1) for point in points], axis=-2)


def _namespace(x: Any) -> Any:
    return x.__array_namespace__() if hasattr(x, "__array_namespace__") else np


def log_prior(x: Any) -> Any:
    """Return the log density of the prior, ``(..., 4)`` to ``(...)``, for NumPy and JAX arrays.

    Example:
        >>> round(float(log_prior(np.zeros(4))), 3)
        -0.21
    """
    xp = _namespace(x)
    std = xp.asarray(PRIOR_STD, dtype=x.dtype).reshape((1,) * (x.ndim - 1) + (4,))
    constant = float(np.sum(np.log(_STD)) + 2 * np.log(2 * np.pi))
    return -0.5 * xp.sum((x / std) ** 2, axis=-1) - constant


def log_likelihood(x: Any, y_star: Any, sigma_y: float = SIGMA_Y) -> Any:
    """Return ``log N(y*; forward(x), σ_y²)``, for NumPy and JAX arrays whose shapes broadcast.

    Example:
        >>> round(float(log_likelihood(np.zeros(4), np.array([0.0, 2.0]))), 3)
        7.372
    """
    xp = _namespace(x)
    residual = (forward(x) - xp.asarray(y_star, dtype=x.dtype)) / sigma_y
    return -0.5 * xp.sum(residual**2, axis=-1) - float(np.log(2 * np.pi) + 2 * np.log(sigma_y))


def sample_prior(n: int, random_state: RandomState = None) -> Float[np.ndarray, "n 4"]:
    """Return ``n`` arms from the prior.

    Example:
        >>> sample_prior(3, random_state=0).shape
        (3, 4)
    """
    return np.random.default_rng(random_state).standard_normal((n, 4)) * _STD


def sample(
    n: int, *, sigma_y: float = SIGMA_Y, random_state: RandomState = None
) -> tuple[Float[np.ndarray, "n 4"], Float[np.ndarray, "n 2"]]:
    """Return ``n`` pairs: arms from the prior and their end points with noise ``sigma_y``.

    Example:
        >>> x, y = sample(5, random_state=0)
        >>> x.shape, y.shape
        ((5, 4), (5, 2))
    """
    rng = np.random.default_rng(random_state)
    x = sample_prior(n, rng)
    return x, forward(x) + sigma_y * rng.standard_normal((n, 2))


def sample_posterior(
    y_star: ArrayLike,
    n: int,
    *,
    sigma_y: float = SIGMA_Y,
    random_state: RandomState = None,
    max_proposals: int = 20_000_000,
) -> Float[np.ndarray, "n 4"]:
    """Return ``n`` independent arms from the exact posterior ``p(x | y*)``.

    Args:
        y_star: End point, ``(vertical, horizontal)``.
        n: Number of arms.
        sigma_y: Standard deviation of the observation noise; 0 gives the posterior on the surface
            ``forward(x) = y*``, with respect to ``p(x) δ(forward(x) - y*)``.
        random_state: Seed or generator.
        max_proposals: Give up after so many proposals; unreachable points end here.

    Example:
        >>> x = sample_posterior((0.0, 1.5), 100, sigma_y=0.0, random_state=0)
        >>> bool(np.allclose(forward(x), (0.0, 1.5)))
        True
    """
    rng = np.random.default_rng(random_state)
    kept, keys = np.empty((0, 4)), np.empty(0)
    proposed, bound = 0, 0.0
    batch = max(20 * n, 4000)
    while True:
        x, weight = propose(y_star, batch, sigma_y=sigma_y, random_state=rng)
        proposed += batch
        # key = weight / uniform; accepting where key exceeds the largest weight seen so far lets the bound grow.
        key = weight / rng.uniform(size=weight.shape)
        kept, keys = np.concatenate([kept, x]), np.concatenate([keys, key])
        bound = max(bound, weight.max(initial=0.0))
        accepted = keys > bound
        kept, keys = kept[accepted], keys[accepted]
        if len(kept) >= n:
            return kept[:n]
        if proposed >= max_proposals:
            raise ValueError(
                f"only {len(kept)} of {n} arms found for y*={np.asarray(y_star).tolist()} after {proposed} proposals; "
                "is the point within reach (at most 2 to the right of the rail)? If so, raise max_proposals"
            )


def sample_posteriors(
    y_stars: ArrayLike, n: int, *, sigma_y: float = SIGMA_Y, random_state: RandomState = None
) -> Float[np.ndarray, "targets n 4"]:
    """Return ``n`` exact posterior arms for each of many end points, given as rows.

    Example:
        >>> sample_posteriors([[0.0, 1.5], [0.5, 1.0]], 3, random_state=0).shape
        (2, 3, 4)
    """
    targets = np.asarray(y_stars, dtype=float)
    seeds = np.random.default_rng(random_state).spawn(len(targets))
    pairs = zip(targets, seeds, strict=True)
    return np.stack([sample_posterior(y, n, sigma_y=sigma_y, random_state=rng) for y, rng in pairs])


def sample_by_rejection(
    y_star: ArrayLike, n: int, *, threshold: float = 0.05, random_state: RandomState = None
) -> Rejection:
    """Return prior arms whose noise-free end point falls within ``threshold`` of ``y*``, the paper's ground truth.

    The smaller the threshold the closer to the exact posterior, and the more simulations it takes.

    Example:
        >>> sample_by_rejection((0.0, 1.5), 2, threshold=0.3, random_state=0).samples.shape
        (2, 4)
    """
    return rejection(sample_prior, forward, y_star, n, threshold=threshold, random_state=random_state)


def log_evidence(
    y_star: ArrayLike, *, sigma_y: float = SIGMA_Y, n: int = 100_000, random_state: RandomState = 0
) -> float:
    """Return an estimate of ``log p(y*)`` from ``n`` weighted proposals.

    With it ``log_prior(x) + log_likelihood(x, y*) - log_evidence(y*)`` is the posterior log density.

    Example:
        >>> round(log_evidence((0.0, 1.5), n=10_000), 1)
        -4.3
    """
    _, weight = propose(y_star, n, sigma_y=sigma_y, random_state=random_state)
    return float(np.log(weight.sum() / n))


def propose(
    y_star: ArrayLike, n: int, *, sigma_y: float = SIGMA_Y, random_state: RandomState = None
) -> tuple[Float[np.ndarray, "m 4"], Float[np.ndarray, " m"]]:
    """Return weighted arms whose weighted law is the posterior, from ``n`` draws of at most two branches each.

    ``weight.sum() / n`` estimates ``p(y*)``.

    Example:
        >>> x, log_weights = propose((0.0, 1.5), 100, random_state=0)
        >>> x.shape[1], len(x) == len(log_weights)
        (4, True)
    """
    rng = np.random.default_rng(random_state)
    y_star = np.asarray(y_star, dtype=float)
    if y_star.shape != (2,):
        raise ValueError(f"y_star must be one end point (vertical, horizontal), got shape {y_star.shape}")
    per_scheme = np.bincount(np.arange(n) % 4, minlength=4)
    arms = []
    for scheme, count in enumerate(per_scheme):
        x = np.repeat(sample_prior(count, rng)[None], 2, axis=0)
        u = y_star + sigma_y * rng.standard_normal((count, 2))
        with np.errstate(invalid="ignore", divide="ignore"):
            solved = _solve_elbow(x, u) if scheme == 3 else _solve_angle(x, u, scheme)
        solved = solved.reshape(-1, 4)
        arms.append(solved[np.isfinite(solved).all(axis=1)])
    # Shuffled, since only the mixture of all schemes has the right law: a head of the rows must not favour the first.
    x = rng.permutation(np.concatenate(arms))
    return x, _weights(x, per_scheme / n)


def _solve_angle(x: np.ndarray, u: np.ndarray, k: int) -> np.ndarray:
    """Angle ``k`` and the height from the others; ``x`` is ``(branch, n, 4)``, NaN where out of reach."""
    x = x.copy()
    x[..., 1 + k] = 0.0
    angles = np.cumsum(x[0, :, 1:], axis=-1)
    before = angles[:, k - 1] if k else np.zeros(len(angles))
    along = u[:, 1] - np.cos(angles[:, :k]) @ _L[:k]
    # With angle k at zero the rest of the arm, turned back by what comes before, ends at (right, up).
    right = np.cos(angles[:, k:] - before[:, None]) @ _L[k:]
    up = np.sin(angles[:, k:] - before[:, None]) @ _L[k:]
    turn = np.arccos(along / np.hypot(right, up))
    for branch, sign in enumerate((1.0, -1.0)):
        x[branch, :, 1 + k] = _wrap(sign * turn - np.arctan2(up, right) - before)
    x[..., 0] += u[:, 0] - _end(x)[..., 0]
    return x


def _solve_elbow(x: np.ndarray, u: np.ndarray) -> np.ndarray:
    """The last two angles from the height and the first angle."""
    x = x.copy()
    up = u[:, 0] - x[0, :, 0] - _L[0] * np.sin(x[0, :, 1])
    along = u[:, 1] - _L[0] * np.cos(x[0, :, 1])
    bend = np.arccos((up**2 + along**2 - _L[1] ** 2 - _L[2] ** 2) / (2 * _L[1] * _L[2]))
    for branch, sign in enumerate((1.0, -1.0)):
        last = sign * bend
        direction = np.arctan2(up, along) - np.arctan2(_L[2] * np.sin(last), _L[1] + _L[2] * np.cos(last))
        x[branch, :, 2] = _wrap(direction - x[branch, :, 1])
        x[branch, :, 3] = last
    return x


def _end(x: np.ndarray) -> np.ndarray:
    angles = np.cumsum(x[..., 1:], axis=-1)
    return np.stack([x[..., 0] + np.sin(angles) @ _L, np.cos(angles) @ _L], axis=-1)


def _wrap(angle: np.ndarray) -> np.ndarray:
    # Copies a full turn away have prior odds below exp(-19) and are left out.
    return (angle + np.pi) % (2 * np.pi) - np.pi


def _weights(x: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """``p(x) / Σ_k share_k p(drawn_k) |J_k|``, that is ``1 / Σ_k share_k |J_k| / p(solved_k)``."""
    angles = np.cumsum(x[:, 1:], axis=1)
    sines = _L * np.sin(angles)
    # d(horizontal) / d(angle k) is minus the sum of l sin over the segments from k on.
    lever = np.abs(np.cumsum(sines[:, ::-1], axis=1)[:, ::-1])
    log_p = -0.5 * (x / _STD) ** 2 - np.log(_STD * np.sqrt(2 * np.pi))
    jacobians = [*lever.T, _L[1] * _L[2] * np.abs(np.sin(x[:, 3]))]
    solved = [
        log_p[:, 0] + log_p[:, 1],
        log_p[:, 0] + log_p[:, 2],
        log_p[:, 0] + log_p[:, 3],
        log_p[:, 2] + log_p[:, 3],
    ]
    with np.errstate(over="ignore"):
        total = sum(s * j * np.exp(-lp) for s, j, lp in zip(shares, jacobians, solved, strict=True))
    return 1.0 / np.asarray(total)


def plot_arms(
    ax: "Axes",
    x: ArrayLike,
    y_star: ArrayLike,
    *,
    log_prob: ArrayLike | None = None,
    n_arms: int = 200,
    content: float = 0.97,
    colour: str = "tab:blue",
) -> None:
    """Draw sampled arms as in the paper's figure.

    Sampled arms are faint, a cross marks the target, a contour encloses the region holding ``content`` of the end
    points, and the arm of highest density is bold.

    Args:
        ax: Axes to draw on; the horizontal coordinate runs to the right.
        x: Sampled arms, one per row.
        y_star: Target end point.
        log_prob: Log density of every arm; a kernel estimate where not given.
        n_arms: How many faint arms to draw.
        content: Share of end points inside the contour.
        colour: Of arms and contour.

    Example:
        >>> import matplotlib.pyplot as plt
        >>> figure, ax = plt.subplots()
        >>> plot_arms(ax, sample_posterior((0.0, 1.5), 20, random_state=0), (0.0, 1.5))
        >>> plt.close(figure)
    """
    arms = np.asarray(x, dtype=float)
    if log_prob is None:
        log_prob = gaussian_kde(arms.T).logpdf(arms.T)
    best = joints(arms[int(np.argmax(np.asarray(log_prob)))])
    for arm in joints(arms[:n_arms]):
        ax.plot(arm[:, 1], arm[:, 0], color=colour, alpha=0.08, linewidth=1, zorder=1)
    _draw_content(ax, forward(arms), content, colour)
    ax.plot(best[:, 1], best[:, 0], "o-", color="black", linewidth=2, markersize=3, zorder=3)
    ax.axvline(0.0, color="0.7", linewidth=1, zorder=0)
    target = np.asarray(y_star, dtype=float)
    ax.plot(target[1], target[0], "x", color="0.4", markersize=9, markeredgewidth=2, zorder=4)
    ax.set(xlim=(-0.6, 2.2), ylim=(-1.4, 1.4), aspect="equal", xticks=[], yticks=[])


def _draw_content(ax: "Axes", ends: np.ndarray, content: float, colour: str) -> None:
    density = gaussian_kde(ends.T)
    level = float(np.quantile(density(ends.T), 1 - content))
    margin = 0.5 * np.ptp(ends, axis=0) + 1e-3
    low, high = ends.min(axis=0) - margin, ends.max(axis=0) + margin
    up, along = np.meshgrid(
        np.linspace(low[0], high[0], 120), np.linspace(low[1], high[1], 120), indexing="ij"
    )
    value = density(np.stack([up.ravel(), along.ravel()])).reshape(up.shape)
    ax.contour(along, up, value, levels=[level], colors=[colour], linewidths=1.5, zorder=2)

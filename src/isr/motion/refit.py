"""Refit: constants of rates through the integrator, by Gauss-Newton steps on trajectories or segments of them.

The state at the first time is free for each trajectory and eliminated (``"free"``), the same for all (``"shared"``), 1
(``"one"``), or a parameter of the trajectory (its number).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from jaxtyping import Float

from isr.motion.noise import Noise
from isr.motion.series import Series
from isr.motion.system import System

Start = str | int
# Noise below this share of a channel's spread cannot be told from the integrator's error; below that one nothing but
# rounding is left.
LEAST_NOISE, EXACT = 1e-7, 1e-5
N_DAMPINGS = 5


@dataclass(frozen=True, eq=False)
class Fit:
    """Constants of a system, with what they leave of trajectories.

    Args:
        system: The rates.
        series: The trajectories.
        modes: Where each channel begins.
        theta: Constants.
        start: States at the first time, channels first: of each trajectory.
        steps: Steps between two times.
        nats: Negative log-likelihood of all measured values, without constants; infinite where they blow up.
        sigma: Noise of each channel, on the scale of its noise.
        spread: Standard deviation of each channel on that scale.
        errors: Standard errors of the constants.
    """

    system: System
    series: Series
    modes: tuple[Start, ...]
    theta: np.ndarray
    start: np.ndarray
    steps: int = 4
    nats: float = np.inf
    sigma: np.ndarray = field(default_factory=lambda: np.zeros(0))
    spread: np.ndarray = field(default_factory=lambda: np.zeros(0))
    errors: np.ndarray = field(default_factory=lambda: np.zeros(0))

    @property
    def exact(self) -> np.ndarray:
        """Of which channels nothing but rounding is left."""
        return self.sigma < EXACT * self.spread

    def bic(self, per_term: float = 0.0) -> float:
        """Return twice the description length, with a price for each constant besides; all that is exact is as good."""
        n_free = len(self.theta) + self.modes.count("shared") + self.modes.count("free") * self.start.shape[1]
        told = np.maximum(EXACT * self.spread / (self.sigma + 1e-300), 1.0)
        nats = self.nats + float(self.series.seen.sum(axis=(0, 1)) @ np.log(told))
        return 2 * nats + n_free * np.log(self.series.n_values) + per_term * len(self.theta)

    def scores(self) -> Float[np.ndarray, "c t n"]:
        """Return what is left in standard deviations, of counts by randomised rank; NaN where nothing was measured."""
        s, rng, means = self.series, np.random.default_rng(0), self.system.values(self._solved())
        rows = zip(s.noises, s.values.transpose(2, 1, 0), means, self.sigma, strict=True)
        with np.errstate(all="ignore"):
            return np.stack([noise.score(y, mean, scale, rng) for noise, y, mean, scale in rows])

    def step_error(self, steps: int) -> float:
        """Return by how much twice as many steps change what was measured, relative to noise or a tenth of `EXACT`."""
        once, twice = (self.system.values(self._solved(k)) for k in (steps, 2 * steps))
        worst, least = 0.0, np.maximum(self.sigma, 0.1 * EXACT * self.spread)
        with np.errstate(all="ignore"):
            for c in np.flatnonzero(self.series.seen.any(axis=(0, 1))):
                off = self.series.noises[c].on_scale(once[c]) - self.series.noises[c].on_scale(twice[c])
                worst = max(worst, np.sqrt(np.nanmean(off**2)) / least[c])
        return float(worst)

    def likeliest_noises(self) -> tuple[Noise, ...]:
        """Return which noise the residuals have, channel by channel: additive or relative; counts stay counts."""
        found, u, known = [], self._solved(), self.series.noises
        for c, noise in enumerate(known):
            options = [noise] if noise.is_count or noise.is_stated else [Noise("normal"), Noise("lognormal")]
            if np.nanmin(self.series.values[..., c], initial=np.inf) <= 0:
                options = options[:1]

            def loss(option: Noise, c: int = c) -> float:
                series = replace(self.series, noises=(*known[:c], option, *known[c + 1 :]))
                problem = _Problem(self.system, series, self.modes, 1)
                return problem.loss(problem.residuals(u))

            found.append(min(options, key=loss))
        return tuple(found)

    def _solved(self, steps: int | None = None) -> np.ndarray:
        s = self.series
        return self.system.solve(self.theta, self.start, s.times, s.x, steps or self.steps)


def refit(
    system: System, theta: np.ndarray, start: np.ndarray, series: Series, modes: Sequence[Start], *,
    steps: int = 4, iterations: int = 30, hopeless: float = np.inf,
) -> Fit:  # fmt: skip
    """Return the constants that fit best, found from ``theta`` and ``start`` (channels first).

    A fit is given up where its negative log-likelihood does not come in sight of ``hopeless``.
    """
    p = _Problem(system, series, tuple(modes), steps)
    theta, start, q = np.array(theta, float), np.array(start, float), len(theta)
    with np.errstate(all="ignore"):
        loss, damping, normal = p.loss(p.left(theta, start)), 1e-3, np.eye(q)
        for number in range(iterations if np.isfinite(loss) else 0):
            linear = p.linearised(theta, start)
            if not (np.isfinite(linear.normal).all() and np.isfinite(linear.gradient).all()):
                loss = np.inf
                break
            normal = linear.normal
            for _ in range(N_DAMPINGS):
                step, move = linear.step(damping)
                new_theta, new_start = theta + step[:q], start.copy()
                new_start[p.shared] += step[q:, None]
                new_start[p.free] += move.T
                new_loss = p.loss(p.left(new_theta, new_start))
                if new_loss < loss:
                    break
                damping = max(damping, 1e-6) * 8
            else:
                break
            gain, loss = loss - new_loss, new_loss
            theta, start, damping = new_theta, new_start, damping / 5
            out_of_sight = number >= 3 and loss - 10 * gain > hopeless
            if out_of_sight or gain < 1e-6 * np.sqrt(series.n_values) + 1e-9 * abs(loss):
                break
        errors = np.sqrt(np.maximum(np.diag(np.linalg.pinv(normal)), 0))[:q]
        sigma = p.sigma(p.left(theta, start))
    return Fit(system, series, p.modes, theta, start, steps, loss, sigma, p.spread, errors)


@dataclass(eq=False)
class _Problem:
    system: System
    series: Series
    modes: tuple[Start, ...]
    steps: int

    def __post_init__(self) -> None:
        self.target = self.series.values.transpose(2, 1, 0)
        self.seen = np.isfinite(self.target)
        self.counts = np.maximum(self.seen.sum(axis=(1, 2)), 1)
        self.free = [a for a, m in enumerate(self.modes) if m == "free"]
        self.shared = [a for a, m in enumerate(self.modes) if m == "shared"]
        self.spread, self.jacobian = np.zeros(len(self.target)), 0.0
        with np.errstate(all="ignore"):
            for c, (v, noise) in enumerate(zip(self.target, self.series.noises, strict=True)):
                self.spread[c] = np.nanstd(noise.on_scale(v[self.seen[c]])) if self.seen[c].any() else 1.0
                if noise.kind == "lognormal":  # what comparing noise on different scales takes
                    self.jacobian += float(np.sum(np.log(v[self.seen[c]])))

    def left(self, theta: np.ndarray, start: np.ndarray) -> np.ndarray:
        """What constants and first states leave of each value."""
        return self.residuals(self.system.solve(theta, start, self.series.times, self.series.x, self.steps))

    def residuals(self, u: np.ndarray) -> np.ndarray:
        """What states leave of each value, on a scale on which noise is the same everywhere."""
        rows = zip(self.series.noises, self.target, self.system.values(u), strict=True)
        with np.errstate(all="ignore"):
            return np.where(self.seen, np.stack([noise.residual(y, mean) for noise, y, mean in rows]), 0.0)

    def sigma(self, r: np.ndarray) -> np.ndarray:
        return np.maximum(np.sqrt(np.nansum(r**2, axis=(1, 2)) / self.counts), LEAST_NOISE * self.spread)

    def loss(self, r: np.ndarray) -> float:
        """Sum over values of log sigma: what likelihood with the best sigma leaves."""
        if not np.isfinite(r).all():
            return np.inf
        return float(np.sum(self.seen.sum(axis=(1, 2)) * (np.log(self.sigma(r)) + 0.5))) + self.jacobian

    def linearised(self, theta: np.ndarray, start: np.ndarray) -> _Linear:
        s, q = self.series, len(theta)
        u, slopes = self.system.sensitivities(theta, start, s.times, s.x, self.steps)
        r, means = self.residuals(u), self.system.values(u)
        for c, (noise, log) in enumerate(zip(s.noises, self.system.logs, strict=True)):
            slopes[c] *= noise.slope(self.target[c], means[c]) * (means[c] if log else 1.0)
        weights, n = np.where(self.seen, 1 / self.sigma(r)[:, None, None], 0.0), r.shape[2]
        rows = np.nan_to_num(slopes * weights[:, None], posinf=0, neginf=0).transpose(3, 0, 2, 1)
        rows = rows.reshape(n, -1, slopes.shape[1])
        jacobian = rows[..., [*range(q), *(q + a for a in self.shared)]]
        res = (np.nan_to_num(r) * weights).transpose(2, 0, 1).reshape(n, -1)
        return _Linear(jacobian, res, rows[..., [q + a for a in self.free]])


@dataclass(eq=False)
class _Linear:
    """Residuals to first order: by constants and shared first states, and by free ones, which are eliminated."""

    jacobian: Float[np.ndarray, "n r k"]
    res: Float[np.ndarray, "n r"]
    own: Float[np.ndarray, "n r f"]

    def __post_init__(self) -> None:
        jitter = 1e-12 * np.random.default_rng(0).normal(size=self.own.shape)
        self.basis, self.upper = np.linalg.qr(self.own + jitter)
        left = self.jacobian - self.basis @ (self.basis.transpose(0, 2, 1) @ self.jacobian)
        rest = self.res - np.einsum("nrf,ngf,ng->nr", self.basis, self.basis, self.res, optimize=True)
        flat = left.reshape(rest.size, left.shape[2])
        self.normal, self.gradient = flat.T @ flat, flat.T @ rest.reshape(-1)

    def step(self, damping: float) -> tuple[np.ndarray, np.ndarray]:
        """Return the damped step of constants and shared states, and that of free states, a row per trajectory."""
        size = np.sqrt(np.maximum(np.diag(self.normal), 1e-300))
        scaled = self.normal / np.outer(size, size) + damping * np.eye(len(size))
        step = np.linalg.lstsq(scaled, self.gradient / size, rcond=1e-14)[0] / size
        inner = np.einsum("nrf,nr->nf", self.basis, self.res - self.jacobian @ step)
        ridge = 1e-10 * np.max(np.abs(self.upper), initial=0.0) * np.eye(self.upper.shape[1])
        return step, np.linalg.solve(self.upper + ridge, inner[..., None])[..., 0]

"""Refit: constants of rates through the integrator, by Gauss-Newton steps on trajectories or segments of them.

The state at the first time is free for each trajectory and eliminated (``"free"``), the same for all (``"shared"``), or
a parameter of the trajectory (its number).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from jaxtyping import Float

from isr.motion.series import Series
from isr.motion.system import System

Start = str | int
# Noise below this share of a channel's spread cannot be told from the integrator's error.
LEAST_NOISE = 1e-7
LOST = 1e3


@dataclass(frozen=True, eq=False)
class Fit:
    """Constants of a system, with what they leave.

    Args:
        system: The rates.
        theta: Constants.
        start: States at the first time, channels first: of each trajectory.
        sigma: Noise of each channel, on the scale of its state.
        nats: Mean negative log-likelihood per measured value, without constants.
        n_values: How many values were fitted.
        n_free: How many numbers were fitted.
        errors: Standard errors of the constants.
        lost: Share of values that the integrator lost.
        steps: Steps between two times.
    """

    system: System
    theta: np.ndarray
    start: np.ndarray
    sigma: np.ndarray
    nats: float
    n_values: int
    n_free: int
    errors: np.ndarray = field(default_factory=lambda: np.zeros(0))
    lost: float = 0.0
    steps: int = 4
    series: Series | None = None

    def bic(self, per_term: float = 0.0) -> float:
        """Return twice the description length, with a price for each constant besides."""
        return (
            2 * self.n_values * self.nats + self.n_free * np.log(self.n_values) + per_term * len(self.theta)
        )

    def without(self, constants: Sequence[object]) -> Fit:
        """Return the fit as one that knows nothing of some constants."""
        kept = [s not in constants for s in self.system.constants]
        left = tuple(s for s in self.system.constants if s not in constants)
        return replace(self, system=replace(self.system, constants=left), theta=self.theta[kept])

    def residuals(self) -> Float[np.ndarray, "c t n"]:
        """Return what is left of each value on the scale of the noise; 0 where nothing was measured."""
        p = _Problem(self.system, self.series, (), self.steps)
        s = self.series
        return np.nan_to_num(p.residuals(self.system.solve(self.theta, self.start, s.times, s.x, self.steps)))

    def step_error(self) -> float:
        """Return by how much twice as many steps change the states, relative to the noise."""
        given = self.theta, self.start, self.series.times, self.series.x
        off = np.diff(
            [self.system.values(self.system.solve(*given, k)) for k in (self.steps, 2 * self.steps)], axis=0
        )[0]
        size = np.sqrt(np.nanmean(off**2, axis=(1, 2)))
        return float(np.max(size / self.sigma))


@dataclass(eq=False)
class _Problem:
    system: System
    series: Series
    modes: tuple[Start, ...]
    steps: int
    floor: np.ndarray = field(init=False)
    seen: np.ndarray = field(init=False)
    target: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        s = self.series
        self.target = np.stack(
            [_scaled(v, kind) for v, kind in zip(s.values.transpose(2, 1, 0), s.kinds, strict=True)]
        )
        self.seen = np.isfinite(self.target)
        self.floor = np.array([LEAST_NOISE * np.nanstd(v) + 1e-300 for v in self.target])

    def residuals(self, u: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            return np.where(self.seen, self.target - self.measured(u), 0.0)

    def measured(self, u: np.ndarray) -> np.ndarray:
        """Return states on the scale of the noise."""
        y = self.system.values(u)
        return np.stack([_scaled(v, kind) for v, kind in zip(y, self.series.kinds, strict=True)])

    def slope(self, u: np.ndarray) -> np.ndarray:
        """Return the derivative of what `measured` returns by states."""
        y = self.system.values(u)
        by_log = [
            np.ones_like(v) if kind == "lognormal" else v
            for v, kind in zip(y, self.series.kinds, strict=True)
        ]
        by_value = [
            1 / v if kind == "lognormal" else np.ones_like(v)
            for v, kind in zip(y, self.series.kinds, strict=True)
        ]
        return np.stack(
            [a if log else b for a, b, log in zip(by_log, by_value, self.system.logs, strict=True)]
        )

    def sigma(self, r: np.ndarray) -> np.ndarray:
        counts = self.seen.sum(axis=(1, 2))
        return np.maximum(np.sqrt(np.nansum(r**2, axis=(1, 2)) / np.maximum(counts, 1)), self.floor)

    def loss(self, r: np.ndarray) -> float:
        """Sum over values of log sigma: what likelihood with the best sigma leaves."""
        if not np.isfinite(r).all():
            return np.inf
        return float(np.sum(self.seen.sum(axis=(1, 2)) * (np.log(self.sigma(r)) + 0.5))) + self.jacobian

    @property
    def jacobian(self) -> float:
        """What comparing noise on different scales takes."""
        logs = np.array([kind == "lognormal" for kind in self.series.kinds])
        return float(np.sum(self.target[logs], where=self.seen[logs]))


def _scaled(v: np.ndarray, kind: str) -> np.ndarray:
    with np.errstate(all="ignore"):
        return np.log(v) if kind == "lognormal" else v


def likeliest_kinds(fit: Fit) -> tuple[str, ...]:
    """Return which noise the residuals of a fit have, channel by channel: additive or relative."""
    s = fit.series
    u = fit.system.solve(fit.theta, fit.start, s.times, s.x, fit.steps)
    kinds = []
    for c in range(len(s.names)):
        found = {}
        for kind in ("normal", "lognormal") if np.nanmin(s.values[..., c]) > 0 else ("normal",):
            p = _Problem(
                fit.system,
                replace(s, kinds=tuple(kind if i == c else k for i, k in enumerate(s.kinds))),
                (),
                1,
            )
            found[kind] = p.loss(p.residuals(u))
        kinds.append(min(found, key=lambda kind: found[kind]))
    return tuple(kinds)


def refit(
    system: System, theta: np.ndarray, start: np.ndarray, series: Series, modes: Sequence[Start], *,
    steps: int = 4, iterations: int = 30, tolerance: float = 1e-5, hopeless: float = np.inf,
) -> Fit:  # fmt: skip
    """Return the constants that fit best, found from ``theta`` and ``start`` (channels first)."""
    with np.errstate(all="ignore"):
        return _refit(system, theta, start, series, modes, steps, iterations, tolerance, hopeless)


def _refit(
    system: System, theta: np.ndarray, start: np.ndarray, series: Series, modes: Sequence[Start], steps: int,
    iterations: int, tolerance: float, hopeless: float,
) -> Fit:  # fmt: skip
    p = _Problem(system, series, tuple(modes), steps)
    theta, start = np.array(theta, float), np.array(start, float)
    times, x = series.times, series.x
    loss = p.loss(p.residuals(system.solve(theta, start, times, x, steps)))
    damping, q = 1e-3, len(theta)
    free = [a for a, m in enumerate(modes) if m == "free"]
    shared = [a for a, m in enumerate(modes) if m == "shared"]
    normal = np.eye(q + len(shared))
    for number in range(iterations if np.isfinite(loss) else 0):
        u, slopes = system.sensitivities(theta, start, times, x, steps)
        r = p.residuals(u)
        w = np.where(p.seen, 1 / p.sigma(r)[:, None, None], 0.0)
        r, slopes = np.nan_to_num(r), slopes * p.slope(u)[:, None]
        n = r.shape[2]
        jac = np.concatenate([slopes[:, :q], slopes[:, [q + a for a in shared]]], axis=1) * w[:, None]
        jac = np.nan_to_num(
            jac.transpose(3, 0, 2, 1).reshape(n, r.size // n, q + len(shared)), posinf=0, neginf=0
        )
        res = (r * w).transpose(2, 0, 1).reshape(n, -1)
        left, rest = jac, res
        if free:
            own = np.nan_to_num(
                (slopes[:, [q + a for a in free]] * w[:, None]).transpose(3, 0, 2, 1), posinf=0, neginf=0
            )
            own = own.reshape(n, -1, len(free))
            basis, upper = np.linalg.qr(own + 1e-12 * np.random.default_rng(0).normal(size=own.shape))
            left = jac - basis @ (basis.transpose(0, 2, 1) @ jac)
            rest = res - np.einsum("nrf,nf->nr", basis, np.einsum("nrf,nr->nf", basis, res))
        flat, flat_rest = left.reshape(r.size, q + len(shared)), rest.reshape(-1)
        normal, gradient = flat.T @ flat, flat.T @ flat_rest
        if not (np.isfinite(normal).all() and np.isfinite(gradient).all()):
            normal, loss = np.eye(len(normal)), np.inf
            break
        size = np.sqrt(np.maximum(np.diag(normal), 1e-300))
        accepted = False
        for _ in range(5):
            scaled = normal / np.outer(size, size) + damping * np.eye(len(size))
            step = np.linalg.lstsq(scaled, gradient / size, rcond=1e-14)[0] / size if len(size) else size
            new_start = start.copy()
            for k, a in enumerate(shared):
                new_start[a] += step[q + k]
            if free:
                inner = np.einsum("nrf,nr->nf", basis, res - jac @ step)
                move = np.linalg.solve(
                    upper + 1e-10 * np.max(np.abs(upper)) * np.eye(len(free)), inner[..., None]
                )[..., 0]
                new_start[free] += move.T
            new_theta = theta + step[:q]
            new_loss = p.loss(p.residuals(system.solve(new_theta, new_start, times, x, steps)))
            if new_loss < loss:
                accepted = True
                break
            damping = max(damping, 1e-6) * 8
        if not accepted:
            break
        gain, loss = loss - new_loss, new_loss
        theta, start, damping = new_theta, new_start, damping / 5
        if number >= 3 and loss - 10 * gain > hopeless:
            break
        if gain < tolerance * p.seen.sum() ** 0.5 * 1e-1 + 1e-9 * abs(loss):
            break
    r = p.residuals(system.solve(theta, start, times, x, steps))
    n_values = int(p.seen.sum())
    with np.errstate(all="ignore"):
        errors = np.sqrt(np.maximum(np.diag(np.linalg.pinv(normal)), 0))[:q]
    n_free = q + len(shared) + len(free) * r.shape[2]
    return Fit(
        system, theta, start, p.sigma(r), loss / n_values, n_values, n_free, errors, 0.0, steps, series
    )

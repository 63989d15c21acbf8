"""Refit: constants of rates through the integrator, by Gauss-Newton steps on trajectories or segments of them.

The state at the first time is free for each trajectory and eliminated (``"free"``), the same for all (``"shared"``), or
a parameter of the trajectory (its number).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from jaxtyping import Float
from scipy.special import xlogy

from isr.motion.series import Series
from isr.motion.system import System

Start = str | int
# Noise below this share of a channel's spread cannot be told from the integrator's error.
LEAST_NOISE = 1e-7
# Anscombe's: what makes the noise of small counts about constant.
SHIFT, LEAST_MEAN = 3 / 8, 1e-9
N_DAMPINGS = 5


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
    steps: int = 4
    series: Series | None = None
    modes: tuple[Start, ...] = ()

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

    def residuals(self, *, scaled: bool = True) -> Float[np.ndarray, "c t n"]:
        """Return what is left of each value, on the scale of the noise or its own; 0 where nothing was measured."""
        s = self.series if scaled else replace(self.series, kinds=("normal",) * len(self.series.names))
        p = _Problem(self.system, s, (), self.steps)
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
        self.target = s.values.transpose(2, 1, 0)
        self.seen = np.isfinite(self.target)
        with np.errstate(all="ignore"):
            spread = [
                np.std(on_scale(v[k], kind)) if k.any() else 1.0
                for v, k, kind in zip(self.target, self.seen, s.kinds, strict=True)
            ]
        self.floor = LEAST_NOISE * np.nan_to_num(np.array(spread)) + 1e-300

    def residuals(self, u: np.ndarray) -> np.ndarray:
        """Return what states leave of each value, on a scale on which noise is the same everywhere."""
        with np.errstate(all="ignore"):
            pairs = zip(self.target, self.system.values(u), self.series.kinds, strict=True)
            return np.where(self.seen, np.stack([_residual(*three) for three in pairs]), 0.0)

    def slope(self, u: np.ndarray) -> np.ndarray:
        """Return the derivative of minus the residuals by states."""
        y = self.system.values(u)
        found = [_slope(*three) for three in zip(self.target, y, self.series.kinds, strict=True)]
        return np.stack([f * v if log else f for f, v, log in zip(found, y, self.system.logs, strict=True)])

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
        with np.errstate(all="ignore"):
            return float(np.sum(np.log(self.target[logs]), where=self.seen[logs]))


def on_scale(v: np.ndarray, kind: str) -> np.ndarray:
    """Return values on a scale on which their noise is the same everywhere."""
    with np.errstate(all="ignore"):
        if kind == "lognormal":
            return np.log(v)
        if kind == "poisson":
            return 2 * np.sqrt(np.maximum(v, 0) + SHIFT)
        if kind.startswith("binomial"):
            n = trials(kind)
            return 2 * np.sqrt(n + 0.5) * np.arcsin(np.sqrt((np.clip(v, 0, n) + SHIFT) / (n + 2 * SHIFT)))
        return v


def _residual(y: np.ndarray, mean: np.ndarray, kind: str) -> np.ndarray:
    """Return values less means on that scale; of counts the root of their deviance, which is twice a likelihood."""
    if kind in ("normal", "lognormal"):
        return on_scale(y, kind) - on_scale(mean, kind)
    n = trials(kind)
    mean = np.clip(mean, LEAST_MEAN, n * (1 - 1e-12))
    deviance = xlogy(y, y / mean) - (y - mean)
    if np.isfinite(n):
        deviance = xlogy(y, y / mean) + xlogy(n - y, (n - y) / (n - mean))
    return np.sign(y - mean) * np.sqrt(np.maximum(2 * deviance, 0.0))


def _slope(y: np.ndarray, mean: np.ndarray, kind: str) -> np.ndarray:
    if kind in ("normal", "lognormal"):
        return 1 / mean if kind == "lognormal" else np.ones_like(mean)
    inside = np.clip(mean, LEAST_MEAN, trials(kind) * (1 - 1e-12))
    variance = inside * (1 - inside / trials(kind))
    r = _residual(y, inside, kind)
    return np.where(np.abs(r) > 1e-4, (y - inside) / (variance * r), 1 / np.sqrt(variance)) * (inside == mean)


def trials(kind: str) -> float:
    """Return the number of trials that a noise such as ``"binomial(1000)"`` names, infinite of others."""
    return float(kind.partition("(")[2].rstrip(")")) if kind.startswith("binomial") else np.inf


def likeliest_kinds(fit: Fit) -> tuple[str, ...]:
    """Return which noise the residuals of a fit have, channel by channel: additive or relative."""
    s = fit.series
    u = fit.system.solve(fit.theta, fit.start, s.times, s.x, fit.steps)
    kinds = []
    for c in range(len(s.names)):
        found = {}
        if s.kinds[c] not in ("normal", "lognormal"):
            kinds.append(s.kinds[c])
            continue
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
        return _refit(
            _Problem(system, series, tuple(modes), steps), theta, start, iterations, tolerance, hopeless
        )


@dataclass(eq=False)
class _Linear:
    """Residuals to first order: by constants and shared first states, and by free ones, which are eliminated."""

    jac: np.ndarray
    res: np.ndarray
    basis: np.ndarray | None
    upper: np.ndarray | None
    normal: np.ndarray = field(init=False)
    gradient: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        left, rest = self.jac, self.res
        if self.basis is not None:
            left = left - self.basis @ (self.basis.transpose(0, 2, 1) @ left)
            along = np.einsum("nrf,nr->nf", self.basis, rest)
            rest = rest - np.einsum("nrf,nf->nr", self.basis, along)
        flat = left.reshape(rest.size, left.shape[2])
        self.normal, self.gradient = flat.T @ flat, flat.T @ rest.reshape(-1)

    @property
    def is_finite(self) -> bool:
        """Whether there is a step at all."""
        return bool(np.isfinite(self.normal).all() and np.isfinite(self.gradient).all())

    def step(self, damping: float) -> tuple[np.ndarray, np.ndarray | None]:
        """Return the damped step of constants and shared states, and that of free states, a row per trajectory."""
        size = np.sqrt(np.maximum(np.diag(self.normal), 1e-300))
        step = size
        if len(size):
            scaled = self.normal / np.outer(size, size) + damping * np.eye(len(size))
            step = np.linalg.lstsq(scaled, self.gradient / size, rcond=1e-14)[0] / size
        if self.basis is None or self.upper is None:
            return step, None
        inner = np.einsum("nrf,nr->nf", self.basis, self.res - self.jac @ step)
        ridge = 1e-10 * np.max(np.abs(self.upper)) * np.eye(self.upper.shape[1])
        return step, np.linalg.solve(self.upper + ridge, inner[..., None])[..., 0]


def _linear(p: _Problem, theta: np.ndarray, start: np.ndarray, free: list[int], shared: list[int]) -> _Linear:
    u, slopes = p.system.sensitivities(theta, start, p.series.times, p.series.x, p.steps)
    r, q = p.residuals(u), len(theta)
    weights = np.where(p.seen, 1 / p.sigma(r)[:, None, None], 0.0)
    slopes, n = slopes * (p.slope(u) * weights)[:, None], r.shape[2]

    def rows(columns: list[int]) -> np.ndarray:
        chosen = slopes[:, columns].transpose(3, 0, 2, 1).reshape(n, r.size // n, len(columns))
        return np.nan_to_num(chosen, posinf=0, neginf=0)

    res = (np.nan_to_num(r) * weights).transpose(2, 0, 1).reshape(n, -1)
    jac = rows([*range(q), *(q + a for a in shared)])
    if not free:
        return _Linear(jac, res, None, None)
    own = rows([q + a for a in free])
    basis, upper = np.linalg.qr(own + 1e-12 * np.random.default_rng(0).normal(size=own.shape))
    return _Linear(jac, res, basis, upper)


def _refit(
    p: _Problem, theta: np.ndarray, start: np.ndarray, iterations: int, tolerance: float, hopeless: float
) -> Fit:
    def left(theta: np.ndarray, start: np.ndarray) -> np.ndarray:
        return p.residuals(p.system.solve(theta, start, p.series.times, p.series.x, p.steps))

    theta, start = np.array(theta, float), np.array(start, float)
    loss, damping, q = p.loss(left(theta, start)), 1e-3, len(theta)
    free = [a for a, m in enumerate(p.modes) if m == "free"]
    shared = [a for a, m in enumerate(p.modes) if m == "shared"]
    normal = np.eye(q + len(shared))
    for number in range(iterations if np.isfinite(loss) else 0):
        linear = _linear(p, theta, start, free, shared)
        if not linear.is_finite:
            loss = np.inf
            break
        normal = linear.normal
        for _ in range(N_DAMPINGS):
            step, move = linear.step(damping)
            new_theta, new_start = theta + step[:q], start.copy()
            new_start[shared] += step[q:, None]
            if move is not None:
                new_start[free] += move.T
            new_loss = p.loss(left(new_theta, new_start))
            if new_loss < loss:
                break
            damping = max(damping, 1e-6) * 8
        else:
            break
        gain, loss = loss - new_loss, new_loss
        theta, start, damping = new_theta, new_start, damping / 5
        if number >= 3 and loss - 10 * gain > hopeless:
            break
        if gain < 0.1 * tolerance * p.seen.sum() ** 0.5 + 1e-9 * abs(loss):
            break
    errors = np.sqrt(np.maximum(np.diag(np.linalg.pinv(normal)), 0))[:q]
    n_values, n_free = int(p.seen.sum()), q + len(shared) + len(free) * start.shape[1]
    sigma = p.sigma(left(theta, start))
    return Fit(
        p.system, theta, start, sigma, loss / n_values, n_values, n_free, errors, p.steps, p.series, p.modes
    )

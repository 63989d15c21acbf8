"""Hidden: one channel that nobody measured, tried where a single measured channel does not close on itself.

Both are followed as logarithms; the hidden one begins at 1, for its unit is free. Many structures with plain constants
are integrated side by side, and the most promising are fitted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product

import numpy as np
import sympy
from jaxtyping import Float

from isr.motion.clock import keep_time
from isr.motion.noise import Noise
from isr.motion.refit import Fit, refit
from isr.motion.series import Series
from isr.motion.system import System

N_SCANNED, N_TRAJECTORIES, N_FITTED, N_FINAL = 24_000, 24, 40, 4
CHUNK = 2000
# First values of the measured channel that are tried, relative to its largest one.
FIRST = (1e-6, 1e-4, 1e-2, 0.3)
STEPS = 6
PRICE = 10.0
MODES = ("shared", "one")


@dataclass(frozen=True)
class _Plan:
    """A structure: terms of both rates, as factor (1, measured, hidden) and parameter (-1: none), with their signs."""

    terms: tuple[tuple[int, int], ...]
    n_measured: int
    signs: tuple[float, ...]
    first: float


def find_hidden(series: Series, name: str, say: Callable[[str], None]) -> Fit | None:
    """Return the best fit with a hidden channel after the only measured one; None where none survives."""
    scale = float(np.nanmax(series.values))
    few = series.take(np.random.default_rng(0).permutation(len(series.times))[:N_TRAJECTORIES])
    plans = list(_plans(len(series.x_names)))
    plans = [plans[i] for i in np.random.default_rng(1).permutation(len(plans))[:N_SCANNED]]
    losses = np.concatenate([_scan(plans[i : i + CHUNK], few, scale) for i in range(0, len(plans), CHUNK)])
    say(f"hidden channel: {len(plans)} structures integrated, {np.isfinite(losses).sum()} survive")
    chosen = [plans[i] for i in np.argsort(losses)[:N_FITTED] if np.isfinite(losses[i])]
    found = [_fitted(plan, _with_hidden(few, name), scale) for plan in chosen]
    for part in (series.take(slice(0, 100)), series):
        found = sorted((f for f in found if np.isfinite(f.nats)), key=lambda f: f.bic(PRICE))
        found = [_again(f, _with_hidden(part, name)) for f in found[:N_FINAL]]
    return min((f for f in found if np.isfinite(f.nats)), key=lambda f: f.bic(PRICE), default=None)


def _plans(d: int) -> Iterator[_Plan]:
    terms = [(f, j) for f in range(3) for j in range(-1, d)]
    theirs = [t for k in (1, 2) for t in combinations(terms, k)]
    ours = [t for t in theirs if any(f == 2 for f, _ in t)]
    for a, b in product(ours, theirs):
        if {j for _, j in (*a, *b)} >= set(range(d)):
            for signs in product((1.0, -1.0), repeat=len(a) + len(b)):
                yield from (_Plan((*a, *b), len(a), signs, first) for first in FIRST)


def _scan(plans: Sequence[_Plan], series: Series, scale: float) -> Float[np.ndarray, " plans"]:
    """Return what plain constants leave of the data, for many structures side by side."""
    n, times, noise = len(series.x), series.times[0], series.noises[0]
    factors = np.column_stack(
        [series.x, np.full(n, 3.0 / np.ptp(times))]
    )  # the last where no parameter stands
    weights = np.zeros((2, 3, len(plans), n))
    for p, plan in enumerate(plans):
        for k, ((f, j), sign) in enumerate(zip(plan.terms, plan.signs, strict=True)):
            weights[int(k >= plan.n_measured), f, p] += sign * factors[:, j]
    u = np.zeros((2, len(plans), n))
    u[0] = np.log([plan.first for plan in plans])[:, None]
    left = np.zeros(len(plans))

    def rate(u: np.ndarray) -> np.ndarray:
        y = np.exp(np.minimum(u, 5.0))
        return weights[:, 0] + weights[:, 1] * y[0] + weights[:, 2] * y[1]

    with np.errstate(all="ignore"):
        target = noise.on_scale(series.values[..., 0])
        for k, h in enumerate(np.diff(times, prepend=times[0]) / STEPS):
            keep_time()
            for _ in range(STEPS if k else 0):
                u = u + h * rate(u + 0.5 * h * rate(u))
            off = target[:, k] - noise.on_scale(scale * np.exp(np.minimum(u[0], 20.0)))
            left += np.nansum(np.minimum(off**2, 1e12), axis=1)
        return np.where(np.isfinite(u).all(axis=(0, 2)), left, np.inf)


def _fitted(plan: _Plan, series: Series, scale: float) -> Fit:
    constants = tuple(sympy.Symbol(f"k{i}", real=True) for i in range(len(plan.signs)))
    span, each, theta = np.ptp(series.times[0]), [], []
    for c, (f, j), sign in zip(constants, plan.terms, plan.signs, strict=True):
        each.append(c * (sympy.Integer(1), *series.states)[f] * (series.parameters[j] if j >= 0 else 1))
        theta.append(sign * (1 / scale if f == 1 else 1.0) * (1.0 if j >= 0 else 3.0 / span))
    rates = (sympy.Add(*each[: plan.n_measured]), sympy.Add(*each[plan.n_measured :]))
    system = System(rates, (True, True), series.states, series.parameters, constants)
    start = np.array([[np.log(plan.first * scale)], [0.0]]) + np.zeros(len(series.x))
    return refit(system, np.array(theta), start, series, MODES, steps=STEPS, iterations=12)


def _again(found: Fit, series: Series) -> Fit:
    """The fit to other trajectories, with as many steps as it takes."""
    start, steps = np.repeat(found.start[:, :1], len(series.x), axis=1), STEPS
    for _ in range(4):
        found = refit(found.system, found.theta, start, series, MODES, steps=steps, iterations=25)
        if not np.isfinite(found.nats) or found.step_error(steps) < 0.1:
            break
        start, steps = found.start, 2 * steps
    return found


def _with_hidden(series: Series, name: str) -> Series:
    nothing = np.full((*series.values.shape[:2], 1), np.nan)
    values = np.concatenate([series.values, nothing], axis=2)
    return replace(series, values=values, noises=(series.noises[0], Noise()), names=(series.names[0], name))

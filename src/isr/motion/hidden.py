"""Hidden: one channel that nobody measured, tried where a single measured channel does not close on itself.

Both are followed as logarithms; the hidden one begins at 1, for its unit is free. Many structures with plain constants
are integrated side by side, and the most promising are fitted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import combinations, product

import numpy as np
import sympy
from jaxtyping import Float

from isr.motion.refit import Fit, on_scale, refit
from isr.motion.series import Series
from isr.motion.system import System

N_SCANNED, N_TRAJECTORIES, N_FITTED, N_FINAL = 24_000, 24, 40, 4
CHUNK = 2000
# First values of the measured channel that are tried, relative to its largest one.
FIRST = (1e-6, 1e-4, 1e-2, 0.3)
STEPS = 6
Term = tuple[int, int]


def find_hidden(
    series: Series,
    states: Sequence[sympy.Symbol],
    parameters: Sequence[sympy.Symbol],
    say: Callable[[str], None],
) -> Fit | None:
    """Return the best fit with a hidden channel after the measured one; None where none survives.

    Args:
        series: Trajectories of one channel, all measured at the same times.
        states: Symbols of the measured channel and of the hidden one.
        parameters: Symbols of the parameters.
        say: Takes a line on what is being done.
    """
    scale = float(np.nanmax(series.values))
    few = series.take(np.random.default_rng(0).permutation(len(series.times))[:N_TRAJECTORIES])
    plans = list(_plans(len(parameters)))
    order = np.random.default_rng(1).permutation(len(plans))[:N_SCANNED]
    plans = [plans[i] for i in order]
    losses = np.concatenate([_scan(plans[i : i + CHUNK], few, scale) for i in range(0, len(plans), CHUNK)])
    say(f"hidden channel: {len(plans)} structures integrated, {np.isfinite(losses).sum()} survive")
    found: list[Fit] = []
    for i in np.argsort(losses)[:N_FITTED]:
        if np.isfinite(losses[i]):
            found.append(_fitted(plans[i], few, scale, states, parameters))
    found = [f for f in found if np.isfinite(f.nats)]
    for part in (series.take(slice(0, 100)), series):
        found.sort(key=lambda f: f.bic(10.0))
        found = [_again(f, part) for f in found[:N_FINAL]]
        found = [f for f in found if np.isfinite(f.nats)]
    return min(found, key=lambda f: f.bic(10.0), default=None)


def _plans(d: int) -> Iterator[tuple[tuple[Term, ...], tuple[Term, ...], tuple[float, ...], float]]:
    """Structures: terms (factor 1, measured or hidden; parameter or none) of both rates, signs, and a first value."""
    terms = [(f, j) for f in range(3) for j in range(-1, d)]
    ours = [t for k in (1, 2) for t in combinations(terms, k) if any(f == 2 for f, _ in t)]
    theirs = [t for k in (1, 2) for t in combinations(terms, k)]
    for a, b in product(ours, theirs):
        if {j for _, j in (*a, *b)} >= set(range(d)):
            for signs in product((1.0, -1.0), repeat=len(a) + len(b)):
                for first in FIRST:
                    yield a, b, signs, first


def _scan(plans: Sequence, series: Series, scale: float) -> Float[np.ndarray, " plans"]:
    """Return what plain constants leave of the data, for many structures side by side."""
    span = np.ptp(series.times[0])
    factors = np.column_stack(
        [series.x, np.full(len(series.x), 3.0 / span)]
    )  # the last where no parameter stands
    weights = np.zeros((2, 3, len(plans), len(series.x)))
    for p, (a, b, signs, _) in enumerate(plans):
        for place, ((f, j), sign) in zip(
            [0] * len(a) + [1] * len(b), zip((*a, *b), signs, strict=True), strict=True
        ):
            weights[place, f, p] += sign * factors[:, j]
    u = np.zeros((2, len(plans), len(series.x)))
    u[0] = np.log([plan[3] for plan in plans])[:, None]
    target, left = on_scale(series.values[..., 0], series.kinds[0]), np.zeros(len(plans))

    def rate(u: np.ndarray) -> np.ndarray:
        y = np.exp(np.minimum(u, 5.0))
        return weights[:, 0] + weights[:, 1] * y[0] + weights[:, 2] * y[1]

    with np.errstate(all="ignore"):
        for k, t in enumerate(series.times[0]):
            for _ in range(STEPS if k else 0):
                h = (t - series.times[0, k - 1]) / STEPS
                k1 = rate(u)
                u = u + h * rate(u + 0.5 * h * k1)
            off = target[:, k] - on_scale(scale * np.exp(np.minimum(u[0], 20.0)), series.kinds[0])
            left += np.nansum(np.minimum(off**2, 1e12), axis=1)
        return np.where(np.isfinite(u).all(axis=(0, 2)), left, np.inf)


def _fitted(
    plan: tuple,
    series: Series,
    scale: float,
    states: Sequence[sympy.Symbol],
    parameters: Sequence[sympy.Symbol],
) -> Fit:
    a, b, signs, first = plan
    y, h = states
    constants = tuple(sympy.Symbol(f"k{i}", real=True) for i in range(len(signs)))
    span = np.ptp(series.times[0])
    terms = [(sympy.Integer(1), y, h)[f] * (parameters[j] if j >= 0 else 1) for f, j in (*a, *b)]
    theta = [
        s * (1 / scale if f == 1 else 1.0) * (1.0 if j >= 0 else 3.0 / span)
        for s, (f, j) in zip(signs, (*a, *b), strict=True)
    ]
    each = [c * t for c, t in zip(constants, terms, strict=True)]
    rates = (sympy.Add(*each[: len(a)]), sympy.Add(*each[len(a) :]))
    system = System(rates, (True, True), tuple(states), tuple(parameters), constants)
    start = np.array([[np.log(first * scale)], [0.0]]) + np.zeros(len(series.x))
    return refit(
        system, np.array(theta), start, _with_hidden(series), ("shared", "one"), steps=STEPS, iterations=12
    )


def _again(fit: Fit, series: Series) -> Fit:
    start = np.repeat(fit.start[:, :1], len(series.x), axis=1)
    found, steps = fit, STEPS
    for _ in range(4):
        found = refit(
            fit.system,
            found.theta,
            start,
            _with_hidden(series),
            ("shared", "one"),
            steps=steps,
            iterations=25,
        )
        if not np.isfinite(found.nats) or found.step_error() < 0.1:
            break
        start, steps = found.start, 2 * steps
    return found


def _with_hidden(series: Series) -> Series:
    nothing = np.full((*series.values.shape[:2], 1), np.nan)
    return replace(
        series, values=np.concatenate([series.values[..., :1], nothing], axis=2), kinds=(series.kinds[0], "normal"),
        names=(series.names[0], "hidden"),
    )  # fmt: skip

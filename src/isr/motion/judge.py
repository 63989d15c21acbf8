"""Judging candidates through the integrator: what is searched, and the fit of a candidate per channel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import sympy

from isr.motion.candidates import Candidate
from isr.motion.refit import Fit, Start, refit
from isr.motion.series import Series
from isr.motion.system import System
from isr.motion.weak import N_INSIDE, Smooth, smooth

SEGMENT, SHORT = 16, 4
MOST_STEPS = 64
# Steps may err by this share of the noise.
STEP_ERROR = 0.1


@dataclass(eq=False)
class Search:
    """What is searched.

    Args:
        series: The trajectories.
        modes: Where each channel begins, see `isr.motion.refit`.
        states: Symbols of the channels.
        parameters: Symbols of the parameters.
        say: Takes a line on what is being done.
        steps: Runge-Kutta steps between two times, as many as were needed so far.
    """

    series: Series
    modes: tuple[Start, ...]
    states: tuple[sympy.Symbol, ...]
    parameters: tuple[sympy.Symbol, ...]
    say: Callable[[str], None]
    steps: int = 4
    curves: Smooth = field(init=False)

    def __post_init__(self) -> None:
        self.curves = smooth(self.series)

    @property
    def spread(self) -> np.ndarray:
        """Standard deviation of each channel."""
        return np.nanstd(self.series.values, axis=(0, 1))

    def starts(self, part: Series) -> np.ndarray:
        """Return states at the first time of each trajectory of a part, as the curves and the modes say."""
        measured = self.curves.states[:, ::N_INSIDE]
        if part.origin is None:
            start = measured[:, 0].T.copy()
            for c, mode in enumerate(self.modes):
                if mode == "shared":
                    start[c] = np.median(start[c])
                elif mode != "free":
                    start[c] = np.log(part.x[:, int(mode)]) if self.series.logs[c] else part.x[:, int(mode)]
            return start
        return np.stack(
            [
                measured[i, np.searchsorted(self.series.times[i], t)]
                for i, t in zip(part.origin, part.times[:, 0], strict=True)
            ],
            axis=1,
        )


def fit(
    chosen: Sequence[Candidate], search: Search, like: Fit | None = None, value: float = np.inf
) -> Fit | None:
    """Return the fit of a candidate per channel; None where no trajectory survives.

    Args:
        chosen: The candidates.
        search: What is being searched.
        like: A fit whose constants to begin with, where they are the same.
        value: What its price must come near to be of any use.
    """
    constants = tuple(c for r in chosen for c in r.constants)
    system = System(
        tuple(r.form for r in chosen), search.series.logs, search.states, search.parameters, constants
    )
    weak = np.concatenate([r.values for r in chosen])
    known = {} if like is None else dict(zip(like.system.constants, like.theta, strict=True))
    theta = np.array([known.get(s, v) for s, v in zip(constants, weak, strict=True)])
    return fit_system(system, theta, search, hopeless=value / 2)


def fit_system(
    system: System, theta: np.ndarray, search: Search, *, iterations: int = 12, hopeless: float = np.inf,
    length: int | None = None,
) -> Fit | None:  # fmt: skip
    """Return the fit of a system to short segments, then to long ones or, where starts are known, to the whole."""
    whole = search.series.times.shape[1]
    longest = length or (SEGMENT if "free" in search.modes else whole)
    found = None
    for length in (SHORT, longest):
        part, last = search.series.segments(length), length == longest
        modes = search.modes if length >= whole else ("free",) * len(search.states)
        found = refit(
            system, theta, search.starts(part), part, modes, steps=search.steps,
            iterations=iterations if last else 5, hopeless=hopeless if last else np.inf,
        )  # fmt: skip
        if not np.isfinite(found.nats):
            return None
        theta = found.theta
    return found


def price(chosen: Sequence[Candidate], found: Fit | None) -> float:
    """Return twice the description length of a fit."""
    return np.inf if found is None else found.bic() + sum(r.price for r in chosen)


def with_enough_steps(chosen: Sequence[Candidate], best: Fit | None, search: Search) -> Fit | None:
    """Return the fit with so many steps that twice as many change nothing that could be measured."""
    while best is not None and search.steps < MOST_STEPS and best.step_error() > STEP_ERROR:
        search.steps *= 2
        better = fit(chosen, search, best)
        if better is None:
            break
        best = better
    return best


def pruned(chosen: list[Candidate], best: Fit, search: Search) -> tuple[list[Candidate], Fit]:
    """Return the candidates without those terms that do not pay for themselves."""
    value = price(chosen, best)
    tried: set = set()
    while len(best.theta) > 1:
        weights = np.abs(best.theta) / np.maximum(best.errors, 1e-300)
        order = [best.system.constants[i] for i in np.argsort(weights)]
        for symbol in [s for s in order if s not in tried][:4]:
            tried.add(symbol)
            shorter = [r.without(symbol) for r in chosen]
            if any(r.form == 0 for r in shorter):
                continue
            found = fit(shorter, search, best, value)
            if price(shorter, found) < value:
                chosen, best, value, tried = shorter, found, price(shorter, found), set()
                break
        else:
            break
    return chosen, best

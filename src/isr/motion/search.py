"""The search for rates: candidates of each channel are judged together, through the integrator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import sympy

from isr.motion.candidates import LARGEST, Candidate, candidates, shortlist
from isr.motion.curves import N_INSIDE, Curves, curves_through
from isr.motion.library import Library
from isr.motion.refit import Fit, Start, refit
from isr.motion.refute import is_rough
from isr.motion.series import Series
from isr.motion.system import System

SEGMENT, SHORT = 16, 4
# So many short segments are enough to see that a candidate leaves more, by so many nats, than the best one does.
MOST_SHORT, MUCH_WORSE = 300, 20.0
LEAST_STEPS, MOST_STEPS = 4, 64
# Steps may err by this share of the noise.
STEP_ERROR = 0.1
N_TRIED = 10
# After so many sizes that are worse than a smaller one no larger one is tried.
N_WORSE = 3
# A look at a library is one at candidates of these sizes, along so many stretches.
LOOKED, N_LOOKED = (LARGEST, 6, 4), 60
# Others nearly as good that are kept.
N_KEPT = 8


@dataclass(frozen=True, eq=False)
class Found:
    """A candidate per channel, with their fit together, and the nats that they left of short segments."""

    chosen: list[Candidate]
    fit: Fit
    short: float

    @property
    def price(self) -> float:
        """Twice the description length."""
        return self.fit.bic() + sum(r.price for r in self.chosen)


class Search:
    """What is searched; the noise of its series and its steps are those that were needed so far.

    Args:
        series: The trajectories.
        modes: Where each channel begins, see `isr.motion.refit`.
        say: Takes a line on what is being done.
        steps: Runge-Kutta steps between two times.
    """

    def __init__(
        self, series: Series, modes: Sequence[Start], say: Callable[[str], None], steps: int = LEAST_STEPS
    ) -> None:
        self.series, self.modes, self.say, self.steps = series, tuple(modes), say, steps
        self.refused: set[tuple[sympy.Expr, ...]] = set()
        self.pools: list[list[Candidate]] = [[] for _ in modes]
        self.kept: list[Found] = []
        self.rng = np.random.default_rng(0)

    @cached_property
    def curves(self) -> Curves:
        """A curve for each channel of each trajectory."""
        return curves_through(self.series)

    @property
    def best(self) -> Found | None:
        """The best so far."""
        return self.kept[0] if self.kept else None

    def starts(self, part: Series) -> np.ndarray:
        """Return states at the first time of each trajectory of a part, as modes and curves say."""
        if part.origin is not None:
            firsts = zip(part.origin, part.times[:, 0], strict=True)
            places = [(i, N_INSIDE * np.searchsorted(self.series.times[i], t)) for i, t in firsts]
            return np.stack([self.curves.states[place] for place in places], axis=1)
        start = np.empty((len(self.modes), len(part.x)))
        for c, mode in enumerate(self.modes):
            first = part.values[:, 0, c] if isinstance(mode, str) else part.x[:, mode]
            with np.errstate(all="ignore"):
                state = np.log(first) if self.series.logs[c] else first
            known = state[np.isfinite(state)]
            if mode == "shared" and len(known):
                state = np.median(known)
            elif isinstance(mode, str):
                state = self.curves.states[:, 0, c]
            start[c] = np.median(state) if mode == "shared" else state
        return start

    @property
    def length(self) -> int:
        """Of the stretches that constants are fitted to in the search."""
        return SEGMENT if "free" in self.modes else self.series.n_times

    def along(
        self, system: System, theta: np.ndarray, length: int, *, iterations: int = 12, hopeless: float = np.inf
    ) -> Fit | None:  # fmt: skip
        """Return the fit to stretches of so many points, from constants that are near; None where none survives."""
        part = self.series.segments(length)
        modes = self.modes if part.origin is None else ("free",) * len(self.modes)
        steps, start = self.steps, self.starts(part)
        found = refit(
            system, theta, start, part, modes, steps=steps, iterations=iterations, hopeless=hopeless
        )
        return found if np.isfinite(found.nats) else None

    def tried(
        self, chosen: Sequence[Candidate], like: Found | None = None, *, fresh: Candidate | None = None,
        race: bool = False,
    ) -> Found | None:  # fmt: skip
        """Return the fit of a candidate per channel, begun at the constants of ``like`` but for those of ``fresh``.

        Short segments come first, then long ones or, where starts are known, the whole. None where no trajectory
        survives, and in a race where ``like`` is better beyond doubt.
        """
        kept = None if like is None else like.fit
        system, theta = self._system(chosen, kept, () if fresh is None else fresh.constants)
        short, free = self.series.segments(SHORT), ("free",) * len(chosen)
        short = short.take(np.random.default_rng(0).permutation(len(short.x))[:MOST_SHORT])
        first = refit(system, theta, self.starts(short), short, free, steps=self.steps, iterations=5)
        # Where nothing but rounding is left, five steps say nothing of what a candidate would leave.
        racing = like is not None and race and not like.fit.exact.all()
        if not np.isfinite(first.nats) or (racing and first.nats > like.short + MUCH_WORSE):
            return None
        hopeless = like.price / 2 if like is not None and race else np.inf
        fit = self.along(system, first.theta, self.length, hopeless=hopeless)
        if fit is None:
            return None
        whole = Found(list(chosen), fit, first.nats)
        others = [f for f in self.kept if f.fit.system.rates != system.rates]
        self.kept = sorted([*others, whole], key=lambda f: f.price)[:N_KEPT]
        return whole

    def _system(
        self, chosen: Sequence[Candidate], like: Fit | None = None, fresh: Sequence[sympy.Symbol] = ()
    ) -> tuple[System, np.ndarray]:
        """Return the rates of a candidate per channel, and constants: those of ``like`` but for fresh ones."""
        s, constants = self.series, tuple(c for r in chosen for c in r.constants)
        system = System(tuple(r.form for r in chosen), s.logs, s.states, s.parameters, constants)
        values = dict(zip(constants, np.concatenate([r.values for r in chosen]), strict=True))
        if like is not None:
            known = zip(like.system.constants, like.theta, strict=True)
            values |= {c: v for c, v in known if c in values and c not in fresh}
        return system, np.array(list(values.values()))

    def is_hopeless(self, library: Library, many: Search) -> bool:
        """Let the candidates of a library join, which the weak form proposes by the series of ``many``.

        Returns whether long ones leave far more than the noise along a sample of stretches.
        """
        for c, pool in enumerate(self.pools):
            pool += candidates(many.series, many.curves, c, library, self.rng)
        if not all(self.pools) or self.series.n_times <= SEGMENT:
            return not all(self.pools)
        part, free = self.series.segments(SEGMENT), ("free",) * len(self.pools)
        part = part.take(np.random.default_rng(0).permutation(len(part.x))[:N_LOOKED])
        for size in LOOKED:
            system, theta = self._system([_of_size(pool, size) for pool in self.pools])
            fit = refit(system, theta, self.starts(part), part, free, steps=2 * self.steps, iterations=8)
            if np.isfinite(fit.nats) and not is_rough(fit):
                return False
        return True

    def choose(self) -> None:
        """Try choices among candidates until none is better, with the noise that the best one shows."""
        pools = [shortlist(pool, N_TRIED) for pool in self.pools]
        best = min([f for f in (self._first(pools), self.best) if f], key=lambda f: f.price, default=None)
        while best is not None:
            best = self.pruned(self._exchanged(best, pools))
            noises = best.fit.likeliest_noises()
            if noises == self.series.noises:
                break
            self.series = replace(self.series, noises=noises)
            self.refused.clear()
            best = self.tried(best.chosen, best)

    def _first(self, pools: Sequence[Sequence[Candidate]]) -> Found | None:
        """Return the best of those that have about as many constants in each channel."""
        found: list[Found] = []
        since = 0
        for size in range(1, LARGEST + 1):
            trial = self.tried([_of_size(pool, size) for pool in pools])
            since += 1
            if trial is not None and trial.price < min((f.price for f in found), default=np.inf):
                since = 0
            found += [] if trial is None else [trial]
            if found and since >= N_WORSE:
                break
        if not found:
            return None
        return self._with_enough_steps(min(found, key=lambda f: f.price))

    def _with_enough_steps(self, best: Found) -> Found:
        """Return the fit with so many steps that twice as many change nothing that could be measured, and no more."""
        while self.steps > LEAST_STEPS and best.fit.step_error(self.steps // 2) < STEP_ERROR / 2:
            self.steps //= 2
        while self.steps < MOST_STEPS and best.fit.step_error(self.steps) > STEP_ERROR:
            self.steps *= 2
            better = self.tried(best.chosen, best)
            if better is None:
                break
            best = better
        return best

    def _exchanged(self, best: Found, pools: Sequence[Sequence[Candidate]]) -> Found:
        """Return the best choice that no exchange in one channel improves."""
        changed = True
        while changed:
            changed = False
            for c, pool in enumerate(pools):
                for other in pool:
                    now = best.chosen[c]
                    if other is now or (best.fit.exact[c] and len(other.constants) >= len(now.constants)):
                        continue
                    trial = [*best.chosen[:c], other, *best.chosen[c + 1 :]]
                    forms = tuple(r.form for r in trial)
                    if forms in self.refused:
                        continue
                    self.refused.add(forms)
                    found = self.tried(trial, best, fresh=other, race=True)
                    if found is not None and found.price < best.price - 1e-6 * abs(best.price):
                        best, changed = self._with_enough_steps(found), True
                        nats = best.price / 2
                        self.say(
                            f"description length {nats:.1f} nats with {self.series.names[c]}' = {other.form}"
                        )
        return best

    def pruned(self, best: Found) -> Found:
        """Return it without those terms that do not pay for themselves."""
        refused: set[sympy.Symbol] = set()
        while len(best.fit.theta) > 1:
            weights = np.abs(best.fit.theta) / np.maximum(best.fit.errors, 1e-300)
            order = [best.fit.system.constants[i] for i in np.argsort(weights)]
            for symbol in [s for s in order if s not in refused][:4]:
                refused.add(symbol)
                shorter = [r.without(symbol) for r in best.chosen]
                if any(r.form == 0 for r in shorter):
                    continue
                found = self.tried(shorter, best, race=True)
                if found is not None and found.price < best.price:
                    best, refused = found, set()
                    break
            else:
                break
        return best


def _of_size(pool: Sequence[Candidate], size: int) -> Candidate:
    return min(pool, key=lambda r: (abs(len(r.constants) - size), r.left))

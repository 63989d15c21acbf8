"""The search for rates: candidates of each channel are judged together, through the integrator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import sympy
from scipy.stats import f as f_law
from scipy.stats import norm

from isr.motion.candidates import LARGEST, Candidate, candidates, shortlist
from isr.motion.curves import N_INSIDE, curves_through
from isr.motion.library import Library
from isr.motion.refit import Fit, Start, refit
from isr.motion.series import ENOUGH_FOR_ROUGHNESS, Series
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
# Larger libraries are not tried once no test has a smaller p-value.
UNSUSPECTED = 0.02
# Fourth differences tell the variance of noise as well as this share of its values would, and may be so much too small.
ROUGH_SHARE, AS_ROUGH = 0.1, 1.2


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
        self.curves = curves_through(series)
        self.refused: set[tuple[sympy.Expr, ...]] = set()

    def starts(self, part: Series) -> np.ndarray:
        """Return states at the first time of each trajectory of a part, as the curves and the modes say."""
        measured = self.curves.states[:, ::N_INSIDE]
        if part.origin is not None:
            firsts = zip(part.origin, part.times[:, 0], strict=True)
            return np.stack(
                [measured[i, np.searchsorted(self.series.times[i], t)] for i, t in firsts], axis=1
            )
        start = measured[:, 0].T.copy()
        for c, mode in enumerate(self.modes):
            if mode == "shared":
                start[c] = np.median(start[c])
            elif mode != "free":
                start[c] = np.log(part.x[:, int(mode)]) if self.series.logs[c] else part.x[:, int(mode)]
        return start

    def fit_system(
        self, system: System, theta: np.ndarray, *, length: int | None = None, most_short: int | None = None,
        iterations: int = 12, best: Found | None = None,
    ) -> tuple[Fit, float] | None:  # fmt: skip
        """Return the fit of a system to short segments, then to long ones or, where starts are known, to the whole.

        With it comes what it left of the short ones. None where no trajectory survives, or ``best`` leaves much less.
        """
        short = self.series.segments(SHORT)
        short = short.take(np.random.default_rng(0).permutation(len(short.x))[:most_short])
        free = ("free",) * len(self.modes)
        first = refit(system, theta, self.starts(short), short, free, steps=self.steps, iterations=5)
        # Where nothing but rounding is left, five steps say nothing of what a candidate would leave.
        racing = best is not None and not best.fit.exact.all()
        if not np.isfinite(first.nats) or (racing and first.nats > best.short + MUCH_WORSE):
            return None
        whole = self.series.n_times
        part = self.series.segments(length or (SEGMENT if "free" in self.modes else whole))
        found = refit(
            system, first.theta, self.starts(part), part, free if part.origin is not None else self.modes,
            steps=self.steps, iterations=iterations, hopeless=np.inf if best is None else best.price / 2,
        )  # fmt: skip
        return (found, first.nats) if np.isfinite(found.nats) else None

    def tried(
        self, chosen: Sequence[Candidate], like: Found | None = None, *, fresh: Candidate | None = None,
        race: bool = False,
    ) -> Found | None:  # fmt: skip
        """Return the fit of a candidate per channel, begun at the constants of ``like`` but for those of ``fresh``.

        None where it blows up, and in a race where ``like`` is better beyond doubt.
        """
        s = self.series
        constants = tuple(c for r in chosen for c in r.constants)
        rates = tuple(r.form for r in chosen)
        system = System(rates, s.logs, s.states, s.parameters, constants)
        values = dict(zip(constants, np.concatenate([r.values for r in chosen]), strict=True))
        if like is not None:
            known = zip(like.fit.system.constants, like.fit.theta, strict=True)
            kept = {} if fresh is None else fresh.constants
            values |= {c: v for c, v in known if c in values and c not in kept}
        theta, best = np.array(list(values.values())), like if race else None
        found = self.fit_system(system, theta, most_short=MOST_SHORT, best=best)
        return None if found is None else Found(list(chosen), *found)

    def find(self, ladder: Sequence[Library], many: Search) -> Found | None:
        """Return the best candidate of each channel; the weak form sees the series of ``many``.

        Libraries join one by one, until nothing is left to explain. None where every candidate blows up.
        """
        rng = np.random.default_rng(0)
        pools: list[list[Candidate]] = [[] for _ in self.modes]
        found: list[Found] = []
        for library in ladder:
            for c, pool in enumerate(pools):
                pool += candidates(many.series, many.curves, c, library, rng)
            best = self._best_of([shortlist(pool, N_TRIED) for pool in pools])
            found += [] if best is None else [best]
            if best is not None and self.is_enough(best.fit):
                break
        return min(found, key=lambda f: f.price, default=None)

    def is_enough(self, best: Fit) -> bool:
        """Whether what a fit leaves is rounding, or noise that no value has in common with the next."""
        return bool(best.exact.all()) or min(tests(best).values()) > UNSUSPECTED

    def _best_of(self, pools: Sequence[Sequence[Candidate]]) -> Found | None:
        """Return the best choice among candidates, with the noise that it shows; None where all blow up."""
        best = self._first(pools)
        while best is not None:
            best = self._pruned(self._exchanged(best, pools))
            noises = best.fit.likeliest_noises()
            if noises == self.series.noises:
                return best
            self.series = replace(self.series, noises=noises)
            self.refused.clear()
            refitted = self.tried(best.chosen, best)
            if refitted is None:
                return best
            best = refitted
        return None

    def _first(self, pools: Sequence[Sequence[Candidate]]) -> Found | None:
        """Return the best of those that have about as many constants in each channel."""
        found: list[Found] = []
        since = 0
        for size in range(1, LARGEST + 1):
            trial = self.tried(
                [min(pool, key=lambda r: (abs(len(r.constants) - size), r.left)) for pool in pools]
            )
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

    def _pruned(self, best: Found) -> Found:
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


def tests(best: Fit) -> dict[str, float]:
    """Return p-values, channel by channel: whether what is left of one value tells of the next, and exceeds the noise.

    How large noise is, differences of neighbours tell, where there are enough of them.
    """
    found, series = {}, best.series
    for c, (name, r) in enumerate(zip(series.names, best.residuals(), strict=True)):
        pairs, seen = r[1:] * r[:-1], series.seen[..., c].T
        if series.n_times >= ENOUGH_FOR_ROUGHNESS and seen.any():
            with np.errstate(all="ignore"):
                rough = np.abs(np.diff(series.noises[c].on_scale(series.values[..., c]), 4, axis=1))
            noise = np.nanmedian(rough) / (0.6745 * np.sqrt(70)) + 1e-300
            ratio, n = (best.sigma[c] / noise) ** 2 / AS_ROUGH**2, int(seen.sum())
            found[f"{name}: residuals exceed the noise"] = float(
                f_law.sf(ratio, n, max(ROUGH_SHARE * n, 2.0))
            )
        both = seen[1:] & seen[:-1]
        if both.any():
            z = np.sum(pairs[both]) / np.sqrt(np.sum(pairs[both] ** 2) + 1e-300)
            found[f"{name}: residuals follow each other"] = float(2 * norm.sf(abs(z)))
    return found

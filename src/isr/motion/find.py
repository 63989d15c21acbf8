"""Finding a law of motion: the search, then a last fit to everything, plain numbers, and the law it makes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
import sympy

from isr.motion.clock import OutOfTime, keep_time, time_left, until
from isr.motion.hidden import find_hidden
from isr.motion.law import Channel, MotionLaw
from isr.motion.library import LADDER, Library
from isr.motion.noise import Noise
from isr.motion.refit import EXACT, Fit, Start, refit
from isr.motion.refute import lack_of_fit
from isr.motion.search import Found, Search
from isr.motion.series import Series
from isr.search.evaluate import symbol
from isr.search.formula import Formula

REFUTED = 1e-4
# Larger libraries are not tried once no test has a smaller p-value.
UNSUSPECTED = 0.005
# What rates are proposed from and compared on; more trajectories join for the last fit.
N_PROPOSED, N_SEARCHED, LEAST_SEARCHED, MOST_VALUES = 250, 100, 25, 3000
# Laws within so many nats of the best one are fitted to everything, at most so many; within fewer they are told.
NEAR, N_NEAR, AS_LIKELY = 10.0, 3, 3.0
# Shares of the time after which the search ends, idle terms of a law that it was cut at, and the last fit.
SEARCHED, PRUNED, FITTED = 0.7, 0.8, 0.93
# One library is sought through for this share of the time that is left, at most.
RUNG = 0.3
# And all of them for this one, where candidates wait that were only looked at.
CLIMBED = 0.65
# A constant is a plain number where that costs less than this many squared standard errors.
SNAPPED = 6.0
# and where its standard error is less than this share of the distance between such numbers.
FINE = 0.05
# What a law leaves of a channel is told where it is more than this share of its spread.
MUCH_LEFT = 0.5
# A trajectory is a stray where it is missed by so many times the noise throughout; more than this share are no strays.
FAR, FEW = 3.0, 0.03
UNFOLLOWED = (
    "no candidate could be integrated along the series: every one blew up; measure more often, leave out the stretch "
    "where values explode, or scale the channels"
)

Test = Callable[[Fit], Mapping[str, float]]


@dataclass(frozen=True, eq=False)
class FoundMotion:
    """A law of motion, with p-values by what was tested, whether it leaves but rounding, and sentences on it."""

    law: MotionLaw
    tests: Mapping[str, float]
    is_exact: bool
    notes: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether no test refutes the law."""
        return self.is_exact or all(p > REFUTED for p in self.tests.values())


def find_motion(
    series: Series, modes: Sequence[Start], *, ladder: Sequence[Library] = LADDER, max_time: float = np.inf,
    test: Test = lack_of_fit, say: Callable[[str], None] = lambda line: None,
) -> FoundMotion:  # fmt: skip
    """Return the law of motion of series that begin as ``modes`` say, sought in the libraries of a ladder one by one.

    Args:
        series: The trajectories.
        modes: Where each channel begins, see `isr.motion.refit`.
        ladder: Where rates are sought.
        max_time: Seconds, after which the best so far is handed back and a note says so.
        test: Gives p-values by what was tested.
        say: Takes a line on what is being done.

    Example:
        >>> t = np.linspace(0, 5, 30)
        >>> values = 3 / (1 + np.outer([2.0, 9.0], np.exp(-3 * t)))
        >>> series = Series(np.stack([t, t]), values[..., None], np.zeros((2, 0)), ("n",), ())
        >>> print(find_motion(series, ("free",)).law)
        n' = n*(3 - n)
    """
    began = time.monotonic()
    work = _Work(series, tuple(modes), test, say)
    steps = ((SEARCHED, lambda: work.climb(ladder)), (PRUNED, work.prune), (FITTED, work.fit_all))
    for share, step in steps:
        try:
            with until(began + share * max_time):
                step()
        except OutOfTime:
            work.overdue += (work.doing,)
    ended = [f"max_time of {max_time:g} s ended {doing}" for doing in work.overdue[:1]]
    if (best := work.best) is None:
        more = " before any law was fitted; allow more time, or give fewer trajectories"
        raise ValueError(ended[0] + more if ended else UNFOLLOWED)
    values: dict[sympy.Symbol, sympy.Expr] = {}
    try:
        with until(began + FITTED * max_time):
            best, values = _snapped(best)
    except OutOfTime:
        pass
    is_exact = bool(best.exact[best.series.seen.any(axis=(0, 1))].all())
    longer = [] if is_exact else [f"{text}; longer laws may be better" for text in ended]
    notes = (*work.notes, *longer, *_hardly_explained(best))
    return FoundMotion(_law(best, values), {} if is_exact else test(best), is_exact, notes)


class _Work:
    """A search as far as it came: the best fit, what is to be said of it, and what is being done."""

    def __init__(
        self, series: Series, modes: tuple[Start, ...], test: Test, say: Callable[[str], None]
    ) -> None:
        self.series, self.modes, self.test, self.say = series, modes, test, say
        self.doing, self.notes, self.overdue = "the reading of the series", (), ()
        self.search: Search | None = None
        self.whole: Fit | None = None
        self.fitted: Found | None = None

    @property
    def best(self) -> Fit | None:
        """The best fit: to all trajectories where it came so far."""
        found = self.search.best if self.search else None
        return self.whole if found is self.fitted or found is None else found.fit

    def is_enough(self) -> bool:
        """Whether what the best fit leaves is rounding, or noise that no value has in common with the next."""
        best = self.best
        return best is not None and (bool(best.exact.all()) or min(self.test(best).values()) > UNSUSPECTED)

    def climb(self, ladder: Sequence[Library]) -> None:
        """Let one library after the other join, until nothing is left to explain."""
        rows = np.random.default_rng(0).permutation(len(self.series.times))
        n = int(np.clip(MOST_VALUES // self.series.n_times, LEAST_SEARCHED, N_SEARCHED))
        few, some = np.sort(rows[:n]), np.sort(rows[:N_PROPOSED])
        self.search, many = (Search(self.series.take(k), self.modes, self.say) for k in (few, some))
        self.search.curves = many.curves.take(np.searchsorted(some, few))
        waiting = cut = True
        with suppress(OutOfTime), until(time.monotonic() + CLIMBED * time_left()):
            waiting, cut = self.rungs(ladder, many), False
        if cut:
            self.overdue += (self.doing,)
        if waiting and all(self.search.pools):
            self.search.choose()

    def rungs(self, ladder: Sequence[Library], many: Search) -> bool:
        """Take one library after the other; returns whether candidates are left that were only looked at."""
        waiting = False
        for number, library in enumerate(ladder, 1):
            self.doing, is_last = f"the search among {library}", number == len(ladder)
            done = waiting = self.search.is_hopeless(library, many) and not is_last
            with suppress(OutOfTime), until(np.inf if is_last else time.monotonic() + RUNG * time_left()):
                if not waiting:
                    self.search.choose()
                    done = True
            keep_time()
            if not waiting and self.is_enough():
                if not done:
                    self.search.choose()
                self.fit_all()
                if self.is_enough():
                    return False
            if number == 1 and self.modes == ("shared",) and self.finds_hidden():
                return False
        return waiting

    def finds_hidden(self) -> bool:
        """Whether one more channel, which nobody measured, explains the only one that was."""
        self.doing = "the search for a channel that was not measured"
        taken = {*self.series.names, *self.series.x_names}
        name = next(n for n in ("hidden", "hidden_", "hidden__") if n not in taken)
        found = find_hidden(self.series, name, self.say)
        if found is None or min(self.test(found).values()) <= REFUTED:
            return False
        self.whole, self.fitted = found, self.search.best if self.search else None
        self.notes = ("one channel was not measured, and its unit is free: it begins at 1",)
        return True

    def prune(self) -> None:
        """Take idle terms out of the best law of a search that was cut short."""
        if self.overdue and self.search and self.search.best:
            self.search.pruned(self.search.best)

    def fit_all(self) -> None:
        """Fit the best few to all trajectories but strays, and the best of them along as long stretches as it can."""
        search = self.search
        if search is None or (found := search.best) is None or found is self.fitted:
            return
        self.doing = "the last fit, to all trajectories"
        whole = Search(
            replace(self.series, noises=search.series.noises), self.modes, self.say, 2 * search.steps
        )
        if len(self.series.times) == len(search.series.times):
            whole.curves = search.curves
        strays, self.notes = _strays(found.fit, whole), ()
        if strays.any():
            whole = Search(whole.series.take(~strays), self.modes, self.say, whole.steps)
            said = f"{strays.sum()} of {len(strays)} trajectories do not follow it and were left out of the last fit"
            self.notes = (said,)
        near = [f for f in search.kept if f.price < found.price + 2 * NEAR][:N_NEAR]
        fits: list[tuple[float, int, Fit]] = []
        for f in near:
            fit = whole.along(f.fit.system, f.fit.theta, search.length, iterations=25)
            if fit is not None:
                fits.append((fit.bic() + f.price - f.fit.bic(), len(fits), fit))
                self.whole, self.fitted = min(fits)[2], found
        for price, _, fit in sorted(fits)[1:]:
            if price < min(fits)[0] + 2 * AS_LIKELY and not fit.exact.all():
                self.notes += ("as likely by the series: " + "; ".join(_law(fit).lines()),)
        if search.length < self.series.n_times and fits:
            longer = whole.along(self.whole.system, self.whole.theta, self.series.n_times, iterations=25)
            if longer is not None and np.all(longer.sigma <= 1.3 * self.whole.sigma + EXACT * longer.spread):
                self.whole = longer


def _strays(best: Fit, search: Search) -> np.ndarray:
    """Which trajectories a fit misses by far, if they are few: clipped values, a simulation that failed."""
    series = search.series
    nothing = np.zeros(len(series.times), dtype=bool)
    if "free" in best.modes:
        return nothing
    shared = np.array(best.modes) == "shared"
    first = np.where(shared[:, None], best.start[:, :1], search.starts(series))
    r = np.nan_to_num(replace(best, series=series, start=first, steps=search.steps).scores())
    found = np.sqrt(np.mean(r**2, axis=(0, 1))) > FAR
    return found if found.mean() <= FEW else nothing


def _law(best: Fit, values: Mapping[sympy.Symbol, sympy.Expr] | None = None) -> MotionLaw:
    """Return the law that a fit found, with some constants as plain numbers."""
    series, system, channels = best.series, best.system, []
    table = {s: sympy.Float(v) for s, v in zip(system.constants, best.theta, strict=True)} | dict(
        values or {}
    )
    measured = series.seen.any(axis=(0, 1))
    for c, state in enumerate(system.states):
        noise, scale = series.noises[c], 0.0 if best.exact[c] else float(best.sigma[c])
        if not measured[c]:
            noise, scale = Noise(""), 0.0
        elif noise.is_count:
            scale = 1.0
        rate = Formula(system.rates[c].xreplace(table))
        channels.append(Channel(str(state), rate, system.logs[c], _start(best, c), noise, scale))
    return MotionLaw(series.x_names, tuple(channels), steps=max(best.steps, 8))


def _hardly_explained(best: Fit) -> list[str]:
    """A note on each channel of which much is left."""
    shares = zip(best.series.names, best.series.seen.any(axis=(0, 1)), best.sigma / best.spread, strict=True)
    much = [(name, share) for name, measured, share in shares if measured and share > MUCH_LEFT]
    return [
        f"it leaves {share:.0%} of the spread of {name}, which it hardly explains" for name, share in much
    ]


def _start(best: Fit, c: int) -> Formula | None:
    mode = best.modes[c]
    if mode == "free":
        return None
    if mode == "one":
        return Formula(sympy.Integer(1))
    if mode != "shared":
        return Formula(symbol(best.series.x_names[int(mode)]))
    value = best.start[c, 0]
    return Formula(sympy.Float(float(np.exp(value) if best.system.logs[c] else value)))


def _snapped(best: Fit) -> tuple[Fit, dict[sympy.Symbol, sympy.Expr]]:
    """Return the fit once constants that are near a plain number are that number, and those numbers."""
    values: dict[sympy.Symbol, sympy.Expr] = {}
    for s, v, e in zip(best.system.constants, best.theta, best.errors, strict=True):
        e = max(e, 1e-6 * abs(v))
        near = [
            n for n, gap in _plain_numbers(v) if n != 0 and (n - v) ** 2 < SNAPPED * e**2 and e < FINE * gap
        ]
        if near:
            values[s] = near[0]
    if not values:
        return best, {}
    left = {s: v for s, v in zip(best.system.constants, best.theta, strict=True) if s not in values}
    rates = tuple(r.xreplace(values) for r in best.system.rates)
    system, theta = replace(best.system, rates=rates, constants=tuple(left)), np.array(list(left.values()))
    found = refit(system, theta, best.start, best.series, best.modes, steps=best.steps, iterations=15)
    return (found, values) if found.bic() <= best.bic() + 1e-9 * abs(best.bic()) else (best, {})


def _plain_numbers(v: float) -> list[tuple[sympy.Expr, float]]:
    """Whole numbers, halves and numbers of one digit near a value, with how far apart such numbers are."""
    digit = 10.0 ** np.floor(np.log10(max(abs(v), 1e-300)))
    halves = sympy.Rational(round(2 * v), 2)
    return [(sympy.Integer(round(v)), 1.0), (halves, 0.5), (sympy.Float(float(f"{v:.0e}")), digit)]

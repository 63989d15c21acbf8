"""Finding a law of motion: the search, then a last fit to everything, plain numbers, and the law it makes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import sympy

from isr.motion.hidden import find_hidden
from isr.motion.law import Channel, MotionLaw
from isr.motion.library import LADDER, Library
from isr.motion.noise import Noise
from isr.motion.refit import EXACT, Fit, Start, refit
from isr.motion.search import Search, tests
from isr.motion.series import Series
from isr.search.evaluate import symbol
from isr.search.formula import Formula

REFUTED = 1e-4
# What rates are proposed from and compared on; more trajectories join for the last fit.
N_PROPOSED, N_SEARCHED = 250, 100
# A constant is a plain number where that costs less than this many squared standard errors.
SNAPPED = 6.0
# and where its standard error is less than this share of the distance between such numbers.
FINE = 0.05
HIDDEN_PRICE = 10.0
# What a law leaves of a channel is told where it is more than this share of its spread.
MUCH_LEFT = 0.5
# A trajectory is a stray where it is missed by so many times the noise throughout; more than this share are no strays.
FAR, FEW = 3.0, 0.03


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
    series: Series, modes: Sequence[Start], *, ladder: Sequence[Library] = LADDER,
    say: Callable[[str], None] = lambda line: None,
) -> FoundMotion:  # fmt: skip
    """Return the law of motion of series that begin as ``modes`` say, sought in the libraries of a ladder one by one.

    Example:
        >>> t = np.linspace(0, 5, 30)
        >>> values = 3 / (1 + np.outer([2.0, 9.0], np.exp(-3 * t)))
        >>> series = Series(np.stack([t, t]), values[..., None], np.zeros((2, 0)), ("n",), ())
        >>> print(find_motion(series, ("free",)).law)
        n' = n*(3 - n)
    """
    rows = np.random.default_rng(0).permutation(len(series.times))
    search, many = (Search(series.take(np.sort(rows[:n])), modes, say) for n in (N_SEARCHED, N_PROPOSED))

    best, hidden = None, None
    if tuple(modes) == ("shared",):
        best = search.find(ladder[:1], many)
        if best is None or not search.is_enough(best.fit):
            best, name = None, _free_name(series)
            hidden = find_hidden(series, name, say)
    if best is None and (hidden is None or min(tests(hidden).values()) <= REFUTED):
        best = search.find(ladder, many)
    if hidden is not None and (best is None or hidden.bic(HIDDEN_PRICE) < best.price):
        return _found(hidden, "one channel was not measured, and its unit is free: it begins at 1")
    if best is None:
        raise ValueError(
            "no candidate could be integrated along the series: every one blew up; measure more often, leave out the "
            "stretch where values explode, or scale the channels"
        )
    whole = Search(replace(series, noises=search.series.noises), modes, say, search.steps)
    strays, notes = _strays(best.fit, whole), []
    if strays.any():
        whole = Search(whole.series.take(~strays), modes, say, search.steps)
        n = int(strays.sum())
        notes = [f"{n} of {len(strays)} trajectories do not follow it and were left out of the last fit"]
    return _found(_longest(best.fit, whole), *notes)


def _free_name(series: Series) -> str:
    return next(n for n in ("hidden", "hidden_", "hidden__") if n not in (*series.names, *series.x_names))


def _strays(best: Fit, search: Search) -> np.ndarray:
    """Which trajectories a fit misses by far, if they are few: clipped values, a simulation that failed."""
    series = search.series
    nothing = np.zeros(len(series.times), dtype=bool)
    if "free" in best.modes:
        return nothing
    shared = np.array(best.modes) == "shared"
    first = np.where(shared[:, None], best.start[:, :1], search.starts(series))
    r = replace(best, series=series, start=first).residuals() / best.sigma[:, None, None]
    found = np.sqrt(np.mean(r**2, axis=(0, 1))) > FAR
    return found if found.mean() <= FEW else nothing


def _longest(best: Fit, search: Search) -> Fit:
    """Return the fit to the longest stretches of the trajectories that can be followed."""
    found = best
    for length in (None, search.series.n_times):
        longer = search.fit_system(found.system, found.theta, iterations=25, length=length)
        if longer is None or np.any(longer[0].sigma > 1.3 * found.sigma + EXACT * found.spread):
            break
        found = longer[0]
    return found


def _found(best: Fit, *notes: str) -> FoundMotion:
    best, values = _snapped(best)
    series, system = best.series, best.system
    table = {s: sympy.Float(v) for s, v in zip(system.constants, best.theta, strict=True)} | values
    measured, channels, said = series.seen.any(axis=(0, 1)), [], list(notes)
    for c, state in enumerate(system.states):
        noise, scale = series.noises[c], 0.0 if best.exact[c] else float(best.sigma[c])
        if not measured[c]:
            noise, scale = Noise(""), 0.0
        elif noise.is_count:
            scale = 1.0
        if measured[c] and (share := best.sigma[c] / best.spread[c]) > MUCH_LEFT:
            said.append(f"it leaves {share:.0%} of the spread of {state}, which it hardly explains")
        rate = Formula(system.rates[c].xreplace(table))
        channels.append(Channel(str(state), rate, system.logs[c], _start(best, c), noise, scale))
    law = MotionLaw(series.x_names, tuple(channels), steps=max(best.steps, 8))
    is_exact = bool(best.exact[measured].all())
    return FoundMotion(law, {} if is_exact else tests(best), is_exact, tuple(said))


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

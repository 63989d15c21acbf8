"""Finding a law of motion: candidates by the weak form, small libraries first, judged through the integrator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import sympy
from scipy.stats import norm

from isr.motion.candidates import LARGEST, Candidate, candidates, shortlist
from isr.motion.dictionary import LADDER, Library
from isr.motion.judge import Search, fit, fit_system, price, pruned, with_enough_steps
from isr.motion.law import Channel, MotionLaw
from isr.motion.refit import Fit, Start, likeliest_kinds
from isr.motion.series import Series
from isr.search.evaluate import symbol
from isr.search.formula import Formula

N_TRIED = 10
# After so many sizes that are worse than a smaller one no larger one is tried.
N_WORSE = 3
# As good as exact: noise relative to the spread of a channel that numbers without noise have.
EXACT = 1e-5
REFUTED = 1e-4
# What rates are compared on; more trajectories join for the last fit.
N_SEARCHED = 100
# A constant is a plain number where that costs less than this many squared standard errors.
SNAPPED = 6.0


@dataclass(frozen=True, eq=False)
class FoundMotion:
    """A law of motion with what it was tested for.

    Args:
        law: The law.
        tests: p-value by what was tested.
        is_exact: Whether what it leaves is rounding.
        notes: What to know of it, a sentence each.
    """

    law: MotionLaw
    tests: Mapping[str, float]
    is_exact: bool
    notes: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether no test refutes the law."""
        return self.is_exact or all(p > REFUTED for p in self.tests.values())


def find_motion(
    series: Series,
    modes: Sequence[Start],
    *,
    ladder: Sequence[Library] = LADDER,
    say: Callable[[str], None] | None = None,
) -> FoundMotion:
    """Return the law of motion of series.

    Args:
        series: Trajectories.
        modes: Where each channel begins, see `isr.motion.refit`.
        ladder: Where rates are sought, small libraries first.
        say: Takes a line on what is being done.

    Example:
        >>> t = np.linspace(0, 5, 30)
        >>> values = 3 / (1 + np.outer([2.0, 9.0], np.exp(-3 * t)))
        >>> series = Series(np.stack([t, t]), values[..., None], np.zeros((2, 0)), ("n",), ())
        >>> print(find_motion(series, ("free",)).law)
        n' = n*(3 - n)
    """
    states, parameters = (tuple(symbol(n) for n in names) for names in (series.names, series.x_names))
    rows = np.random.default_rng(0).permutation(len(series.times))[:N_SEARCHED]
    search = Search(series.take(np.sort(rows)), tuple(modes), states, parameters, say or (lambda line: None))
    whole = Search(series, tuple(modes), states, parameters, search.say)
    best = find_rates(search, whole, ladder)[1]
    whole.series, whole.steps = replace(series, kinds=search.series.kinds), search.steps
    final = _longest(best, whole)
    return _found(final, whole)


def find_rates(
    search: Search, whole: Search, ladder: Sequence[Library] = LADDER
) -> tuple[list[Candidate], Fit]:
    """Return the best candidate of each channel and their fit; the weak form sees ``whole``."""
    rng = np.random.default_rng(0)
    pools: list[list[Candidate]] = [[] for _ in search.states]
    for library in ladder:
        for c, pool in enumerate(pools):
            pool += candidates(whole.series, whole.curves, c, library, search.states, search.parameters, rng)
    pools = [shortlist(pool, N_TRIED) for pool in pools]
    chosen, best = _first(pools, search)
    while True:
        chosen, best = pruned(*_exchanged(chosen, best, pools, search), search)
        kinds = likeliest_kinds(best)
        if kinds == search.series.kinds:
            return chosen, best
        search.series = replace(search.series, kinds=kinds)
        refitted = fit(chosen, search, best)
        if refitted is None:
            return chosen, best
        best = refitted


def _first(pools: Sequence[Sequence[Candidate]], search: Search) -> tuple[list[Candidate], Fit]:
    """Return the best of those that have about as many constants in each channel."""
    found = []
    for size in range(1, LARGEST + 1):
        chosen = [min(pool, key=lambda r: (abs(len(r.constants) - size), r.left)) for pool in pools]
        found.append((chosen, fit(chosen, search)))
        prices = [price(*pair) for pair in found]
        if len(prices) - np.argmin(prices) > N_WORSE:
            break
    chosen, best = found[int(np.argmin(prices))]
    best = with_enough_steps(chosen, best, search)
    if best is None:
        raise ValueError(
            "no candidate could be integrated along the series: every one blew up; measure more often, leave out the "
            "stretch where values explode, or scale the channels"
        )
    return chosen, best


def _exchanged(
    chosen: list[Candidate], best: Fit, pools: Sequence[Sequence[Candidate]], search: Search
) -> tuple[list[Candidate], Fit]:
    """Return the best choice that no exchange in one channel improves."""
    value, changed = price(chosen, best), True
    while changed:
        changed = False
        for c, pool in enumerate(pools):
            for other in pool:
                exact = best.sigma[c] < EXACT * search.spread[c]
                if other is chosen[c] or (exact and len(other.constants) >= len(chosen[c].constants)):
                    continue
                trial = [*chosen[:c], other, *chosen[c + 1 :]]
                found = fit(trial, search, best.without(chosen[c].constants), value)
                new = price(trial, found)
                if new < value - 1e-6 * abs(value):
                    chosen, best, changed = trial, with_enough_steps(trial, found, search), True
                    value = price(chosen, best)
                    search.say(
                        f"description length {value / 2:.1f} nats with {search.states[c]}' = {other.form}"
                    )
    return chosen, best


def _longest(best: Fit, search: Search) -> Fit:
    """Return the fit to the longest stretches of the trajectories that can be followed."""
    found = best
    n_times = search.series.times.shape[1]
    for length in (None, n_times):
        longer = fit_system(found.system, found.theta, search, iterations=25, length=length)
        if longer is None or np.any(longer.sigma > 1.3 * found.sigma + EXACT * search.spread):
            break
        found = longer
    return found


def _found(best: Fit, search: Search) -> FoundMotion:
    best, values = _snapped(best, search)
    series, channels = search.series, []
    table = {s: sympy.Float(v) for s, v in zip(best.system.constants, best.theta, strict=True)} | values
    exact = best.sigma < EXACT * search.spread
    for c, name in enumerate(series.names):
        rate = best.system.rates[c].xreplace(table)
        start, scale = _start(search.modes[c], best, c, series), 0.0 if exact[c] else float(best.sigma[c])
        channels.append(Channel(name, Formula(rate), series.logs[c], start, series.kinds[c], scale))
    law = MotionLaw(series.x_names, tuple(channels), steps=max(best.steps, 8))
    return FoundMotion(law, {} if exact.all() else _tests(best), bool(exact.all()))


def _start(mode: Start, best: Fit, c: int, series: Series) -> Formula | None:
    if mode == "free":
        return None
    if mode != "shared":
        return Formula(symbol(series.x_names[int(mode)]))
    value = best.start[c, 0]
    return Formula(sympy.Float(float(np.exp(value) if series.logs[c] else value)))


def _snapped(best: Fit, search: Search) -> tuple[Fit, dict[sympy.Symbol, sympy.Expr]]:
    """Return the fit once constants that are near a plain number are that number, and those numbers."""
    values: dict[sympy.Symbol, sympy.Expr] = {}
    for s, v, e in zip(best.system.constants, best.theta, best.errors, strict=True):
        near = sympy.Rational(round(2 * v), 2)
        if near != 0 and abs(near) <= 20 and (float(near) - v) ** 2 < SNAPPED * max(e, 1e-6 * abs(v)) ** 2:
            values[s] = near
    if not values:
        return best, {}
    open_ = [s not in values for s in best.system.constants]
    system = replace(
        best.system, rates=tuple(r.xreplace(values) for r in best.system.rates),
        constants=tuple(s for s in best.system.constants if s not in values),
    )  # fmt: skip
    found = fit_system(system, best.theta[open_], search, iterations=15, length=best.series.times.shape[1])
    if found is None or found.bic() > best.bic() + 1e-9 * abs(best.bic()):
        return best, {}
    return found, values


def _tests(best: Fit) -> dict[str, float]:
    """Whether what is left of one value tells of the next one, channel by channel."""
    found = {}
    for name, r in zip(best.series.names, best.residuals(), strict=True):
        pairs = r[1:] * r[:-1]
        seen = (r[1:] != 0) & (r[:-1] != 0)
        z = np.sum(pairs[seen]) / np.sqrt(np.sum(pairs[seen] ** 2) + 1e-300)
        found[f"{name}: residuals follow each other"] = float(2 * norm.sf(abs(z)))
    return found

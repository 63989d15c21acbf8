"""Finding a law of motion: candidates by the weak form, small libraries first, judged through the integrator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import sympy
from scipy.stats import norm

from isr.motion.candidates import LARGEST, Candidate, candidates, shortlist
from isr.motion.dictionary import LADDER, Library
from isr.motion.hidden import find_hidden
from isr.motion.judge import Search, fit, fit_system, price, pruned, with_enough_steps
from isr.motion.law import Channel, MotionLaw
from isr.motion.refit import Fit, Start, likeliest_kinds, refit, trials
from isr.motion.series import ENOUGH_FOR_ROUGHNESS, Series
from isr.search.evaluate import symbol
from isr.search.formula import Formula

N_TRIED = 10
# After so many sizes that are worse than a smaller one no larger one is tried.
N_WORSE = 3
# As good as exact: noise relative to the spread of a channel that numbers without noise have.
EXACT = 1e-5
REFUTED = 1e-4
# Larger libraries are not tried once residuals are as small as series are rough, and follow each other no more than so.
AS_ROUGH, UNSUSPECTED = 1.2, 0.02
# What rates are compared on; more trajectories join for the last fit.
N_SEARCHED = 100
# A constant is a plain number where that costs less than this many squared standard errors.
SNAPPED = 6.0
# and where its standard error is less than this share of the distance between such numbers.
FINE = 0.05
HIDDEN_PRICE = 10.0
# A trajectory is a stray where it is missed by so many times the noise throughout; more than this share are no strays.
FAR, FEW = 3.0, 0.03


class NothingIntegrated(ValueError):
    """Every candidate blew up."""


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
    say = say or (lambda line: None)
    rows = np.random.default_rng(0).permutation(len(series.times))[:N_SEARCHED]
    search = Search(series.take(np.sort(rows)), tuple(modes), states, parameters, say)
    whole = Search(series, tuple(modes), states, parameters, say)
    hidden, enough, notes = None, False, []
    if len(states) == 1 and tuple(modes) == ("shared",):
        chosen, best, enough = _tried(search, whole, ladder[:1])
        hidden = (
            None if enough else find_hidden(series, (*states, symbol(_free_name(series))), parameters, say)
        )
        enough = enough or (hidden is not None and min(_tests(hidden).values()) > REFUTED)
    if not enough:
        chosen, best, _ = _tried(search, whole, ladder)
    if best is not None:
        whole.series, whole.steps = replace(series, kinds=search.series.kinds), search.steps
        strays = _strays(best, whole.series)
        if strays.any():
            whole = Search(whole.series.take(~strays), tuple(modes), states, parameters, say, search.steps)
            n = int(strays.sum())
            notes.append(
                f"{n} of {len(strays)} trajectories do not follow it and were left out of the last fit"
            )
        best = _longest(best, whole)
    if hidden is not None and (best is None or hidden.bic(HIDDEN_PRICE) < price(chosen, best)):
        return _found(hidden, "one channel was not measured, and its unit is free: it begins at 1")
    if best is None:
        raise ValueError(
            "no candidate could be integrated along the series: every one blew up; measure more often, leave out the "
            "stretch where values explode, or scale the channels"
        )
    return _found(best, *notes)


def _strays(best: Fit, series: Series) -> np.ndarray:
    """Which trajectories a fit misses by far, if they are few: clipped values, a simulation that failed."""
    nothing = np.zeros(len(series.times), dtype=bool)
    if "free" in best.modes:
        return nothing
    first = [
        np.repeat(v[:1], len(series.times)) if mode == "shared" else _states_of(series, int(mode), log)
        for v, mode, log in zip(best.start, best.modes, best.system.logs, strict=True)
    ]
    r = replace(best, series=series, start=np.array(first)).residuals() / best.sigma[:, None, None]
    found = np.sqrt(np.mean(r**2, axis=(0, 1))) > FAR
    return found if found.mean() <= FEW else nothing


def _states_of(series: Series, column: int, log: bool) -> np.ndarray:
    return np.log(series.x[:, column]) if log else series.x[:, column]


def _free_name(series: Series) -> str:
    return next(n for n in ("hidden", "hidden_", "hidden__") if n not in (*series.names, *series.x_names))


def _tried(
    search: Search, whole: Search, ladder: Sequence[Library]
) -> tuple[list[Candidate], Fit | None, bool]:
    """Return the best candidates of a ladder, and whether they leave nothing to explain; no fit where all blow up."""
    try:
        chosen, best = find_rates(search, whole, ladder)
    except NothingIntegrated:
        return [], None, False
    return chosen, best, _is_enough(best, search)


def find_rates(
    search: Search, whole: Search, ladder: Sequence[Library] = LADDER
) -> tuple[list[Candidate], Fit]:
    """Return the best candidate of each channel and their fit; the weak form sees ``whole``.

    Libraries join one by one, until nothing is left to explain.
    """
    rng = np.random.default_rng(0)
    pools: list[list[Candidate]] = [[] for _ in search.states]
    found: list[tuple[list[Candidate], Fit]] = []
    for library in ladder:
        for c, pool in enumerate(pools):
            pool += candidates(whole.series, whole.curves, c, library, search.states, search.parameters, rng)
        found.append(_searched([shortlist(pool, N_TRIED) for pool in pools], search))
        if _is_enough(found[-1][1], search):
            break
    return min(found, key=lambda pair: price(*pair))


def _searched(pools: Sequence[Sequence[Candidate]], search: Search) -> tuple[list[Candidate], Fit]:
    """Return the best choice among candidates, with the noise that it shows."""
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


def _is_enough(best: Fit, search: Search) -> bool:
    """Whether what a fit leaves is rounding, or noise that no value has in common with the next."""
    if np.all(best.sigma < EXACT * search.spread):
        return True
    v = search.series.values
    if v.shape[1] >= ENOUGH_FOR_ROUGHNESS:
        raw = np.nanstd(best.residuals(scaled=False), axis=(1, 2))
        rough = np.nanmedian(np.abs(np.diff(v, 4, axis=1)), axis=(0, 1)) / (0.6745 * np.sqrt(70))
        if np.any(raw > AS_ROUGH * rough):
            return False
    return min(_tests(best).values()) > UNSUSPECTED


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
        raise NothingIntegrated
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


def _found(best: Fit, *notes: str) -> FoundMotion:
    best, values = _snapped(best)
    series, channels = best.series, []
    table = {s: sympy.Float(v) for s, v in zip(best.system.constants, best.theta, strict=True)} | values
    measured = series.seen.any(axis=(0, 1))
    exact = best.sigma < EXACT * np.array([np.std(v[k]) if k.any() else 0.0 for v, k in _by_channel(series)])
    for c, state in enumerate(best.system.states):
        kind = series.kinds[c] if measured[c] else ""
        scale = 0.0 if exact[c] else trials(kind) if kind.startswith("binomial") else float(best.sigma[c])
        rate, log = best.system.rates[c].xreplace(table), best.system.logs[c]
        channels.append(
            Channel(
                str(state),
                Formula(rate),
                log,
                _start(best, c),
                kind.partition("(")[0],
                scale if kind else 0.0,
            )
        )
    law = MotionLaw(series.x_names, tuple(channels), steps=max(best.steps, 8))
    is_exact = bool(exact[measured].all())
    return FoundMotion(law, {} if is_exact else _tests(best), is_exact, notes)


def _by_channel(series: Series) -> list[tuple[np.ndarray, np.ndarray]]:
    return [(series.values[..., c], series.seen[..., c]) for c in range(series.values.shape[2])]


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
        for near, spacing in _plain_numbers(v):
            off = (float(near) - v) ** 2
            if near != 0 and off < SNAPPED * e**2 and e < FINE * spacing:
                values[s] = near
                break
    open_ = [s not in values for s in best.system.constants]
    system = replace(
        best.system, rates=tuple(r.xreplace(values) for r in best.system.rates),
        constants=tuple(s for s in best.system.constants if s not in values),
    )  # fmt: skip
    found = refit(
        system, best.theta[open_], best.start, best.series, best.modes, steps=best.steps, iterations=15
    )
    if not values or not found.bic() <= best.bic() + 1e-9 * abs(best.bic()):
        return best, {}
    return found, values


def _plain_numbers(v: float) -> list[tuple[sympy.Expr, float]]:
    """Whole numbers, halves and numbers of one digit near a value, with how far apart such numbers are."""
    digit = 10.0 ** np.floor(np.log10(max(abs(v), 1e-300)))
    return [
        (sympy.Integer(round(v)), 1.0), (sympy.Rational(round(2 * v), 2), 0.5),
        (sympy.Float(float(f"{v:.0e}")), digit),
    ]  # fmt: skip


def _tests(best: Fit) -> dict[str, float]:
    """Whether what is left of one value tells of the next one, channel by channel."""
    found = {}
    for c, (name, r) in enumerate(zip(best.series.names, best.residuals(), strict=True)):
        pairs, seen = r[1:] * r[:-1], best.series.seen[..., c].T
        both = seen[1:] & seen[:-1]
        if both.any():
            z = np.sum(pairs[both]) / np.sqrt(np.sum(pairs[both] ** 2) + 1e-300)
            found[f"{name}: residuals follow each other"] = float(2 * norm.sf(abs(z)))
    return found

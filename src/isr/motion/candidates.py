"""Candidates: sums of terms, or ratios of them, that may be the rate of a channel, from the weak form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import sympy

from isr.motion.dictionary import Library, columns, terms
from isr.motion.series import Series
from isr.motion.subsets import best_subsets
from isr.motion.weak import Smooth, weak_rows

LARGEST = 8
# Splines are wrong in ways that do not average out: what they leave counts as so many rows.
N_EFFECTIVE, FLOOR = 25, 1e-6
N_PER_SIZE = 2


@dataclass(frozen=True, eq=False)
class Candidate:
    """A rate with open constants.

    Args:
        form: Of the channel's rate, or of that of its logarithm.
        constants: Its open symbols.
        values: What the weak form says of them.
        left: Share of squares that it leaves there.
        price: Twice the nats that choosing it among others costs.
    """

    form: sympy.Expr
    constants: tuple[sympy.Symbol, ...]
    values: np.ndarray
    left: float
    price: float

    def without(self, symbol: sympy.Symbol) -> Candidate:
        """Return it without the term of one constant."""
        if symbol not in self.constants:
            return self
        kept = [s != symbol for s in self.constants]
        return replace(
            self, form=self.form.subs(symbol, 0), constants=tuple(s for s in self.constants if s != symbol),
            values=self.values[kept], price=self.price * sum(kept) / len(kept),
        )  # fmt: skip


def candidates(
    series: Series, curves: Smooth, channel: int, library: Library, states: Sequence[sympy.Symbol],
    parameters: Sequence[sympy.Symbol], rng: np.random.Generator,
) -> list[Candidate]:  # fmt: skip
    """Return candidates of a library for the rate of one channel."""
    values = np.where(series.logs, np.exp(curves.states), curves.states)
    whole = [_keeps_sign(series.values[..., c]) for c in range(len(states))]
    found = terms(library, states, parameters, whole, [_keeps_sign(v) for v in series.x.T])
    raw = columns(found, states, parameters, values, series.x)
    over = states[channel] if series.logs[channel] else sympy.Integer(1)
    numbers = raw / values[..., channel] if series.logs[channel] else raw
    n = len(found)
    denominators = [j for j in range(n) if library.ratio and found[j].free_symbols & set(states)]
    if denominators:
        numbers = np.concatenate([numbers, -curves.slopes[None, ..., channel] * raw[denominators]])
    a, b = weak_rows(curves, numbers, channel, rng)
    gram, product, square = a.T @ a, a.T @ b, float(b @ b)
    price = 2 * np.log(len(numbers))
    levels = [best_subsets(gram, product, square, LARGEST)] if not denominators else []
    for k in range(len(denominators)):
        levels.append(best_subsets(gram, product, square, LARGEST - 2, first=(n + k,), n=n))
    rates = []
    for subset in (s for level in levels for size in level for s in size):
        j = list(subset.columns)
        theta = np.linalg.lstsq(a[:, j], b, rcond=None)[0]
        rates.append(
            _candidate(subset.columns, theta, found, denominators, over, channel, subset.left, price)
        )
    return [r for r in rates if r is not None]


def _candidate(
    chosen: Sequence[int], theta: np.ndarray, found: list, denominators: list[int], over: sympy.Expr,
    channel: int, left: float, price: float,
) -> Candidate | None:  # fmt: skip
    symbols = tuple(sympy.Symbol(f"c{channel}_{i}", real=True) for i in range(len(chosen)))
    n = len(found)
    above = sum(c * found[j] / over for c, j in zip(symbols, chosen, strict=True) if j < n)
    below = 1 + sum(c * found[denominators[j - n]] for c, j in zip(symbols, chosen, strict=True) if j >= n)
    if above == 0:
        return None
    return Candidate(above / below, symbols, theta, left, price * len(symbols))


def shortlist(pool: Sequence[Candidate], n: int) -> list[Candidate]:
    """Return the most promising candidates first, and the best few of each size among them."""
    least = FLOOR + min(r.left for r in pool)
    score = {
        id(r): N_EFFECTIVE * np.log(r.left + least) + len(r.constants) * np.log(400) + 0.2 * r.price
        for r in pool
    }
    seen: set = set()
    ranked = []
    for r in sorted(pool, key=lambda r: score[id(r)]):
        shape = r.form.xreplace({c: sympy.Symbol(f"k{i}") for i, c in enumerate(r.constants)})
        if shape not in seen:
            ranked.append(r)
            seen.add(shape)
    first = ranked[:n]
    for size in range(1, LARGEST + 1):
        first += [r for r in ranked if len(r.constants) == size and r not in first][:N_PER_SIZE]
    return sorted(first, key=lambda r: score[id(r)])


def _keeps_sign(v: np.ndarray) -> bool:
    v = v[np.isfinite(v)]
    return bool(np.all(v > 0) or np.all(v < 0))

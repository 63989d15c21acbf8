"""Candidates: sums of terms, or ratios of them, that may be the rate of a channel, from the weak form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import sympy
from jaxtyping import Float

from isr.motion.clock import keep_time
from isr.motion.curves import Curves, n_telling, weak_rows
from isr.motion.library import Library, columns, terms
from isr.motion.series import Series

LARGEST = 8
# Splines are wrong in ways that do not average out: what they leave counts as so many rows.
N_EFFECTIVE, FLOOR = 25, 1e-6
N_PER_SIZE = 2
# Of each size so many become formulas.
MOST_PER_SIZE = 12
# Subsets that are grown at each size, fewer for each of many denominators, and those of them that are kept.
BEAM, NARROW_BEAM, KEPT = 24, 8, 3
# What is left of a column once others are taken out, below which it is one of them.
COLLINEAR = 1e-9


@dataclass(frozen=True, eq=False)
class Candidate:
    """A channel's rate, or that of its logarithm, with open constants and what the weak form says of them.

    It leaves a share of the squares there; its price is twice the nats that choosing it among others costs.
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
    series: Series, curves: Curves, channel: int, library: Library, rng: np.random.Generator
) -> list[Candidate]:
    """Return candidates of a library for the rate of one channel."""
    if (n := n_telling(curves)) < len(series.x):
        rows = np.linspace(0, len(series.x) - 1, n).astype(int)
        series, curves = series.take(rows), curves.take(rows)
    values = np.where(series.logs, np.exp(curves.states), curves.states)
    measured = [*np.moveaxis(series.values, 2, 0), *series.x.T]
    states, parameters = series.states, series.parameters
    signs = zip([*states, *parameters], map(_sign, measured), strict=True)
    signed = {s: sign for s, sign in signs if sign}
    if library.functions == ("log",) and not any(signed.get(s) == 1 for s in states):
        return []
    found = terms(library, states, parameters, signed)
    raw = columns(found, states, parameters, values, series.x)
    is_log = series.logs[channel]
    numbers, over = (raw / values[..., channel], states[channel]) if is_log else (raw, sympy.Integer(1))
    below = [j for j, term in enumerate(found) if library.ratio and term.free_symbols & set(states)]
    if below:
        numbers = np.concatenate([numbers, -curves.slopes[None, ..., channel] * raw[below]])
    a, b = weak_rows(curves, numbers, channel, rng)
    gram, product, square, n = a.T @ a, a.T @ b, float(b @ b), len(found)
    largest = LARGEST - 2 if below else LARGEST
    subsets: list[Subset] = []
    for first in [(n + k,) for k in range(len(below))] or [()]:
        subsets += best_subsets(
            gram, product, square, largest, first=first, n=n, width=NARROW_BEAM if below else BEAM
        )
    rates = []
    for subset in _best_of_each_size(subsets):
        keep_time()
        j = list(subset.columns)
        symbols = tuple(sympy.Symbol(f"c{channel}_{i}", real=True) for i in range(len(j)))
        above = sum(c * found[k] / over for c, k in zip(symbols, j, strict=True) if k < n)
        under = 1 + sum(c * found[below[k - n]] for c, k in zip(symbols, j, strict=True) if k >= n)
        theta = np.linalg.lstsq(a[:, j], b, rcond=None)[0]
        price = 2 * np.log(len(numbers)) * len(j)
        if above != 0:
            rates.append(Candidate(above / under, symbols, theta, subset.left, price))
    return rates


def _best_of_each_size(subsets: Sequence[Subset]) -> list[Subset]:
    found: list[Subset] = []
    for size in range(1, LARGEST + 1):
        found += sorted((s for s in subsets if len(s.columns) == size), key=lambda s: s.left)[:MOST_PER_SIZE]
    return found


def shortlist(pool: Sequence[Candidate], n: int) -> list[Candidate]:
    """Return the most promising candidates first, and the best few of each size among them."""
    least = FLOOR + min(r.left for r in pool)

    def score(r: Candidate) -> float:
        return N_EFFECTIVE * np.log(r.left + least) + len(r.constants) * np.log(400) + 0.2 * r.price

    ranked: dict[sympy.Expr, Candidate] = {}
    for r in sorted(pool, key=score):
        shape = r.form.xreplace({c: sympy.Symbol(f"k{i}") for i, c in enumerate(r.constants)})
        ranked.setdefault(shape, r)
    first = list(ranked.values())[:n]
    for size in range(1, LARGEST + 1):
        first += [r for r in ranked.values() if len(r.constants) == size and r not in first][:N_PER_SIZE]
    return sorted(first, key=score)


def _sign(v: np.ndarray) -> int:
    """1 or -1 where all values have that sign, or else 0."""
    v = v[np.isfinite(v)]
    return int(np.all(v > 0)) - int(np.all(v < 0))


class Subset(NamedTuple):
    """Some columns, by their sorted numbers, and the sum of squares that they leave, relative to all."""

    columns: tuple[int, ...]
    left: float


def best_subsets(
    gram: Float[np.ndarray, "m m"], product: Float[np.ndarray, " m"], square: float, largest: int,
    *, first: tuple[int, ...] = (), n: int | None = None, width: int = BEAM,
) -> list[Subset]:  # fmt: skip
    """Return the best few subsets of each size, from products of columns with each other and with what they explain.

    Every subset holds the columns ``first``; of the others, the first ``n`` may join.
    """
    scale = np.sqrt(np.maximum(np.diag(gram), 1e-300))
    g, p = gram / np.outer(scale, scale), product / scale / np.sqrt(max(square, 1e-300))
    beam, found = [first], []
    for _ in range(min(largest, len(p))):
        keep_time()
        grown: dict[tuple[int, ...], float] = {}
        for chosen, gains, left in zip(beam, *_gains(g, p, np.array(beam, dtype=int), n), strict=True):
            for j in np.argsort(-gains)[:width]:
                if gains[j] > 0:
                    grown[tuple(sorted((*chosen, int(j))))] = left - gains[j]
        beam = sorted(grown, key=lambda chosen: grown[chosen])[:width]
        found += [Subset(chosen, max(grown[chosen], 0.0)) for chosen in beam[:KEPT]]
        if not beam:
            break
    return found


def _gains(g: np.ndarray, p: np.ndarray, beam: np.ndarray, n: int | None) -> tuple[np.ndarray, np.ndarray]:
    """How much each of the first ``n`` columns explains beside those of each row of a beam, and what these leave."""
    inner = g[beam[:, :, None], beam[:, None, :]] + 1e-14 * np.eye(beam.shape[1])
    cross, own = g[:, :n][beam], p[beam]
    solved = np.linalg.solve(inner, np.concatenate([cross, own[..., None]], axis=2))
    free = 1.0 - np.einsum("bsm,bsm->bm", cross, solved[..., :-1])
    rest = p[:n] - np.einsum("bsm,bs->bm", cross, solved[..., -1])
    gains = np.where(free > COLLINEAR, rest**2 / np.maximum(free, COLLINEAR), 0.0)
    return gains, 1.0 - np.einsum("bs,bs->b", own, solved[..., -1])

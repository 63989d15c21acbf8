"""The search for a law of one column: small families first, then reductions, all judged by description length."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import sympy
from threadpoolctl import threadpool_limits

from isr.search import growth, products, rational, reductions, sums
from isr.search.candidates import FEW, NUMBER, Candidate, Pool, eliminated, fitted, price, with_errors
from isr.search.constants import snapped, without_idle_abs
from isr.search.evaluate import opened
from isr.search.free_powers import free_powers
from isr.search.problem import Problem, outer, powers
from isr.search.rows import MOST_ROWS, REFIT_ROWS, Data
from isr.search.sums import Limit
from isr.search.surrogate import lack_of_fit
from isr.search.tidy import tidied
from isr.search.units import judge_of

FUNCTIONS = frozenset("sqrt reciprocal exp log sin cos tan asin acos atan sinh cosh tanh sigmoid abs".split())
"""What a law may call unless it is restricted."""
KEPT, TIDIED = 8, 3
DEEPEST = 10
# Functions of the target beyond so many, and those that are not plain beside it, get fewer families.
PLAINEST, PLAIN = 3, 1.5
# What simple numbers may be worth, in nats.
IN_REACH = 30.0
# Nats of a law that may end the search before and after families that take long, those of one with at most one fitted
# number before them, and the level of its test.
SHORTEST, SHORT, SHORT_PLAIN, PASSED = 22.0, 60.0, 40.0, 0.01
# Nats by which a law must be ahead of others as short to end the search, and squares that are the same up to rounding.
RIVAL, SAME = 10.0, 1e-6


@dataclass(frozen=True, eq=False)
class Found:
    """What a search has found.

    Args:
        candidates: Best first, by description length; the constant and the linear law are among them.
        constant: The constant.
        linear: The linear law.
        seconds: How long it took.
        is_exact: Whether what the best law leaves is rounding.
    """

    candidates: tuple[Candidate, ...]
    constant: Candidate
    linear: Candidate
    seconds: float
    is_exact: bool

    @property
    def best(self) -> Candidate:
        """The candidate of the least description length."""
        return self.candidates[0]


class TimeIsUpError(Exception):
    """Ends a family of laws."""


@dataclass(eq=False)
class Search:
    """A running search: its candidates, its clock and what it says.

    Args:
        pool: Candidates.
        ends: When to stop, by the monotonic clock.
        say: Called with what is tried.
        settled: A law with which the search ends, unless a better one comes.
        settles: Whether there may be one.
    """

    pool: Pool
    ends: float
    say: Callable[[str], None] | None
    settled: Candidate | None = None
    simplified: set[sympy.Expr] = field(default_factory=set)
    settles: bool = True

    def limit(self) -> float:
        """Return what the nearest law with few numbers leaves, or end the family that asks where time is up."""
        if time.monotonic() > self.ends:
            raise TimeIsUpError
        return self.pool.nearest

    @property
    def is_over(self) -> bool:
        """Whether time is up, or the best law exact, or short with nothing left to explain."""
        return self.pool.is_exact or self.settled is self.pool.best or time.monotonic() > self.ends

    def settle(self, most: float) -> None:
        """End the search if the best law has at most so many nats and what it leaves depends on nothing."""
        best, data = self.pool.best, self.pool.data
        if not self.settles or best is None or best.n_numbers > FEW:
            return
        nats, is_plain = price(best.expression, len(data.y)), best.n_numbers <= 1
        if nats > (max(most, SHORT_PLAIN) if is_plain else most) or not (
            is_plain or self._is_ahead(best, nats)
        ):
            return
        gaps = data.y - opened(best.expression, data.symbols).values(data.columns)
        self.settled = best if lack_of_fit(data.x, gaps, data.root) > PASSED else None

    def _is_ahead(self, best: Candidate, nats: float) -> bool:
        """Whether no other law as short is nearly as likely: both may imitate a third that is not found yet."""
        others = (
            c for c in self.pool.found.values() if c.description_length < best.description_length + RIVAL
        )
        return all(
            abs(c.loss - best.loss) <= SAME * best.loss
            or price(c.expression, len(self.pool.data.y)) > nats + NUMBER
            for c in others
        )

    def simplify(self) -> None:
        """Put the best laws beside themselves without idle constants and with simple numbers."""
        for candidate in self.pool.ranked(KEPT):
            is_near = candidate.description_length < self.pool.best.description_length + IN_REACH
            if is_near and candidate.expression not in self.simplified and not self.is_over:
                simple = snapped(self.pool.data, eliminated(self.pool.data, candidate))
                self.simplified |= {candidate.expression, simple.expression}
                if simple is not candidate:
                    self.pool.put(simple)

    def offer(self, problem: Problem, laws: Iterable[sympy.Expr]) -> None:
        """Judge laws of a problem until the search is over."""
        for law in laws:
            if self.is_over:
                return
            self.pool.offer(problem.lifted(law))

    def tell(self, what: str) -> None:
        """Say what is tried next, and the best so far."""
        if self.say is not None:
            best = self.pool.best
            self.say(what if best is None else f"{what}; best so far {best.expression.evalf(4)}")


# Tables are small: more threads took 1.4 times the processor time.
@threadpool_limits.wrap(limits=1, user_api="blas")
def find_laws(
    x: np.ndarray,
    y: np.ndarray,
    names: Sequence[str],
    *,
    weight: np.ndarray | None = None,
    noise: float | None = None,
    library: str | Iterable[str] = "auto",
    units: Mapping[str, str] | None = None,
    max_time: float = 60.0,
    random_state: int = 0,
    say: Callable[[str], None] | None = None,
    hints: Iterable[sympy.Expr] = (),
    settles: bool = True,
) -> Found:
    """Return laws of y in the columns of x, the best first.

    Args:
        x: Rows of inputs.
        y: A value for each row.
        names: Identifiers of the columns.
        weight: Weight of each row, 1/sigma² up to a factor.
        noise: Standard deviation of y's noise where it is known.
        library: ``"auto"`` or the names of `FUNCTIONS` that a law may call.
        units: Unit of a column by name, that of y under ``"y"``.
        max_time: Seconds after which the best so far is handed back.
        random_state: Seed of the rows that are looked at where there are many.
        say: Called with what is tried.
        hints: Laws to try first, their constants refitted.
        settles: Whether a short law that leaves nothing ends the search; or else all families are tried, for rivals.

    Example:
        >>> x = np.random.default_rng(0).uniform(1, 3, size=(200, 2))
        >>> find_laws(x, 0.5 * x[:, 0] * x[:, 1] ** 2, ["m", "v"]).best.expression
        m*v**2/2
    """
    began = time.monotonic()
    kept = _telling(x)
    data = Data.of([names[j] for j in kept], x[:, kept], y, weight, noise)
    functions = FUNCTIONS if library == "auto" else frozenset(library)
    pool = Pool(data.some(MOST_ROWS, random_state), judge_of(data.names, functions, units, FUNCTIONS))
    search = Search(pool, began + 0.9 * max_time, say, settles=settles)
    problem = _problem(pool.data, functions)
    simple = [sympy.Float(float(np.average(y, weights=data.root**2))), sums.linear(problem)]
    simple[1] = problem.lifted(simple[1])
    for law in [*simple, *(h for h in hints if h.free_symbols <= set(data.symbols))]:
        pool.offer(law)
    _explore(search, problem)
    wide = data.some(REFIT_ROWS, random_state)
    constant, linear = (with_errors(wide, fitted(wide, law, iterations=1)) for law in simple)
    found = {c.expression: c for c in [*_finished(pool, wide, search.ends), constant, linear]}
    ranked = sorted(found.values(), key=lambda c: c.description_length)
    return Found(tuple(ranked), constant, linear, time.monotonic() - began, pool.is_exact)


def _telling(x: np.ndarray) -> list[int]:
    """Columns that vary and do not repeat an earlier one; the first where none does."""
    kept: list[int] = []
    for j, column in enumerate(x.T):
        if np.ptp(column) > 0 and not any(np.array_equal(column, x[:, i]) for i in kept):
            kept.append(j)
    return kept or [0]


def _problem(data: Data, functions: frozenset[str]) -> Problem:
    return Problem(
        data.x, data.symbols, data.y, data.root / np.sqrt(np.mean(data.root**2)), lambda e: e, functions
    )


def _explore(search: Search, problem: Problem) -> None:
    """Reduce a problem as far as it goes, and try the families from the smallest up, those that take long last."""
    levels = [problem]
    _stages(search, problem, _FIRST)
    for what, reduced in reductions.chain(problem, 0 if search.is_over else DEEPEST):
        search.tell(f"{what}: {', '.join(map(str, reduced.meaning))}")
        _stages(search, reduced, _FIRST)
        levels.append(reduced)
        if search.is_over:
            return
    smooth = {id(level): level.smoothed() or level for level in levels}
    smallest, *others = reversed(levels)
    for few, families in (
        ([smallest], _EARLY), ([problem], _WHOLE), ([smallest], _BRIEF), ([problem], _GROWTH), ([smallest], _LATE),
        (others, _EARLY), (others, _LATE), ([problem], _GROWTH),
    ):  # fmt: skip
        for level in few:
            even = smooth[id(level)]
            _stages(search, even if families is _LATE else level, families)
            if families is _EARLY and even is not level:
                _stages(search, even, _SMOOTH)
            search.settle(SHORT if families is _LATE else SHORTEST)


def _stages(search: Search, problem: Problem, families: Sequence[tuple[str, Any]]) -> None:
    for what, family in families:
        if search.is_over:
            return
        if family is outer:
            early = families is _WHOLE
            for rank, changed in enumerate(outer(problem, search.pool.nearest)):
                is_plain = rank < PLAINEST and changed.plainness < PLAIN * problem.plainness
                most, least = (3 if early and rank else len(_INSIDE)), (1 if early else 4)
                _stages(search, changed, _INSIDE[: most if is_plain else least])
        elif family is powers:
            for changed in powers(problem, search.pool.nearest):
                _stages(search, changed, _INSIDE[1:2])
        elif problem.k or family is _powers:
            search.tell(what)
            grown = family is growth.grow
            laws = family(search.pool, problem, search.limit) if grown else family(problem, search.limit)
            with suppress(TimeIsUpError):
                search.offer(problem, laws)
    search.simplify()


def _powers(problem: Problem, limit: Limit) -> Iterator[sympy.Expr]:
    if problem.k == 0:
        return iter([sympy.Float(float(np.average(problem.target, weights=problem.root**2)))])
    return products.powers(problem)


def _natural_products(problem: Problem, limit: Limit) -> Iterator[sympy.Expr]:
    n = 60 if problem.k < 3 else 300
    return products.with_functions(problem, limit, n_arguments=n, numbers="natural")


def _wide_products(problem: Problem, limit: Limit) -> Iterator[sympy.Expr]:
    return products.with_functions(problem, limit, n_arguments=900 if problem.k > 2 else 0, numbers="one")


_FIRST = (("powers", _powers), ("rational functions", rational.exact))
_EARLY = (
    ("sums of monomials", sums.polynomials),
    ("products of functions", _natural_products),
    ("ratios of functions", rational.exact_in_functions),
    ("sums of powers", free_powers),
    ("roots of quadratic equations", rational.roots),
    ("sums of functions", sums.with_plain_functions),
    ("sums of sines", growth.sines),
)
# Under noise what is left of it in a surrogate's values does logarithms and quotients less harm.
_SMOOTH = (
    ("powers", _powers),
    ("rational functions", rational.sparse),
    ("products of functions", _natural_products),
    ("roots of quadratic equations", rational.roots),
)
_LATE = (
    ("products of functions", products.with_functions),
    ("products of functions of products", _wide_products),
    ("rational functions", rational.sparse),
    ("outer functions", outer),
    ("sums of functions", sums.with_functions),
)


# Before a reduction, which may be wrong, is trusted for long.
_WHOLE = (("sums of powers", free_powers), ("outer functions", outer))
_BRIEF = (("powers of sums", powers),)
_GROWTH = (("growth", growth.grow),)
# For functions of the target.
_INSIDE = (
    ("powers", _powers),
    ("sums of monomials", sums.polynomials),
    ("sums of powers", free_powers),
    ("ratios of functions", rational.exact_in_functions),
    ("products of functions", partial(products.with_functions, numbers="natural")),
    ("sums of functions", sums.with_plain_functions),
    ("rational functions", rational.sparse),
)


def _finished(pool: Pool, data: Data, ends: float) -> list[Candidate]:
    """The best candidates without idle constants, the others snapped, refitted to all rows, with errors."""
    final: list[Candidate] = []
    for candidate in pool.ranked(KEPT):
        if final and time.monotonic() > ends:
            break
        plain = replace(candidate, expression=without_idle_abs(candidate.expression, pool.data))
        simple = snapped(pool.data, eliminated(pool.data, plain))
        if len(final) < TIDIED:
            short = without_idle_abs(tidied(simple.expression, pool.data), pool.data)
            simple = eliminated(pool.data, fitted(pool.data, short) or simple)
        refitted = fitted(data, simple.expression)
        if refitted is not None:
            final.append(with_errors(data, refitted))
    return final

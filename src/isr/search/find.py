"""The search for a law of one column: small families first, then reductions, all judged by description length."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import sympy

from isr.search import growth, products, rational, sums
from isr.search.candidates import Candidate, Pool, eliminated, fitted, price, with_errors
from isr.search.constants import snapped, without_idle_abs
from isr.search.evaluate import opened
from isr.search.problem import Problem, outer
from isr.search.reductions import reductions
from isr.search.rows import MOST_ROWS, Data
from isr.search.surrogate import lack_of_fit
from isr.search.tidy import tidied
from isr.search.units import judge_of

FUNCTIONS = frozenset("sqrt reciprocal exp log sin cos tan asin acos atan sinh cosh tanh sigmoid abs".split())
"""What a law may call unless it is restricted."""
KEPT, TIDIED = 8, 3
DEEPEST = 6
# Nats of a law that may end the search, and the level of the test that it passes.
SHORT, PASSED = 30.0, 0.01


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


@dataclass(eq=False)
class Search:
    """A running search: its candidates, its clock and what it says.

    Args:
        pool: Candidates.
        ends: When to stop, by the monotonic clock.
        say: Called with what is tried.
        settled: A law with which the search ends, unless a better one comes.
    """

    pool: Pool
    ends: float
    say: Callable[[str], None] | None
    settled: Candidate | None = None

    def limit(self) -> float:
        """Return what the nearest law with few numbers leaves."""
        return self.pool.nearest

    @property
    def is_over(self) -> bool:
        """Whether time is up, or the best law exact, or short with nothing left to explain."""
        return self.pool.is_exact or self.settled is self.pool.best or time.monotonic() > self.ends

    def settle(self) -> None:
        """End the search if the best law is short and what it leaves depends on nothing."""
        best, data = self.pool.best, self.pool.data
        if best is None or price(best.expression, len(data.y)) > SHORT:
            return
        gaps = data.y - opened(best.expression, data.symbols).values(data.columns)
        self.settled = best if lack_of_fit(data.x, gaps, data.root) > PASSED else None

    def offer(self, problem: Problem, laws: Iterable[sympy.Expr], *, powers: bool = False) -> None:
        """Judge laws of a problem until the search is over."""
        for law in laws:
            if self.is_over:
                return
            self.pool.offer(problem.lifted(law), powers=powers)

    def tell(self, what: str) -> None:
        """Say what is tried next, and the best so far."""
        if self.say is not None:
            best = self.pool.best
            self.say(what if best is None else f"{what}; best so far {best.expression.evalf(4)}")


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

    Example:
        >>> x = np.random.default_rng(0).uniform(1, 3, size=(200, 2))
        >>> find_laws(x, 0.5 * x[:, 0] * x[:, 1] ** 2, ["m", "v"]).best.expression
        m*v**2/2
    """
    began = time.monotonic()
    data = Data.of(names, x, y, weight, noise)
    functions = FUNCTIONS if library == "auto" else frozenset(library)
    pool = Pool(data.some(MOST_ROWS, random_state), judge_of(data.names, functions, units, FUNCTIONS))
    search = Search(pool, began + 0.9 * max_time, say)
    problem = _problem(pool.data, functions)
    simple = [sympy.Float(float(np.average(y, weights=data.root**2))), sums.linear(problem)]
    simple[1] = problem.lifted(simple[1])
    for law in [*simple, *hints]:
        pool.offer(law)
    _explore(search, problem)
    if not search.is_over:
        search.tell("growth")
        search.offer(problem, growth.grow(pool, problem, search.limit))
    constant, linear = (with_errors(data, fitted(data, law, iterations=1)) for law in simple)
    found = {c.expression: c for c in [*_finished(pool, data, search.ends), constant, linear]}
    ranked = sorted(found.values(), key=lambda c: c.description_length)
    return Found(tuple(ranked), constant, linear, time.monotonic() - began, pool.is_exact)


def _problem(data: Data, functions: frozenset[str]) -> Problem:
    return Problem(
        data.x, data.symbols, data.y, data.root / np.sqrt(np.mean(data.root**2)), lambda e: e, functions
    )


def _explore(search: Search, problem: Problem) -> None:
    """Try the families on a problem, then on what it reduces to, and then those that take long."""
    if problem.k == 0:
        middle = float(np.average(problem.target, weights=problem.root**2))
        search.offer(problem, [sympy.Float(middle)])
        return
    _stages(search, problem, _EARLY)
    if not search.is_over and problem.depth < DEEPEST:
        search.tell("reductions")
        for reduction in reductions(problem):
            search.tell(f"{reduction.what}: {', '.join(map(str, reduction.problem.meaning))}")
            _explore(search, reduction.problem)
        search.settle()
    _stages(search, problem, _LATE)


def _stages(
    search: Search, problem: Problem, stages: Sequence[tuple[str, Callable[[Search, Problem], None]]]
) -> None:
    for what, stage in stages:
        if search.is_over:
            return
        search.tell(what)
        stage(search, problem)


def _powers(search: Search, problem: Problem) -> None:
    search.offer(problem, products.powers(problem), powers=True)


def _polynomials(search: Search, problem: Problem) -> None:
    search.offer(problem, sums.polynomials(problem, search.limit))


def _natural_products(search: Search, problem: Problem) -> None:
    n = 60 if problem.k < 3 else 300
    search.offer(problem, products.with_functions(problem, search.limit, n_arguments=n, numbers="natural"))


def _wide_products(search: Search, problem: Problem) -> None:
    if problem.k > 2:
        search.offer(problem, products.with_functions(problem, search.limit, n_arguments=900, numbers="one"))


def _products(search: Search, problem: Problem) -> None:
    search.offer(problem, products.with_functions(problem, search.limit))


def _plain_sums(search: Search, problem: Problem) -> None:
    search.offer(problem, sums.with_plain_functions(problem, search.limit))


def _sums(search: Search, problem: Problem) -> None:
    search.offer(problem, sums.with_functions(problem, search.limit))


def _outer(search: Search, problem: Problem) -> None:
    for changed in outer(problem, search.limit()):
        if search.is_over:
            return
        _powers(search, changed)
        _polynomials(search, changed)
        if not changed.is_power:
            search.offer(changed, products.with_functions(changed, search.limit, numbers="natural"))


def _exact_ratio(search: Search, problem: Problem) -> None:
    search.offer(problem, rational.exact(problem))


def _sines(search: Search, problem: Problem) -> None:
    if problem.k > 1:
        search.offer(problem, growth.sines(problem, search.limit))


def _ratios(search: Search, problem: Problem) -> None:
    search.offer(problem, rational.sparse(problem))


_EARLY = (
    ("powers", _powers),
    ("sums of monomials", _polynomials),
    ("products of functions", _natural_products),
    ("rational functions", _exact_ratio),
    ("sums of functions", _plain_sums),
    ("sums of sines", _sines),
)
_LATE = (
    ("products of functions", _products),
    ("products of functions of products", _wide_products),
    ("rational functions", _ratios),
    ("outer functions", _outer),
    ("sums of functions", _sums),
)


def _finished(pool: Pool, data: Data, ends: float) -> list[Candidate]:
    """The best candidates without idle constants, the others snapped, refitted to all rows, with errors."""
    final: list[Candidate] = []
    for candidate in pool.ranked(KEPT):
        if final and time.monotonic() > ends:
            break
        plain = replace(candidate, expression=without_idle_abs(candidate.expression, pool.data))
        simple = snapped(pool.data, eliminated(pool.data, plain)).expression
        if len(final) < TIDIED:
            simple = without_idle_abs(tidied(simple, pool.data), pool.data)
        refitted = fitted(data, simple)
        if refitted is not None:
            final.append(with_errors(data, refitted))
    return final

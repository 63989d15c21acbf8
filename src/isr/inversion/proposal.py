"""Proposal: how draws of x are made for any observation: what is solved, and what is drawn and weighed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import comb
from typing import Any, Protocol

import numpy as np
import sympy

from isr.inversion.chart import Chart, charts
from isr.inversion.law import Law
from isr.inversion.prior import PriorLaw
from isr.inversion.target import Direct, Logs, Rows, Solved, Target, blocks
from isr.motion.law import MotionLaw
from isr.posterior.adaptive import Adaptive, adapt
from isr.posterior.pareto import TRUSTED, Weights, smooth
from isr.search.formula import Formula

# Charts that make draws together, at most, and those that are adapted one after the other where these fail.
MOST_CHARTS, MOST_ADAPTED = 4, 3
# What is left of a column without noise that is checked, not solved, as a share of its spread.
CHECKED = 1e-6
MOST_SUBSETS = 30
# A pool is as much larger than what is drawn from it as makes its effective size so many times that number.
RESERVE, LARGEST_POOL = 2.0, 400_000
# Draws that judge a source, and again where those leave it in doubt; they are cheaper than another source.
N_JUDGED, N_DOUBTED, MOST_DOUBTED, FEW = 4000, 12_000, 60_000, 400
# Weights that rest on a smaller share of the draws than this ask for a better source.
LEAST_SHARE = 0.04
# Where no weight is so many times the mean one, the shape of their tail says nothing.
HARMLESS = 20.0


class Impossible(ValueError):
    """No draw has any density: the observation is impossible under the law and the prior."""


class Source(Protocol):
    """What makes weighted draws."""

    columns: tuple[int, ...]
    is_bounded: bool

    def draw(self, n: int, rng: np.random.Generator) -> tuple[Rows, Logs]:
        """Return rows of x and the logarithms of their weights, whose mean estimates the evidence."""
        ...


@dataclass(frozen=True, eq=False)
class Adapted:
    """Draws of a proposal, boxes or a mixture, that was adapted to a target."""

    target: Target
    proposal: Adaptive | None

    @classmethod
    def to(cls, target: Target) -> Adapted:
        """Return a proposal fitted to a target; of one without coordinates there is none."""
        rng = np.random.default_rng([0, *target.columns])
        return cls(target, adapt(lambda u: target.finish(u, rng)[1], target.dim, rng) if target.dim else None)

    @property
    def columns(self) -> tuple[int, ...]:
        """The variables of the block."""
        return self.target.columns

    @property
    def is_bounded(self) -> bool:
        """Whether weights have a bound."""
        return self.target.is_bounded

    def draw(self, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        u, log_q = (np.zeros((n, 0)), np.zeros(n)) if self.proposal is None else self.proposal.sample(n, rng)
        rows, log_p = self.target.finish(u, rng)
        return rows, np.where(np.isfinite(log_p), log_p - log_q, -np.inf)


@dataclass(frozen=True, eq=False)
class Sampler:
    """A source of weighted draws with the pool that it was judged by: its size as asked for, rows and weights."""

    source: Source
    n: int
    rows: Rows
    weights: Weights

    @classmethod
    def of(cls, source: Source, least_share: float = LEAST_SHARE, n: int = N_JUDGED) -> Sampler:
        """Return a source, judged; `Impossible` where no draw has any weight."""
        rows, log_w = source.draw(n, np.random.default_rng([1, *source.columns]))
        if not np.any(log_w > -np.inf):
            raise Impossible("no draw has any density under both the law and the prior")
        found = cls(source, n, rows, smooth(log_w))
        size = found.weights.effective_size
        if n >= MOST_DOUBTED or (found.is_good(least_share) and size >= FEW):
            return found
        more = N_DOUBTED if n < N_DOUBTED and size > 0.1 * FEW else MOST_DOUBTED
        return cls.of(source, least_share, more)

    @property
    def effective_share(self) -> float:
        """Effective size of the pool over its size."""
        return self.weights.effective_size / self.n

    @property
    def pareto_k(self) -> float:
        """Shape of the tail of the weights; at most 0.7 where they are bounded and none of them counts for much."""
        k, largest = self.weights.pareto_k, float(np.exp(self.weights.log_weights.max())) * self.n
        return min(k, TRUSTED) if self.source.is_bounded and largest < HARMLESS else k

    def is_good(self, least_share: float) -> bool:
        """Return whether its weights can be trusted and rest on many draws."""
        return self.pareto_k <= TRUSTED and self.effective_share >= least_share

    def sample(self, n: int, rng: np.random.Generator) -> tuple[Rows, Weights]:
        """Return ``n`` draws, from a fresh pool large enough for them, and the weights of that pool."""
        wanted = RESERVE * n / max(self.effective_share, 1e-3)
        rows, log_w = self.source.draw(int(np.clip(wanted, RESERVE * n, LARGEST_POOL)), rng)
        weights = smooth(log_w)
        return rows[weights.resample(n, rng)], weights


@dataclass(frozen=True, eq=False)
class Block:
    """Variables that belong together, the part of the law that reads them if any does, and charts that solve it."""

    columns: tuple[int, ...]
    law: Law | MotionLaw | None = None
    charts: tuple[Chart, ...] = ()

    def sampler(self, prior: PriorLaw, y: np.ndarray, least_share: float = LEAST_SHARE) -> Sampler:
        """Return the best source of draws given observations; `Impossible` where no x gives them."""
        found: list[Sampler] = []
        for source in self._sources(prior, y):
            try:
                found.append(Sampler.of(source(), least_share))
            except Impossible:
                continue
            if found[-1].is_good(least_share):
                break
        if not found:
            raise Impossible("no draw has any density under both the law and the prior")
        return max(found, key=lambda s: (s.pareto_k <= TRUSTED, s.effective_share))

    def _sources(self, prior: PriorLaw, y: np.ndarray) -> Iterator[Callable[[], Source]]:
        """Ways to make draws, the cheapest first."""
        law: Any = self.law
        if self.charts:
            yield lambda: Solved(self.charts, prior, self.columns, y)
        if any(column.is_exact for column in law.columns):
            for chart in self.charts[:MOST_ADAPTED]:
                yield lambda chart=chart: Adapted.to(Solved((chart,), prior, self.columns, y))
        else:
            yield lambda: Adapted.to(Direct(law, prior, self.columns, y))


@dataclass(frozen=True, eq=False)
class Proposal:
    """How draws are made, block by block.

    Example:
        >>> from isr.search.formula import parse
        >>> from isr.inversion.law import Column, Group
        >>> from isr.inversion.prior import of_prior
        >>> from isr.posterior.priors import parse_prior
        >>> mean, noise = Formula(parse("h + sin(a)", ["h", "a"])), Formula(parse("0", []))
        >>> law = Law(("h", "a"), (Column("y", 0, mean, noise),), (Group((0,)),), n_y=1)
        >>> proposal = find_proposal(law, of_prior(parse_prior({"h": (0, 1), "a": (0, 1)}), ["h", "a"]))
        >>> print(proposal)
        h = y - sin(a)
        a drawn from its law, and weighed
        also solved for (a); draws of all are weighed together
    """

    names: tuple[str, ...]
    blocks: tuple[Block, ...]

    @property
    def n_constants(self) -> int:
        """How many numbers its formulas hold."""
        return sum(block.charts[0].n_constants for block in self.blocks if block.charts)

    def lines(self, digits: int = 4) -> list[str]:
        """Return what is solved and what is drawn, as lines of text."""
        lines: list[str] = []
        for block in self.blocks:
            shown = ", ".join(self.names[j] for j in block.columns)
            if block.law is None:
                lines.append(f"{shown} as before the observation, for no column of y reads them")
            elif not block.charts:
                lines.append(f"{shown} drawn where the posterior has its mass, and weighed")
            else:
                first, *others = block.charts
                lines += first.lines(digits)
                free = [self.names[j] for j in block.columns if j not in first.solved]
                if free:
                    whose = "its law" if len(free) == 1 else "their laws"
                    lines.append(f"{', '.join(free)} drawn from {whose}, and weighed")
                swapped = ["(" + ", ".join(self.names[j] for j in c.solved) + ")" for c in others]
                if swapped:
                    lines.append(f"also solved for {', '.join(swapped)}; draws of all are weighed together")
        return lines

    def __str__(self) -> str:
        return "\n".join(self.lines())

    __repr__ = __str__


def find_proposal(law: Law | MotionLaw, prior: PriorLaw) -> Proposal:
    """Return how draws are best made: columns without noise are solved, others where that makes better draws."""
    found = [
        Block(columns, part) if part is None or isinstance(part, MotionLaw) else _block(part, prior, columns)
        for columns, part in blocks(law, prior)
    ]
    return Proposal(prior.names, tuple(found))


def _block(law: Law, prior: PriorLaw, columns: tuple[int, ...]) -> Block:
    exact = [i for i, column in enumerate(law.columns) if column.is_exact]
    noisy = [i for i, column in enumerate(law.columns) if not column.is_exact]
    if any(column.is_count for column in law.columns):
        return Block(columns, _with_checks(law, prior, exact))
    for solved in _subsets(exact, len(columns)):
        checked = _with_checks(law, prior, [i for i in exact if i not in solved])
        fits = len(solved) + len(noisy) <= len(columns)
        for chosen in [[*solved, *noisy], solved] if fits and noisy else [solved]:
            found = _usable(charts(checked, prior, columns, chosen)) if chosen else ()
            if found and (found[0].is_closed or chosen == solved):
                return Block(columns, checked, found)
    return Block(columns, _with_checks(law, prior, exact))


def _usable(found: Sequence[Chart]) -> tuple[Chart, ...]:
    """Charts that solve for different variables, in closed form where there is one."""
    kept: dict[frozenset[int], Chart] = {}
    for chart in found:
        fixed = {chart.law.x_names[j] for j in chart.solved}
        if not any(fixed & set(chart.law.columns[i].scale.variables) for i in chart.columns):
            kept.setdefault(frozenset(chart.solved), chart)
    closed = [chart for chart in kept.values() if chart.is_closed]
    return tuple((closed or list(kept.values())[:1])[:MOST_CHARTS])


def _subsets(exact: Sequence[int], n_variables: int) -> Iterator[list[int]]:
    """Columns without noise to solve, as many as can be: others are checked."""
    for size in range(min(len(exact), n_variables), -1, -1):
        if comb(len(exact), size) <= MOST_SUBSETS:
            yield from map(list, combinations(exact, size))


def _with_checks(law: Law, prior: PriorLaw, left: Sequence[int]) -> Law:
    """Columns without noise that are not solved have a tiny scale instead."""
    if not left:
        return law
    spreads = np.std(law.parts(prior.sample(2000, np.random.default_rng(0)))[0], axis=1)
    columns = list(law.columns)
    for i in left:
        columns[i] = replace(columns[i], scale=Formula(sympy.Float(CHECKED * float(spreads[i]))))
    return replace(law, columns=tuple(columns))

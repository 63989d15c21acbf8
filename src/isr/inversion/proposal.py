"""Proposal: how draws of x are made for any observation: what is solved, and what is drawn and weighed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import comb

import numpy as np
import sympy

from isr.inversion.chart import Chart, charts
from isr.inversion.law import Law
from isr.inversion.pool import Impossible, Sampler, adapted, judged
from isr.inversion.prior import PriorLaw
from isr.inversion.schemes import Schemes
from isr.inversion.target import Charted, Direct, blocks
from isr.motion.law import MotionLaw
from isr.posterior.pareto import TRUSTED
from isr.search.formula import Formula

# Charts that make draws together, at most, and those that are adapted one after the other where these fail.
MOST_CHARTS, MOST_ADAPTED = 4, 3
# What is left of a column without noise that is checked, not solved, as a share of its spread.
CHECKED = 1e-6
MOST_SUBSETS = 30


@dataclass(frozen=True, eq=False)
class Block:
    """Variables that belong together, with the part of the law that reads them.

    Args:
        columns: Numbers of the variables.
        law: The part of the law of y; None where no column reads them.
        charts: Ways to solve the columns of the law; empty where every variable is drawn.
    """

    columns: tuple[int, ...]
    law: Law | MotionLaw | None = None
    charts: tuple[Chart, ...] = ()

    def sampler(self, prior: PriorLaw, y: np.ndarray) -> Sampler:
        """Return the best source of draws given observations; `Impossible` where no x gives them."""
        assert self.law is not None
        found: list[Sampler] = []
        for source in self._sources(prior, y):
            try:
                found.append(source())
            except Impossible:
                continue
            if found[-1].is_good:
                break
        if not found:
            raise Impossible("no draw has any density under both the law and the prior")
        return max(found, key=lambda s: (s.pareto_k <= TRUSTED, s.effective_share))

    def _sources(self, prior: PriorLaw, y: np.ndarray) -> Iterator[Callable[[], Sampler]]:
        """Ways to make draws, the cheapest first."""
        assert self.law is not None
        if self.charts:
            yield lambda: judged(Schemes(self.charts, prior, self.columns, y))
        if any(column.is_exact for column in self.law.columns):
            for chart in self.charts[:MOST_ADAPTED]:
                yield lambda chart=chart: adapted(Charted(chart, prior, self.columns, y), 0)
        else:
            yield lambda: adapted(Direct(self.law, prior, self.columns, y), 0)


@dataclass(frozen=True, eq=False)
class Proposal:
    """How draws are made, block by block.

    Args:
        names: Names of the variables.
        blocks: Variables that belong together.

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
        solved in turn: (a); weights are those of all together
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
            shown = [self.names[j] for j in block.columns]
            if block.law is None:
                lines.append(f"{', '.join(shown)} as before the observation, for no column of y reads them")
            elif not block.charts:
                lines.append(f"{', '.join(shown)} drawn where the posterior has its mass, and weighed")
            else:
                first, *others = block.charts
                lines += first.lines(digits)
                free = [self.names[j] for j in block.columns if j not in first.solved]
                if free:
                    lines.append(
                        f"{', '.join(free)} drawn from {'its law' if len(free) == 1 else 'their laws'}, and weighed"
                    )
                swapped = ["(" + ", ".join(self.names[j] for j in c.solved) + ")" for c in others]
                if swapped:
                    lines.append(f"solved in turn: {', '.join(swapped)}; weights are those of all together")
        return lines

    def __str__(self) -> str:
        return "\n".join(self.lines())

    __repr__ = __str__


def find_proposal(law: Law | MotionLaw, prior: PriorLaw) -> Proposal:
    """Return how draws are best made: columns without noise are solved, others where that makes better draws."""
    found = [
        Block(columns) if part is None else _block(part, prior, columns)
        for columns, part in blocks(law, prior)
    ]
    return Proposal(prior.names, tuple(found))


def _block(law: Law | MotionLaw, prior: PriorLaw, columns: tuple[int, ...]) -> Block:
    if isinstance(law, MotionLaw):  # nothing to solve for
        return Block(columns, law)
    exact = [i for i, column in enumerate(law.columns) if column.is_exact]
    noisy = [i for i, column in enumerate(law.columns) if not column.is_exact]
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
    with np.errstate(all="ignore"):
        spreads = np.std(law.parts(prior.sample(2000, np.random.default_rng(0)))[0], axis=1)
    columns = list(law.columns)
    for i in left:
        columns[i] = replace(columns[i], scale=Formula(sympy.Float(CHECKED * float(spreads[i]))))
    return replace(law, columns=tuple(columns))

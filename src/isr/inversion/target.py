"""Targets: what is to be drawn from, in coordinates where the law of x is about standard normal.

A posterior falls into blocks of variables that neither the law of x nor that of y ties together; each block is a target
of its own, and one that no observation touches needs no weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from jaxtyping import Float
from scipy.special import logsumexp

from isr.inversion.chart import Chart
from isr.inversion.law import Group, Law
from isr.inversion.marginals import Marginal
from isr.inversion.prior import LOG_TWO_PI, PriorLaw, normal_log_prob
from isr.motion.law import MotionLaw


class Target(Protocol):
    """What a proposal is made for."""

    dim: int
    columns: tuple[int, ...]

    def log_prob(self, u: Float[np.ndarray, "n dim"]) -> Float[np.ndarray, " n"]:
        """Return the log-density of coordinates, without its constant where `finish` knows better."""
        ...

    def finish(
        self, u: Float[np.ndarray, "n dim"], rng: np.random.Generator
    ) -> tuple[Float[np.ndarray, "n d_x"], Float[np.ndarray, " n"]]:
        """Return rows of x for coordinates, with their log-density over that of the coordinates."""
        ...


@dataclass(frozen=True, eq=False)
class Direct:
    """A block whose every variable is a coordinate.

    Args:
        law: The law of the columns of y that this block explains.
        prior: The law of x.
        columns: The variables of the block.
        y: Observations of the same x as rows.
    """

    law: Law
    prior: PriorLaw
    columns: tuple[int, ...]
    y: Float[np.ndarray, "k d_y"]

    @property
    def dim(self) -> int:
        """How many coordinates there are."""
        return len(self.columns)

    def log_prob(self, u: np.ndarray) -> np.ndarray:
        return self._evaluated(u)[1]

    def finish(self, u: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        return self._evaluated(u)

    def _evaluated(self, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        x, base = self.prior.rows(u, self.columns)
        total = base + self.law.log_prob(x, self.y)
        return x, np.where(np.isfinite(total), total, -np.inf)


@dataclass(frozen=True, eq=False)
class Charted:
    """A block some of whose variables are solved for, so that only the others are coordinates.

    The mean that a column with noise is solved for is drawn from its noise around the observation; where the noise is
    zero the observation itself is solved. Branches are drawn by their odds.

    Args:
        chart: What is solved.
        prior: The law of x.
        columns: The variables of the block.
        y: Observations of the same x as rows.
        seed: Of the means that density sees.
    """

    chart: Chart
    prior: PriorLaw
    columns: tuple[int, ...]
    y: Float[np.ndarray, "k d_y"]
    seed: int = 0
    noisy_steps: tuple[int, ...] = ()

    @cached_property
    def free(self) -> tuple[int, ...]:
        """The variables that are coordinates."""
        return tuple(j for j in self.columns if j not in self.chart.solved)

    @property
    def dim(self) -> int:
        """How many coordinates there are."""
        return len(self.free) + len(self.noisy_steps)

    @cached_property
    def _rng(self) -> np.random.Generator:
        return np.random.default_rng(self.seed)

    @cached_property
    def _noisy(self) -> Law | None:
        """The law of the columns with noise; None without any."""
        groups = [g for g in self.chart.law.groups if not self.chart.law.columns[g.columns[0]].is_exact]
        return part_of(self.chart.law, groups) if groups else None

    @cached_property
    def _marginals(self) -> list[Marginal]:
        return [self.prior.marginal(j) for j in self.free]

    @cached_property
    def _observed(self) -> np.ndarray:
        """The mean observation of each solved column, transformed."""
        chosen = [self.chart.law.columns[i] for i in self.chart.columns]
        return np.array([np.mean(c.transformed(self.y[:, c.index])) for c in chosen])

    def log_prob(self, u: np.ndarray) -> np.ndarray:
        return self.finish(u, self._rng)[1]

    def finish(self, u: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        n = len(u)
        x, base = np.zeros((n, len(self.prior.names))), normal_log_prob(u)
        for j, marginal, column in zip(self.free, self._marginals, u.T, strict=False):
            x[:, j] = marginal.from_normal(column)
            base = base - marginal.log_prob(x[:, j])
        t, correction = self._means(x, u[:, len(self.free) :], rng)
        rows, exists = self.chart.solve(x, t)
        flat = rows.reshape(-1, rows.shape[2])
        log_p = self.prior.log_prob(flat, self.columns)
        if self._noisy is not None:
            log_p = log_p + self._noisy.log_prob(flat, self.y)
        log_p = (log_p - self.chart.log_det(flat)).reshape(len(rows), n)
        log_p = np.where(exists & np.isfinite(log_p), log_p, -np.inf)
        total = logsumexp(log_p, axis=0)
        with np.errstate(invalid="ignore"):
            odds = np.cumsum(np.nan_to_num(np.exp(log_p - total)), axis=0)
        chosen = np.minimum(np.sum(odds < rng.uniform(size=n), axis=0), len(rows) - 1)
        found = base + correction + total
        return rows[chosen, np.arange(n)], np.where(np.isfinite(found), found, -np.inf)

    def _means(
        self, x: np.ndarray, noise: np.ndarray, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """The means to solve for, and the log of their density taken away."""
        t = np.repeat(self._observed[None], len(x), axis=0)
        correction = np.zeros(len(x))
        scales = self.chart.law.parts(x)[1]
        for k, i in enumerate(self.chart.columns):
            if not self.chart.law.columns[i].is_exact:
                is_known = k in self.noisy_steps
                e = noise[:, self.noisy_steps.index(k)] if is_known else rng.normal(size=len(x))
                size = scales[i] / np.sqrt(len(self.y))
                t[:, k] -= size * e
                with np.errstate(divide="ignore"):
                    correction = correction + np.log(size) + 0.5 * e * e + 0.5 * LOG_TWO_PI
        return t, correction


def blocks(law: Law | MotionLaw, prior: PriorLaw) -> list[tuple[tuple[int, ...], Any]]:
    """Return the variables of each block, sorted, with the part of the law that reads them; None where none does.

    Example:
        >>> from isr.search.formula import Formula, parse
        >>> from isr.inversion.law import Column, Group
        >>> from isr.inversion.prior import of_prior
        >>> from isr.posterior.priors import parse_prior
        >>> noise = Formula(parse("0.1", []))
        >>> columns = tuple(Column(f"y{i}", i, Formula(parse(f"x{i}", ["x0", "x1"])), noise) for i in (0, 1))
        >>> law = Law(("x0", "x1", "x2"), columns, (Group((0,)), Group((1,))))
        >>> prior = of_prior(parse_prior(dict.fromkeys(law.x_names, (0, 1))), law.x_names)
        >>> [(variables, part and part.columns[0].name) for variables, part in blocks(law, prior)]
        [((0,), 'y0'), ((1,), 'y1'), ((2,), None)]
    """
    n = len(law.x_names)
    ties = [set(part) for part in prior.blocks]
    if isinstance(law, MotionLaw):
        pieces: list[Any] = [law]
        reads = [{law.x_names.index(name) for name in law.variables}]
    else:
        pieces, reads = list(law.groups), [_read_by(law, group) for group in law.groups]
    for variables in reads:
        touched = [tie for tie in ties if tie & variables]
        if touched:
            ties = [tie for tie in ties if not tie & variables] + [set().union(*touched)]
    found: list[tuple[tuple[int, ...], Any]] = []
    for tie in sorted(ties, key=min):
        own = [piece for piece, variables in zip(pieces, reads, strict=True) if variables & tie]
        part = law if isinstance(law, MotionLaw) else part_of(law, own)
        found.append((tuple(sorted(tie)), part if own else None))
    assert sum(len(variables) for variables, _ in found) == n
    return found


def _read_by(law: Law, group: Group) -> set[int]:
    names = set()
    for j in group.columns:
        names |= {*law.columns[j].mean.variables, *law.columns[j].scale.variables}
    if group.correlation is not None:
        names |= set(group.correlation.variables)
    return {law.x_names.index(name) for name in names}


def part_of(law: Law, groups: Sequence[Group]) -> Law:
    """Return the law of some groups of columns alone; its columns still know their place in y."""
    chosen = [j for g in groups for j in g.columns]
    place = {j: i for i, j in enumerate(chosen)}
    moved = tuple(replace(g, columns=tuple(place[j] for j in g.columns)) for g in groups)
    return Law(law.x_names, tuple(law.columns[j] for j in chosen), moved, law.dropped, law.n_y)

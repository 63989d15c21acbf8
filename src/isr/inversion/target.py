"""Targets: what is to be drawn from, in coordinates where the law of x is about standard normal.

A posterior falls into blocks of variables that neither the law of x nor that of y ties together; each block is a target
of its own, and one that no observation touches needs no weights. Of some targets columns of y are solved for variables.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from jaxtyping import Float
from scipy.special import logsumexp

from isr.inversion.chart import Chart
from isr.inversion.law import Group, Law
from isr.inversion.noise import Noise
from isr.inversion.parts import normal_log_prob
from isr.inversion.prior import PriorLaw
from isr.motion.law import MotionLaw

Rows = Float[np.ndarray, "n d_x"]
Logs = Float[np.ndarray, " n"]


class Target(Protocol):
    """What a proposal is made for.

    Attributes:
        is_bounded: Whether weights have a bound because proposals cover the whole prior and nothing is divided by.
    """

    dim: int
    columns: tuple[int, ...]
    is_bounded: ClassVar[bool]

    def finish(self, u: Float[np.ndarray, "n dim"], rng: np.random.Generator) -> tuple[Rows, Logs]:
        """Return rows of x for coordinates, with their log-density over that of the coordinates."""
        ...


@dataclass(frozen=True, eq=False)
class Direct:
    """A block whose every variable is a coordinate; ``y`` holds observations of the same x as rows."""

    law: Law
    prior: PriorLaw
    columns: tuple[int, ...]
    y: Float[np.ndarray, "k d_y"]

    is_bounded: ClassVar[bool] = True

    @property
    def dim(self) -> int:
        """How many coordinates there are."""
        return len(self.columns)

    def finish(self, u: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        x, base = self.prior.rows(u, self.columns)
        return x, _possible(base + self.law.log_prob(x, self.y))


@dataclass(frozen=True, eq=False)
class Solved:
    """A block some of whose variables are solved for, by one chart or by several in turn.

    The mean that a column with noise is solved for is drawn from its noise around the observation; a column without
    noise is solved as observed. `draw` takes the free variables from their law and weighs a row by its density over
    that of all charts together (the balance heuristic), so weights have no peak where one chart folds over. `finish`
    takes the free variables of the first chart as coordinates, and draws a branch by its odds.
    """

    charts: tuple[Chart, ...]
    prior: PriorLaw
    columns: tuple[int, ...]
    y: Float[np.ndarray, "k d_y"]

    is_bounded: ClassVar[bool] = False

    @property
    def dim(self) -> int:
        """How many coordinates there are."""
        return len(self._free(self.charts[0]))

    def _free(self, chart: Chart) -> list[int]:
        return [j for j in self.columns if j not in chart.solved]

    def draw(self, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Return rows of x, every branch of ``n`` solutions, and logarithms of weights whose mean is p(y)."""
        n_each = max(1, n // len(self.charts))
        found = []
        for chart in self.charts:
            x = np.zeros((n_each, len(self.prior.names)))
            for j in self._free(chart):
                x[:, j] = self.prior.marginal(j).sample(n_each, rng)
            rows, exists, noise = self._solve(chart, x, rng)
            found.append((rows[exists], np.broadcast_to(noise, exists.shape)[exists]))
        rows, noise = (np.concatenate(parts) for parts in zip(*found, strict=True))
        if not len(rows):
            return rows, np.zeros(0)
        log_w = _possible(self._log_joint(rows) + noise - self._log_density(rows))
        return rows, log_w + np.log(len(rows) / (n_each * len(self.charts)))

    def finish(self, u: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        chart, n = self.charts[0], len(u)
        x, base = np.zeros((n, len(self.prior.names))), normal_log_prob(u)
        for j, coordinate in zip(self._free(chart), u.T, strict=True):
            marginal = self.prior.marginal(j)
            x[:, j] = marginal.from_normal(coordinate)
            base = base - marginal.log_prob(x[:, j])
        rows, exists, noise = self._solve(chart, x, rng)
        flat = rows.reshape(-1, rows.shape[2])
        log_p = (self._log_joint(flat) - chart.log_det(flat)).reshape(exists.shape)
        log_p = np.where(exists, _possible(log_p), -np.inf)
        total = logsumexp(log_p, axis=0)
        with np.errstate(invalid="ignore"):
            odds = np.cumsum(np.nan_to_num(np.exp(log_p - total)), axis=0)
        chosen = np.minimum(np.sum(odds < rng.uniform(size=n), axis=0), len(rows) - 1)
        return rows[chosen, np.arange(n)], _possible(base + noise + total)

    def _solve(
        self, chart: Chart, x: np.ndarray, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Rows of each branch, where they exist, and the log-density of the noise solved with, taken away."""
        n, law = len(x), chart.law
        scales = chart.scales(x)
        t, taken = np.empty((n, len(chart.steps))), np.zeros(n)
        for k, i in enumerate(chart.columns):
            column = law.columns[i]
            t[:, k] = np.mean(column.transformed(self.y[:, column.index]))
            if not column.is_exact:
                noise = next(group.noise for group in law.groups if i in group.columns)
                noise = Noise() if noise.kind == "ring" else noise
                e, size = noise.sample(1, n, rng), scales[k] / np.sqrt(len(self.y))
                t[:, k] -= size * e[0]
                with np.errstate(divide="ignore"):
                    taken += np.log(size) - noise.log_density(e)
        return *chart.solve(x, t), taken

    def _log_joint(self, rows: np.ndarray) -> np.ndarray:
        """Log of prior times likelihood of the columns with noise."""
        noisy = self.charts[0].noisy_law
        prior = self.prior.log_prob(rows, self.columns)
        return prior if noisy is None else prior + noisy.log_prob(rows, self.y)

    def _log_density(self, rows: np.ndarray) -> np.ndarray:
        """Log of the mean density of rows under all charts, noise apart."""
        free = {j for chart in self.charts for j in self._free(chart)}
        own = {j: self.prior.marginal(j).log_prob(rows[:, j]) for j in free}
        each = [chart.log_det(rows) + sum(own[j] for j in self._free(chart)) for chart in self.charts]
        with np.errstate(invalid="ignore"):
            return np.logaddexp.reduce(np.nan_to_num(each, nan=-np.inf)) - np.log(len(self.charts))


def _possible(log_p: np.ndarray) -> np.ndarray:
    """The same, with minus infinity in place of what is not finite."""
    return np.where(np.isfinite(log_p), log_p, -np.inf)


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
    is_motion = isinstance(law, MotionLaw)
    pieces: Sequence[Any] = [law] if is_motion else law.groups
    reads = [{law.x_names.index(name) for name in _read_by(law, piece)} for piece in pieces]
    ties = [set(part) for part in prior.blocks]
    for variables in reads:
        touched = [tie for tie in ties if tie & variables]
        if touched:
            ties = [tie for tie in ties if not tie & variables] + [set().union(*touched)]
    found: list[tuple[tuple[int, ...], Any]] = []
    for tie in sorted(ties, key=min):
        own = [piece for piece, variables in zip(pieces, reads, strict=True) if variables & tie]
        part = (law if is_motion else law.part(own)) if own else None
        found.append((tuple(sorted(tie)), part))
    return found


def _read_by(law: Law | MotionLaw, piece: Law | MotionLaw | Group) -> set[str]:
    """Names of the variables that a group of columns, or a law of motion, reads."""
    if not isinstance(law, Law):
        return set(law.variables)
    formulas = [f for j in piece.columns for f in (law.columns[j].mean, law.columns[j].scale)]
    formulas += [] if piece.correlation is None else [piece.correlation]
    return {name for formula in formulas for name in formula.variables}

"""Schemes: several charts together make weighted draws whose weights have no peak where one chart folds over.

Each chart draws its free variables from their law and solves the others. The weight of a row is its density over that
of all charts together (the balance heuristic): a row where one chart's determinant vanishes is weighed by the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float
from scipy.special import logsumexp

from isr.inversion.chart import Chart
from isr.inversion.law import Law
from isr.inversion.prior import LOG_TWO_PI, PriorLaw
from isr.inversion.target import part_of


@dataclass(frozen=True, eq=False)
class Schemes:
    """Charts of one block that solve the same columns for different variables.

    Args:
        charts: The charts.
        prior: The law of x.
        columns: The variables of the block.
        y: Observations of the same x as rows.
    """

    charts: tuple[Chart, ...]
    prior: PriorLaw
    columns: tuple[int, ...]
    y: Float[np.ndarray, "k d_y"]

    @property
    def law(self) -> Law:
        """The law of y."""
        return self.charts[0].law

    @cached_property
    def _noisy(self) -> Law | None:
        groups = [g for g in self.law.groups if not self.law.columns[g.columns[0]].is_exact]
        return part_of(self.law, groups) if groups else None

    def draw(
        self, n: int, rng: np.random.Generator
    ) -> tuple[Float[np.ndarray, "m d_x"], Float[np.ndarray, " m"]]:
        """Return rows of x, every branch of ``n`` solutions, and logarithms of weights whose sum over n is p(y)."""
        n_each = max(1, n // len(self.charts))
        found = [self._solved(chart, n_each, rng) for chart in self.charts]
        rows = np.concatenate([r for r, _ in found])
        noise = np.concatenate([e for _, e in found])
        if not len(rows):
            return rows, np.zeros(0)
        order = rng.permutation(len(rows))
        rows, noise = rows[order], noise[order]
        log_p = self.prior.log_prob(rows, self.columns) + noise
        if self._noisy is not None:
            log_p = log_p + self._noisy.log_prob(rows, self.y)
        log_p = log_p - self._log_density(rows)
        return rows, np.where(np.isfinite(log_p), log_p, -np.inf) + np.log(
            len(rows) / (n_each * len(self.charts))
        )

    def _solved(self, chart: Chart, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Rows that a chart solves, and the log-density of the noise that they were solved with, taken away."""
        x = np.zeros((n, len(self.prior.names)))
        for j in self._free(chart):
            x[:, j] = self._marginals[j].sample(n, rng)
        scales = self.law.parts(x)[1]
        t, taken = np.empty((n, len(chart.steps))), np.zeros(n)
        for k, i in enumerate(chart.columns):
            column = self.law.columns[i]
            t[:, k] = np.mean(column.transformed(self.y[:, column.index]))
            if not column.is_exact:
                e, size = rng.normal(size=n), scales[i] / np.sqrt(len(self.y))
                t[:, k] -= size * e
                with np.errstate(divide="ignore"):
                    taken += np.log(size) + 0.5 * e * e + 0.5 * LOG_TWO_PI
        rows, exists = chart.solve(x, t)
        return rows[exists], np.broadcast_to(taken, exists.shape)[exists]

    def _free(self, chart: Chart) -> list[int]:
        return [j for j in self.columns if j not in chart.solved]

    @cached_property
    def _marginals(self) -> dict:
        return {j: self.prior.marginal(j) for chart in self.charts for j in self._free(chart)}

    def _log_density(self, rows: np.ndarray) -> np.ndarray:
        """Log of the mean density of rows under all charts, noise apart."""
        own = {j: marginal.log_prob(rows[:, j]) for j, marginal in self._marginals.items()}
        each = [chart.log_det(rows) + sum(own[j] for j in self._free(chart)) for chart in self.charts]
        with np.errstate(invalid="ignore"):
            return logsumexp(np.nan_to_num(each, nan=-np.inf), axis=0) - np.log(len(self.charts))

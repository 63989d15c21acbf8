"""The mean of a column of y, or of its logarithm, and whether the column is one of counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import sympy
from jaxtyping import Float

from isr.inversion.law import Column, Group, Law
from isr.inversion.means import (
    CLEARLY,
    EXACT,
    FEW_ROWS,
    Mean,
    Search,
    find_mean,
    find_scale,
    lack_of_fit,
    relatives,
    values_of,
)
from isr.inversion.screen import Features, normal_scores
from isr.search.candidates import price
from isr.search.formula import Formula, symbol

# A positive column may follow a law of its logarithm where it spans this ratio.
LEAST_RATIO = 4.0


@dataclass
class MeanFinder:
    """Finds the mean of columns, one after the other; those found, of y and of log y, may be like the next."""

    features: Features
    x_names: tuple[str, ...]
    search: Search | None
    known: dict[str, list[Formula]] = field(default_factory=lambda: {"": [], "log": []})

    def of(self, columns: Float[np.ndarray, "n k"]) -> tuple[Mean, str]:
        """Return the mean that columns share, and whether it is that of their logarithms."""
        features, y = self.features, np.mean(columns, axis=1)
        low, high = float(np.min(columns)), float(np.max(columns))
        if low <= 0 or high < LEAST_RATIO * low:
            return self._sought(y, ""), ""
        logs = np.mean(np.log(columns), axis=1)
        other = find_mean(features, logs, self.x_names, None)
        if self._is_settled(other, logs) and len(other.formula.constants) <= 1 + features.x.shape[1]:
            plain = find_mean(features, y, self.x_names, None)
        else:
            plain = self._sought(y, "")
            if self._is_settled(plain, y):
                return plain, ""
            # Where noise grows with y, squares of y itself rank them wrongly.
            logs_of = [Formula(sympy.log(f.expression)) for f in plain.tried or [plain.formula]]
            other = self._sought(logs, "log", logs_of)
        is_better = (other.passed or not plain.passed) and (
            self._deviance(other) + 2 * float(np.sum(logs)) < self._deviance(plain)
        )
        return self._unlogged(other, y) if is_better else (plain, "")

    def _sought(self, y: np.ndarray, transform: str, also: Sequence[Formula] = ()) -> Mean:
        """The mean of a column; none is searched where of many rows one like another column's leaves nothing."""
        features, search, known = self.features, self.search, self.known[transform]
        if known and transform:  # products with variables are sums of logarithms
            positive = [v for v, column in zip(self.x_names, features.x.T, strict=True) if np.min(column) > 0]
            known = [*known, *(Formula(sympy.log(symbol(name))) for name in positive)]
        like = relatives(known, features.x, y, self.x_names) if search is not None else []
        gaps = (y - values_of(formula, features.x, self.x_names) for formula in like)
        if len(y) >= FEW_ROWS and any(lack_of_fit(features, gap, y) > CLEARLY for gap in gaps):
            search = None
        return find_mean(features, y, self.x_names, search, also=[*also, *like])

    def _unlogged(self, mean: Mean, y: np.ndarray) -> tuple[Mean, str]:
        """A mean of the logarithm; of y itself where rows have no noise."""
        formula = Formula(sympy.powdenest(sympy.exp(mean.formula.expression), force=True))
        residual = y - values_of(formula, self.features.x, self.x_names)
        if not np.std(residual) <= EXACT * np.std(y):
            return mean, "log"
        return Mean(formula, residual, 1.0), ""

    def _is_settled(self, mean: Mean, y: np.ndarray) -> bool:
        """Whether a mean leaves nothing, neither in size."""
        if np.std(mean.residual) <= EXACT * np.std(y):
            return True
        sizes = [np.abs(mean.residual)]
        if np.min(y) >= 0 and np.all(y == np.round(y)):  # counts scatter by the root of their mean
            sizes.append(sizes[0] / np.sqrt(np.maximum(y - mean.residual, 1e-3)))
        return mean.passed and any(self.features.p_value(normal_scores(size)) > 1e-3 for size in sizes)

    def _deviance(self, mean: Mean) -> float:
        """Minus twice the log-likelihood of a mean with the best scale of a few, and what their forms cost."""
        scale = find_scale(self.features, mean.residual[None], self.x_names, None, mean.formula)
        cost = sum(price(formula.expression, len(mean.residual)) for formula in (mean.formula, scale.formula))
        return 2 * (float(np.sum(np.log(scale.values) + 0.5 * (mean.residual / scale.values) ** 2)) + cost)


def as_count(
    column: Column, x: Float[np.ndarray, "n d"], y: Float[np.ndarray, "n d_y"], x_names: tuple[str, ...]
) -> Column:
    """Return a column of whole numbers as one of Poisson numbers, where these have the larger likelihood."""
    y = y[:, column.index]
    if y.min() < 0 or np.any(y != np.round(y)) or column.is_exact:
        return column
    root = Formula(sympy.sqrt(sympy.Max(column.mean.expression, 0)))
    count = replace(column, scale=root, transform="count")
    laws = (Law(x_names, (replace(c, index=0),), (Group((0,)),)) for c in (count, column))
    ours, plain = (law.log_prob(x, y[:, None], paired=True) for law in laws)
    ours = np.where(np.isfinite(ours), ours, -50.0)  # the mean is not fitted as one of counts yet
    return count if np.sum(ours) > np.sum(plain) - len(plain) * 0.05 else column

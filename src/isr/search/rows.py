"""The rows that a search looks at: a few thousand at most, in double, with the weights that it uses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import sympy

from isr.search.evaluate import symbol

# The search looks at so many rows at most; what it found is refitted to more of them.
MOST_ROWS, REFIT_ROWS = 1000, 20_000
# Of the spread of y; residuals below this are rounding. A tenth of it is what a further gain must be worth.
EXACT = 1e-9


@dataclass(frozen=True, eq=False)
class Data:
    """Rows of x and y.

    Args:
        names: Identifiers of the variables.
        x: Rows.
        y: What to find a law for.
        root: Square root of each row's weight, 1 on average of squares; in units of 1/noise where that is known.
        known_noise: Whether it is.
    """

    names: tuple[str, ...]
    x: np.ndarray
    y: np.ndarray
    root: np.ndarray
    known_noise: bool = False

    @classmethod
    def of(
        cls,
        names: Sequence[str],
        x: np.ndarray,
        y: np.ndarray,
        weight: np.ndarray | None = None,
        noise: float | None = None,
    ) -> Data:
        """Return rows as they are given."""
        w = np.ones(len(y)) if weight is None else np.asarray(weight, float) / np.mean(weight)
        return cls(
            tuple(names), np.asarray(x, float), np.asarray(y, float), np.sqrt(w) / (noise or 1.0), bool(noise)
        )

    @cached_property
    def symbols(self) -> tuple[sympy.Symbol, ...]:
        """The variables."""
        return tuple(symbol(name) for name in self.names)

    @cached_property
    def columns(self) -> list[np.ndarray]:
        """A column for each variable."""
        return [np.ascontiguousarray(c) for c in self.x.T]

    @cached_property
    def spread(self) -> float:
        """Weighted standard deviation of y, or its size where it is constant."""
        w = self.root**2
        middle = float(w @ self.y / w.sum())
        return float(np.sqrt(w @ (self.y - middle) ** 2 / w.sum())) or abs(middle) or 1.0

    @cached_property
    def rounding(self) -> float:
        """The weighted sum of squares below which residuals are rounding."""
        size = max(EXACT * self.spread, 4e-16 * float(np.max(np.abs(self.y))))
        return float(np.sum(self.root**2)) * size**2

    def some(self, n: int, seed: int) -> Data:
        """Return at most ``n`` rows, drawn by ``seed``."""
        if len(self.y) <= n:
            return self
        rows = np.sort(np.random.default_rng(seed).choice(len(self.y), n, replace=False))
        return Data(self.names, self.x[rows], self.y[rows], self.root[rows], self.known_noise)

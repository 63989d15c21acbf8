"""Parts of the law of x: some variables each, as a map from standard normal numbers to values."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.special import logsumexp, ndtr, ndtri

from isr.inversion.law import Law
from isr.inversion.marginals import Marginal
from isr.inversion.noise import LOG_TWO_PI
from isr.tables.bounds import Bounds

# Draws that tell where a prior lives that is known by its draws alone.
N_SEEN = 4000


class Part(ABC):
    """Some variables of x that may depend on each other.

    Attributes:
        columns: Their numbers among the variables of x.
    """

    columns: tuple[int, ...]

    @abstractmethod
    def rows(self, u: Float[np.ndarray, "n k"]) -> tuple[Float[np.ndarray, "n k"], Float[np.ndarray, " n"]]:
        """Return the values that coordinates stand for, and the log-density of the coordinates."""

    @abstractmethod
    def log_prob(self, x: Float[np.ndarray, "n k"]) -> Float[np.ndarray, " n"]:
        """Return the log-density of values."""

    def sample(self, n: int, rng: np.random.Generator) -> Float[np.ndarray, "n k"]:
        """Return draws."""
        return self.rows(rng.normal(size=(n, len(self.columns))))[0]

    @abstractmethod
    def lines(self, names: Sequence[str]) -> list[str]:
        """Return what is known of the variables as text."""


@dataclass(frozen=True, eq=False)
class Alone(Part):
    """One variable with a marginal of its own."""

    column: int
    marginal: Marginal

    @property
    def columns(self) -> tuple[int, ...]:  # type: ignore[override]
        return (self.column,)

    def rows(self, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self.marginal.from_normal(u[:, 0])[:, None], normal_log_prob(u)

    def log_prob(self, x: np.ndarray) -> np.ndarray:
        return self.marginal.log_prob(x[:, 0])

    def lines(self, names: Sequence[str]) -> list[str]:
        p = self.marginal.p_value
        return [f"{names[self.column]} ~ {self.marginal!r}" + ("" if np.isnan(p) else f"  (p = {p:.2g})")]


@dataclass(frozen=True, eq=False)
class Given(Part):
    """A variable with a marginal of its own, the first, and others that follow a law given it."""

    first: Alone
    law: Law
    columns: tuple[int, ...]

    def rows(self, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        x = np.empty_like(u)
        x[:, :1] = self.first.rows(u[:, :1])[0]
        means, scales = self.law.parts(x[:, :1])
        x[:, 1:] = (means + scales * u[:, 1:].T).T
        return x, normal_log_prob(u)

    def log_prob(self, x: np.ndarray) -> np.ndarray:
        return self.first.log_prob(x) + self.law.log_prob(x[:, :1], x[:, 1:], paired=True)

    def lines(self, names: Sequence[str]) -> list[str]:
        return [*self.first.lines(names), *self.law.lines()]


@dataclass(frozen=True, eq=False)
class Tied(Part):
    """Variables with a marginal each, whose normal scores are correlated."""

    columns: tuple[int, ...]
    marginals: tuple[Marginal, ...]
    correlations: Float[np.ndarray, "k k"]

    def __post_init__(self) -> None:
        k = len(self.columns)
        if len(self.marginals) != k or self.correlations.shape != (k, k):
            raise ValueError(f"{k} variables are tied by correlations of the shape {self.correlations.shape}")

    @classmethod
    def of(cls, x: Float[np.ndarray, "n d"], alone: Sequence[Alone]) -> Tied | None:
        """Return columns with known marginals tied by the correlations that rows have; None where one is discrete."""
        marginals = tuple(part.marginal for part in alone)
        if any(m.is_discrete for m in marginals):
            return None
        z = np.column_stack([part.marginal.to_normal(x[:, part.column]) for part in alone])
        z = z[np.all(np.isfinite(z), axis=1)]
        return (
            cls(tuple(part.column for part in alone), marginals, np.corrcoef(z.T))
            if len(z) > len(z.T)
            else None
        )

    @cached_property
    def _root(self) -> np.ndarray:
        return np.linalg.cholesky(self.correlations + 1e-12 * np.eye(len(self.columns)))

    def rows(self, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        z = (u @ self._root.T).T
        return np.column_stack(
            [m.from_normal(v) for m, v in zip(self.marginals, z, strict=True)]
        ), normal_log_prob(u)

    def log_prob(self, x: np.ndarray) -> np.ndarray:
        each = list(zip(self.marginals, x.T, strict=True))
        z, alone = np.column_stack([m.to_normal(v) for m, v in each]), sum(m.log_prob(v) for m, v in each)
        with np.errstate(invalid="ignore"):
            u = z @ np.linalg.inv(self._root).T
            tied = normal_log_prob(u) - normal_log_prob(z) - np.sum(np.log(np.diag(self._root)))
        return np.where(np.isfinite(tied), alone + tied, -np.inf)

    def lines(self, names: Sequence[str]) -> list[str]:
        shown = [names[j] for j in self.columns]
        numbers = self.correlations[np.tril_indices(len(shown), -1)]
        said = f"correlation{'s' if len(numbers) > 1 else ''} {', '.join(f'{v:.3g}' for v in numbers)}"
        alone = (Alone(j, m) for j, m in zip(self.columns, self.marginals, strict=True))
        return [line for part in alone for line in part.lines(names)] + [
            f"{', '.join(shown)}: {said} of normal scores"
        ]


@dataclass(frozen=True, eq=False)
class Joint(Part):
    """Variables of a prior that is known by its draws and its density alone: what `Prior` or `NormalMixture` is."""

    columns: tuple[int, ...]
    prior: Any

    @cached_property
    def _frame(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Bounds, and mean and standard deviation of draws with the bounds opened."""
        ends = Bounds.from_pairs(list(self.prior.bounds or [(None, None)] * len(self.columns)))
        low, high = np.asarray(ends.low, float), np.asarray(ends.high, float)
        seen = self.prior.sample(N_SEEN, 0)
        with np.errstate(all="ignore"):
            opened = np.where(
                np.isfinite(low) & np.isfinite(high), ndtri((seen - low) / (high - low)),
                np.where(np.isfinite(low), np.log(seen - low), np.where(np.isfinite(high), -np.log(high - seen), seen)),
            )  # fmt: skip
        return low, high, opened.mean(axis=0), opened.std(axis=0)

    def rows(self, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        low, high, mean, sd = self._frame
        w = mean + sd * u
        box, above, below = np.isfinite(low) & np.isfinite(high), np.isfinite(low), np.isfinite(high)
        with np.errstate(all="ignore"):
            x = np.where(above, low + np.exp(w), np.where(below, high - np.exp(-w), w))
            slope = np.where(above, w, np.where(below, -w, 0.0))
            x = np.where(box, low + (high - low) * ndtr(w), x)
            slope = np.where(box, np.log(high - low) - 0.5 * w * w - 0.5 * LOG_TWO_PI, slope)
        return x, self.log_prob(x) + np.sum(slope + np.log(sd), axis=1)

    def log_prob(self, x: np.ndarray) -> np.ndarray:
        return self.prior.log_prob(x)

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        return self.prior.sample(n, rng)

    def lines(self, names: Sequence[str]) -> list[str]:
        return [f"{', '.join(names[j] for j in self.columns)} ~ {self.prior.description}"]


@dataclass(frozen=True, eq=False)
class NormalMixture:
    """A mixture of normal laws of several variables."""

    weights: Float[np.ndarray, " k"]
    means: Float[np.ndarray, "k d"]
    covariances: Float[np.ndarray, "k d d"]
    bounds: None = None

    def __post_init__(self) -> None:
        shapes = self.weights.shape, self.means.shape, self.covariances.shape
        k, d = shapes[1] if len(shapes[1]) == 2 else (0, 0)
        if shapes != ((k,), (k, d), (k, d, d)):
            raise ValueError(f"weights, means and covariances of a mixture do not fit: {shapes}")

    @property
    def description(self) -> str:
        """What it is, in words."""
        return f"mixture of {len(self.weights)} normals"

    @cached_property
    def _roots(self) -> np.ndarray:
        return np.linalg.cholesky(self.covariances)

    def sample(self, n: int, rng: Any) -> np.ndarray:
        """Return draws; ``rng`` is a generator or a seed."""
        rng = np.random.default_rng(rng)
        chosen = rng.choice(len(self.weights), n, p=self.weights / self.weights.sum())
        z = rng.normal(size=(n, self.means.shape[1]))
        return self.means[chosen] + np.einsum("nij,nj->ni", self._roots[chosen], z)

    def log_prob(self, x: np.ndarray) -> np.ndarray:
        """Return the log-density of rows."""
        z = np.matmul(x[None] - self.means[:, None], np.linalg.inv(self._roots).transpose(0, 2, 1))
        log_dets = np.sum(np.log(np.diagonal(self._roots, axis1=1, axis2=2)), axis=1)
        each = -0.5 * np.sum(z * z, axis=2) + (np.log(self.weights) - log_dets)[:, None]
        return logsumexp(each, axis=0) - 0.5 * x.shape[1] * LOG_TWO_PI


def normal_log_prob(u: Float[np.ndarray, "n k"]) -> Float[np.ndarray, " n"]:
    """Return the log-density of rows of standard normal numbers."""
    return -0.5 * np.sum(u * u, axis=1) - 0.5 * u.shape[1] * LOG_TWO_PI

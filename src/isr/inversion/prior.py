"""PriorLaw: the law of x as a map from standard normal numbers, part by part; parts are independent of each other."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.special import ndtr, ndtri

from isr.inversion.law import Law
from isr.inversion.marginals import Marginal, recognise, stated
from isr.posterior.priors import Prior
from isr.tables.bounds import Bounds

LOG_TWO_PI = float(np.log(2 * np.pi))
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

    @abstractmethod
    def sample(self, n: int, rng: np.random.Generator) -> Float[np.ndarray, "n k"]:
        """Return draws."""

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

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        return self.marginal.sample(n, rng)[:, None]

    def lines(self, names: Sequence[str]) -> list[str]:
        p = self.marginal.p_value
        return [f"{names[self.column]} ~ {self.marginal!r}" + ("" if np.isnan(p) else f"  (p = {p:.2g})")]


@dataclass(frozen=True, eq=False)
class Given(Part):
    """Some variables with marginals of their own, and others that follow a law given these."""

    first: tuple[Alone, ...]
    law: Law
    columns: tuple[int, ...]

    def rows(self, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        x = np.empty_like(u)
        for j, part in enumerate(self.first):
            x[:, j] = part.marginal.from_normal(u[:, j])
        k = len(self.first)
        means, scales = self.law.parts(x[:, :k])
        x[:, k:] = (means + scales * u[:, k:].T).T
        return x, normal_log_prob(u)

    def log_prob(self, x: np.ndarray) -> np.ndarray:
        k = len(self.first)
        own = sum(part.marginal.log_prob(x[:, j]) for j, part in enumerate(self.first))
        return own + self.law.log_prob(x[:, :k], x[:, k:], paired=True)

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        return self.rows(rng.normal(size=(n, len(self.columns))))[0]

    def lines(self, names: Sequence[str]) -> list[str]:
        return [line for part in self.first for line in part.lines(names)] + self.law.lines()


@dataclass(frozen=True, eq=False)
class Joint(Part):
    """Variables of a prior that is known by its draws and its density alone."""

    columns: tuple[int, ...]
    prior: Prior

    @cached_property
    def _frame(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        pairs = self.prior.bounds or [(None, None)] * len(self.columns)
        ends = Bounds.from_pairs(list(pairs))
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
            x = np.where(
                box,
                low + (high - low) * ndtr(w),
                np.where(above, low + np.exp(w), np.where(below, high - np.exp(-w), w)),
            )
            slope = np.where(
                box,
                np.log(high - low) - 0.5 * w * w - 0.5 * LOG_TWO_PI,
                np.where(above, w, np.where(below, -w, 0.0)),
            )
        return x, self.log_prob(x) + np.sum(slope + np.log(sd), axis=1)

    def log_prob(self, x: np.ndarray) -> np.ndarray:
        return self.prior.log_prob(x)

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        return self.prior.sample(n, rng)

    def lines(self, names: Sequence[str]) -> list[str]:
        return [f"{', '.join(names[j] for j in self.columns)} ~ {self.prior.description}"]


@dataclass(frozen=True, eq=False)
class PriorLaw:
    """The law of x: independent parts that hold every variable once.

    Args:
        names: What the variables are called.
        parts: The parts.
        was_stated: Whether the user gave it.

    Example:
        >>> from scipy import stats
        >>> from isr.posterior.priors import parse_prior
        >>> law = of_prior(parse_prior({"height": (0.0, 2.0), "angle": stats.norm(0, 0.5)}), ("height", "angle"))
        >>> print(law)
        height ~ uniform(0, 2)
        angle ~ norm(0, 0.5)
        >>> law.sample(3, np.random.default_rng(0)).shape, law.log_prob(np.array([[1.0, 0.0], [3.0, 0.0]])).round(3)
        ((3, 2), array([-0.919,   -inf]))
    """

    names: tuple[str, ...]
    parts: tuple[Part, ...]
    was_stated: bool = True

    @property
    def blocks(self) -> list[tuple[int, ...]]:
        """Which variables belong together."""
        return [part.columns for part in self.parts]

    def rows(self, u: np.ndarray, columns: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """Return whole rows of x whose ``columns``, those of whole parts, come from coordinates, and their density."""
        x, log_prob, at = np.zeros((len(u), len(self.names))), np.zeros(len(u)), 0
        place = {column: i for i, column in enumerate(columns)}
        for part in self.parts:
            if part.columns[0] in place:
                found, density = part.rows(u[:, [place[c] for c in part.columns]])
                x[:, list(part.columns)] = found
                log_prob += density
                at += len(part.columns)
        return x, log_prob

    def log_prob(
        self, x: Float[np.ndarray, "n d"], columns: Sequence[int] | None = None
    ) -> Float[np.ndarray, " n"]:
        """Return the log-density of rows, or of some of their columns, those of whole parts."""
        parts = [p for p in self.parts if columns is None or p.columns[0] in columns]
        return np.sum([part.log_prob(x[:, list(part.columns)]) for part in parts], axis=0)

    def is_discrete(self, column: int) -> bool:
        """Whether a variable takes single values with a probability."""
        part = next(p for p in self.parts if column in p.columns)
        return isinstance(part, Alone) and part.marginal.is_discrete

    def marginal(self, column: int) -> Marginal:
        """Return the law of one variable alone, recognised from draws where it depends on others."""
        part = next(p for p in self.parts if column in p.columns)
        return part.marginal if isinstance(part, Alone) else recognise(self._seen[:, column])

    @cached_property
    def _seen(self) -> np.ndarray:
        return self.sample(N_SEEN, np.random.default_rng(0))

    def sample(self, n: int, rng: np.random.Generator) -> Float[np.ndarray, "n d"]:
        """Return rows."""
        x = np.empty((n, len(self.names)))
        for part in self.parts:
            x[:, list(part.columns)] = part.sample(n, rng)
        return x

    @property
    def bounds(self) -> Bounds:
        """The box that no row leaves, open where it has no end."""
        pairs: list[tuple[float | None, float | None]] = [(None, None)] * len(self.names)
        for part in self.parts:
            if isinstance(part, Alone):
                low, high = part.marginal.support
                pairs[part.column] = (low if np.isfinite(low) else None, high if np.isfinite(high) else None)
            elif isinstance(part, Joint) and part.prior.bounds is not None:
                for column, pair in zip(part.columns, part.prior.bounds, strict=True):
                    pairs[column] = pair
        return Bounds.from_pairs(pairs)

    def __str__(self) -> str:
        return "\n".join(line for part in self.parts for line in part.lines(self.names))

    def __repr__(self) -> str:
        return str(self)


def normal_log_prob(u: Float[np.ndarray, "n k"]) -> Float[np.ndarray, " n"]:
    """Return the log-density of rows of standard normal numbers."""
    return -0.5 * np.sum(u * u, axis=1) - 0.5 * u.shape[1] * LOG_TWO_PI


def of_prior(prior: Prior, names: Sequence[str]) -> PriorLaw:
    """Return a stated prior as a law; variables of a mapping are independent of each other."""
    marginals = getattr(getattr(prior.draw, "__self__", None), "marginals", None)
    known = None if marginals is None else [_of_marginal(m) for m in marginals]
    if known is None or any(m is None for m in known):
        return PriorLaw(tuple(names), (Joint(tuple(range(len(names))), prior),))
    order = [list(prior.names or names).index(name) for name in names]
    return PriorLaw(tuple(names), tuple(Alone(i, known[j]) for i, j in enumerate(order)))  # type: ignore[arg-type]


def _of_marginal(marginal: Any) -> Marginal | None:
    return None if marginal.is_cut else stated(marginal.distribution)

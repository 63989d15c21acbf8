"""LawPosterior: what a law of y and a law of x say together of x once y was observed, exactly."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from isr.bijections.flow import Precision
from isr.inversion.law import Law
from isr.inversion.prior import PriorLaw
from isr.inversion.proposal import LEAST_SHARE, Impossible, Proposal, Sampler, find_proposal
from isr.inversion.rivals import Doubt
from isr.posterior.abstract import AbstractPosterior
from isr.posterior.outliers import Extent
from isr.posterior.pareto import TRUSTED
from isr.posterior.priors import RandomState
from isr.tables.memory import draw_count

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Below this p-value of the predictive check an observation does not fit what the posterior says of it.
UNLIKELY = 1e-3
N_PREDICTED = 2000
# Draws that are weighed again by every law that the rows leave open.
N_DOUBTED = 600
# Weights that rest on fewer draws of 4000 than this are called too few.
LEAST_EFFECTIVE = 40


class UnlikelyObservationWarning(UserWarning):
    """No x that the prior allows explains the observation; the message says how far off it is."""


class ParetoWarning(UserWarning):
    """The weights of a posterior have a heavy tail: its draws may miss part of it."""


class RivalWarning(UserWarning):
    """Another law, as likely by the rows, would give another posterior; the message names it."""


@dataclass(frozen=True, eq=False)
class Predictive:
    """Rows of y drawn from the posterior, and the share of them that lie as far from their law as the observation.

    ``columns`` has that share for each column of y alone; ``seen`` are the observations, of the columns in ``names``.
    """

    y: Float[np.ndarray, "n c"]
    p_value: float
    columns: Mapping[str, float]
    names: tuple[str, ...]
    seen: Float[np.ndarray, "k c"]

    def plot(self) -> Figure:
        """Return a pair plot of what the posterior predicts, with the observations as dashed red lines."""
        from isr.posterior.plots import pair_plot

        title = f"y as the posterior predicts it, and as observed (red): p = {self.p_value:.2g}"
        return pair_plot(self.y, self.names, truth=self.seen, title=title)


class LawPosterior(AbstractPosterior):
    """The law of x given an observation, or several observations of the same x, whose likelihoods multiply.

    Draws of an adapted proposal are weighted by prior and law, the weights smoothed, and resampled. A warning tells
    where draws leave the ``extent`` of the training rows.

    Example:
        >>> from isr.search.formula import Formula, parse
        >>> from isr.inversion.law import Column, Group
        >>> from isr.inversion.prior import of_prior
        >>> from isr.posterior.priors import parse_prior
        >>> column = Column("y", 0, Formula(parse("a**2", ["a"])), Formula(parse("0.1", [])))
        >>> law = Law(("a",), (column,), (Group((0,)),))
        >>> post = LawPosterior(law, of_prior(parse_prior({"a": (-2, 2)}), ["a"]), [[1.0]], ["a"], ["y"])
        >>> post, bool(abs(np.mean(post.sample(2000)[:, 0] > 0) - 0.5) < 0.05)
        (Posterior of a given y = 1, True)
        >>> post.effective_size > 2000, post.pareto_k < 0.7, round(post.log_evidence, 2), post.warning
        (True, True, -1.38, '')
        >>> post.predictive().p_value > 0.05, post.quick(5, np.random.default_rng(0)).shape
        (True, (5, 1))
    """

    def __init__(
        self,
        law: Law,
        prior: PriorLaw,
        y_star: Any,
        x_names: Sequence[str],
        y_names: Sequence[str],
        *,
        units: Mapping[str, str] | None = None,
        extent: Extent | None = None,
        proposal: Proposal | None = None,
        doubt: Doubt | None = None,
    ) -> None:
        self.law, self.prior = law, prior
        self.proposal = find_proposal(law, prior) if proposal is None else proposal
        self.x_names, self.y_names = tuple(x_names), tuple(y_names)
        self.y_star = np.atleast_2d(np.asarray(y_star, dtype=float))
        self.units = dict(units or {})
        self.extent, self.bounds, self.doubt = extent, prior.bounds, doubt

    # Weights that rest on a smaller share of draws ask for a better source; one for a single summary can do with less.
    least_share = LEAST_SHARE

    @cached_property
    def _samplers(self) -> list[Sampler]:
        found = []
        for block in self.proposal.blocks:
            if block.law is not None:
                try:
                    found.append(block.sampler(self.prior, self.y_star, self.least_share))
                except Impossible as error:
                    raise ValueError(
                        f"no x that the prior allows can give {self._measured}: {error}; "
                        "check the observation and the prior"
                    ) from None
        share, k = _worst(found)
        if k > TRUSTED or 4000 * share < LEAST_EFFECTIVE:
            warnings.warn(
                f"the weights of this posterior rest on {4000 * share:.0f} of 4000 draws with k = {k:.2f} (0.7 is the "
                "most that can be trusted): draws may miss part of it; compare with another model, or measure with "
                "more noise stated",
                ParetoWarning,
                stacklevel=5,
            )
        return found

    def sample(
        self, n: int = 1000, random_state: RandomState = 0, *, precision: Precision = "double"
    ) -> np.ndarray:
        """Return ``n`` draws as rows; a warning tells of an observation that does not fit, or of unequal weights."""
        n = draw_count(n, len(self.x_names))
        _ = self._checked
        return super().sample(n, random_state, precision=precision)

    @property
    def _measured(self) -> str:
        return ", ".join(
            f"{n} = {v:.4g}" for n, v in zip(self.y_names, self.y_star.mean(axis=0), strict=True)
        )

    @cached_property
    def _checked(self) -> bool:
        """Whether the observation fits what the posterior says of it and no other law moves it; warnings tell."""
        p_value = self.predictive().p_value
        if p_value < UNLIKELY:
            warnings.warn(
                f"the observation ({self._measured}) does not fit: of {N_PREDICTED} predicted by its own posterior "
                f"{p_value:.2%} lie as far out; no x that the prior allows explains it, or the law does not hold here",
                UnlikelyObservationWarning,
                stacklevel=5,
            )
        if self.open_to:
            warnings.warn(
                f"the rows leave this posterior open: {self.open_to}; more rows, rows near this observation, or a law "
                "that is stated would settle it",
                RivalWarning,
                stacklevel=5,
            )
        return p_value >= UNLIKELY and not self.open_to

    @cached_property
    def open_to(self) -> str:
        """Which other law, as likely by the rows, would move this posterior; empty where none would."""
        if self.doubt is None:
            return ""
        return self.doubt.of(self.quick(N_DOUBTED, np.random.default_rng(0)), self.y_star)

    @property
    def effective_size(self) -> float:
        """How many independent draws 4000 weighted ones are worth, in the block where they are worth least."""
        return 4000 * _worst(self._samplers)[0]

    @property
    def pareto_k(self) -> float:
        """Shape of the tail of the weights; above 0.7 draws are not to be trusted."""
        return _worst(self._samplers)[1]

    @property
    def log_evidence(self) -> float:
        """The log-density of the observation under the law and the prior together."""
        return float(sum(s.weights.log_mean for s in self._samplers))

    @property
    def warning(self) -> str:
        """What is wrong with this posterior, in a sentence; empty where nothing is known to be."""
        if _worst(self._samplers)[1] > TRUSTED:
            return f"the weights have a heavy tail, k = {self.pareto_k:.2f}"
        p = self.predictive().p_value
        return f"the observation does not fit: p = {p:.2g}" if p < UNLIKELY else self.open_to

    def _draw(self, n: int, seed: int, precision: Precision = "double") -> tuple[np.ndarray, float]:
        rng = np.random.default_rng(seed)
        x = self.prior.sample(n, rng)
        least = float(n)
        for sampler in self._samplers:
            rows, weights = sampler.sample(n, rng)
            x[:, list(sampler.source.columns)] = rows[:, list(sampler.source.columns)]
            least = min(least, weights.effective_size)
        return x, least

    def quick(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Return draws from the pools that every posterior starts with, good enough for a check or a summary."""
        x = self.prior.sample(n, rng)
        for sampler in self._samplers:
            own = list(sampler.source.columns)
            x[:, own] = sampler.rows[sampler.weights.resample(n, rng)][:, own]
        return x

    def _log_prob(self, rows: np.ndarray, precision: Precision = "double") -> np.ndarray:
        rows = np.asarray(rows, dtype=float)
        prior = self.prior.log_prob(rows)
        with np.errstate(invalid="ignore"):
            total = prior + self.law.log_prob(rows, self.y_star) - self.log_evidence
        return np.where(np.isfinite(prior) & ~np.isnan(total), total, -np.inf)

    def predictive(self, n: int = N_PREDICTED, random_state: int = 0) -> Predictive:
        """Return rows of y that the posterior predicts, and how the observation compares with them.

        The distance is the sum of squared residuals of all observations, in units of the law's scale.
        """
        rng, n = np.random.default_rng(random_state), draw_count(n, self.y_star.shape[1])
        draws = self.quick(n, rng)
        noisy = [j for j, column in enumerate(self.law.columns) if not column.is_exact]
        about = tuple(c.name for c in self.law.columns), self.y_star[:, [c.index for c in self.law.columns]]
        y = self.law.sample(draws, rng) if self.law.columns else np.empty((n, 0))
        if not noisy:  # what is without noise is met by every draw
            return Predictive(y, 1.0, {}, *about)
        seen, would = np.zeros((len(noisy), n)), np.zeros((len(noisy), n))
        wide = np.full((n, self.y_star.shape[1]), np.nan)
        for row in self.y_star:
            seen += self.law.residuals(draws, np.broadcast_to(row, (n, len(row))))[noisy] ** 2
            y = self.law.sample(draws, rng)
            wide[:, [c.index for c in self.law.columns]] = y
            would += self.law.residuals(draws, wide)[noisy] ** 2
        each = np.mean(would >= seen, axis=1)
        names = [self.law.columns[j].name for j in noisy]
        total = float(np.mean(would.sum(axis=0) >= seen.sum(axis=0)))
        return Predictive(y, total, dict(zip(names, each.tolist(), strict=True)), *about)


def _worst(samplers: Sequence[Sampler]) -> tuple[float, float]:
    """The least effective share and the largest k of several blocks; 1 and 0 without any."""
    shares = (s.effective_share for s in samplers)
    return min(shares, default=1.0), max((s.pareto_k for s in samplers), default=0.0)

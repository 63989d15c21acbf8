"""Ensemble: a weighted mixture of flows of the same x and y, used like the first of them, whose equations it has."""

from __future__ import annotations

from collections.abc import Callable

import equinox as eqx
import jax
import numpy as np
from jaxtyping import PRNGKeyArray
from scipy.special import logsumexp

from isr.bijections.flow import Flow, Precision


class Ensemble(Flow):
    """A mixture: density and draws are those of all members, equations and latents those of the first.

    Args:
        others: The other members.
        shares: The weight of each member, the first one's first; they sum to one.

    Example:
        >>> from isr.bijections.affine import Standardise
        >>> members = Flow(Standardise((0.0,), (1.0,))), Flow(Standardise((9.0,), (1.0,)))
        >>> both = Ensemble.of(members, [0.75, 0.25])
        >>> both.log_prob([[0.0]]).round(3), bool(1 < both.sample(jax.random.key(0), 400).mean() < 3.5)
        (array([-1.207]), True)
        >>> len(both.members)
        2
    """

    others: tuple[Flow, ...] = ()
    shares: tuple[float, ...] = eqx.field(static=True, default=(1.0,))

    def __check_init__(self) -> None:
        if len(self.shares) != 1 + len(self.others) or not np.isclose(sum(self.shares), 1):
            raise ValueError(f"an ensemble of {1 + len(self.others)} needs as many shares, got {self.shares}")

    @classmethod
    def of(cls, members: tuple[Flow, ...], shares: object) -> Ensemble:
        """Return the mixture of members, the best first."""
        first, weights = members[0], np.asarray(shares, float)
        parts = (first.bijection, first.condition_map, first.noise, first.n_padding)
        return cls(*parts, tuple(members[1:]), tuple((weights / weights.sum()).tolist()))

    @property
    def members(self) -> tuple[Flow, ...]:
        """All flows, the best first."""
        return Flow(self.bijection, self.condition_map, self.noise, self.n_padding), *self.others

    def mapped(self, change: Callable[[Flow], Flow]) -> Ensemble:
        """Return the mixture of what ``change`` makes of each member."""
        return Ensemble.of(tuple(change(member) for member in self.members), self.shares)

    def log_prob(
        self, x: np.ndarray, y: np.ndarray | None = None, *, precision: Precision = "double"
    ) -> np.ndarray:
        """Return the log-density (nats) of rows of x, given y where there is a condition."""
        each = [member.log_prob(x, y, precision=precision) for member in self.members]
        with np.errstate(divide="ignore"):
            total = logsumexp(np.asarray(each, float), axis=0, b=np.asarray(self.shares)[:, None])
        return total.astype(each[0].dtype)

    def sample(
        self, key: PRNGKeyArray, n: int, y: np.ndarray | None = None, *, precision: Precision = "double"
    ) -> np.ndarray:
        """Return ``n`` rows of x; ``y`` is one observation, or one for each row."""
        rng = np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel())
        member_of = rng.choice(len(self.shares), size=max(n, 0), p=self.shares)
        rows = np.full((max(n, 0), self.dim), np.nan, np.float32 if precision == "single" else np.float64)
        for number, (member, k) in enumerate(
            zip(self.members, jax.random.split(key, len(self.shares)), strict=True)
        ):
            chosen = np.flatnonzero(member_of == number)
            given = y if y is None or len(y) == 1 else np.asarray(y)[chosen]
            if len(chosen) or n <= 0:
                rows[chosen] = member.sample(k, len(chosen) if n > 0 else n, given, precision=precision)
        return rows

"""Truncated rounds: simulate again where the last posterior lives, and keep what earlier rounds simulated there.

Rows drawn from the prior inside a box follow the prior cut to that box, whichever round drew them. A model trained on
them therefore learns the posterior cut to the box, exactly: no weights, no correction, as long as the box holds the
posterior. This is truncated sequential inference (Deistler et al., 2022) with boxes as regions, because a box is
what a bounded model respects exactly.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from isr.posterior.priors import Prior
from isr.posterior.simulation import Simulations

# The box of the draws, wider by this share of its width on either side: five standard deviations of a normal posterior.
MARGIN = 0.25
N_DRAWS = 4000
# Another round does not pay once the box keeps at least this share of each width.
SETTLED = 0.8


@dataclass(frozen=True)
class Box:
    """The region of x a round simulates in.

    Args:
        low: Lower end of each variable.
        high: Upper end of each variable.
    """

    low: Float[np.ndarray, " d_x"]
    high: Float[np.ndarray, " d_x"]

    def contains(self, x: Float[np.ndarray, "n d_x"]) -> np.ndarray:
        """Return for each row whether it lies inside."""
        return np.all((x >= self.low) & (x <= self.high), axis=1)

    @property
    def bounds(self) -> list[tuple[float, float]]:
        """``(low, high)`` of each variable."""
        return [(float(a), float(b)) for a, b in zip(self.low, self.high, strict=True)]

    def is_settled(self, inner: Box) -> bool:
        """Return whether ``inner`` is hardly smaller."""
        return bool(np.all(inner.high - inner.low > SETTLED * (self.high - self.low)))


def box_around(draws: Float[np.ndarray, "n d_x"], prior: Prior) -> Box:
    """Return the box around finite posterior draws, with a margin, cut to the prior's bounds.

    Example:
        >>> from isr.posterior.priors import parse_prior
        >>> draws = np.array([[0.25, 5.0], [0.75, 6.0]])
        >>> box_around(draws, parse_prior({"a": (0, 1), "b": (5, 9)})).bounds
        [(0.125, 0.875), (5.0, 6.25)]
    """
    finite = draws[np.isfinite(draws).all(axis=1)]
    if not len(finite):
        raise ValueError(
            "no draw of this round's posterior is finite, so there is nowhere to simulate next; give each round more "
            "rows or a longer effort"
        )
    low, high = finite.min(axis=0), finite.max(axis=0)
    margin = MARGIN * (high - low)
    low, high = low - margin, high + margin
    if prior.bounds is not None:
        low = np.maximum(low, [-np.inf if a is None else a for a, _ in prior.bounds])
        high = np.minimum(high, [np.inf if b is None else b for _, b in prior.bounds])
    return Box(low, high)


def inside(simulated: Simulations, box: Box) -> Simulations:
    """Return the pairs whose x lies in the box."""
    kept = box.contains(simulated.x)
    return Simulations(simulated.x[kept], simulated.y[kept], simulated.prior, simulated.failures)


def joined(parts: list[Simulations], prior: Prior) -> Simulations:
    """Return all pairs of several rounds as draws of ``prior``, with all failures."""
    import pandas as pd

    return Simulations(
        np.concatenate([part.x for part in parts]),
        np.concatenate([part.y for part in parts]),
        prior,
        pd.concat([part.failures for part in parts], ignore_index=True),
    )

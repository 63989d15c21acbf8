"""Truncated rounds: simulate again where the last posterior lives, and keep what earlier rounds simulated there.

Rows drawn from the prior inside a box follow the prior cut to that box, whichever round drew them. A model trained on
them learns the posterior cut to the box, exactly, as long as the box holds the posterior: no weights, no correction
(truncated sequential inference, Deistler et al. 2022, with boxes, because a bounded model never leaves a box).
"""

import numpy as np
from jaxtyping import Float

from isr.posterior.priors import Prior
from isr.posterior.simulation import Simulations
from isr.tables.bounds import Bounds

# The box of the draws, wider by this share of its width on either side: five standard deviations of a normal posterior.
MARGIN = 0.25
N_DRAWS = 4000
# Another round does not pay once the box keeps at least this share of each width.
SETTLED = 0.8


def box_around(draws: Float[np.ndarray, "n d_x"], prior: Prior) -> Bounds:
    """Return the box around finite posterior draws, with a margin, cut to the prior's bounds.

    Example:
        >>> from isr.posterior.priors import parse_prior
        >>> draws = np.array([[0.25, 5.0], [0.75, 6.0]])
        >>> print(box_around(draws, parse_prior({"a": (0, 1), "b": (5, 9)})))
        [0.125, 0.875] x [5, 6.25]
    """
    finite = draws[np.isfinite(draws).all(axis=1)]
    if not len(finite):
        raise ValueError(
            "no draw of this round's posterior is finite, so there is nowhere to simulate next; give each round more "
            "rows or a longer effort"
        )
    low, high = finite.min(axis=0), finite.max(axis=0)
    low, high = low - MARGIN * (high - low), high + MARGIN * (high - low)
    if prior.bounds is not None:
        whole = Bounds.from_pairs(prior.bounds)
        low, high = np.maximum(low, whole.low), np.minimum(high, whole.high)
    return Bounds(tuple(low.tolist()), tuple(high.tolist()))


def hardly_shrinks(before: Bounds, after: Bounds) -> bool:
    """Return whether the box ``after`` is nearly as wide as ``before`` in every variable."""
    return bool(np.all(after.widths > SETTLED * before.widths))


def inside(simulated: Simulations, box: Bounds) -> Simulations:
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

"""Refute: tests that show a law of motion to be wrong, by what it leaves of trajectories.

Noise has nothing in common with the next value, is no larger than differences of neighbours show, and does not depend
on how a trajectory was made. Slow waves of what is left are looked at too: they show what no value shows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.fft import dct
from scipy.stats import f as f_law
from scipy.stats import norm

from isr.motion.refit import Fit
from isr.motion.series import ENOUGH_FOR_ROUGHNESS

# Fourth differences tell the variance of noise as well as this share of its values would, and may be so much too small.
ROUGH_SHARE, AS_ROUGH = 0.1, 1.2
# What leaves so many times the variance of the noise needs other terms.
HOPELESS = 25.0
# Of what is left of a trajectory, so many slow waves, at most a quarter of the values.
WAVES = (2, 4, 8, 16)
# Trajectories from which a mean of what is left is told.
ENOUGH_FOR_MEANS = 20


def lack_of_fit(best: Fit, depends: Callable[[np.ndarray], Any] | None = None) -> dict[str, float]:
    """Return p-values by what is tested, channel by channel.

    Args:
        best: The law as it was fitted.
        depends: Gives for rows of x what has a ``p_value`` of "these values do not depend on x".
    """
    found, series, scores = {}, best.series, best.scores()
    known = "free" not in best.modes and len(series.x) >= ENOUGH_FOR_MEANS
    features = depends(series.x) if known and depends is not None else None
    for c, name in enumerate(series.names):
        seen = series.seen[..., c].T
        if not seen.any():
            continue
        if series.n_times >= ENOUGH_FOR_ROUGHNESS:
            found[f"{name}: residuals exceed the noise"] = _roughness(best, c)
        r = np.where(seen, scores[c], 0.0)
        found[f"{name}: residuals follow each other"] = _neighbours(r, seen)
        waves = dct(r, axis=0, norm="ortho")
        found[f"{name}: slow waves are left"] = _slow(waves)
        if known:
            rows = [*waves[: WAVES[-1] // 2], *(r if features is not None else ())]
            rows = [row for row in rows if np.std(row) > 0]
            means = [abs(np.mean(row)) / np.std(row) * np.sqrt(len(row)) for row in rows]
            found[f"{name}: residuals lean one way"] = _corrected([2 * norm.sf(z) for z in means])
            if features is not None:
                p = _corrected([features.p_value(row, trend=True) for row in rows])
                found[f"{name}: residuals depend on x"] = p
    return found


def _corrected(p_values: list[float]) -> float:
    return float(min(1.0, len(p_values) * min(p_values))) if p_values else 1.0


def is_rough(best: Fit) -> bool:
    """Whether a fit leaves so much more than the noise of a channel that no other constants help."""
    series = best.series
    if series.n_times < ENOUGH_FOR_ROUGHNESS or best.exact.all():
        return False
    # Medians on both sides: the noise may not be the same everywhere on the scale that it is first looked at.
    usual = [np.nanmedian(np.abs(r)) / 0.6745 if np.isfinite(r).any() else 0.0 for r in best.scores()]
    return any(size**2 * _excess(best, c) > HOPELESS for c, size in enumerate(usual) if size)


def _excess(best: Fit, c: int) -> float:
    """The variance that is left, relative to that of the noise as differences of neighbours show it."""
    series = best.series
    with np.errstate(all="ignore"):
        rough = np.abs(np.diff(series.noises[c].on_scale(series.values[..., c]), 4, axis=1))
    return float((best.sigma[c] / (np.nanmedian(rough) / (0.6745 * np.sqrt(70)) + 1e-300)) ** 2)


def _roughness(best: Fit, c: int) -> float:
    """Whether what is left exceeds the noise that differences of neighbours show."""
    ratio, n = _excess(best, c) / AS_ROUGH**2, int(best.series.seen[..., c].sum())
    return float(f_law.sf(ratio, n, max(ROUGH_SHARE * n, 2.0)))


def _neighbours(r: Float[np.ndarray, "t n"], seen: np.ndarray) -> float:
    """Whether what is left of one value tells of the next."""
    both = seen[1:] & seen[:-1]
    pairs = (r[1:] * r[:-1])[both]
    return float(2 * norm.sf(abs(np.sum(pairs)) / np.sqrt(np.sum(pairs**2) + 1e-300)))


def _slow(waves: Float[np.ndarray, "t n"]) -> float:
    """Whether slow waves are larger than quick ones."""
    energy, n = np.sum(waves**2, axis=1), waves.shape[1]
    found = []
    for k in WAVES:
        if 4 * k <= len(energy):
            rest = len(energy) - k
            ratio = (energy[:k].sum() / k) / (energy[k:].sum() / rest + 1e-300)
            found.append(float(f_law.sf(ratio, n * k, n * rest)))
    return _corrected(found)

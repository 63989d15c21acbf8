"""Which family of noise standardised residuals follow, chosen by BIC, and a test of the choice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy import optimize, stats

from isr.inversion.noise import Noise

# An arc ends where the gap between angles is this many times wider than chance would have it.
WIDEST_CHANCE = 30.0
SIMPLE_ANGLE = np.pi / 12
# What a family must gain over the normal law, beyond BIC.
CAUTION = 6.0


@dataclass(frozen=True, eq=False)
class Choice:
    """A family with what it does to centre and scale of each column.

    Args:
        noise: The family with its numbers.
        shift: What is added to the centre of each column, in units of the old scale.
        scale: What the old scale of each column is multiplied by.
        log_likelihood: Sum over rows.
    """

    noise: Noise
    shift: Float[np.ndarray, " m"]
    scale: Float[np.ndarray, " m"]
    log_likelihood: float

    def price(self, n: int) -> float:
        """BIC of the family."""
        return (len(self.noise.parameters) + len(self.scale)) * float(np.log(n)) - 2 * self.log_likelihood


def choose(u: Float[np.ndarray, "m n"], *, ring: bool = True) -> Choice:
    """Return the family that residuals of one column or several follow.

    Args:
        u: Residuals, uncorrelated, with centre near 0 and variance near 1.
        ring: Whether noise around a circle is tried, for two columns.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> choose(rng.normal(size=(1, 5000))).noise.kind, choose(rng.standard_t(3, size=(1, 5000))).noise.kind
        ('normal', 'student')
        >>> choose(rng.normal(size=(2, 5000)) * rng.choice([0.1, 1.0], 5000)).noise.kind
        'two scales'
    """
    m, n = u.shape
    plain = Choice(Noise(), np.zeros(m), np.sqrt(np.mean(u * u, axis=1)), 0.0)
    plain = _scored(plain, u)
    found = [plain]
    student = _optimised("student", u, [np.log(5.0), 0.0], lambda p: (float(np.exp(np.clip(p[0], -1, 7))),))
    found.append(student)
    for odds, ratio in ((0.05, 5.0), (1.0, 10.0), (0.3, 3.0)):
        found.append(
            _optimised(
                "two scales", u, [np.log(odds), np.log(ratio - 1), np.log(0.5)],
                lambda p: (float(np.exp(np.clip(p[0], -12, 12))), 1 + float(np.exp(np.clip(p[1], -5, 8)))),
            )
        )  # fmt: skip
    if m == 2 and ring:
        around = fit_ring(u)
        if around is not None:
            found.append(around)
    best = min(found, key=lambda choice: choice.price(n))
    return best if best.price(n) < plain.price(n) - CAUTION else plain


def _scored(choice: Choice, u: np.ndarray) -> Choice:
    w = (u - choice.shift[:, None]) / choice.scale[:, None]
    total = float(np.sum(choice.noise.log_density(w))) - u.shape[1] * float(np.sum(np.log(choice.scale)))
    return Choice(choice.noise, choice.shift, choice.scale, total)


def _optimised(kind: str, u: np.ndarray, start: list[float], numbers: object) -> Choice:
    """The family with its best numbers and one scale for all columns; the last of ``start`` is the log scale."""
    shares = np.sqrt(np.mean(np.minimum(u * u, np.quantile(u * u, 0.95, axis=1)[:, None]), axis=1))
    shares = shares / np.exp(np.mean(np.log(shares)))

    def made(p: np.ndarray) -> Choice:
        scale = shares * float(np.exp(np.clip(p[-1], -20, 20)))
        return Choice(Noise(kind, numbers(p)), np.zeros(len(u)), scale, 0.0)  # type: ignore[operator]

    def loss(p: np.ndarray) -> float:
        value = -_scored(made(p), u).log_likelihood / u.shape[1]
        return value if np.isfinite(value) else 1e9

    found = optimize.minimize(
        loss, start, method="Nelder-Mead", options={"maxiter": 400, "xatol": 1e-4, "fatol": 1e-7}
    )
    return _scored(made(found.x), u)


def fit_ring(u: Float[np.ndarray, "2 n"]) -> Choice | None:
    """Return noise around a circle, or around an arc of one, fitted to pairs; None where it is no ring.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> angle, radius = rng.uniform(-np.pi / 2, np.pi / 2, 4000), rng.normal(2, 0.1, 4000)
        >>> ring = fit_ring(np.stack([radius * np.cos(angle), radius * np.sin(angle)]))
        >>> ring.noise, ring.scale.round(1)
        (around a circle whose radius is the scale, 0.0... of it wide, from angle -1.571 over 3.142, array([2., 2.]))
    """

    def misfit(p: np.ndarray) -> np.ndarray:
        return np.hypot(u[0] - p[0], u[1] - p[1]) - p[2]

    best = None
    spread = float(np.sqrt(np.mean(u * u)))
    for angle in np.linspace(0, 2 * np.pi, 8, endpoint=False):
        start = [spread * np.cos(angle), spread * np.sin(angle), 1.5 * spread]
        for guess in (start, [0.0, 0.0, 1.4 * spread]):
            found = optimize.least_squares(misfit, guess)
            if best is None or found.cost < best.cost:
                best = found
    assert best is not None
    *centre, radius = best.x
    width = float(np.sqrt(2 * best.cost / u.shape[1])) / abs(radius)
    if not 0 < width < 0.4 or abs(radius) > 20 * spread:
        return None
    shift = np.array(centre)
    start, arc = _arc(np.arctan2(u[1] - shift[1], u[0] - shift[0]))
    return _scored(Choice(Noise("ring", (width, start, arc)), shift, np.full(2, abs(radius)), 0.0), u)


def _arc(angles: np.ndarray) -> tuple[float, float]:
    """Start and length of the arc that angles fill, rounded to simple angles where these are near."""
    ordered = np.sort(np.mod(angles, 2 * np.pi))
    gaps = np.diff(np.concatenate([ordered, [ordered[0] + 2 * np.pi]]))
    widest = int(np.argmax(gaps))
    typical = 2 * np.pi / len(angles)
    if gaps[widest] < WIDEST_CHANCE * typical:
        return 0.0, float(2 * np.pi)
    start = ordered[(widest + 1) % len(ordered)]
    end = start + 2 * np.pi - gaps[widest]

    def rounded(angle: float, outward: float) -> float:
        near = round(angle / SIMPLE_ANGLE) * SIMPLE_ANGLE
        return near if abs(near - angle) < 12 * typical else angle + outward * 2 * typical

    start, end = rounded(float(start), -1.0), rounded(float(end), 1.0)
    turned = (start + np.pi) % (2 * np.pi) - np.pi
    return float(turned), float(end - start)


def passes(noise: Noise, w: Float[np.ndarray, "m n"], seed: int = 0) -> float:
    """Return the p-value of residuals against a family: of their size and, column by column, of their law.

    Example:
        >>> w = np.random.default_rng(0).normal(size=(2, 2000))
        >>> passes(Noise(), w) > 1e-3, passes(Noise("student", (2.0,)), w) < 1e-3
        (True, True)
    """
    expected = noise.sample(len(w), 20 * w.shape[1], np.random.default_rng(seed))
    pairs: list[Any] = [stats.ks_2samp(row, other) for row, other in zip(w, expected, strict=True)]
    pairs.append(stats.ks_2samp(np.sum(w * w, axis=0), np.sum(expected**2, axis=0)))
    found = [float(pair.pvalue) for pair in pairs]
    return float(min(1.0, min(found) * len(found)))

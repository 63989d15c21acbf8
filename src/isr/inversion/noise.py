"""Noise: the law of standardised residuals, of one column or of several that belong together.

Residuals come as an array ``(columns, rows)`` with centre 0; their scale stands in the law, apart. A family's density
is written once, for NumPy and for JAX. `choose` picks a family by BIC, and `p_value` tries to refute it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy import optimize, special, stats

from isr.densities.mixtures import find_mixture

LOG_TWO_PI = float(np.log(2 * np.pi))
# An arc ends where the gap between angles is this many times wider than chance would have it.
WIDEST_CHANCE = 30.0
SIMPLE_ANGLE = np.pi / 12
# An arc this near to half a circle is one.
HALF = 0.3
# What a family must gain over the normal law, beyond BIC, and a mixture over the other families.
CAUTION, MIXTURE_CAUTION = 6.0, 10.0
MOST_MODES = 6


@dataclass(frozen=True)
class Family:
    """A kind of noise; the first ``free`` of its numbers, all positive, may be moved by a smooth refit."""

    log_density: Callable[[Any, Sequence[Any], ModuleType], Any]
    sample: Callable[[int, int, Sequence[float], np.random.Generator], np.ndarray]
    sentence: str
    n_parameters: int | None
    free: int


def special_of(xp: ModuleType) -> Any:
    """Return the special functions of an array module."""
    if xp is np:
        return special
    import jax.scipy.special

    return jax.scipy.special


def _normal(w: Any, parameters: Sequence[Any], xp: ModuleType) -> Any:
    return -0.5 * xp.sum(w * w, axis=0) - 0.5 * len(w) * LOG_TWO_PI


def _sample_normal(m: int, n: int, parameters: Sequence[float], rng: np.random.Generator) -> np.ndarray:
    return rng.normal(size=(m, n))


def _student(w: Any, parameters: Sequence[Any], xp: ModuleType) -> Any:
    (nu,) = parameters
    gammaln, m = special_of(xp).gammaln, len(w)
    constant = gammaln(0.5 * (nu + m)) - gammaln(0.5 * nu) - 0.5 * m * xp.log(nu * np.pi)
    return constant - 0.5 * (nu + m) * xp.log1p(xp.sum(w * w, axis=0) / nu)


def _sample_student(m: int, n: int, parameters: Sequence[float], rng: np.random.Generator) -> np.ndarray:
    (nu,) = parameters
    return rng.normal(size=(m, n)) / np.sqrt(rng.chisquare(nu, size=n) / nu)


def _two_scales(w: Any, parameters: Sequence[Any], xp: ModuleType) -> Any:
    odds, ratio = parameters
    m, square = len(w), xp.sum(w * w, axis=0)
    narrow = -0.5 * square - xp.log1p(odds)
    wide = -0.5 * square / ratio**2 - m * xp.log(ratio) + xp.log(odds) - xp.log1p(odds)
    return xp.logaddexp(narrow, wide) - 0.5 * m * LOG_TWO_PI


def _sample_two_scales(m: int, n: int, parameters: Sequence[float], rng: np.random.Generator) -> np.ndarray:
    odds, ratio = parameters
    return np.where(rng.uniform(size=n) < odds / (1 + odds), ratio, 1.0) * rng.normal(size=(m, n))


def _power(w: Any, parameters: Sequence[Any], xp: ModuleType) -> Any:
    (p,) = parameters
    constant = xp.log(0.5 * p) - special_of(xp).gammaln(1 / p)
    size = xp.maximum(xp.abs(w), 1e-12)
    return len(w) * constant - xp.sum(xp.exp(xp.minimum(p * xp.log(size), 600.0)), axis=0)


def _sample_power(m: int, n: int, parameters: Sequence[float], rng: np.random.Generator) -> np.ndarray:
    (p,) = parameters
    return rng.uniform(-1, 1, (m, n)) * rng.gamma(1 + 1 / p, size=(m, n)) ** (1 / p)


def _mixture(w: Any, parameters: Sequence[Any], xp: ModuleType) -> Any:
    shares, means, sds = (np.array(part)[:, None] for part in np.split(np.array(parameters), 3))
    each = -0.5 * ((w[0] - means) / sds) ** 2 + np.log(shares / sds)
    return special_of(xp).logsumexp(each, axis=0) - 0.5 * LOG_TWO_PI


def _sample_mixture(m: int, n: int, parameters: Sequence[float], rng: np.random.Generator) -> np.ndarray:
    shares, means, sds = np.split(np.array(parameters), 3)
    chosen = rng.choice(len(shares), n, p=shares / shares.sum())
    return (means[chosen] + sds[chosen] * rng.normal(size=n))[None]


def _ring(w: Any, parameters: Sequence[Any], xp: ModuleType) -> Any:
    width, start, arc = parameters
    radius = xp.sqrt(xp.sum(w * w, axis=0))
    log_mass = special_of(xp).log_ndtr(1.0 / width)
    radial = -0.5 * ((radius - 1.0) / width) ** 2 - xp.log(width) - 0.5 * LOG_TWO_PI - log_mass
    turned = xp.mod(xp.arctan2(w[1], w[0]) - start, 2 * np.pi)
    return xp.where(turned <= arc, radial - xp.log(radius) - np.log(arc), -np.inf)


def _sample_ring(m: int, n: int, parameters: Sequence[float], rng: np.random.Generator) -> np.ndarray:
    width, start, arc = parameters
    radius = 1 + width * special.ndtri(rng.uniform(special.ndtr(-1 / width), 1, size=n))
    angle = start + arc * rng.uniform(size=n)
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)])


FAMILIES = {
    "normal": Family(_normal, _sample_normal, "normal", 0, 0),
    "student": Family(_student, _sample_student, "Student t with {} degrees of freedom", 1, 1),
    "two scales": Family(
        _two_scales, _sample_two_scales,
        "normal with two scales, the other one with odds {} and {} times as wide", 2, 2,
    ),
    "power": Family(_power, _sample_power, "density exp(-|residual|^{})", 1, 1),
    "mixture": Family(_mixture, _sample_mixture, "", None, 0),
    "ring": Family(
        _ring, _sample_ring, "around a circle whose radius is the scale, {} of it wide, from angle {} over {}", 3, 1
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Noise:
    """A family with its numbers.

    Example:
        >>> heavy = Noise("student", (3.0,))
        >>> heavy, heavy.log_density(np.zeros((1, 2))).round(3), heavy.sample(2, 5, np.random.default_rng(0)).shape
        (Student t with 3 degrees of freedom, array([-1.001, -1.001]), (2, 5))
    """

    kind: str = "normal"
    parameters: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in FAMILIES:
            raise ValueError(f"unknown noise {self.kind!r}; known: {', '.join(FAMILIES)}")
        expected, n = self.family.n_parameters, len(self.parameters)
        if n != expected and (expected is not None or n == 0 or n % 3):
            raise ValueError(
                f"{self.kind} noise needs {expected or 'shares, means and deviations'}, got {self.parameters}"
            )

    @property
    def family(self) -> Family:
        """The family, with its functions."""
        return FAMILIES[self.kind]

    def log_density(self, w: Float[np.ndarray, "m n"]) -> Float[np.ndarray, " n"]:
        """Return the log-density of residuals."""
        with np.errstate(all="ignore"):
            return self.family.log_density(w, self.parameters, np)

    def sample(self, n_columns: int, n: int, rng: np.random.Generator) -> Float[np.ndarray, "m n"]:
        """Return residuals."""
        return self.family.sample(n_columns, n, self.parameters, rng)

    def __repr__(self) -> str:
        if self.kind == "mixture":
            parts = zip(*np.split(np.array(self.parameters), 3), strict=True)
            return "mixture of " + " and ".join(f"{w:.2g} norm({m:.3g}, {s:.3g})" for w, m, s in parts)
        return self.family.sentence.format(*(f"{value:.4g}" for value in self.parameters))


# Choosing -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Choice:
    """A family, what it adds to the centre of each column (in old scales), and what it multiplies the scale by."""

    noise: Noise
    shift: Float[np.ndarray, " m"]
    scale: Float[np.ndarray, " m"]
    log_likelihood: float = 0.0

    def standardised(self, u: Float[np.ndarray, "m n"]) -> Float[np.ndarray, "m n"]:
        """Return residuals in the units of this family."""
        return (u - self.shift[:, None]) / self.scale[:, None]

    def scored(self, u: Float[np.ndarray, "m n"]) -> Choice:
        """Return the same with the log-likelihood of residuals."""
        total = float(np.sum(self.noise.log_density(self.standardised(u))))
        return replace(self, log_likelihood=total - u.shape[1] * float(np.sum(np.log(self.scale))))

    def price(self, n: int) -> float:
        """Return its BIC."""
        caution = MIXTURE_CAUTION if self.noise.kind == "mixture" else 0.0
        n_constants = len(self.noise.parameters) + len(self.scale)
        return n_constants * float(np.log(n)) - 2 * self.log_likelihood + caution


def choose(u: Float[np.ndarray, "m n"], *, ring: bool = True) -> Choice:
    """Return the family that uncorrelated residuals, centred and of about unit variance, follow by BIC.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> choose(rng.normal(size=(1, 5000))).noise.kind, choose(rng.standard_t(3, size=(1, 5000))).noise.kind
        ('normal', 'student')
        >>> choose(rng.normal(size=(2, 5000)) * rng.choice([0.1, 1.0], 5000)).noise.kind
        'two scales'
        >>> choose(rng.laplace(size=(1, 5000))).noise.kind, choose(rng.exponential(size=(1, 5000)) - 1).noise.kind
        ('power', 'mixture')
    """
    m, n = u.shape
    plain = Choice(Noise(), np.zeros(m), np.sqrt(np.mean(u * u, axis=1))).scored(u)
    found = [plain, _optimised("student", u, [np.log(5.0), 0.0], lambda p: (_exp(p[0], -1, 7),))]
    for odds, ratio in ((0.05, 5.0), (1.0, 10.0), (0.3, 3.0)):
        start = [np.log(odds), np.log(ratio - 1), np.log(0.5)]
        found.append(
            _optimised("two scales", u, start, lambda p: (_exp(p[0], -12, 12), 1 + _exp(p[1], -5, 8)))
        )
    if m == 1:
        found += [
            _optimised("power", u, [np.log(p), 0.0], lambda p: (_exp(p[0], -0.3, 4),)) for p in (1.0, 8.0)
        ]
    if m == 2 and ring and (around := fit_ring(u)) is not None:
        found.append(around)
    best = min(found, key=lambda choice: choice.price(n))
    best = best if best.price(n) < plain.price(n) - CAUTION else plain
    if m == 1 and p_value(best.noise, best.standardised(u)) < 0.01:
        mixture = find_mixture(u.T, most=MOST_MODES, kinds=("diag",))
        if mixture is not None and len(mixture.weights) > 1:
            parts = np.concatenate(
                [mixture.weights, mixture.means[:, 0], np.sqrt(mixture.covariances[:, 0, 0])]
            )
            other = Choice(Noise("mixture", tuple(parts.tolist())), np.zeros(1), np.ones(1)).scored(u)
            best = min(best, other, key=lambda choice: choice.price(n))
    return best


def _exp(value: float, low: float, high: float) -> float:
    return float(np.exp(np.clip(value, low, high)))


def _optimised(
    kind: str, u: np.ndarray, start: list[float], numbers: Callable[[Any], tuple[float, ...]]
) -> Choice:
    """The family with its best numbers and one scale for all columns; the last of ``start`` is the log scale."""
    shares = np.sqrt(np.mean(np.minimum(u * u, np.quantile(u * u, 0.95, axis=1)[:, None]), axis=1))
    shares = shares / np.exp(np.mean(np.log(shares)))

    def made(p: np.ndarray) -> Choice:
        return Choice(Noise(kind, numbers(p)), np.zeros(len(u)), shares * _exp(p[-1], -20, 20)).scored(u)

    def loss(p: np.ndarray) -> float:
        value = -made(p).log_likelihood / u.shape[1]
        return value if np.isfinite(value) else 1e9

    options = {"maxiter": 400, "xatol": 1e-4, "fatol": 1e-7}
    return made(optimize.minimize(loss, start, method="Nelder-Mead", options=options).x)


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

    spread = float(np.sqrt(np.mean(u * u)))
    angles = np.linspace(0, 2 * np.pi, 8, endpoint=False)
    starts = [[0.0, 0.0, 1.4], *([np.cos(angle), np.sin(angle), 1.5] for angle in angles)]
    best = min(
        (optimize.least_squares(misfit, spread * np.array(s)) for s in starts), key=lambda found: found.cost
    )
    *centre, radius = best.x
    width = float(np.sqrt(2 * best.cost / u.shape[1])) / abs(radius)
    if not 0 < width < 0.4 or abs(radius) > 20 * spread:
        return None
    shift = np.array(centre)
    start, arc = arc_of(np.arctan2(u[1] - shift[1], u[0] - shift[0]))
    return Choice(Noise("ring", (width, start, arc)), shift, np.full(2, abs(radius))).scored(u)


def settled_ring(ring: Noise, w: Float[np.ndarray, "2 n"]) -> Choice:
    """Return a ring with its arc read off the rows, and a half one with its centre where its two ends say it is.

    The likelihood of a whole ring draws the centre of a half one towards its rows.
    """
    start, arc = arc_of(np.arctan2(w[1], w[0]))
    middle = round((start + arc / 2) / SIMPLE_ANGLE) * SIMPLE_ANGLE
    shift, scale, width = np.zeros(2), 1.0, ring.parameters[0]
    if abs(arc - np.pi) < HALF:
        towards = np.array([np.cos(middle), np.sin(middle)])
        shift = float(np.min(towards @ w)) * towards
        moved = w - shift[:, None]
        sizes = np.hypot(*moved)
        scale, width = float(sizes.mean()), float(sizes.std() / sizes.mean())
        start, arc = arc_of(np.arctan2(moved[1], moved[0]))
    return Choice(Noise("ring", (width, start, arc)), shift, np.full(2, scale))


def arc_of(angles: Float[np.ndarray, " n"]) -> tuple[float, float]:
    """Return start and length of the arc that angles fill, rounded to simple angles where these are near."""
    ordered = np.sort(np.mod(angles, 2 * np.pi))
    gaps = np.diff(np.concatenate([ordered, [ordered[0] + 2 * np.pi]]))
    widest, typical = int(np.argmax(gaps)), 2 * np.pi / len(angles)
    if gaps[widest] < WIDEST_CHANCE * typical:
        return 0.0, float(2 * np.pi)
    start = ordered[(widest + 1) % len(ordered)]
    end = start + 2 * np.pi - gaps[widest]

    def rounded(angle: float, outward: float) -> float:
        near = round(angle / SIMPLE_ANGLE) * SIMPLE_ANGLE
        return near if abs(near - angle) < 12 * typical else angle + outward * 2 * typical

    start, end = rounded(float(start), -1.0), rounded(float(end), 1.0)
    return float((start + np.pi) % (2 * np.pi) - np.pi), float(end - start)


def p_value(noise: Noise, w: Float[np.ndarray, "m n"], seed: int = 0) -> float:
    """Return the p-value of residuals against a family: of their size and, column by column, of their law.

    Example:
        >>> w = np.random.default_rng(0).normal(size=(2, 2000))
        >>> p_value(Noise(), w) > 1e-3, p_value(Noise("student", (2.0,)), w) < 1e-3
        (True, True)
    """
    expected = noise.sample(len(w), 20 * w.shape[1], np.random.default_rng(seed))
    pairs = [*zip(w, expected, strict=True), (np.sum(w * w, axis=0), np.sum(expected**2, axis=0))]
    least = min(float(stats.ks_2samp(seen, drawn).pvalue) for seen, drawn in pairs)
    return float(min(1.0, least * len(pairs)))

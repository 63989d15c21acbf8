"""Families of noise: the law of standardised residuals, of one column or of several that belong together.

Residuals come as an array ``(columns, rows)`` with centre 0; their scale stands in the law, apart. A family is written
once, for NumPy and for JAX.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy import special

LOG_TWO_PI = float(np.log(2 * np.pi))


@dataclass(frozen=True)
class Family:
    """A kind of noise.

    Args:
        name: What files and prints call it.
        parameters: Names of its numbers.
        log_density: ``(residuals, parameters, array module)`` to one number per row.
        sample: ``(n columns, n rows, parameters, generator)`` to residuals.
        sentence: Says it, with ``{}`` for each number.
        free: How many of its numbers, the first ones, a smooth refit may move; each is positive.
        variance: Parameters to the variance of a residual.
    """

    name: str
    parameters: tuple[str, ...]
    log_density: Callable[[Any, Sequence[Any], ModuleType], Any]
    sample: Callable[[int, int, Sequence[float], np.random.Generator], np.ndarray]
    sentence: str
    free: int
    variance: Callable[[Sequence[float]], float]


def _normal(w: Any, parameters: Sequence[Any], xp: ModuleType) -> Any:
    return -0.5 * xp.sum(w * w, axis=0) - 0.5 * len(w) * LOG_TWO_PI


def _sample_normal(m: int, n: int, parameters: Sequence[float], rng: np.random.Generator) -> np.ndarray:
    return rng.normal(size=(m, n))


def _student(w: Any, parameters: Sequence[Any], xp: ModuleType) -> Any:
    (nu,) = parameters
    gammaln, m = _special(xp).gammaln, len(w)
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
    scale = np.where(rng.uniform(size=n) < odds / (1 + odds), ratio, 1.0)
    return scale * rng.normal(size=(m, n))


def _ring(w: Any, parameters: Sequence[Any], xp: ModuleType) -> Any:
    width, start, arc = parameters
    radius = xp.sqrt(xp.sum(w * w, axis=0))
    log_mass = _special(xp).log_ndtr(1.0 / width)
    radial = -0.5 * ((radius - 1.0) / width) ** 2 - xp.log(width) - 0.5 * LOG_TWO_PI - log_mass
    turned = xp.mod(xp.arctan2(w[1], w[0]) - start, 2 * np.pi)
    return xp.where(turned <= arc, radial - xp.log(radius) - np.log(arc), -np.inf)


def _sample_ring(m: int, n: int, parameters: Sequence[float], rng: np.random.Generator) -> np.ndarray:
    width, start, arc = parameters
    radius = 1 + width * special.ndtri(rng.uniform(special.ndtr(-1 / width), 1, size=n))
    angle = start + arc * rng.uniform(size=n)
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)])


def _special(xp: ModuleType) -> Any:
    if xp is np:
        return special
    import jax.scipy.special

    return jax.scipy.special


FAMILIES = {
    family.name: family
    for family in (
        Family("normal", (), _normal, _sample_normal, "normal", 0, lambda p: 1.0),
        Family(
            "student", ("degrees",), _student, _sample_student, "Student t with {} degrees of freedom", 1,
            lambda p: p[0] / (p[0] - 2) if p[0] > 2 else np.inf,
        ),
        Family(
            "two scales", ("odds", "ratio"), _two_scales, _sample_two_scales,
            "normal with two scales, the other one with odds {} and {} times as wide", 2,
            lambda p: (1 + p[0] * p[1] ** 2) / (1 + p[0]),
        ),
        Family(
            "ring", ("width", "start", "arc"), _ring, _sample_ring,
            "around a circle whose radius is the scale, {} of it wide, from angle {} over {}", 1, lambda p: 0.5,
        ),
    )
}  # fmt: skip
"""Every family by name."""


@dataclass(frozen=True)
class Noise:
    """A family with its numbers.

    Example:
        >>> heavy = Noise("student", (3.0,))
        >>> heavy, heavy.log_density(np.zeros((1, 2))).round(3), heavy.sample(2, 5, np.random.default_rng(0)).shape
        (Student t with 3 degrees of freedom, array([-1.001, -1.001]), (2, 5))
        >>> heavy.variance, Noise().variance
        (3.0, 1.0)
    """

    kind: str = "normal"
    parameters: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in FAMILIES:
            raise ValueError(f"unknown noise {self.kind!r}; known: {', '.join(FAMILIES)}")
        expected = FAMILIES[self.kind].parameters
        if len(self.parameters) != len(expected):
            raise ValueError(
                f"{self.kind} noise needs {len(expected)} numbers {expected}, got {self.parameters}"
            )

    @property
    def family(self) -> Family:
        """The family, with its functions."""
        return FAMILIES[self.kind]

    @property
    def variance(self) -> float:
        """The variance of one residual, in units of the scale squared."""
        return float(self.family.variance(self.parameters))

    def log_density(self, w: Float[np.ndarray, "m n"]) -> Float[np.ndarray, " n"]:
        """Return the log-density of residuals."""
        with np.errstate(all="ignore"):
            return self.family.log_density(w, self.parameters, np)

    def sample(self, n_columns: int, n: int, rng: np.random.Generator) -> Float[np.ndarray, "m n"]:
        """Return residuals."""
        return self.family.sample(n_columns, n, self.parameters, rng)

    def __repr__(self) -> str:
        return self.family.sentence.format(*(f"{value:.4g}" for value in self.parameters))

"""The equations printed in the paper's appendix A, to be scored beside ours.

Each block is ``v1 = u1 exp(s1(u2)) + t1(u2)``, ``o2 = u2 exp(s2(v1)) + t2(v1)``, printed with two or three digits;
``u`` below stands for the one argument of each function. The paper states neither the radius nor the width of its
ring, so :func:`best_ring_kl` looks for the ring these equations fit best.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import sympy as sp
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy.optimize import minimize

from isr.problems.densities import Density

BLOCKS: dict[str, tuple[tuple[str, str, str, str], ...]] = {
    "gaussian": (("1.16", "0", "1.14", "-9.39"),),
    "banana": (
        (
            "0.52*sin(1.86*u) + 0.084*sin(5.5*sin(1.86*u) + 2.55) + 1.7",
            "0.74 - 0.12*sin(3.65*sin(2.45*u) - 0.82)",
            "1.72*(0.025 - 0.47*sin(0.33*u))*(0.23*sin(0.33*u) - 0.29) + 2.24",
            "-3.74*(0.022*sin(0.62*u) + 0.035*sin(0.63*u) - 0.76)"
            "*(0.45*sin(0.62*u) + 0.7*sin(0.63*u) + 0.38) + 0.027",
        ),
    ),
    "ring": (
        (
            "-3.14*(-0.15*u**2 - 0.26*sin(1.26*u) + 0.094*sin(3.25*u) - 0.3)"
            "*(0.098*u**2 + 0.39*sin(1.26*u) + 0.014*sin(3.25*u) + 0.16)"
            " + 0.09*sin(0.17*u**2 + 0.69*sin(1.26*u) + 0.76*sin(3.25*u) + 0.25)"
            " - 0.30*sin(0.94*u**2 + 2.35*sin(1.26*u) - 1.31*sin(3.25*u) + 1.57) + 0.053",
            "-0.012",
            "0.037*sin(0.22*sin(0.22*u) + 0.22*sin(0.22*u) - 0.27)"
            " + 0.052*sin(0.23*sin(0.22*u) + 0.23*sin(0.22*u) - 0.39) - 0.11",
            "0.13*sin(0.13*sin(0.37*u) + 0.13*sin(0.59*u) - 1.16)"
            " + 0.65*sin(0.021*u + 1.34*sin(0.37*u) + 2.29*sin(0.59*u) + 1.44) + 0.33",
        ),
        (
            "-3.65*(-0.47*sin(1.38*u) - 0.026*sin(1.93*u) - 0.1)"
            "*(-0.014*sin(1.38*u) - 0.39*sin(1.93*u) - 0.35)"
            " - 0.44*sin(1.74*sin(1.38*u) + 1.71*sin(1.93*u) + 5.55)"
            " - 0.46*sin(3.31*sin(1.38*u) + 0.44*sin(1.93*u) - 0.7) + 0.38",
            "0.11*sin(0.85*sin(1.38*u) + 0.86*sin(1.38*u))"
            " + 0.12*sin(0.87*sin(1.38*u) + 0.87*sin(1.38*u)) + 0.053",
            "0.25*u**2 - 0.0071*sin(1.67*u) - 0.1*sin(5.29*u)"
            " - 0.63*sin(-1.075*u**2 + 0.55*sin(1.67*u) + 0.77*sin(5.29*u))"
            " + 0.46*sin(1.89*u**2 - 0.27*sin(1.67*u) - 1.69*sin(5.29*u) + 0.9) + 1.22",
            "0.62*sin(1.56*sin(0.43*u) + 1.57*sin(0.43*u) - 1.68)"
            " + 0.61*sin(1.56*sin(0.43*u) + 1.57*sin(0.43*u) - 1.68) - 0.48",
        ),
    ),
    "mog": (
        (
            "-0.039*(-0.032*sin(1.44*u) - sin(1.48*u) + 0.94)**2"
            " - 3.03*(0.18*sin(1.44*u) + 0.14*sin(1.48*u) - 0.63)"
            "*(0.26*sin(1.44*u) + 0.28*sin(1.48*u) - 0.31)"
            " + 0.047*sin(1.44*u) + 0.13*sin(1.48*u)"
            " - 0.029*sin(0.15*sin(1.44*u) + 1.4*sin(1.48*u) - 3.47)"
            " - 0.11*sin(0.45*sin(1.44*u) + 1.46*sin(1.48*u) + 2.65) - 0.17",
            "0.052 - 0.12*sin(1.13*sin(3.14*u) + 1.64)",
            "0.34*(0.15*sin(1.024*u) + 0.13*sin(2.022*u))*sin(2.022*u) + 0.014*sin(2.022*u)**2"
            " + 0.15*sin(0.98*u*sin(1.024*u) + 1.9*sin(2.022*u) - 1.41)"
            " - 0.22*sin(3.38*sin(1.024*u) + 1.83*sin(2.022*u) + 1.5) + 0.39",
            "-0.46*sin(0.89*u + 0.21*sin(1.38*u) - 1.56)"
            " + 0.33*sin(1.23*u + 1.69*sin(1.38*u) - 0.44*sin(1.58*u) + 1.75*u) + 0.094",
        ),
        (
            "3.36*(-0.36*sin(3.1*u) - 0.29)*(0.26*sin(3.1*u) + 0.19)"
            " - 0.45*sin(3.88*sin(3.1*u) - 1.83) - 0.38",
            "0",
            "0.0035*u**2 - 2.88*(-0.079*u**2 - 0.33)*(0.042*u**2 + 0.4)"
            " + 2.6*(-0.34*sin(1.7*u) - 0.088*sin(1.71*u))*(-0.053*sin(1.7*u) - 0.38*sin(1.71*u)) + 1.61",
            "-0.14",
        ),
    ),
}
"""``(s1, t1, s2, t2)`` of every block, by density."""


@cache
def _functions(name: str) -> list[list[Callable[[np.ndarray], np.ndarray]]]:
    u = sp.Symbol("u")
    return [
        [sp.lambdify(u, sp.parse_expr(text, {"u": u}), cse=True) for text in block] for block in BLOCKS[name]
    ]


def log_prob(name: str, x: ArrayLike) -> Float[np.ndarray, " n"]:
    """Return the log density of rows under the printed equations of ``name``.

    Example:
        >>> log_prob("gaussian", [[0.0, 3.0]]).round(2).tolist()
        [0.46]
    """
    first, second = np.asarray(x, dtype=float).T
    # Away from the data the printed scales overflow: the density there is zero.
    with np.errstate(over="ignore", invalid="ignore"):
        return _log_prob(name, first, second)


def _log_prob(name: str, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    log_det = np.zeros(len(first))
    for s1, t1, s2, t2 in _functions(name):
        scale = s1(second)
        first = first * np.exp(scale) + t1(second)
        log_det = log_det + scale
        scale = s2(first)
        second = second * np.exp(scale) + t2(first)
        log_det = log_det + scale
    return log_det - 0.5 * (first**2 + second**2) - np.log(2 * np.pi)


def kl(name: str, truth: Density, n: int = 20_000) -> float:
    """Return the divergence of the printed equations from a density, in nats.

    Example:
        >>> from isr.problems.densities import BANANA
        >>> kl("banana", BANANA, n=1000) > 0
        True
    """
    return truth.kl_of(lambda x: log_prob(name, x), n=n)


@dataclass(frozen=True)
class RingFit:
    """The ring that printed equations fit best, and their divergence from it in nats."""

    kl: float
    radius: float
    width: float
    centre: tuple[float, float]


def best_ring_kl(*, centred: bool = False) -> RingFit:
    """Return the ring, of any radius and width, from which the printed equations diverge least.

    The radius is cut at four standard deviations: farther out the printed density falls so fast that the mean is ruled
    by a handful of points. The figure is a quadrature, without noise.

    Args:
        centred: Hold the centre at the origin, as the paper's figure suggests; otherwise it is fitted as well.
    """
    starts = [np.log([r, q * r]) for r in (0.8, 1.0, 1.5, 3.0, 5.0) for q in (0.04, 0.08)]
    start = np.array([*min(starts, key=lambda p: _ring_kl(np.array([*p, 0.0, 0.0]))), 0.0, 0.0])
    n_free = 2 if centred else 4
    found = minimize(
        lambda p: _ring_kl(np.concatenate([p, start[n_free:]])),
        start[:n_free],
        method="Nelder-Mead",
        options={"maxiter": 200, "fatol": 1e-4, "xatol": 1e-3},
    )
    log_radius, log_width, across, up = map(float, np.concatenate([found.x, start[n_free:]]))
    return RingFit(float(found.fun), float(np.exp(log_radius)), float(np.exp(log_width)), (across, up))


def _ring_kl(parameters: np.ndarray, cut: float = 4.0) -> float:
    radius, width = np.exp(parameters[:2])
    nodes = np.linspace(-cut, cut, 41)
    weights = np.exp(-0.5 * nodes**2) / np.exp(-0.5 * nodes**2).sum()
    angle = np.linspace(-np.pi, np.pi, 180, endpoint=False)
    r = (radius + width * nodes)[:, None]
    x = np.stack([r * np.cos(angle), r * np.sin(angle)], axis=-1) + parameters[2:]
    value = log_prob("ring", x.reshape(-1, 2)).reshape(len(nodes), -1).mean(axis=1)
    nll = -float(weights @ value)
    mean_log_r = float(weights @ np.log(np.maximum(r[:, 0], 1e-9)))
    entropy = 0.5 + 1.5 * np.log(2 * np.pi) + np.log(width) + mean_log_r
    return nll - entropy if np.isfinite(nll) else 1e9

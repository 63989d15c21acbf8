"""Marginals: which closed form makes a variable normal, chosen by likelihood and length of description.

A variable may end sharply, be positive, lean, have tails or several modes. What is found is a few bijections of one
variable: its bounds opened, then a shape or a mixture. All figures are nats, summed over rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from scipy import optimize, stats

from isr.bijections.affine import LOG_SQRT_2PI, Bounded, Permutation
from isr.bijections.bijection import AbstractBijection
from isr.bijections.charts import mixture_of
from isr.bijections.parameters import on_device
from isr.bijections.shapes import SHAPES, Edges, Shapes
from isr.densities.mixtures import find_mixture
from isr.tables.bounds import end_gap, sharp_ends

# Rows that shapes are compared on.
N_ROWS = 4096
# Shapes are tried where skewness and kurtosis refute the normal law at this level.
NORMAL = 0.01
# Gaps between rows at an end over which it is soft.
SOFT = 5.0
_IDENTITY = Permutation((0,))
# What is longer must gain so many nats beyond BIC.
CAUTION = 3.0
# Location, scale, tail and skew: which of them each form of a shape has free.
FORMS: tuple[tuple[str, tuple[bool, ...]], ...] = (
    *((kind, (True, True, False, False)) for kind in ("logistic", "laplace", "gumbel", "gumbel_low")),
    *((kind, (True, False, False, False)) for kind in ("gumbel_low", "gumbel")),  # of a logarithm: the exponential law
    *((kind, (True, True, True, lean)) for lean in (False, True)
      for kind in ("johnson", "sinh_arcsinh", "power_tails")),
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Marginal:
    """How one variable becomes normal: ends, None where open, of a softness that is 0 where no row is beyond them; its
    shape with location, log scale, tail and skew, or weights, means and standard deviations of several modes. ``price``
    is minus the log-likelihood and half of log(rows) for each constant, ``fits`` the p-value of a normal image.
    """

    low: float | None
    high: float | None
    kind: str
    numbers: tuple[float, float, float, float]
    price: float
    fits: float = 0.0
    mixture: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None
    softness: float = 0.0

    @property
    def side(self) -> str:
        """Which ends it has: ``""``, ``"low"``, ``"high"`` or ``"both"``."""
        if self.low is None:
            return "" if self.high is None else "high"
        return "low" if self.high is None else "both"


def find_marginal(
    x: Float[np.ndarray, " n"],
    *,
    edges: bool = True,
    positive: bool = True,
    soft: bool = False,
    ends: tuple[float, float] | None = None,
) -> Marginal:
    """Return the shortest good description of a column.

    ``edges`` lets sharp ends be bounds, ``positive`` lets zero be one where no row is below, and with ``soft`` a few
    rows may lie beyond sharp ends. Or the ``ends`` are known.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> find_marginal(rng.uniform(0, 3, 2000)).high, find_marginal(rng.lognormal(1, 0.5, 2000)).low
        (3.0, 0.0)
        >>> find_marginal(rng.standard_t(3, 4000)).kind, len(find_marginal(rng.normal(0, 1, 2000)).numbers)
        ('power_tails', 4)
    """
    known = [] if ends is None else [_opened(*ends)]
    openings = known or (_soft_openings(x) if soft else _openings(x, edges, positive))
    found = [m for opening in openings for m in _shaped(x, opening)]
    best = min(found, key=lambda m: m.price)
    return best if best.fits > NORMAL else min([best, *_modes(x)], key=lambda m: m.price)


def _opened(low: float | None, high: float | None, softness: float = 0.0) -> Marginal:
    return Marginal(low, high, "normal", (0.0, 0.0, 0.0, 0.0), np.inf, softness=softness)


def _openings(x: np.ndarray, edges: bool, positive: bool) -> Iterator[Marginal]:
    """The ends a variable may have: none, zero where it is positive, those that rows end sharply at."""
    low, high = sharp_ends(x) if edges else (None, None)
    if low is not None and high is not None:
        yield _opened(low, high)  # rows up to both ends: nothing else would do
        return
    yield _opened(None, None)
    if low is not None or high is not None:
        yield _opened(low, high)
    if positive and x.min() > 0 and low != 0:
        yield _opened(0.0, None)
    if positive and x.min() > 0 and x.max() < 1:
        yield _opened(0.0, 1.0)


def _soft_openings(x: np.ndarray) -> Iterator[Marginal]:
    yield _opened(None, None)
    firsts = zip(sharp_ends(x), (x.min(), x.max()), strict=True)
    low, high = (None if end is None else float(first) for end, first in firsts)
    gaps = [SOFT * end_gap(sign * x) for sign, end in ((1, low), (-1, high)) if end is not None]
    if gaps:
        yield _opened(low, high, min(max(gaps) / (high - low), 0.1) if len(gaps) == 2 else gaps[0])


def _shaped(x: np.ndarray, opening: Marginal) -> Iterator[Marginal]:
    """The normal law of an opened variable, and every shape if that does not do."""
    n, ends = len(x), (opening.low, opening.high)
    with jax.enable_x64(True):
        step = (_opening_steps([opening], 1) or [_IDENTITY])[0]
        opened, slopes = jax.vmap(step.forward_and_log_det)(jnp.asarray(x)[:, None])
    u, gain = np.asarray(opened)[:, 0], float(np.sum(np.asarray(slopes)))
    if not np.all(np.isfinite(u)):
        return
    cost = 0.5 * np.log(n) * sum(end not in (None, 0.0, 1.0) for end in ends)

    def of(kind: str, numbers: Sequence[float], nats: float, n_free: int) -> Marginal:
        price = n * nats - gain + cost + 0.5 * np.log(n) * n_free + (0.0 if kind == "normal" else CAUTION)
        location, log_scale, tail, skew = (float(v) for v in numbers)
        with jax.enable_x64(True):
            z = SHAPES[kind].forward((jnp.asarray(u) - location) * np.exp(-log_scale), tail, skew)[0]
        fits = float(stats.kstest(np.asarray(z), "norm").pvalue)
        return replace(
            opening, kind=kind, numbers=(location, log_scale, tail, skew), price=float(price), fits=fits
        )

    is_box = opening.side == "both"
    mean, sd = float(np.mean(u)), float(np.std(u))
    nats = np.log(max(sd, 1e-300)) + 0.5 + LOG_SQRT_2PI
    if is_box:  # a uniform variable needs no number more
        yield of("normal", (0.0, 0.0, 0.0, 0.0), 0.5 * float(np.mean(u * u)) + LOG_SQRT_2PI, 0)
    yield of("normal", (mean, np.log(max(sd, 1e-300)), 0.0, 0.0), float(nats), 2)
    leans = n >= 30 and stats.skewtest(u).pvalue < NORMAL if sd > 0 else False
    if sd > 0 and n >= 30 and stats.jarque_bera(u).pvalue < NORMAL:
        for kind, free in FORMS:
            fits = free[3] == leans if free[2] else kind.startswith("gumbel") == leans
            if fits and (free[1] or (opening.side and not is_box)):
                fit = _fitted(kind, free, u)
                if fit is not None:
                    yield of(kind, *fit, sum(free))


def _fitted(kind: str, free: tuple[bool, ...], u: np.ndarray) -> tuple[np.ndarray, float] | None:
    """Numbers of a shape by maximum likelihood, and the mean loss; None where they are not found."""
    middle = float(np.median(u))
    width = 0.74 * float(np.subtract(*np.quantile(u, (0.75, 0.25)))) or float(np.std(u))
    n_pieces = -(-len(u) // N_ROWS)
    w, is_row = np.zeros((2, n_pieces * N_ROWS))
    w[: len(u)], is_row[: len(u)] = (u - middle) / (width if free[1] else 1.0), 1.0
    pieces = [w[i::n_pieces] for i in range(n_pieces)], [is_row[i::n_pieces] for i in range(n_pieces)]
    mask, function = np.array(free), _loss(kind)

    def loss(theta: np.ndarray, n: int = 1) -> tuple[float, np.ndarray]:
        full = np.zeros(4)
        full[mask] = theta
        with jax.enable_x64(True):
            parts = [function(full, *piece) for piece in list(zip(*pieces, strict=True))[:n]]
        total = sum(float(np.sum(rows)) for rows in pieces[1][:n])
        value, slope = (sum(np.asarray(p[i]) for p in parts) / total for i in range(2))
        is_fine = np.isfinite(value) and np.all(np.isfinite(slope))
        return (float(value), slope[mask]) if is_fine else (1e10, np.zeros(len(theta)))

    start = np.array([0.0, 0.0, 0.5 if kind == "power_tails" else 0.0, 0.0])[mask]
    limits = [b for b, f in zip(((-20, 20), (-8, 8), (-3, 3), (-20, 20)), free, strict=True) if f]
    with np.errstate(all="ignore"):
        best = optimize.minimize(
            loss, start, jac=True, method="L-BFGS-B", bounds=limits, options={"maxiter": 100}
        )
    if not best.fun < 1e9:
        return None
    full = np.zeros(4)
    full[mask] = best.x
    nats = loss(best.x, n_pieces)[0] + (np.log(width) if free[1] else 0.0)
    full[:2] = middle + (width if free[1] else 1.0) * full[0], full[1] + (np.log(width) if free[1] else 0.0)
    return full, nats


@lru_cache(maxsize=len(SHAPES))
def _loss(kind: str) -> Any:
    def loss(theta: Any, x: Any, is_row: Any) -> Any:
        w = (x - theta[0]) * jnp.exp(-theta[1])
        u, slope = SHAPES[kind].forward(w, theta[2], theta[3])
        nats = 0.5 * u * u + LOG_SQRT_2PI - slope + theta[1]
        return jnp.sum(nats * is_row)

    return jax.jit(jax.value_and_grad(loss))


def _modes(x: np.ndarray) -> Iterator[Marginal]:
    """The best mixture of normal laws, where no shape passes."""
    if len(x) < 50 or np.ptp(x) == 0:
        return
    mixture = find_mixture(x[:, None], kinds=("spherical",))
    if mixture is not None and len(mixture.weights) > 1:
        sds = np.sqrt(mixture.covariances[:, 0, 0])
        numbers = (mixture.weights, mixture.means[:, 0], sds)
        yield Marginal(None, None, "normal", (0.0, 0.0, 0.0, 0.0), mixture.price + CAUTION, 1.0, numbers)


def _opening_steps(marginals: Sequence[Marginal], dim: int) -> list[AbstractBijection]:
    rest, steps = dim - len(marginals), []
    hard = [(None, None) if m.softness else (m.low, m.high) for m in marginals] + [(None, None)] * rest
    if any(end is not None for pair in hard for end in pair):
        low, high = zip(*hard, strict=True)
        steps.append(Bounded(low, high))
    soft = [m if m.softness else _opened(None, None) for m in marginals] + [_opened(None, None)] * rest
    if any(m.softness for m in soft):
        ends = np.array([(m.high if m.low is None else m.low) or 0.0 for m in soft])
        widths = np.array([np.log(m.high - m.low) if m.side == "both" else 0.0 for m in soft])
        sides, softness = tuple(m.side for m in soft), tuple(m.softness for m in soft)
        steps.append(Edges(on_device(ends), on_device(widths), sides, softness))
    return steps


def marginal_steps(marginals: Sequence[Marginal], dim: int) -> list[AbstractBijection]:
    """Return the bijections of variables 0, 1, ... of ``dim``, those without a marginal left as they are."""
    rest = dim - len(marginals)
    steps = _opening_steps(marginals, dim)
    numbers = np.array([m.numbers for m in marginals] + [(0.0,) * 4] * rest)
    kinds = (*(m.kind for m in marginals), *["normal"] * rest)
    if np.any(numbers) or set(kinds) != {"normal"}:
        steps.append(Shapes(*(on_device(column) for column in numbers.T), kinds))
    for i, marginal in enumerate(marginals):
        if marginal.mixture is not None:
            weights, means, sds = marginal.mixture
            square = np.square(sds)[:, None, None]
            steps.append(mixture_of(weights, means[:, None], square, variables=(i,), dim=dim))
    return steps

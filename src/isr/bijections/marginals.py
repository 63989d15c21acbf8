"""Marginals: which closed form makes a variable normal, chosen by likelihood and length of description.

A variable may end sharply, be positive, lean, have tails or several modes. What is found is a few bijections of one
variable: its bounds opened, then a shape or a mixture. All figures are nats, summed over rows.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from scipy import optimize, stats

from isr.bijections.affine import LOG_SQRT_2PI, Bounded, Ends, open_bounds
from isr.bijections.bijection import AbstractBijection
from isr.bijections.mixtures import Mixture, mixture_of
from isr.bijections.parameters import on_device
from isr.bijections.shapes import SHAPES, Shapes
from isr.tables.edges import sharp_ends

# Rows that shapes are compared on.
N_ROWS = 4096
# Shapes are tried where skewness and kurtosis refute the normal law at this level.
NORMAL = 0.01
MOST_MODES = 8
# What is longer must gain so many nats beyond BIC.
CAUTION = 3.0
# Location, scale, tail and skew: which of them each form of a shape has free.
FORMS: tuple[tuple[str, tuple[bool, ...]], ...] = (
    *((kind, (True, True, False, False)) for kind in ("logistic", "laplace", "gumbel", "gumbel_low")),
    ("gumbel_low", (True, False, False, False)),  # of a logarithm: the exponential law
    *((kind, (True, True, True, lean)) for lean in (False, True)
      for kind in ("johnson", "sinh_arcsinh", "power_tails")),
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Marginal:
    """How one variable becomes normal.

    Args:
        low: Where it ends below, None where it is open.
        high: Where it ends above.
        kind: Its shape, by name.
        numbers: Location, log scale, tail and skew.
        mixture: Weights, means and standard deviations instead of a shape, where it has several modes.
        price: Minus the log-likelihood, and half of log(rows) for each constant.
        fits: p-value of what it makes of the rows being normal.
    """

    low: float | None
    high: float | None
    kind: str
    numbers: tuple[float, float, float, float]
    price: float
    fits: float = 0.0
    mixture: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None


def find_marginal(x: Float[np.ndarray, " n"], *, edges: bool = True, positive: bool = True) -> Marginal:
    """Return the shortest good description of a column.

    ``edges`` lets sharp ends be bounds, and ``positive`` lets zero be one where no row is below.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> find_marginal(rng.uniform(0, 3, 2000)).high, find_marginal(rng.lognormal(1, 0.5, 2000)).low
        (3.0, 0.0)
        >>> find_marginal(rng.standard_t(3, 4000)).kind, len(find_marginal(rng.normal(0, 1, 2000)).numbers)
        ('power_tails', 4)
    """
    found = [m for low, high in _openings(x, edges, positive) for m in _shaped(x, low, high)]
    best = min(found, key=lambda m: m.price)
    return best if best.fits > NORMAL else min([best, *_modes(x)], key=_price)


def _price(marginal: Marginal) -> float:
    return marginal.price


def _openings(x: np.ndarray, edges: bool, positive: bool) -> Iterator[tuple[float | None, float | None]]:
    """The ends a variable may have: none, zero where it is positive, those that rows end sharply at."""
    low, high = sharp_ends(x) if edges else (None, None)
    if low is not None and high is not None:
        yield low, high  # rows up to both ends: nothing else would do
        return
    yield None, None
    if low is not None or high is not None:
        yield low, high
    if positive and x.min() > 0 and low != 0:
        yield 0.0, None
    if positive and x.min() > 0 and x.max() < 1:
        yield 0.0, 1.0


def _shaped(x: np.ndarray, low: float | None, high: float | None) -> Iterator[Marginal]:
    """The normal law of an opened variable, and every shape if that does not do."""
    n, width = len(x), 1.0 if low is None or high is None else high - low
    with jax.enable_x64(True):
        opened, slopes = jax.vmap(lambda v: open_bounds(v[None], [Ends(low, high, width)]))(jnp.asarray(x))
    u, gain = np.asarray(opened)[:, 0], float(np.sum(np.asarray(slopes)))
    if not np.all(np.isfinite(u)):
        return
    ends = 0.5 * np.log(n) * sum(end not in (None, 0.0, 1.0) for end in (low, high))

    def of(kind: str, numbers: Sequence[float], nats: float, n_free: int) -> Marginal:
        price = n * nats - gain + ends + 0.5 * np.log(n) * n_free + (0.0 if kind == "normal" else CAUTION)
        location, log_scale, tail, skew = (float(v) for v in numbers)
        with jax.enable_x64(True):
            z = SHAPES[kind].forward((jnp.asarray(u) - location) * np.exp(-log_scale), tail, skew)[0]
        fits = float(stats.kstest(np.asarray(z), "norm").pvalue)
        return Marginal(low, high, kind, (location, log_scale, tail, skew), float(price), fits)

    mean, sd = float(np.mean(u)), float(np.std(u))
    nats = np.log(max(sd, 1e-300)) + 0.5 + LOG_SQRT_2PI
    if low is not None and high is not None:  # a uniform variable needs no number more
        yield of("normal", (0.0, 0.0, 0.0, 0.0), 0.5 * float(np.mean(u * u)) + LOG_SQRT_2PI, 0)
    yield of("normal", (mean, np.log(max(sd, 1e-300)), 0.0, 0.0), float(nats), 2)
    leans = n >= 30 and stats.skewtest(u).pvalue < NORMAL if sd > 0 else False
    if sd > 0 and n >= 30 and stats.jarque_bera(u).pvalue < NORMAL:
        for kind, free in FORMS:
            fits = free[3] == leans if free[2] else kind.startswith("gumbel") == leans
            if fits and (free[1] or (low is not None and high is None)):
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
    mixture = find_mixture(x[:, None], most=MOST_MODES, kinds=("spherical",))
    if mixture is not None and len(mixture.weights) > 1:
        sds = np.sqrt(mixture.covariances[:, 0, 0])
        numbers = (mixture.weights, mixture.means[:, 0], sds)
        yield Marginal(None, None, "normal", (0.0, 0.0, 0.0, 0.0), mixture.price + CAUTION, 1.0, numbers)


def marginal_steps(marginals: Sequence[Marginal], dim: int) -> list[AbstractBijection]:
    """Return the bijections of variables 0, 1, ... of ``dim``, those without a marginal left as they are."""
    rest = dim - len(marginals)
    steps: list[AbstractBijection] = []
    low, high = [m.low for m in marginals], [m.high for m in marginals]
    if any(end is not None for end in (*low, *high)):
        steps.append(Bounded((*low, *[None] * rest), (*high, *[None] * rest)))
    numbers = np.array([m.numbers for m in marginals] + [(0.0,) * 4] * rest)
    if np.any(numbers):
        kinds = (*(m.kind for m in marginals), *["normal"] * rest)
        steps.append(Shapes(*(on_device(column) for column in numbers.T), kinds))
    for i, marginal in enumerate(marginals):
        if marginal.mixture is not None:
            weights, means, sds = marginal.mixture
            square = np.square(sds)[:, None, None]
            steps.append(mixture_of(weights, means[:, None], square, variables=(i,), dim=dim))
    return steps


# Mixtures of normal laws ----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class FoundMixture:
    """Weights, means and covariances of normal laws, how long they take to be told, and their loss with it, in nats."""

    weights: Float[np.ndarray, " k"]
    means: Float[np.ndarray, "k d"]
    covariances: Float[np.ndarray, "k d d"]
    shared: str
    price: float

    def bijection(self, variables: tuple[int, ...], dim: int) -> Mixture:
        """Return the mixture as a bijection of these variables."""
        found = mixture_of(self.weights, self.means, self.covariances, variables=variables, dim=dim)
        scales = found.log_scales[:1] if "one" in self.shared else found.log_scales
        scales = scales[:, :1] if "round" in self.shared else scales
        odds = found.log_odds * 0 if "even" in self.shared else found.log_odds
        return Mixture(odds, found.means, scales, found.slopes, variables, dim)


def find_mixture(
    x: Float[np.ndarray, "n d"],
    *,
    most: int = MOST_MODES,
    least: int = 1,
    kinds: Sequence[str] = ("spherical", "diag", "full"),
) -> FoundMixture | None:
    """Return the mixture of at most so many normal laws that BIC likes best; None where none can be fitted.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> x = np.concatenate([rng.normal(-2, 0.5, (500, 2)), rng.normal(2, 0.5, (500, 2))])
        >>> found = find_mixture(x)
        >>> len(found.weights), found.shared
        (2, 'even one round')
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.mixture import GaussianMixture

    scale = np.std(x) if x.shape[1] == 1 else np.std(x, axis=0)
    if not np.all(scale > 0):
        return None
    some = x if len(x) <= N_ROWS else x[:: -(-len(x) // N_ROWS)]
    best: tuple[float, Any] = (np.inf, None)
    for kind in kinds:
        unit = 1.0 if kind == "spherical" else scale
        waited, lowest = 0, np.inf
        for k in range(least, min(most, len(x) // (3 * x.shape[1] + 3)) + 1):
            model = GaussianMixture(k, covariance_type=kind, n_init=1 + (1 < k < 6), random_state=0, reg_covar=1e-6,
                                    max_iter=200, tol=1e-4)  # fmt: skip
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", ConvergenceWarning)
                    model.fit(some / unit)
            except ValueError:
                break
            bic = model.bic(some / unit) + 2 * len(some) * float(np.sum(np.log(unit * np.ones(x.shape[1]))))
            lowest, waited = (bic, 0) if bic < lowest else (lowest, waited + 1)
            best = min(best, (bic, (model, unit)), key=lambda pair: pair[0])
            if waited >= 2:
                break
    if best[1] is None:
        return None
    return _shortened(x, *best[1])


def _shortened(x: np.ndarray, model: Any, unit: Any) -> FoundMixture:
    """The mixture of all rows, with numbers shared among its components where that is cheaper."""
    model.set_params(warm_start=False, max_iter=500, n_init=1, weights_init=model.weights_,
                     means_init=model.means_, precisions_init=model.precisions_).fit(x / unit)  # fmt: skip
    k, d = model.means_.shape
    cov = {"spherical": lambda c: c[:, None, None] * np.eye(d), "diag": lambda c: c[:, :, None] * np.eye(d)}
    covariances = cov.get(model.covariance_type, lambda c: c)(model.covariances_)
    unit = unit * np.ones(d)
    means, covariances, weights = model.means_ * unit, covariances * np.outer(unit, unit), model.weights_
    found = []
    own = {"spherical": "round", "diag": "", "full": ""}[model.covariance_type]
    n_own = {"spherical": 1, "diag": d, "full": d * (d + 1) // 2}[model.covariance_type]
    together = np.einsum("k,kij->ij", weights, covariances)
    for even in ("even", "") if k > 1 else ("",):
        for one in ("one", "") if k > 1 and model.covariance_type != "full" else ("",):
            w = np.full(k, 1 / k) if even else weights
            c = np.repeat(together[None], k, axis=0) if one else covariances
            size = k * d + (0 if even else k - 1) + (n_own if one else k * n_own)
            price = -float(np.sum(log_density(x, w, means, c))) + 0.5 * np.log(len(x)) * size
            found.append(FoundMixture(w, means, c, " ".join(s for s in (even, one, own) if s), price))
    return min(found, key=lambda mixture: mixture.price)


def log_density(
    x: Float[np.ndarray, "n d"], weights: np.ndarray, means: np.ndarray, covariances: np.ndarray
) -> Float[np.ndarray, " n"]:
    """Return the log-density of a mixture of normal laws."""
    parts = [
        np.log(w) + stats.multivariate_normal(m, c, allow_singular=True).logpdf(x)
        for w, m, c in zip(weights, means, covariances, strict=True)
    ]
    return np.logaddexp.reduce(parts, axis=0)

"""Mixtures of normal laws found from rows: as many components as BIC likes, numbers shared where that is cheaper."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy import stats

from isr.bijections.mixtures import Mixture, mixture_of

# Rows that numbers of components are compared on.
N_ROWS = 4096
MOST_MODES = 8


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

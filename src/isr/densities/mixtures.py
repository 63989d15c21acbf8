"""Normal laws found from rows: mixtures of as many components as BIC likes, numbers shared where that is cheaper; and
one law with as few correlations as BIC asks for.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy import stats

from isr.bijections.affine import LOG_SQRT_2PI, Linear
from isr.bijections.charts import Mixture, mixture_of
from isr.bijections.parameters import on_device

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

    if not np.all(np.std(x, axis=0) > 0):
        return None
    scale = np.std(x) if x.shape[1] == 1 else np.std(x, axis=0)
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
    own, n_own = {"spherical": ("round", 1), "diag": ("", d), "full": ("", d * (d + 1) // 2)}[
        model.covariance_type
    ]
    found: list[FoundMixture] = []
    together = np.einsum("k,kij->ij", weights, covariances)
    for even in ("even", "") if k > 1 else ("",):
        for one in ("one", "") if k > 1 and model.covariance_type != "full" else ("",):
            w = np.full(k, 1 / k) if even else weights
            c = np.repeat(together[None], k, axis=0) if one else covariances
            size = k * d + (0 if even else k - 1) + (n_own if one else k * n_own)
            laws = (
                stats.multivariate_normal(*law, allow_singular=True) for law in zip(means, c, strict=True)
            )
            parts = [np.log(share) + law.logpdf(x) for share, law in zip(w, laws, strict=True)]
            price = -float(np.sum(np.logaddexp.reduce(parts, axis=0))) + 0.5 * np.log(len(x)) * size
            found.append(FoundMixture(w, means, c, " ".join(s for s in (even, one, own) if s), price))
    return min(found, key=lambda mixture: mixture.price)


def find_normal(z: Float[np.ndarray, "n d"]) -> tuple[Linear, float]:
    """Return what makes columns of mean zero independent and standard, each by a few of those before it, and its price.

    Example:
        >>> z = np.random.default_rng(0).normal(size=(1000, 3))
        >>> z[:, 2] += 2 * z[:, 0]
        >>> find_normal(z)[0].matrix.round(0).tolist()
        [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [-2.0, 0.0, 1.0]]
    """
    n, d = z.shape
    matrix, price = np.zeros((d, d)), 0.0
    for i in range(d):
        chosen = _regressors(z[:, :i], z[:, i])
        slopes = np.linalg.lstsq(z[:, chosen], z[:, i], rcond=None)[0] if chosen else np.zeros(0)
        width = max(float(np.sqrt(np.mean((z[:, i] - z[:, chosen] @ slopes) ** 2))), 1e-9)
        matrix[i, i] = 1 / width
        matrix[i, chosen] = -slopes / width
        price += n * (np.log(width) + 0.5 + LOG_SQRT_2PI) + 0.5 * np.log(n) * (len(chosen) + 1)
    return Linear(on_device(matrix)), price


def _regressors(a: np.ndarray, b: np.ndarray) -> list[int]:
    """Columns added one by one while BIC gains."""
    n, chosen, rest = len(b), [], b
    deviance = n * np.log(max(float(b @ b), 1e-300))
    orthogonal = a.copy()
    while len(chosen) < min(a.shape[1], n // 3):
        sizes = np.sqrt(np.sum(orthogonal**2, axis=0))
        usable = sizes > 1e-6 * np.sqrt(np.sum(a**2, axis=0))
        gains = np.where(usable, np.abs(rest @ orthogonal) / np.maximum(sizes, 1e-300), 0.0)
        best = int(np.argmax(gains))
        direction = orthogonal[:, best] / max(sizes[best], 1e-300)
        left = rest - direction * (direction @ rest)
        lower = n * np.log(max(float(left @ left), 1e-300))
        if gains[best] == 0 or lower > deviance - np.log(n):
            break
        chosen.append(best)
        rest, deviance = left, lower
        orthogonal -= np.outer(direction, direction @ orthogonal)
    return sorted(chosen)

"""Posterior: what a fitted flow says of x once y has been observed: one observation, or several of the same x.

Where the model gives the posterior for one observation, several are their product, drawn with weights:
``p(x | y_1 … y_k) ∝ p(x)^(1-k) Π p(x | y_i)``. The model's errors add up over the factors, so many observations ask for
an accurate model.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from isr.bijections.affine import LOG_SQRT_2PI
from isr.bijections.flow import Flow, Precision
from isr.bijections.parameters import cast
from isr.posterior.abstract import AbstractPosterior
from isr.posterior.adaptive import adapt
from isr.posterior.maximum import (
    N_POINTS,
    Coordinates,
    bounds_of,
    find_maximum,
    normal_points,
    reach,
    standard_coordinates,
)
from isr.posterior.outliers import Extent, Likeness, TrainingRecord, warn_if_unlike
from isr.posterior.pareto import Weights, smooth
from isr.posterior.priors import Density
from isr.tables.names import names_given
from isr.tables.tables import Columns, read_row, read_table

N_POOL = 4096


@dataclass(frozen=True)
class Product:
    """The posterior given several observations (rows of ``y``), drawn with weights from a proposal adapted to it.

    ``log_normaliser`` and ``effective_size`` are those of a pool of `N_POOL` draws.
    """

    flow: Flow
    y: Float[np.ndarray, "k d_y"]
    prior: Density
    coordinates: Coordinates
    proposal: Any = None
    log_normaliser: float = 0.0
    effective_size: float = 0.0

    def log_prob(self, x: Float[np.ndarray, "n d_x"]) -> Float[np.ndarray, " n"]:
        """Return the log-density of rows, normalised by the estimated integral."""
        single = np.stack([self.flow.log_prob(x, row[None]) for row in self.y], axis=1)
        log_prior = np.asarray(self.prior.log_prob(x), dtype=float)
        if log_prior.shape != (len(x),):
            raise ValueError(
                f"prior.log_prob must return one number per row: {len(x)} rows gave shape {log_prior.shape}"
            )
        possible = np.isfinite(log_prior) & np.isfinite(single).all(axis=1)
        total = single.sum(axis=1) + (1 - len(self.y)) * log_prior - self.log_normaliser
        return np.where(possible, total, -np.inf)

    def sample(self, n: int, seed: int) -> tuple[np.ndarray, float]:
        """Return ``n`` draws from a weighted pool up to 32 times as large, with the pool's effective size."""
        wanted = min(4 * n * N_POOL / max(self.effective_size, 1.0), 32 * n)
        x, weights = self.pool(max(N_POOL, int(wanted)), seed)
        return x[weights.resample(n, np.random.default_rng(seed))], weights.effective_size

    def pool(self, n: int, seed: int) -> tuple[np.ndarray, Weights]:
        """Return rows from the proposal and their weights."""
        u, log_q = self.proposal.sample(n, np.random.default_rng(seed))
        x, log_p = self.at(u)
        return x, smooth(log_p - log_q)

    def at(self, u: Float[np.ndarray, "n d_x"]) -> tuple[np.ndarray, np.ndarray]:
        """Return rows of x at coordinates, and the log-density of the coordinates."""
        x, log_normal = self.coordinates.density(u)
        finite = np.isfinite(x).all(axis=1) & np.isfinite(log_normal)
        log_p = np.full(len(x), -np.inf)
        narrowing = log_normal + np.sum(0.5 * u**2 + LOG_SQRT_2PI, axis=1)
        log_p[finite] = self.log_prob(x[finite]) - narrowing[finite]
        return x, log_p


def combine(flow: Flow, y: Float[np.ndarray, "k d_y"], prior: Density) -> Product:
    """Return the posterior given two or more observations of the same x, as rows ``y``.

    Its proposal is adapted in the latent of a middle observation, where the posterior of that one is normal.
    """
    middle = np.argmin(np.linalg.norm((y - y.mean(axis=0)) / (y.std(axis=0) + 1e-300), axis=1))
    coordinates = Coordinates(flow, y[middle : middle + 1])
    if flow.n_padding:
        draws = flow.sample(jax.random.key(0), 256, coordinates.y)
        coordinates = standard_coordinates(draws, bounds_of(flow))
    product, rng = Product(flow, y, prior, coordinates), np.random.default_rng(0)
    if not np.any(product.at(rng.normal(size=(N_POOL, flow.dim)))[1] > -np.inf):
        raise ValueError(
            "no draw has density under all observations at once: do they come from the same x, "
            "and does the prior cover what the model was trained on?"
        )
    product = replace(product, proposal=adapt(lambda u: product.at(u)[1], flow.dim, rng))
    _, weights = product.pool(N_POOL, 0)
    return replace(product, log_normaliser=weights.log_mean, effective_size=weights.effective_size)


class Posterior(AbstractPosterior):
    """The law that a flow gives x after one observation, or several observations of the same x.

    Several observations enter a *joint* model (ISR) exactly, as their mean with noise ``σ / √k``. In a *conditional*
    model (cISR) they give ``p(x | y_1 … y_k) ∝ p(x)^(1-k) Π p(x | y_i)``: this needs ``prior``, draws come by
    importance resampling, and `log_prob` is normalised by an estimate.

    Args:
        flow: A fitted flow, conditional or joint, in the user's units.
        y_star: One observation, as values in order or a mapping by name, or several of the same x as rows.
        x_names: Names of the variables to infer; x1, x2, … where not given.
        y_names: Names of the observed variables; y1, y2, … where not given.
        units: Unit by name.
        prior: The prior of the training data, with ``log_prob(rows)``, for several observations of a conditional model.
        training: Record of the training observations, also as a file holds it, for a warning where ``y_star`` is unlike
            them.
        extent: Range of the training rows of x, likewise, for a warning where draws leave it.

    Attributes:
        y_star: The observations as rows.
        likeness: How like the training data they are; ``None`` without ``training``.

    Example:
        >>> from isr.bijections.affine import Linear
        >>> flow = Flow(Linear(np.array([[1.0, 1.0], [1.0, -1.0]])), noise=(0.1,))  # y = x1 + x2, with noise 0.1
        >>> post = Posterior(flow, [3.0], x_names=["mass", "charge"])
        >>> post
        Posterior of mass, charge given y1 = 3
        >>> post.map().round(3).tolist(), post.map_note  # the note says why, where there is no such point
        ([1.5, 1.5], '')
        >>> post.sample(5).shape, post.frame(5).columns.tolist()
        ((5, 2), ['mass', 'charge'])
        >>> post.n_observations, post.effective_size, post.share_outside  # the range of training rows is not known here
        (1, None, None)
        >>> bool(post.log_prob(post.map()) > post.log_prob([2.0, 2.0]))
        True
        >>> post.mean(16).shape, post.summary(16).columns.tolist()
        ((2,), ['mean', 'sd', 'hdi_3%', 'hdi_97%', 'map'])
        >>> post.to_arviz(16).posterior.sizes["draw"]
        4
        >>> post.resimulate(lambda x: x.sum(axis=1, keepdims=True), 16) < 0.1
        True
        >>> len(post.plot(16).axes)
        4
    """

    def __init__(
        self,
        flow: Flow,
        y_star: Any,
        *,
        x_names: Sequence[str] | None = None,
        y_names: Sequence[str] | None = None,
        units: Mapping[str, str] | None = None,
        prior: Density | None = None,
        training: TrainingRecord | Mapping[str, Any] | None = None,
        extent: Extent | Mapping[str, Any] | None = None,
    ) -> None:
        if not flow.condition_dim:
            raise ValueError("this flow observes nothing: a posterior needs a conditional or a joint flow")
        self.flow = flow
        self.x_names = names_given(x_names, "x", flow.dim)
        self.y_names = names_given(y_names, "y", flow.condition_dim)
        self.y_star = read_observations(y_star, Columns(self.y_names, (None,) * flow.condition_dim))
        self.units = dict(units or {})
        self.prior = prior
        self.bounds = bounds_of(flow)
        known = _restored(Extent, extent)
        self.extent = None if known is None else known.widened(self.bounds)
        if self._is_product and not hasattr(prior, "log_prob"):
            raise ValueError(
                f"{len(self.y_star)} observations of the same x need the prior the model was trained on: give an "
                "object with log_prob(rows) as prior, or use a joint model (ISR), or pass a single observation"
            )
        record = _restored(TrainingRecord, training)
        self.likeness: Likeness | None = None
        if record is not None:
            self.likeness = warn_if_unlike(record, self.y_star, self.y_names, stacklevel=3)

    @property
    def effective_size(self) -> float | None:
        """Effective size of a pool of 4096 weighted draws; ``None`` where draws need no weights."""
        return self._product.effective_size if self._is_product else None

    def _draw(self, n: int, seed: int, precision: Precision = "double") -> tuple[np.ndarray, float]:
        if not self._is_product:
            return self._single.sample(jax.random.key(seed), n, self._mean, precision=precision), float(n)
        return self._product.sample(n, seed)

    def _log_prob(self, rows: np.ndarray, precision: Precision = "double") -> np.ndarray:
        if self._is_product:
            return self._product.log_prob(np.asarray(rows, dtype=float))
        return self._single.log_prob(rows, self._mean, precision=precision)

    def _coordinates(self, draws: np.ndarray) -> Coordinates:
        return self._product.coordinates if self._is_product else super()._coordinates(draws)

    def _find_maximum(self) -> tuple[np.ndarray | None, str]:
        if self._is_product or self.flow.n_padding:
            return super()._find_maximum()
        # The page of a report does the same.
        dim, own = self.flow.dim, Coordinates(self._single, self._mean)
        return find_maximum(own.density, normal_points(N_POINTS, dim), self.bounds, self.x_names, reach(dim))

    @property
    def _is_product(self) -> bool:
        return self.n_observations > 1 and self.flow.condition_map is not None

    @cached_property
    def _mean(self) -> np.ndarray:
        return self.y_star.mean(axis=0, keepdims=True)

    @cached_property
    def _double(self) -> Flow:
        # Cast once: every call would do it again, five milliseconds for four blocks.
        with jax.enable_x64(True):
            return cast(self.flow, np.float64)

    @cached_property
    def _single(self) -> Flow:
        # k observations with noise σ tell as much of the observed outputs as their mean with noise σ / √k.
        noise = tuple(float(sd / np.sqrt(self.n_observations)) for sd in self.flow.noise)
        return replace(self._double, noise=noise)

    @cached_property
    def _product(self) -> Product:
        assert self.prior is not None
        return combine(self._double, self.y_star, self.prior)


def _restored(kind: Any, value: Any) -> Any:
    if isinstance(value, Mapping):
        return kind.from_dict(value)
    return value if isinstance(value, kind) else None  # a file may hold anything under the name


def read_observations(y_star: Any, columns: Columns) -> Float[np.ndarray, "k d_y"]:
    """Return one observation (values in order, or a mapping by name) or several, as rows in the order of ``columns``.

    Example:
        >>> read_observations({"up": 1, "down": 2}, Columns(("down", "up"), (None, None)))
        array([[2., 1.]])
    """
    if np.ndim(y_star) == 2 and len(y_star) > 1:
        return read_table(y_star, like=columns, what="y_star").values
    return read_row(y_star, like=columns, what="y_star").reshape(1, -1)

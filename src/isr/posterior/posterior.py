"""Posterior: what a fitted model says of x once y has been observed.

One observation, or several of the same x. Rows are draws and columns the variables of x, in the user's units.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from isr.bijections.flow import Flow, Precision
from isr.posterior.coordinates import Coordinates, coordinates_of
from isr.posterior.extent import Extent, warn_if_outside
from isr.posterior.maximum import Density, Maximum, SpikeWarning, find_maximum
from isr.posterior.outliers import Likeness, TrainingRecord, warn_if_unlike
from isr.posterior.priors import Prior
from isr.posterior.repeated import Product, combine
from isr.posterior.simulators import Resimulation, Simulator, resimulate
from isr.posterior.summaries import inference_data, observation_html, summary_table
from isr.tables.names import check_names, quoted
from isr.tables.tables import Columns, read_row, read_table

if TYPE_CHECKING:
    import pandas as pd
    from arviz import InferenceData
    from matplotlib.figure import Figure

RandomState = int | np.random.Generator | None

N_SEARCH = 4096
N_SHOWN = 6


class NonFiniteDrawsWarning(UserWarning):
    """Some draws of a posterior are infinite or not a number; the message says how many."""


class EffectiveSizeWarning(UserWarning):
    """Weighted draws of a posterior rest on few of a pool; the message says on how many."""


class Posterior:
    """The law of x given one observation, or several observations of the same x.

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
        simulator: Rows of x to rows of y, for `resimulate`.
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
        >>> post.resimulate(lambda x: x.sum(axis=1, keepdims=True), 16).error < 0.1
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
        simulator: Simulator | None = None,
        training: TrainingRecord | Mapping[str, Any] | None = None,
        extent: Extent | Mapping[str, Any] | None = None,
    ) -> None:
        if not flow.condition_dim:
            raise ValueError("this flow observes nothing: a posterior needs a conditional or a joint flow")
        self.flow = flow
        self.x_names = _names(x_names, flow.dim, "x")
        self.y_names = _names(y_names, flow.condition_dim, "y")
        self.y_star = read_observations(y_star, Columns(self.y_names, (None,) * flow.condition_dim))
        self.units = dict(units or {})
        self.prior = prior
        self.simulator = simulator
        self.extent: Extent | None = _restored(Extent, extent)
        if self._is_product and not hasattr(prior, "log_prob"):
            raise ValueError(
                f"{len(self.y_star)} observations of the same x need the prior the model was trained on: give an "
                "object with log_prob(rows) as prior, or use a joint model (ISR), or pass a single observation"
            )
        record = _restored(TrainingRecord, training)
        self.likeness: Likeness | None = (
            None if record is None else warn_if_unlike(record, self.y_star, self.y_names, stacklevel=3)
        )

    @property
    def n_observations(self) -> int:
        """How many observations of the same x there are."""
        return len(self.y_star)

    @property
    def effective_size(self) -> float | None:
        """Effective size of a pool of 4096 weighted draws; ``None`` where draws need no weights."""
        return self._product.effective_size if self._is_product else None

    def sample(
        self, n: int = 1000, random_state: RandomState = 0, *, precision: Precision = "double"
    ) -> Float[np.ndarray, "n d_x"]:
        """Return ``n`` draws as rows; a `NonFiniteDrawsWarning` counts those that are not finite.

        ``precision="single"`` draws millions in less than half the time, with six digits; several observations of a
        conditional model are always weighed in double.
        """
        if n < 1:
            raise ValueError(f"the number of draws must be at least 1, got n={n}")
        draws, effective_size = self._draw(n, _seed(random_state), precision)
        if effective_size < 0.5 * n:
            warnings.warn(
                f"{n} draws rest on about {effective_size:.0f} independent ones, because the observations hardly "
                "agree under the model; ask for fewer draws, or check that all come from the same x and that the "
                "prior is that of the training data",
                EffectiveSizeWarning,
                stacklevel=2,
            )
        n_bad = int(np.sum(~np.isfinite(draws).all(axis=1)))
        if n_bad:
            warnings.warn(
                f"{n_bad} of {n} draws are not finite; they are returned, but the mean, the summary and plots "
                "leave them out",
                NonFiniteDrawsWarning,
                stacklevel=2,
            )
        if self.extent is not None and n_bad < n:
            warn_if_outside(self.extent, _finite(draws), self.x_names)
        return draws

    @property
    def share_outside(self) -> float | None:
        """Share of 4096 draws outside the range of the training rows; ``None`` where that is not known."""
        return None if self.extent is None else self.extent.share_outside(_finite(self._draw(N_SEARCH, 0)[0]))

    def _draw(self, n: int, seed: int, precision: Precision = "double") -> tuple[np.ndarray, float]:
        if not self._is_product:
            return self._single.sample(jax.random.key(seed), n, self._mean, precision=precision), float(n)
        found = self._product.sample(n, seed)
        return found.samples, found.effective_size

    def frame(self, n: int = 1000, random_state: RandomState = 0) -> "pd.DataFrame":
        """Return ``n`` draws as a pandas frame."""
        import pandas as pd

        return pd.DataFrame(self.sample(n, random_state), columns=list(self.x_names))

    def log_prob(self, x: Any, *, precision: Precision = "double") -> Float[np.ndarray, " n"]:
        """Return the log-density (nats) of rows of x, one row, or a frame; ``-inf`` outside the bounds.

        With several observations of a conditional model its constant is an estimate, good to about ``1 /
        √effective_size``.
        """
        if hasattr(x, "iloc"):
            x = read_table(x, like=Columns(self.x_names, (None,) * self.flow.dim), what="x").values
        rows = np.asarray(
            x, dtype=np.float32 if precision == "single" and not self._is_product else np.float64
        )
        if rows.ndim == 1:
            rows = rows[:, None] if self.flow.dim == 1 else rows[None]
        if self._is_product:
            return self._product.log_prob(rows)
        return self._single.log_prob(rows, self._mean, precision=precision)

    def map(self) -> Float[np.ndarray, " d_x"] | None:
        """Return the x of highest density among the maxima that carry mass; ``None`` where none does.

        The search starts from 2048 draws that are the same in Python, on the command line and in a report, and climbs
        with the exact gradient of the model's equations. It never leaves the bounds, nor the ball of the latent that
        holds 98 % of all draws, and passes over spikes that almost no draw meets. Where it finds nothing else, a
        `SpikeWarning` says why, and so does `map_note`. Like any mode it depends on the scale: log x has its mode
        elsewhere than x.
        """
        if self._maximum.x is None:
            warnings.warn(f"no densest point is given: {self.map_note}", SpikeWarning, stacklevel=2)
            return None
        return self._maximum.x.copy()

    @property
    def map_note(self) -> str:
        """Why `map` gives no point; empty where it gives one."""
        return self._maximum.note

    def mean(self, n: int = 4000, random_state: RandomState = 0) -> Float[np.ndarray, " d_x"]:
        """Return the mean of ``n`` draws."""
        return _finite(self.sample(n, random_state)).mean(axis=0)

    def summary(
        self, n: int | ArrayLike = 4000, hdi: float = 0.94, random_state: RandomState = 0
    ) -> "pd.DataFrame":
        """Return mean, sd, ends of the highest-density interval, named as in ArviZ, and map of each variable.

        The interval holds a share ``hdi`` of ``n`` draws, or of the rows given in their place, a single one even where
        there are several modes. There is no column map where `map` gives no point; see `map_note`.
        """
        draws = np.asarray(n, dtype=float) if np.ndim(n) else self.sample(int(n), random_state)  # type: ignore[arg-type]
        found = self._maximum.x
        known = {} if found is None else {"map": found}
        return summary_table(_finite(draws), self.x_names, hdi=hdi).assign(**known)

    def to_arviz(self, n: int = 4000, n_chains: int = 4, random_state: RandomState = 0) -> "InferenceData":
        """Return draws with log-density (``sample_stats.lp``) and observations as ArviZ inference data.

        The ``n`` draws are divided into ``n_chains`` parts. They are no Markov chains; ArviZ only wants several.
        """
        if n_chains < 1 or n % n_chains:
            raise ValueError(f"n must be a multiple of n_chains, got n={n} and n_chains={n_chains}")
        draws = self.sample(n, random_state)
        finite = np.isfinite(draws).all(axis=1)
        log_prob = np.full(n, np.nan)
        log_prob[finite] = self.log_prob(draws[finite])
        return inference_data(
            draws, log_prob, self.y_star,
            x_names=self.x_names, y_names=self.y_names, units=self.units, n_chains=n_chains,
        )  # fmt: skip

    def plot(
        self,
        n: int = 2000,
        *,
        truth: ArrayLike | None = None,
        prior: Prior | ArrayLike | None = None,
        names: Sequence[str] | None = None,
        random_state: RandomState = 0,
    ) -> "Figure":
        """Return a pair plot: marginals on the diagonal, draws with their 50 % and 94 % regions below.

        Args:
            n: Draws.
            truth: One row, drawn as dashed red lines.
            prior: A prior, or rows drawn from one, in grey.
            names: Which variables to show; the first eight where there are more, and the title then says so.
            random_state: Seed of the draws.
        """
        from isr.posterior.plots import pair_plot

        draws = _finite(self.sample(n, random_state))
        rows = prior.sample(n, random_state=0) if isinstance(prior, Prior) else prior
        return pair_plot(draws, self.x_names, units=self.units, truth=truth, prior=rows, shown=names)

    def resimulate(
        self, simulator: Simulator | None = None, n: int = 1000, random_state: RandomState = 0
    ) -> Resimulation:
        """Return what a simulator makes of ``n`` draws, rows of x, and how far that is from the observation.

        Left out, it is the simulator that the posterior was given.
        """
        simulator = simulator or self.simulator
        if simulator is None:
            raise ValueError("no simulator is known: call resimulate(simulator), a function of rows of x")
        return resimulate(self.sample(n, random_state), simulator, self._mean[0], self.y_names)

    def __repr__(self) -> str:
        given = ", ".join(f"{n} = {v}" for n, v in zip(self.y_names[:N_SHOWN], self._shown(), strict=False))
        more = f" and {len(self.y_names) - N_SHOWN} more" if len(self.y_names) > N_SHOWN else ""
        many = f" (mean of {self.n_observations} observations)" if self.n_observations > 1 else ""
        return f"Posterior of {', '.join(self.x_names)} given {given}{more}{many}"

    def _repr_html_(self) -> str:
        heading = f"mean of {self.n_observations}" if self.n_observations > 1 else "value"
        return observation_html(self.x_names, self.y_names, self._shown(), self.units, heading)

    def _shown(self) -> list[str]:
        return [f"{value:.4g}" for value in self._mean[0]]

    @property
    def _is_product(self) -> bool:
        return self.n_observations > 1 and self.flow.condition_map is not None

    @cached_property
    def _mean(self) -> np.ndarray:
        return self.y_star.mean(axis=0, keepdims=True)

    @cached_property
    def _single(self) -> Flow:
        # k observations with noise σ tell as much of the observed outputs as their mean with noise σ / √k.
        noise = tuple(float(sd / np.sqrt(self.n_observations)) for sd in self.flow.noise)
        return replace(self.flow, noise=noise)

    @cached_property
    def _product(self) -> Product:
        assert self.prior is not None
        return combine(self.flow, self.y_star, self.prior)

    @cached_property
    def _maximum(self) -> Maximum:
        if not self._is_product and not self._single.n_padding:
            own = Coordinates(self._single, self._mean)
            return find_maximum(self._single, self._mean, own, self.x_names)
        draws = _finite(self._draw(N_SEARCH, 0)[0])
        if self._is_product:
            flow, y, coordinates = self.flow, self.y_star, self._product.coordinates
        else:
            flow, y, coordinates = self._single, self._mean, coordinates_of(self._single, self._mean, draws)
        return find_maximum(flow, y, coordinates, self.x_names, draws, self.log_prob, self.prior)


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


def _names(names: Sequence[str] | None, n: int, letter: str) -> tuple[str, ...]:
    found = check_names(names or [f"{letter}{i + 1}" for i in range(n)], what=letter)
    if len(found) != n:
        raise ValueError(f"{letter} has {n} variables, but {len(found)} names were given: {quoted(found)}")
    return found


def _seed(random_state: RandomState) -> int:
    if isinstance(random_state, int | np.integer):
        return int(random_state)
    return int(np.random.default_rng(random_state).integers(2**31))


def _finite(draws: np.ndarray) -> np.ndarray:
    finite = draws[np.isfinite(draws).all(axis=1)]
    if not len(finite):
        raise ValueError(
            f"none of {len(draws)} draws is finite; check the observation, or fit the model again"
        )
    return finite

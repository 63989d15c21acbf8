"""What every posterior offers, from its draws and their log-density alone.

Rows are draws and columns the variables of x, in the user's units.
"""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from jaxtyping import Float
from numpy.typing import ArrayLike

from isr.bijections.flow import Precision
from isr.posterior.maximum import Coordinates, SpikeWarning, find_maximum, standard_coordinates
from isr.posterior.metrics import resimulation_error
from isr.posterior.outliers import Extent, warn_if_outside
from isr.posterior.priors import Prior, RandomState
from isr.posterior.simulation import Simulator
from isr.tables.bounds import Bounds
from isr.tables.extras import need
from isr.tables.memory import draw_count
from isr.tables.tables import Columns, read_table

if TYPE_CHECKING:
    from arviz import InferenceData
    from matplotlib.figure import Figure

N_SEARCH = 4096
N_SHOWN = 6


class NonFiniteDrawsWarning(UserWarning):
    """Some draws of a posterior are infinite or not a number; the message says how many."""


class EffectiveSizeWarning(UserWarning):
    """Weighted draws of a posterior rest on few of a pool; the message says on how many."""


class AbstractPosterior(ABC):
    """The law of x given what was observed: a kind of posterior gives `_draw` and `_log_prob`, the rest follows.

    Attributes:
        x_names: Names of the variables to infer.
        y_names: Names of the observed variables.
        y_star: The observations as rows.
        units: Unit by name.
        bounds: The box that no draw leaves.
        extent: Range of the training rows of x, or ``None``.

    Example:
        >>> class Normal(AbstractPosterior):
        ...     x_names, y_names, y_star, units = ("depth",), ("time",), np.zeros((1, 1)), {}
        ...     bounds = Bounds.from_pairs([(None, None)])
        ...
        ...     def _draw(self, n, seed, precision="double"):
        ...         return np.random.default_rng(seed).normal(size=(n, 1)), float(n)
        ...
        ...     def _log_prob(self, rows, precision="double"):
        ...         return -0.5 * np.sum(rows**2, axis=1) - 0.5 * np.log(2 * np.pi)
        >>> bool(np.abs(Normal().map()) < 1e-6)
        True
    """

    x_names: tuple[str, ...]
    y_names: tuple[str, ...]
    y_star: Float[np.ndarray, "k d_y"]
    units: Mapping[str, str]
    bounds: Bounds
    extent: Extent | None = None

    @abstractmethod
    def _draw(self, n: int, seed: int, precision: Precision = "double") -> tuple[np.ndarray, float]:
        """``n`` rows of x and how many independent draws they are worth."""

    @abstractmethod
    def _log_prob(self, rows: np.ndarray, precision: Precision = "double") -> np.ndarray:
        """The log-density of each row of x."""

    def _coordinates(self, draws: np.ndarray) -> Coordinates:
        return standard_coordinates(draws, self.bounds)

    def _find_maximum(self) -> tuple[np.ndarray | None, str]:
        """The densest point or why there is none; a kind of posterior with coordinates of its own may seek there."""
        draws = _finite(self._draw(N_SEARCH, 0)[0])
        coordinates = self._coordinates(draws)

        def density(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            x = coordinates.density(points)[0]
            return x, self._log_prob(x)

        return find_maximum(density, coordinates.of(draws)[0], self.bounds, self.x_names)

    @cached_property
    def _maximum(self) -> tuple[np.ndarray | None, str]:
        return self._find_maximum()

    @property
    def n_observations(self) -> int:
        """How many observations of the same x there are."""
        return len(self.y_star)

    @property
    def share_outside(self) -> float | None:
        """Share of 4096 draws outside the range of the training rows; ``None`` where that is not known."""
        return None if self.extent is None else self.extent.share_outside(_finite(self._draw(N_SEARCH, 0)[0]))

    @property
    def map_note(self) -> str:
        """Why `map` gives no point; empty where it gives one."""
        return self._maximum[1]

    def sample(
        self, n: int = 1000, random_state: RandomState = 0, *, precision: Precision = "double"
    ) -> Float[np.ndarray, "n d_x"]:
        """Return ``n`` draws as rows; a `NonFiniteDrawsWarning` counts those that are not finite.

        ``precision="single"`` draws millions in less than half the time, with six digits; weighted draws are always
        made in double.
        """
        n = draw_count(n, len(self.x_names))
        if isinstance(random_state, int | np.integer) and random_state >= 0:
            seed = int(random_state)
        else:
            try:
                seed = int(np.random.default_rng(random_state).integers(2**31))
            except (TypeError, ValueError):
                raise ValueError(
                    f"random_state must be a whole number from 0, a generator of NumPy or None, got {random_state!r}"
                ) from None
        draws, effective_size = self._draw(n, seed, precision)
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

    def frame(self, n: int = 1000, random_state: RandomState = 0) -> pd.DataFrame:
        """Return ``n`` draws as a pandas frame."""
        return pd.DataFrame(self.sample(n, random_state), columns=list(self.x_names))

    def log_prob(self, x: Any, *, precision: Precision = "double") -> Float[np.ndarray, " n"]:
        """Return the log-density (nats) of rows of x, one row, or a frame; ``-inf`` outside the bounds.

        Where draws are weighted its constant is an estimate, good to about ``1 / √effective_size``.
        """
        dim = len(self.x_names)
        if hasattr(x, "iloc"):
            x = read_table(x, like=Columns(self.x_names, (None,) * dim), what="x").values
        try:
            rows = np.asarray(x, dtype=float)
        except (TypeError, ValueError):
            raise TypeError(f"x must be rows of numbers or a frame, got {x!r}") from None
        if rows.ndim == 1:
            rows = rows[:, None] if dim == 1 else rows[None]
        if rows.ndim != 2 or rows.shape[1] != dim:
            raise ValueError(f"x must have {dim} columns, got an array of shape {np.shape(x)}")
        return self._log_prob(rows, precision)

    def map(self) -> Float[np.ndarray, " d_x"] | None:
        """Return the x of highest density among the maxima that carry mass; ``None`` where none does.

        The search starts from draws that are the same in Python, on the command line and in a report. It never leaves
        the bounds, nor the ball of the latent that holds 98 % of all draws, and passes over spikes that almost no draw
        meets. Where it finds nothing else, a `SpikeWarning` says why, and so does `map_note`. Like any mode it depends
        on the scale: log x has its mode elsewhere than x.
        """
        found, note = self._maximum
        if found is None:
            warnings.warn(f"no densest point is given: {note}", SpikeWarning, stacklevel=2)
            return None
        return found.copy()

    def mean(self, n: int = 4000, random_state: RandomState = 0) -> Float[np.ndarray, " d_x"]:
        """Return the mean of ``n`` draws."""
        return _finite(self.sample(n, random_state)).mean(axis=0)

    def summary(
        self, n: int | ArrayLike = 4000, hdi: float = 0.94, random_state: RandomState = 0
    ) -> pd.DataFrame:
        """Return mean, sd, ends of the highest-density interval, named as in ArviZ, and map of each variable.

        The interval holds a share ``hdi`` of ``n`` draws, or of the rows given in their place, a single one even where
        there are several modes. There is no column map where `map` gives no point; see `map_note`.
        """
        draws = np.asarray(n, dtype=float) if np.ndim(n) else self.sample(n, random_state)  # type: ignore[arg-type]
        found = self._maximum[0]
        known = {} if found is None else {"map": found}
        return summary_table(_finite(draws), self.x_names, hdi=hdi).assign(**known)

    def to_arviz(self, n: int = 4000, n_chains: int = 4, random_state: RandomState = 0) -> "InferenceData":
        """Return draws with log-density (``sample_stats.lp``) and observations as ArviZ inference data, with units.

        The ``n`` draws are divided into ``n_chains`` parts. They are no Markov chains; ArviZ only wants several.
        """
        n, n_chains = draw_count(n, len(self.x_names)), draw_count(n_chains, 1, what="n_chains")
        if n % n_chains:
            raise ValueError(f"n must be a multiple of n_chains, got n={n} and n_chains={n_chains}")
        draws = self.sample(n, random_state)
        finite = np.isfinite(draws).all(axis=1)
        log_prob = np.full(n, np.nan)
        log_prob[finite] = self.log_prob(draws[finite])
        parts = (n_chains, n // n_chains)
        data = need("arviz").from_dict(
            posterior={n: c.reshape(parts) for n, c in zip(self.x_names, draws.T, strict=True)},
            sample_stats={"lp": log_prob.reshape(parts)},
            observed_data=dict(zip(self.y_names, self.y_star.T, strict=True)),
            dims={name: ["observation"] for name in self.y_names},
        )
        for group in (data.posterior, data.observed_data):
            for name in self.units.keys() & set(group.data_vars):
                group[name].attrs["units"] = self.units[name]
        return data

    def plot(
        self,
        n: int = 2000,
        *,
        truth: ArrayLike | Mapping[str, float] | None = None,
        prior: Prior | ArrayLike | None = None,
        names: Sequence[str] | None = None,
        random_state: RandomState = 0,
    ) -> "Figure":
        """Return a pair plot: marginals on the diagonal, draws with their 50 % and 94 % regions below.

        Args:
            n: Draws.
            truth: One row, or some of its values by name, drawn as dashed red lines.
            prior: A prior, or rows drawn from one, in grey.
            names: Which variables to show; the first eight where there are more, and the title then says so.
            random_state: Seed of the draws.
        """
        from isr.posterior.plots import pair_plot

        draws = _finite(self.sample(n, random_state))
        rows = prior.sample(n, random_state=0) if isinstance(prior, Prior) else prior
        given = zip(self.y_names[:3], self.y_star[0], strict=False)
        shown = ", ".join(f"{n} = {v:.4g} {self.units.get(n, '')}".strip() for n, v in given)
        shown = f"{shown}, …" if len(self.y_names) > 3 else shown
        title = f"given {shown if len(self.y_star) == 1 else f'{len(self.y_star)} observations'}"
        return pair_plot(
            draws, self.x_names, units=self.units, truth=truth, prior=rows, shown=names, title=title
        )

    def resimulate(self, simulator: Simulator, n: int = 1000, random_state: RandomState = 0) -> float:
        """Return the mean squared distance of ``n`` simulated draws from the observation; see `resimulation_error`."""
        return float(resimulation_error(self.sample(n, random_state), self.y_star.mean(axis=0), simulator))

    def __repr__(self) -> str:
        shown = [f"{n} = {v:.4g}" for n, v in zip(self.y_names, self.y_star.mean(axis=0), strict=True)]
        more = f" and {len(shown) - N_SHOWN} more" if len(shown) > N_SHOWN else ""
        many = f" (mean of {self.n_observations} observations)" if self.n_observations > 1 else ""
        return f"Posterior of {', '.join(self.x_names)} given {', '.join(shown[:N_SHOWN])}{more}{many}"


def summary_table(draws: Float[np.ndarray, "n d"], names: Sequence[str], *, hdi: float) -> pd.DataFrame:
    """Return mean, sd and the ends of the highest-density interval of finite draws, by variable, named as in ArviZ.

    Example:
        >>> summary_table(np.arange(101.0)[:, None], ["depth"], hdi=0.9).round(2)
                   mean    sd  hdi_5%  hdi_95%
        parameter
        depth      50.0  29.3     0.0     90.0
    """
    if not (isinstance(hdi, int | float) and 0 < hdi < 1):
        raise ValueError(f"hdi must lie between 0 and 1, got {hdi!r}")
    # The shortest interval, as ArviZ takes it, which the core does without.
    ordered = np.sort(draws, axis=0)
    reach = int(np.floor(hdi * len(draws)))
    start = np.argmin(ordered[reach:] - ordered[: len(draws) - reach], axis=0)
    column = np.arange(draws.shape[1])
    columns = {
        "mean": draws.mean(axis=0),
        "sd": draws.std(axis=0, ddof=min(1, len(draws) - 1)),
        f"hdi_{50 * (1 - hdi):g}%": ordered[start, column],
        f"hdi_{100 - 50 * (1 - hdi):g}%": ordered[start + reach, column],
    }
    return pd.DataFrame(columns, index=pd.Index(list(names), name="parameter"))


def _finite(draws: np.ndarray) -> np.ndarray:
    finite = draws[np.isfinite(draws).all(axis=1)]
    if not len(finite):
        raise ValueError(
            f"none of {len(draws)} draws is finite; check the observation, or fit the model again"
        )
    return finite

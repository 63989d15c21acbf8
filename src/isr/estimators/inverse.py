"""ISR and ConditionalISR: the posterior of x given y as equations, learned from pairs or from a simulator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import jax
import numpy as np
from sklearn.utils.validation import check_is_fitted

from isr.bijections.coupling import AbstractTransformer
from isr.bijections.flow import Precision
from isr.estimators.flow_fit import N_MEMBERS
from isr.estimators.settings import (
    SIZES,
    Condenser,
    Training,
    explains_wrong_options,
    seed_of,
    training_of,
)
from isr.estimators.status import Status, judged, worse_than_constant
from isr.estimators.symbolic_flow import FlowModel
from isr.posterior.outliers import Extent, TrainingRecord
from isr.posterior.posterior import Posterior, read_observations
from isr.posterior.priors import parse_prior
from isr.posterior.simulation import N_DRAWS, SETTLED, Simulations, box_around, joined, simulate
from isr.tables.arrays import LARGEST_SQUARED, refuse_extremes, warn_if_not_finite
from isr.tables.bounds import Bounds
from isr.tables.memory import draw_count
from isr.tables.tables import Table, check_paired, check_units, read_table

# Share of a column's spread that "auto" takes as its noise.
AUTO_NOISE = 0.01
# Several blocks that read y diverge at the rate that suits a density of one or two blocks.
PEAK = 3e-3


@dataclass(eq=False, repr=False)
class InverseModel(FlowModel):
    """Base of `ISR` and `ConditionalISR`, which differ in how y enters.

    Options and attributes are those of `SymbolicFlow` (``bounds`` are the box of the prior), and these:

    Args:
        goal: ``"short"`` for equations to read; ``"accurate"`` for the closest posterior: larger networks without a
            price on length, and of `ConditionalISR` an ensemble. What is given beside it stays as it is given.
        n_blocks: Coupling blocks; None for what suits the goal, as ``n_layers`` and ``subnet``.
        noise: Standard deviation of the observation noise to add to y: a number, one per column, or a mapping by
            name. 0 where y has its noise already. ``"auto"`` adds 1 % of each column's spread, because without any
            noise a posterior has no density.

    Attributes:
        noise_: Observation noise that was added to y, one per column.
        simulations_: What `fit_simulator` drew, failures included; with several rounds, the rows of the last box.
        n_simulated_: How many rows `fit_simulator` simulated in all rounds.
        rounds_: Box of x that each round of `fit_simulator` drew from; None for a prior without an end.
    """

    n_blocks: int | None = None
    n_layers: int | None = None
    _: KW_ONLY
    goal: str = "short"
    subnet: str | None = None
    noise: Any = "auto"

    mixing: ClassVar[str] = "linear"
    _usual_training: ClassVar[Training] = Training(n_restarts=4, batch_size=100, backward=1.0)
    _peak: ClassVar[float | None] = PEAK

    def _training(self) -> Training:
        training = super()._training()
        if self.goal == "short":
            return training
        usual: dict[str, Any] = {"penalty": None, "selection": "accuracy"}
        if not self._joint:
            usual |= {"ensemble": True, "n_restarts": N_MEMBERS, "backward": 0.0}
        own, plain = training_of(self.training), Training()
        return replace(training, **{k: v for k, v in usual.items() if getattr(own, k) == getattr(plain, k)})

    def _sizes(self) -> dict[str, Any]:
        if self.goal not in SIZES:
            raise ValueError(f"unknown goal {self.goal!r}; known: {', '.join(SIZES)}")
        own = super()._sizes()
        return own | {name: usual for name, usual in SIZES[self.goal].items() if own[name] is None}

    def fit(self, x: Any, y: Any) -> Self:
        """Learn from pairs: rows of x, what is unknown, and of y, what is measured, in the same order."""
        return self._fit_rows(x, y, bounds=self.bounds)

    def _fit_rows(self, x: Any, y: Any, *, bounds: Any) -> Self:
        x_table, y_table = read_pairs(x, y, self.units, bounds=bounds, min_rows=10)
        if self._joint and y_table.n_columns > max(2, x_table.n_columns):
            raise ValueError(
                f"ISR maps x to [y, z], so y may not have more columns ({y_table.n_columns}) than x "
                f"({x_table.n_columns}); use ConditionalISR, which has no such limit"
            )
        self.y_columns_, self.noise_ = y_table.columns, observation_noise(self.noise, y_table)
        measured = np.random.default_rng([seed_of(self.random_state), 2]).normal(y_table.values, self.noise_)
        self.training_, self.extent_ = TrainingRecord.of(measured), Extent.of(x_table.values)
        self._fit(x_table, y_table.values, self.noise_)
        return self

    def _use(self, index: int) -> None:
        super()._use(index)
        if not hasattr(self, "_some_rows"):
            return
        x, y = self._some_rows
        noisy = y + self.noise_ * np.random.default_rng(0).normal(size=y.shape)
        self.training_ = self.training_.with_latents(noisy, judged(self.flow_, x, noisy)[0])

    def fit_simulator(
        self,
        prior: Any,
        simulator: Callable[[np.ndarray], np.ndarray],
        n: int,
        *,
        y_star: Any = None,
        rounds: int = 1,
        n_jobs: int | None = None,
        folder: str | Path | None = None,
    ) -> Self:
        """Draw n rows from the prior, simulate y for each and learn from the pairs.

        One fit covers every y. Where the posterior of one y* is very much narrower than the prior, give ``y_star``
        and several ``rounds``: each fits anew to n rows in the box where the last round's posterior of y* lives, those
        that earlier rounds simulated there and fresh ones. The result is for y* and what is much like it.

        Args:
            prior: Mapping from name to ``(low, high)`` for a uniform variable or to a frozen SciPy distribution; or an
                object with ``sample(n, random_state)``.
            simulator: Takes rows of x and returns rows of y, without observation noise (see ``noise``).
            n: Number of rows, the same in each round.
            y_star: The observation that later rounds are for.
            rounds: At most so many; it ends earlier once the box hardly shrinks.
            n_jobs: Workers that simulate, as joblib counts them; None for what joblib is configured to, else one.
            folder: Where what was simulated is kept, and found again when the fit is repeated.
        """
        if rounds < 1 or (rounds > 1 and y_star is None):
            raise ValueError(
                f"rounds={rounds} with y_star={y_star!r}: rounds must be at least 1, and more than one is for a single "
                "observation, given as y_star"
            )
        whole, seed = parse_prior(prior), seed_of(self.random_state)
        self.prior_, self.rounds_, self.n_simulated_ = whole, [], 0
        parts: list[Simulations] = []
        for number in range(rounds):
            box = None if whole.bounds is None else Bounds.from_pairs(whole.bounds)
            box, bounds, place, round_seed = box if box and box.is_finite else None, self.bounds, folder, seed
            if number:
                box = box_around(self.posterior(y_star).sample(N_DRAWS), self.prior_)
                if self.rounds_[-1] is not None and np.all(box.widths > SETTLED * self.rounds_[-1].widths):
                    break
                self.prior_ = whole.within(box.low, box.high)
                parts = [joined(parts, self.prior_, box)]
                round_seed = int(np.random.SeedSequence([seed, number]).generate_state(1)[0])
                place = folder and Path(folder) / f"round-{number + 1}"
            drawn = simulate(
                self.prior_, simulator, max(n - sum(len(part.x) for part in parts), 1), n_jobs=n_jobs,
                random_state=round_seed, folder=place,
            )  # fmt: skip
            parts.append(drawn)
            self.rounds_.append(box)
            self.n_simulated_ += len(drawn.x) + drawn.n_failed
            self.simulations_ = joined(parts, self.prior_)
            if y_star is not None:  # a wrong observation is told before the first fit, not after it
                read_observations(y_star, read_table(self.simulations_.y, what="y").columns)
            bounds = self.prior_.bounds if number or bounds is None else bounds
            self._fit_rows(self.simulations_.x_frame(), self.simulations_.y, bounds=bounds)
        return self

    def posterior(self, y_star: Any) -> Posterior:
        """Return the posterior given one observation, or several of the same x (rows)."""
        return Posterior(
            self.flow_, y_star, x_names=self.columns_.names, y_names=self.y_columns_.names, units=self._units(),
            training=self.training_, extent=self.extent_,
            prior=getattr(self, "prior_", None),
        )  # fmt: skip

    def sample(
        self, y: Any, n_samples: int = 1, random_state: int | None = 0, *, precision: Precision = "double"
    ) -> np.ndarray:
        """Return ``n_samples`` rows of x for every row of y: an array (rows of y, samples, variables).

        ``precision="single"`` draws millions in less than half the time, with six digits.
        """
        check_is_fitted(self, "flow_")
        rows = read_table(np.atleast_2d(np.asarray(y)), like=self.y_columns_, what="y").values
        n_samples = draw_count(n_samples, len(rows) * self.flow_.dim)
        # One observation need not be repeated: the flow then works out its part once.
        given = rows if len(rows) == 1 else np.repeat(rows, n_samples, axis=0)
        key = jax.random.key(seed_of(random_state))
        drawn = self.flow_.sample(key, len(rows) * n_samples, given, precision=precision)
        return drawn.reshape(len(rows), n_samples, -1)

    def log_prob(self, x: Any, y: Any, *, precision: Precision = "double") -> np.ndarray:
        """Return the log-density (nats) of each row of x given the row of y beside it, or one y for all."""
        check_is_fitted(self, "flow_")
        x_rows = read_table(x, like=replace(self.columns_, bounds=None), what="x").values
        y_rows = read_table(y, like=self.y_columns_, what="y").values
        return self.flow_.log_prob(x_rows, y_rows, precision=precision)

    def score(self, x: Any, y: Any) -> float:
        """Return the mean log-density (nats) of rows of x given the rows of y beside them."""
        return float(np.mean(self.log_prob(x, y)))

    def _y_names(self) -> tuple[str, ...]:
        return self.y_columns_.names

    def _metadata(self, **more: Any) -> dict[str, Any]:
        seen = {"training": self.training_.to_dict(), "extent": self.extent_.to_dict()}
        return super()._metadata(noise=self.noise_, **seen, **more)


@explains_wrong_options
@dataclass(eq=False, repr=False)
class ISR(InverseModel):
    """Learns ``f(x) = [y, z]``: a closed-form surrogate of the simulator that runs backwards.

    y is an output, with normal noise that must be small against its spread (use `ConditionalISR` otherwise); z is
    what y leaves open, standard normal. `predict` is the surrogate, `posterior` its inverse. With ``subnet="mlp"``
    this is the INN. Other parameters and attributes: see `InverseModel`.

    Args:
        transformer: What a coupling does to each variable; affine when None.

    Example:
        >>> import numpy as np
        >>> from isr.estimators.settings import Effort
        >>> training = Training(Effort(40, 0, 0), n_restarts=1, penalty=None)
        >>> x = np.random.default_rng(0).normal(size=(200, 2))
        >>> model = ISR(n_blocks=1, n_layers=1, training=training)
        >>> model.fit(x, x[:, 0] - x[:, 1]).predict(x).shape
        (200, 1)
        >>> model.score(x, x[:, 0] - x[:, 1]) > -10, model.log_prob(x, x[:, 0] - x[:, 1]).shape
        (True, (200,))
        >>> model.round_trip_error_ < 1e-6, model.to_bundle()
        (True, <saved ISR of x1, x2, giving y1>)
    """

    _: KW_ONLY
    transformer: AbstractTransformer | None = None

    _joint: ClassVar[bool] = True

    def _misfit(self) -> Status | None:
        x, y = self._some_rows
        assert y is not None
        predicted = self.flow_.forward(x)[0][:, : self.flow_.n_observed]
        return worse_than_constant(predicted, y, self.y_columns_.names) or super()._misfit()

    def predict(self, x: Any) -> np.ndarray:
        """Return the surrogate's y for rows of x."""
        check_is_fitted(self, "flow_")
        rows = read_table(x, like=replace(self.columns_, bounds=None), what="x").values
        predicted = self.flow_.forward(rows)[0][:, : self.flow_.n_observed]
        warn_if_not_finite(predicted)
        return predicted


@explains_wrong_options
@dataclass(eq=False, repr=False)
class ConditionalISR(InverseModel):
    """Learns ``f(x; y) = z``: the posterior of x given y as equations in x and y.

    y is read by the subnetworks and z is standard normal. With ``subnet="mlp"`` this is the cINN. Other parameters and
    attributes: see `InverseModel`.

    Args:
        condenser: Makes a few features of y before the blocks read it: an `isr.Condenser`, or how many features a
            network makes; None lets the blocks read y itself.

    Example:
        >>> import numpy as np
        >>> from isr.estimators.settings import Effort
        >>> training = Training(Effort(200, 0, 0), n_restarts=1, penalty=None)
        >>> x = np.random.default_rng(0).normal(size=(200, 2))
        >>> model = ConditionalISR(n_blocks=1, n_layers=1, training=training, random_state=0)
        >>> model.fit(x, x[:, 0] ** 2).posterior([0.3]).sample(5).shape
        (5, 2)
        >>> model.sample([[0.3], [0.5]], 4).shape
        (2, 4, 2)
        >>> model.expressions_.y_names, model.front_["complexity"].is_monotonic_increasing
        (('y1',), True)
    """

    _: KW_ONLY
    condenser: Condenser | int | None = None


def read_pairs(x: Any, y: Any, units: Mapping[str, str] | None, **options: Any) -> tuple[Table, Table]:
    """Return tables of x and of y beside it, of numbers that can be worked with; ``options`` are those for x."""
    x_table, y_table = read_table(x, what="x", **options), read_table(y, what="y")
    check_paired(x_table, y_table)
    for table, what in ((x_table, "x"), (y_table, "y")):
        refuse_extremes(table.values, table.names, what=what)
    check_units(units or {}, [*x_table.names, *y_table.names], what="x and y")
    return x_table, y_table


def observation_noise(noise: Any, y: Table) -> np.ndarray:
    """Return the standard deviation of the noise to add to each column of ``y``; see `InverseModel`."""
    if isinstance(noise, str):
        if noise != "auto":
            raise ValueError(f'noise must be "auto", a number, a list or a mapping by name, got {noise!r}')
        return AUTO_NOISE * np.std(y.values, axis=0)
    if isinstance(noise, Mapping):
        unknown = sorted(set(noise) - set(y.names))
        if unknown:
            raise ValueError(
                f"noise names {unknown}, which are no columns of y; its columns are {list(y.names)}"
            )
        noise = [noise.get(name, 0.0) for name in y.names]
    try:
        values = np.asarray(noise, dtype=float)
    except (TypeError, ValueError):
        raise TypeError(f"noise must be a number, or one for each column of y, got {noise!r}") from None
    if values.ndim > 1 or values.size not in (1, y.n_columns):
        raise ValueError(
            f"noise must be one number or one for each of the {y.n_columns} columns of y, got {values.size}"
        )
    if not np.all((values >= 0) & (values < LARGEST_SQUARED)):
        raise ValueError(
            f"noise must be finite and not negative, and below {LARGEST_SQUARED:.0e}, got {noise!r}"
        )
    return np.broadcast_to(values, y.n_columns).copy()

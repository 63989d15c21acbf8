"""SymbolicFlow: a density learned as equations, and its base, which all estimators of flows share."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import Any, ClassVar, Self

import jax
import numpy as np
from sklearn.base import DensityMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from isr.bijections.affine import Bounded, bounded, standardise
from isr.bijections.build import Architecture
from isr.bijections.charts import Polar, Spiral
from isr.bijections.coupling import AbstractTransformer
from isr.bijections.flow import Flow, Precision
from isr.bijections.primitives import PAPER_LIBRARY
from isr.estimators.equation_model import EquationModel
from isr.estimators.flow_fit import fit_ensemble, fit_flow
from isr.estimators.rows import FlowTask, n_held_out
from isr.estimators.settings import Effort, Training, condenser_of, explains_wrong_options, seed_of
from isr.estimators.status import Status, overfitting, told_apart
from isr.tables.arrays import LARGEST, checked_rows, refuse_extremes, warn_if_degenerate
from isr.tables.bounds import sharp_box
from isr.tables.tables import Table, read_table

# Rows that are kept to judge a fitted model, and of them those that tell its round trip.
N_JUDGED, N_ROUND_TRIP = 5000, 500


@dataclass(eq=False, repr=False)
class FlowModel(EquationModel):
    """Base of `SymbolicFlow`, `ISR` and `ConditionalISR`: one flow and its equations."""

    n_blocks: int = 1
    n_layers: int = 2
    _: KW_ONLY
    library: Mapping[str, int] | Sequence[str] | None = None
    subnet: str = "eql"
    mixing: str = "permutation"
    charts: Sequence[str] | str = ()
    bounds: Any = None
    units: Mapping[str, str] | None = None
    training: Training | Effort | str | None = None
    random_state: int | np.random.RandomState | None = None

    # Highest learning rate of a named effort where it is not the usual one.
    _peak: ClassVar[float | None] = None
    _joint: ClassVar[bool] = False
    _closed: ClassVar[bool] = False
    _clamp: ClassVar[float] = 2.0

    def _fit(self, x: Table, y: np.ndarray | None = None, noise: np.ndarray | float = 0.0) -> None:
        """Fit to checked rows."""
        refuse_extremes(x.values, x.names, what="x", largest=LARGEST)
        warn_if_degenerate(x.values, x.names)
        self.columns_ = x.columns
        seeks_edges = self.bounds is None and x.bounds is None
        bounds = sharp_box(x.values) if seeks_edges and not self._closed else x.bounds
        box = None if bounds is None else bounded(bounds.low, bounds.high)
        n_train = x.n_rows - n_held_out(x.n_rows)
        self._some_rows = x.values[:N_JUDGED].copy(), None if y is None else y[:N_JUDGED].copy()
        task = FlowTask(
            x.values, box, y, noise, self._architecture(), joint=self._joint,
            closed=self._closed and self.charts == "auto" and getattr(self, "transformer", None) is None,
            edges=self.bounds is None,
        )  # fmt: skip
        fit = fit_ensemble if self._training().ensemble else fit_flow
        self._run(partial(fit, task), n_train, sparse=task.architecture.subnet == "eql", peak=self._peak)
        found = self._found_bounds() if seeks_edges and (task.closed or not self._closed) else ""
        if found:
            self.status_ = replace(self.status_, reason=f"{self.status_.reason}; {found}")

    def _found_bounds(self) -> str:
        """What sharp ends of rows became bounds of the chosen model, in words."""
        in_x = itertools.takewhile(lambda step: not isinstance(step, Polar | Spiral), self.flow_.steps)
        boxes = [step for step in in_x if isinstance(step, Bounded)]
        ends = [
            f"{name} ends sharply at {' and '.join(f'{end:.6g}' for end in (low, high) if end is not None)}"
            for box in boxes
            for name, low, high in zip(self._x_names(), box.low, box.high, strict=False)
            if high is not None or (low is not None and (low != 0 or not self._closed))
        ]
        return f"{', '.join(ends)}: taken for bounds (bounds={{}} leaves them open)" if ends else ""

    def _misfit(self) -> Status | None:
        assert self.fit_.judged is not None
        names = self._y_names()
        return self.fit_.misfit or overfitting(self._chosen) or told_apart(*self.fit_.judged, names)

    @property
    def flow_(self) -> Flow:
        """The chosen model."""
        return self._chosen.model

    @property
    def round_trip_error_(self) -> float:
        """How far rows come back from where they were, forward and then inverse: the worst, in standard deviations."""
        check_is_fitted(self, "_some_rows")
        x, y = self._some_rows
        x, y = x[:N_ROUND_TRIP], None if y is None or self._joint else y[:N_ROUND_TRIP]
        back = self.flow_.inverse(self.flow_.forward(x, y)[0], y)[0]
        return float(np.max(np.abs(back - x) / np.asarray(standardise(x).scale)))

    def _x_names(self) -> tuple[str, ...]:
        return self.columns_.names

    def _metadata(self, **more: Any) -> dict[str, Any]:
        known = {"round_trip_error": self.round_trip_error_} if hasattr(self, "_some_rows") else {}
        return super()._metadata(charts=self.fit_.charts, **known, **more)

    def _sizes(self) -> dict[str, Any]:
        """Return blocks, hidden layers, subnetwork and mixing."""
        return {name: getattr(self, name) for name in ("n_blocks", "n_layers", "subnet", "mixing")}

    def _architecture(self) -> Architecture:
        charts = () if self.charts == "auto" and self._closed else self.charts
        condenser = condenser_of(getattr(self, "condenser", None))
        return Architecture(
            **self._sizes(), library=dict(PAPER_LIBRARY) if self.library is None else self.library,
            charts=(charts,) if isinstance(charts, str) else tuple(charts), clamp=self._clamp, skip=self._closed,
            transformer=getattr(self, "transformer", None), n_features=condenser.n_features, condenser=condenser.kind,
        )  # fmt: skip


@explains_wrong_options
@dataclass(eq=False, repr=False)
class SymbolicFlow(TransformerMixin, DensityMixin, FlowModel):
    """Learns ``f(x) = z`` with z standard normal: a density whose equations run both ways.

    Args:
        n_blocks: Coupling blocks.
        n_layers: Hidden layers of a subnetwork.
        library: Library of functions with multiplicities; the paper's when None.
        subnet: ``"eql"`` for equations, ``"mlp"`` for the INN baseline.
        transformer: What a coupling does to each variable; affine when None.
        mixing: Between blocks: a fixed ``"permutation"``, a learned ``"linear"`` map, or ``"none"``.
        charts: ``"auto"`` lets forms compete that need no training: marginals, laws of variables given others,
            mixtures, polar coordinates, spirals. Or charts that couplings are trained in, such as ``("polar",)``,
            ``("split",)`` or ``()``, and nothing else; so it is with a transformer.
        bounds: Box that x lies in: mapping or list of ``(low, high)``, None for an open end. Left out, sharp ends of
            the rows may become bounds, which `status_` then tells; ``{}`` leaves every variable open.
        units: Unit of a variable, by name.
        training: How it is trained, an `isr.Training`; its effort alone (``"quick"``) will do.
        random_state: Seed.

    Attributes:
        flow_: The model.
        expressions_: Its equations.
        front_: Accuracy against complexity, a pandas frame.
        errors_: Standard errors of the constants.
        history_: Training curves.
        status_: How the fit ended.
        round_trip_error_: How far rows come back from where they were, forward and then inverse.

    Example:
        >>> import numpy as np
        >>> from isr.estimators.settings import Effort
        >>> training = Training(Effort(40, 0, 0), n_restarts=1, penalty=None)
        >>> x = np.random.default_rng(0).normal([0, 3], 0.3, size=(200, 2))
        >>> flow = SymbolicFlow(n_layers=1, training=training).fit(x)
        >>> flow.sample(5).shape
        (5, 2)
        >>> flow.score_samples(x).shape, flow.score(x) > -3, flow.transform(x).shape
        ((200,), True, (200, 2))
        >>> bool(np.allclose(flow.inverse_transform(flow.transform(x)), x)), flow.round_trip_error_ < 1e-9
        (True, True)
        >>> flow.get_feature_names_out().tolist(), flow.expressions_.x_names
        (['z1', 'z2'], ('x1', 'x2'))
        >>> int(flow.front_["chosen"].sum()), flow.choose(rule="accuracy").chosen_ < len(flow.front_), flow.errors_.ndim
        (1, True, 1)
        >>> flow.to_bundle(), flow.flow_.dim
        (<saved SymbolicFlow of x1, x2>, 2)
    """

    _: KW_ONLY
    charts: Sequence[str] | str = "auto"
    transformer: AbstractTransformer | None = None

    _closed: ClassVar[bool] = True
    _clamp: ClassVar[float] = 5.0
    _usual_training: ClassVar[Training] = Training(n_restarts=8, batch_size=64, backward=0.0)

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn the density of the rows of X; y is ignored."""
        values: Any = validate_data(self, checked_rows(X), dtype=np.float64, ensure_min_samples=4)
        names = getattr(self, "feature_names_in_", None)
        self._fit(read_table(values, names=names, units=self.units, bounds=self.bounds))
        return self

    def score_samples(self, X: Any, *, precision: Precision = "double") -> np.ndarray:
        """Return the log-density (nats) of each row, in ``"double"`` or the faster ``"single"`` precision."""
        return self.flow_.log_prob(self._checked(X), precision=precision)

    def score(self, X: Any, y: Any = None) -> float:
        """Return the mean log-density (nats) of the rows."""
        return float(np.mean(self.score_samples(X)))

    def sample(
        self, n_samples: int = 1, random_state: int | None = 0, *, precision: Precision = "double"
    ) -> np.ndarray:
        """Return rows drawn from the learned density; ``"single"`` precision takes half the time, with six digits."""
        return self.flow_.sample(jax.random.key(seed_of(random_state)), n_samples, precision=precision)

    def transform(self, X: Any) -> np.ndarray:
        """Return the latents z of rows."""
        return self.flow_.forward(self._checked(X))[0]

    def inverse_transform(self, X: Any) -> np.ndarray:
        """Return the rows that latents stand for."""
        return self.flow_.inverse(np.asarray(X, dtype=float))[0]

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Return the latents' names."""
        return np.array([f"z{i + 1}" for i in range(self.flow_.bijection.dim)], dtype=object)

    def _checked(self, X: Any) -> np.ndarray:
        values: Any = validate_data(self, checked_rows(X), dtype=np.float64, reset=False)
        return values

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.non_deterministic = False
        tags.transformer_tags.preserves_dtype = []
        return tags

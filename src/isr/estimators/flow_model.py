"""What the estimators made of one flow share: from options to a fit, and from a fit to equations and a file."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from isr.bijections.affine import bounded, standardise
from isr.bijections.build import Architecture
from isr.bijections.flow import Flow
from isr.bijections.primitives import PAPER_LIBRARY
from isr.estimators.equation_model import EquationModel
from isr.estimators.flow_fit import FlowTask, fit_flow
from isr.estimators.rows import Pairs, n_held_out
from isr.estimators.settings import Effort, Training
from isr.estimators.status import Status, overfitting
from isr.estimators.streams import Stream
from isr.tables.degenerate import warn_if_degenerate
from isr.tables.tables import Table

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

    def _fit(
        self, x: Table, stream: Stream | None, y: np.ndarray | None = None, noise: np.ndarray | float = 0.0
    ) -> None:
        """Fit to checked rows; with a stream they are its sample, and training reads the others from it."""
        warn_if_degenerate(x.values, x.names)
        self.columns_ = x.columns
        box = None if x.bounds is None else bounded(x.bounds.low, x.bounds.high)
        pairs = Pairs(x.values, box, y, noise, n_held_out=stream and stream.n_held_out)
        n_train = stream.n_trained if stream else x.n_rows - n_held_out(x.n_rows)
        self._some_rows = x.values[:N_JUDGED].copy(), None if y is None else y[:N_JUDGED].copy()
        task = FlowTask(pairs, self._architectures(x.n_columns), joint=self._joint, stream=stream)
        self._run(partial(fit_flow, task), n_train, sparse=self.subnet == "eql", peak=self._peak)

    def _misfit(self) -> Status | None:
        return self.fit_.misfit or overfitting(self._chosen)

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

    @abstractmethod
    def _shape(self) -> dict[str, Any]:
        """Return what this kind of estimator adds to the architecture."""

    def _architectures(self, dim: int) -> tuple[Architecture, ...]:
        shape = Architecture(
            n_blocks=self.n_blocks, n_layers=self.n_layers, subnet=self.subnet, mixing=self.mixing,
            library=dict(PAPER_LIBRARY) if self.library is None else self.library, **self._shape(),
        )  # fmt: skip
        if self.charts == "auto":
            offered = {1: [()], 2: [(), ("polar",), ("split",)]}.get(dim, [(), ("split",)])
            return tuple(replace(shape, charts=charts) for charts in offered)
        is_sparse = self.mixing == "permutation" and self._training().penalty is not None
        # With few blocks a law may fit one way of splitting the variables and not another.
        orders = 3 if is_sparse and 2 <= self.n_blocks <= 3 and dim > 2 else 1
        return tuple(replace(shape, charts=tuple(self.charts), order=order) for order in range(orders))

"""What the estimators made of one flow share: from parameters to a fit, and from a fit to equations and a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from isr.bijections.affine import standardise
from isr.bijections.build import Architecture
from isr.bijections.flow import Flow
from isr.bijections.primitives import PAPER_LIBRARY
from isr.estimators.equation_model import EquationModel
from isr.estimators.flow_fit import Settings, fit_flow
from isr.estimators.pipeline import Fitted
from isr.estimators.rows import Pairs
from isr.estimators.settings import make_schedule, seed_of
from isr.estimators.status import Status, beaten_by_normal, overfitting, status_of, warn_unless_ok
from isr.estimators.streams import Stream
from isr.storage import Bundle
from isr.tables.degenerate import warn_if_degenerate
from isr.tables.tables import Columns
from isr.training.monitor import Monitor

if TYPE_CHECKING:
    from isr.equations import Expressions

# Rows that the round trip of a fitted model is told of.
N_ROUND_TRIP = 500


class FlowModel(EquationModel):
    """Base of `SymbolicFlow`, `ISR` and `ConditionalISR`: one flow and its equations."""

    n_blocks: int
    n_layers: int
    library: Mapping[str, int] | Sequence[str] | None
    subnet: str
    mixing: str
    charts: Sequence[str] | str
    random_state: Any
    columns_: Columns

    fit_: Fitted
    flow_: Flow
    _expressions: Expressions | None
    _round_trip: float | None
    _some_rows: tuple[Any, Any]

    def _fit(
        self,
        pairs: Pairs,
        *,
        clamp: float,
        peak: float | None = None,
        shape: Mapping[str, Any] | None = None,
        stream: Stream | None = None,
        **more: Any,
    ) -> None:
        """Fit to checked rows; ``shape`` adds to the architecture and ``more`` to the settings of the fit.

        With a ``stream``, the rows are its sample and training reads the others from it.
        """
        warn_if_degenerate(pairs.x, self.columns_.names)
        n_train = max(1, round(0.8 * len(pairs.x)))
        if stream is not None:
            n_train, pairs = stream.n_trained, replace(pairs, n_held_out=stream.n_held_out)
        training = self._training()
        schedule = make_schedule(training, n_train, sparse=self.subnet == "eql", peak=peak)
        self.seed_ = seed_of(self.random_state) if stream is None else stream.seed
        settings = Settings(
            architectures=self._architectures(
                pairs.x.shape[1], clamp, shape or {}, sparse=training.penalty is not None
            ),
            training=training,
            schedule=schedule,
            seed=self.seed_,
            stream=stream,
            **more,
        )
        monitor = Monitor(verbose=training.verbose, max_time=training.max_time)
        with monitor.watching():
            self.fit_ = fit_flow(pairs, settings, monitor)
        some = [None if rows is None else rows[:N_ROUND_TRIP].copy() for rows in (pairs.x, pairs.y)]
        self._some_rows = (some[0], some[1])
        self.history_ = self.fit_.population.history
        self.status_ = status_of(self.fit_.population, schedule.n_steps(n_train), monitor.stopped)
        self._use(self.fit_.chosen)
        if self.status_.ok:
            self.status_ = self._misfit(pairs) or self.status_
        warn_unless_ok(self.status_)

    def _misfit(self, pairs: Pairs) -> Status | None:
        """Return what is wrong with a fit that ended as it should, or None."""
        if self.fit_.is_wild:
            return Status(
                False,
                "every model found throws some draws far from the data, or gives rows near them next to no density",
                "give bounds, more rows, fewer blocks or layers, or another random_state",
            )
        return beaten_by_normal(self.fit_.beaten) or overfitting(self.fit_.front[self.fit_.chosen])

    @property
    def round_trip_error_(self) -> float:
        """How far rows come back from where they were, forward and then inverse: the worst, in standard deviations."""
        check_is_fitted(self, "_some_rows")
        if self._round_trip is None:
            x, y = self._some_rows
            y = None if self.flow_.condition_map is None else y
            back = self.flow_.inverse(self.flow_.forward(x, y)[0], y)[0]
            self._round_trip = float(np.max(np.abs(back - x) / np.asarray(standardise(x).scale)))
        return self._round_trip

    def _metadata(self, **more: Any) -> dict[str, Any]:
        known = {"round_trip_error": self.round_trip_error_} if hasattr(self, "_some_rows") else {}
        return super()._metadata(**known, **more)

    def _architectures(
        self, dim: int, clamp: float, more: Mapping[str, Any], *, sparse: bool
    ) -> tuple[Architecture, ...]:
        shape = Architecture(
            n_blocks=self.n_blocks, n_layers=self.n_layers, subnet=self.subnet, mixing=self.mixing,
            library=dict(PAPER_LIBRARY) if self.library is None else self.library, clamp=clamp,
            transformer=getattr(self, "transformer", None), **more,
        )  # fmt: skip
        if self.charts == "auto":
            offered = [(), ("polar",), ("split",)] if dim == 2 else [(), ("split",)] if dim > 1 else [()]
            return tuple(replace(shape, charts=charts) for charts in offered)
        shape = replace(shape, charts=tuple(self.charts))
        if self.mixing == "permutation" and 2 <= self.n_blocks <= 3 and dim > 2 and sparse:
            # With few blocks a law may fit one way of splitting the variables and not another.
            return tuple(replace(shape, order=order) for order in range(3))
        return (shape,)

    def _use(self, index: int) -> None:
        self.chosen_ = index
        self.flow_ = self.fit_.front[index].model
        self._expressions = self._round_trip = None

    @property
    def expressions_(self) -> Expressions:
        """The equations of the chosen model, written when they are first asked for: long ones take seconds."""
        check_is_fitted(self, "flow_")
        if self._expressions is None:
            self._expressions = self._written(self.flow_)
        return self._expressions

    def _written(self, model: Flow | None = None) -> Expressions:
        if model is None:
            return self.expressions_
        from isr.equations import extract

        return extract(model, x_names=self.columns_.names, y_names=self._y_names(), units=self._units())

    def _y_names(self) -> tuple[str, ...] | None:
        return None

    def _units(self) -> dict[str, str]:
        return {n: u for n, u in zip(self.columns_.names, self.columns_.units, strict=True) if u}

    def to_bundle(self) -> Bundle:
        """Return what a file of this model holds: the flow, names, units and where it comes from."""
        check_is_fitted(self, "flow_")
        return Bundle(
            model=self.flow_,
            x_names=self.columns_.names,
            y_names=self._y_names() or (),
            units=self._units(),
            kind=type(self).__name__,
            metadata=self._metadata(charts=self.fit_.charts),
            others=self._others(),
        )

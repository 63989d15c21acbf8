"""SymbolicFlow: a density learned as equations, with the interface of scikit-learn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from sklearn.base import BaseEstimator, DensityMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from isr.data.tables import Columns, read_table
from isr.estimators.flow_fit import FlowFit, fit_flow
from isr.estimators.fronts import front_frame
from isr.estimators.settings import make_schedule
from isr.estimators.status import status_of, warn_unless_ok
from isr.expressions import Expressions, extract
from isr.model.affine import bounded
from isr.model.build import Architecture
from isr.model.primitives import PAPER_LIBRARY
from isr.pruning.front import choose
from isr.storage import Bundle, save
from isr.training.monitor import Monitor
from isr.training.penalties import AbstractPenalty

if TYPE_CHECKING:
    import pandas as pd

CLAMP = 5.0
STRENGTHS = (1e-3, 3e-3, 1e-2, 3e-2)


class SymbolicFlow(TransformerMixin, DensityMixin, BaseEstimator):
    """Learns ``f(x) = z`` with z standard normal: a density whose equations run both ways.

    Args:
        n_blocks: Coupling blocks.
        n_layers: Hidden layers of a subnetwork.
        primitives: Library of functions with multiplicities; the paper's when None.
        subnet: ``"eql"`` for equations, ``"mlp"`` for the INN baseline.
        mixing: Between blocks: a fixed ``"permutation"``, a learned ``"linear"`` map, or ``"none"``.
        charts: Closed-form charts to apply first, such as ``("polar",)``; ``"auto"`` lets the fit choose among none,
            polar coordinates and a split of two modes.
        n_restarts: Random starts trained side by side.
        penalty: ``"l0.5"``, ``"l1"``, ``"l0"`` or a penalty object.
        effort: ``"quick"``, ``"normal"`` or ``"thorough"``.
        batch_size: Rows a step.
        bounds: Box that x lies in: mapping or list of ``(low, high)``, None for an open end.
        selection: Rule that picks from the front: ``"bic"``, ``"accuracy"`` or ``"simple"``.
        snap: Whether constants are set to simple values where the data cannot tell the difference.
        max_time: Seconds after which the best so far is kept.
        checkpoint: File to write progress to and to resume from.
        random_state: Seed.
        verbose: Progress on (True), off (False) or on a terminal only (None).

    Attributes:
        flow_: The model.
        expressions_: Its equations.
        front_: Accuracy against complexity, a pandas frame.
        errors_: Standard errors of the constants.
        history_: Training curves.
        status_: How the fit ended.

    Example:
        >>> import numpy as np
        >>> from isr.estimators.settings import Effort
        >>> x = np.random.default_rng(0).normal([0, 3], 0.3, size=(200, 2))
        >>> flow = SymbolicFlow(n_layers=1, n_restarts=1, effort=Effort(20, 20, 5), random_state=0).fit(x)
        >>> flow.sample(5).shape
        (5, 2)
    """

    def __init__(
        self,
        n_blocks: int = 1,
        n_layers: int = 2,
        *,
        primitives: Mapping[str, int] | Sequence[str] | None = None,
        subnet: str = "eql",
        mixing: str = "permutation",
        charts: Sequence[str] | str = (),
        n_restarts: int = 8,
        penalty: str | AbstractPenalty = "l0.5",
        effort: Any = "normal",
        batch_size: int = 64,
        bounds: Any = None,
        selection: str = "bic",
        snap: bool = True,
        max_time: float | None = None,
        checkpoint: str | Path | None = None,
        random_state: int | np.random.RandomState | None = None,
        verbose: bool | None = None,
    ) -> None:
        self.n_blocks = n_blocks
        self.n_layers = n_layers
        self.primitives = primitives
        self.subnet = subnet
        self.mixing = mixing
        self.charts = charts
        self.n_restarts = n_restarts
        self.penalty = penalty
        self.effort = effort
        self.batch_size = batch_size
        self.bounds = bounds
        self.selection = selection
        self.snap = snap
        self.max_time = max_time
        self.checkpoint = checkpoint
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None) -> SymbolicFlow:
        """Learn the density of the rows of X; y is ignored."""
        values = validate_data(self, X, dtype=np.float64, ensure_min_samples=4)
        names = getattr(self, "feature_names_in_", None)
        table = read_table(values, names=None if names is None else list(names), bounds=self.bounds, what="x")
        self.columns_: Columns = table.columns
        box = None if table.bounds is None else bounded(table.bounds.low, table.bounds.high)
        n_train = max(1, round(0.8 * len(values)))
        schedule = make_schedule(
            self.effort, n_train, batch_size=self.batch_size, strengths=STRENGTHS, penalty=self.penalty,
            sparse=self.subnet == "eql",
        )  # fmt: skip
        self.seed_ = _seed(self.random_state)
        monitor = Monitor(verbose=self.verbose, max_time=self.max_time)
        with monitor.watching():
            self.fit_: FlowFit = fit_flow(
                table.values,
                bounds=box,
                architectures=self._architectures(table.n_columns),
                schedule=schedule,
                n_restarts=self.n_restarts,
                rule=self.selection,
                snapping=self.snap,
                seed=self.seed_,
                monitor=monitor,
                path=None if self.checkpoint is None else Path(self.checkpoint),
            )
        self.history_ = self.fit_.population.history
        self.status_ = status_of(self.fit_.population, schedule.n_steps(n_train))
        self._use(self.fit_.chosen)
        warn_unless_ok(self.status_)
        return self

    def _architectures(self, dim: int) -> list[Architecture]:
        shape = Architecture(
            n_blocks=self.n_blocks, n_layers=self.n_layers, subnet=self.subnet, skip=True, mixing=self.mixing,
            library=dict(PAPER_LIBRARY) if self.primitives is None else self.primitives, clamp=CLAMP,
        )  # fmt: skip
        if self.charts == "auto":
            offered = [(), ("polar",), ("split",)] if dim == 2 else [(), ("split",)] if dim > 1 else [()]
            return [replace(shape, charts=charts) for charts in offered]
        return [replace(shape, charts=tuple(self.charts))]

    def _use(self, index: int) -> None:
        self.chosen_ = index
        self.flow_ = self.fit_.front[index].model
        self.expressions_: Expressions = self._expressions(self.flow_)

    def _expressions(self, flow: Any) -> Expressions:
        return extract(flow, x_names=self.columns_.names, units=self._units())

    def _units(self) -> dict[str, str]:
        return {n: u for n, u in zip(self.columns_.names, self.columns_.units, strict=True) if u}

    def choose(self, *, complexity: int | None = None, rule: str | None = None) -> SymbolicFlow:
        """Use another model of the front: the best no more complex than ``complexity``, or by another rule."""
        check_is_fitted(self, "fit_")
        index = choose(
            self.fit_.front, rule or self.selection, n_rows=self.fit_.n_train, complexity=complexity
        )  # fmt: skip
        self._use(index)
        return self

    @property
    def front_(self) -> pd.DataFrame:
        """Accuracy against complexity: one row a model, the chosen one marked."""
        check_is_fitted(self, "fit_")
        return front_frame(self.fit_.front, self.chosen_, lambda flow: self._expressions(flow).text())

    @property
    def errors_(self) -> np.ndarray:
        """Standard errors of the constants of the model that the rule chose, NaN where snapped or not fitted."""
        check_is_fitted(self, "fit_")
        return self.fit_.errors

    def to_bundle(self) -> Bundle:
        """Return what a file of this model holds: the flow, names, units and where it comes from."""
        check_is_fitted(self, "flow_")
        front = self.front_.drop(columns="equations").to_dict("list")
        return Bundle(
            model=self.flow_,
            x_names=self.columns_.names,
            units=self._units(),
            kind=type(self).__name__,
            metadata={
                "front": front,
                "status": str(self.status_),
                "seed": self.seed_,
                "charts": self.fit_.charts,
            },
        )

    def save(self, path: str | Path) -> None:
        """Write the model to a file; `isr.load` reads it without any training code."""
        save(self, path)

    def score_samples(self, X: Any) -> np.ndarray:
        """Return the log-density (nats) of each row."""
        return self.flow_.log_prob(self._checked(X))

    def score(self, X: Any, y: Any = None) -> float:
        """Return the mean log-density (nats) of the rows."""
        return float(np.mean(self.score_samples(X)))

    def sample(self, n_samples: int = 1, random_state: int | None = 0) -> np.ndarray:
        """Return rows drawn from the learned density."""
        check_is_fitted(self, "flow_")
        return self.flow_.sample(jax.random.key(_seed(random_state)), int(n_samples))

    def transform(self, X: Any) -> np.ndarray:
        """Return the latents z of rows."""
        return self.flow_.forward(self._checked(X))[0]

    def inverse_transform(self, X: Any) -> np.ndarray:
        """Return the rows that latents stand for."""
        check_is_fitted(self, "flow_")
        return self.flow_.inverse(np.asarray(X, dtype=float))[0]

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Return the latents' names."""
        check_is_fitted(self, "flow_")
        return np.array([f"z{i + 1}" for i in range(self.flow_.bijection.dim)], dtype=object)

    def _checked(self, X: Any) -> np.ndarray:
        check_is_fitted(self, "flow_")
        values: Any = validate_data(self, X, dtype=np.float64, reset=False)
        return values

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.non_deterministic = False
        tags.transformer_tags.preserves_dtype = []
        return tags


def _seed(random_state: Any) -> int:
    if isinstance(random_state, int | np.integer):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))

"""EQLRegressor: plain symbolic regression by an equation-learner network, with the interface of scikit-learn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import sympy
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from isr.bijections.formula import Formulas
from isr.bijections.sigmoid import written_out
from isr.equations.formulas import FormulaExpressions, formula_expressions, output_names
from isr.estimators.equation_model import EquationModel
from isr.estimators.regression_fit import RegressionFit, fit_regression
from isr.estimators.settings import make_schedule, seed_of
from isr.estimators.status import status_of, warn_unless_ok
from isr.storage import Bundle
from isr.tables.arrays import without_times
from isr.tables.tables import check_units
from isr.training.monitor import Monitor
from isr.training.penalties import AbstractPenalty

LIBRARY = {"constant": 1, "id": 2, "square": 2, "sin2pi": 2, "exp": 1, "sigmoid": 1, "product": 2}
STRENGTHS = (1e-3, 3e-3, 1e-2, 3e-2)


class EQLRegressor(MultiOutputMixin, RegressorMixin, EquationModel):
    """Learns ``y = f(x)`` as short formulas, one for each output.

    Args:
        n_layers: Hidden layers of the network that is pruned into formulas.
        primitives: Library of functions with multiplicities; constant, identity, square, sine, exponential, sigmoid
            and product when None.
        n_restarts: Random starts trained side by side.
        n_jobs: Workers of joblib among which the starts are shared out; one program for all when None.
        n_devices: Devices of JAX among which the rows of a batch are divided; one when None.
        penalty: ``"l0.5"``, ``"l1"``, ``"l0"`` or a penalty object.
        effort: ``"quick"``, ``"normal"`` or ``"thorough"``.
        batch_size: Rows a step.
        units: Unit of a variable of x or y, by name.
        selection: Rule that picks from the front: ``"bic"``, ``"accuracy"`` or ``"simple"``.
        snap: Whether constants are set to simple values where the data cannot tell the difference.
        max_time: Seconds after which the best so far is kept.
        checkpoint: File to write progress to and to resume from.
        random_state: Seed.
        verbose: Progress on (True), off (False) or on a terminal only (None).

    Attributes:
        formulas_: The model.
        expressions_: A SymPy expression for each output.
        y_names_: What the outputs are called: the columns of y, or y, y1, y2, ...
        front_: Accuracy against complexity, a pandas frame.
        errors_: Standard errors of the constants.
        history_: Training curves.
        status_: How the fit ended.

    Example:
        >>> import numpy as np
        >>> x = np.linspace(-1, 1, 64)[:, None]
        >>> model = EQLRegressor(n_layers=1, n_restarts=2, effort="quick", random_state=0).fit(x, 2 * x[:, 0] ** 2)
        >>> model.expressions_
        [2*x1**2]
        >>> model.predict([[0.5]]), model.score(x, 2 * x[:, 0] ** 2)
        (array([0.5]), 1.0)
        >>> model.front_["n_parameters"].tolist(), model.errors_.shape
        ([1], (1,))
        >>> model.choose(complexity=100).to_bundle()
        <saved EQLRegressor of x1, giving y>
        >>> import isr, pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "law.isr"
        >>> model.save(path)
        >>> isr.load(path).expressions
        y = 2*x1**2
    """

    n_features_in_: int

    def __init__(
        self,
        n_layers: int = 2,
        *,
        primitives: Mapping[str, int] | Sequence[str] | None = None,
        n_restarts: int = 9,
        n_jobs: int | None = None,
        n_devices: int | None = None,
        penalty: str | AbstractPenalty = "l0.5",
        effort: Any = "normal",
        batch_size: int = 64,
        units: Mapping[str, str] | None = None,
        selection: str = "bic",
        snap: bool = True,
        max_time: float | None = None,
        checkpoint: str | Path | None = None,
        random_state: int | np.random.RandomState | None = None,
        verbose: bool | None = None,
    ) -> None:
        self.n_layers = n_layers
        self.primitives = primitives
        self.n_restarts = n_restarts
        self.n_jobs = n_jobs
        self.n_devices = n_devices
        self.penalty = penalty
        self.effort = effort
        self.batch_size = batch_size
        self.units = units
        self.selection = selection
        self.snap = snap
        self.max_time = max_time
        self.checkpoint = checkpoint
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> EQLRegressor:
        """Learn formulas for y, one column or several, from the rows of X."""
        checked: Any = validate_data(
            self,
            without_times(X),
            without_times(y, what="y"),
            dtype=np.float64,
            multi_output=True,
            y_numeric=True,
            ensure_min_samples=4,
        )
        values, targets = checked
        weight = (
            None if sample_weight is None else _check_sample_weight(sample_weight, values, dtype=np.float64)
        )
        if weight is not None:
            used = weight > 0
            values, targets, weight = values[used], targets[used], weight[used]
        self.single_output_ = targets.ndim == 1
        targets = np.asarray(targets, dtype=float).reshape(len(values), -1)
        self.y_names_ = _names_of(y, targets.shape[1], self._names())
        check_units(self.units or {}, [*self._names(), *self.y_names_], what="x and y")
        n_train = max(1, round(0.8 * len(values)))
        schedule = make_schedule(
            self.effort, n_train, batch_size=self.batch_size, strengths=STRENGTHS,
            penalty=self.penalty,
        )  # fmt: skip
        self.seed_ = seed_of(self.random_state)
        monitor = Monitor(verbose=self.verbose, max_time=self.max_time)
        with monitor.watching():
            self.fit_: RegressionFit = fit_regression(
                values, targets, weight,
                library=LIBRARY if self.primitives is None else self.primitives,
                n_layers=self.n_layers, schedule=schedule, n_restarts=self.n_restarts, rule=self.selection,
                snapping=self.snap, seed=self.seed_, monitor=monitor,
                path=None if self.checkpoint is None else Path(self.checkpoint), n_jobs=self.n_jobs,
                n_devices=self.n_devices,
            )  # fmt: skip
        self.history_ = self.fit_.population.history
        self.status_ = status_of(self.fit_.population, schedule.n_steps(n_train), monitor.stopped)
        self._use(self.fit_.chosen)
        warn_unless_ok(self.status_)
        return self

    def _use(self, index: int) -> None:
        self.chosen_ = index
        self.formulas_: Formulas = self.fit_.front[index].model
        self.expressions_: list[sympy.Expr] = [written_out(e) for e in self._written().program.outputs]

    def _written(self, model: Formulas | None = None) -> FormulaExpressions:
        formulas = self.formulas_ if model is None else model
        return formula_expressions(formulas, self._names(), self.y_names_, self.units)

    def _names(self) -> list[str]:
        given = getattr(self, "feature_names_in_", None)
        return [f"x{i + 1}" for i in range(self.n_features_in_)] if given is None else list(given)

    def to_bundle(self) -> Bundle:
        """Return what a file of this model holds: the formulas, names and where they come from."""
        check_is_fitted(self, "formulas_")
        return Bundle(
            model=self.formulas_,
            x_names=tuple(self._names()),
            y_names=self.y_names_,
            units=dict(self.units or {}),
            kind=type(self).__name__,
            metadata=self._metadata(equations=[str(e) for e in self.expressions_]),
            others=self._others(),
        )

    def predict(self, X: Any) -> np.ndarray:
        """Return the formulas' values for rows."""
        check_is_fitted(self, "formulas_")
        values: Any = validate_data(self, without_times(X), dtype=np.float64, reset=False)
        with jax.enable_x64(True):
            predicted = np.asarray(self.formulas_.columns(jnp.asarray(values.T))[0]).T
        return predicted[:, 0] if self.single_output_ else predicted


def _names_of(y: Any, n: int, taken: list[str]) -> tuple[str, ...]:
    """The names a frame or series gives its columns, unless they are no text or stand in x too."""
    columns = [getattr(y, "name", None)] if getattr(y, "ndim", 2) == 1 else getattr(y, "columns", ())
    given = tuple(name for name in columns if isinstance(name, str) and name.strip())
    return given if len(given) == n and not set(given) & set(taken) else output_names(n, taken)

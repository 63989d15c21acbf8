"""EQLRegressor: plain symbolic regression by an equation-learner network, with the interface of scikit-learn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from isr.bijections.formula import Formulas
from isr.equations import Expressions, extract
from isr.equations.naming import output_names
from isr.estimators.equation_model import EquationModel
from isr.estimators.pipeline import Fitted
from isr.estimators.regression_fit import Samples, fit_regression
from isr.estimators.settings import Effort, Training, make_schedule, seed_of
from isr.estimators.status import status_of, warn_unless_ok
from isr.estimators.wrong_options import explains_wrong_options
from isr.storage import Bundle
from isr.tables.arrays import without_times
from isr.tables.tables import check_units
from isr.training.monitor import Monitor

LIBRARY = {"constant": 1, "id": 2, "square": 2, "sin2pi": 2, "exp": 1, "sigmoid": 1, "product": 2}


@explains_wrong_options
class EQLRegressor(MultiOutputMixin, RegressorMixin, EquationModel):
    """Learns ``y = f(x)`` as short formulas, one for each output.

    Args:
        n_layers: Hidden layers of the network that is pruned into formulas.
        library: Library of functions with multiplicities; constant, identity, square, sine, exponential, sigmoid
            and product when None.
        units: Unit of a variable of x or y, by name.
        training: How it is trained, an `isr.Training`; its effort alone (``"quick"``) will do.
        random_state: Seed.

    Attributes:
        formulas_: The model.
        expressions_: Its equations; as a sequence, a SymPy expression for each output.
        y_names_: What the outputs are called: the columns of y, or y, y1, y2, ...
        front_: Accuracy against complexity, a pandas frame.
        errors_: Standard errors of the constants.
        history_: Training curves.
        status_: How the fit ended.

    Example:
        >>> import numpy as np
        >>> x = np.linspace(-1, 1, 64)[:, None]
        >>> model = EQLRegressor(n_layers=1, training="quick", random_state=0).set_params(training__n_restarts=2)
        >>> model = model.fit(x, 2 * x[:, 0] ** 2)
        >>> model.expressions_, model.expressions_[0]
        (y = 2*x1**2, 2*x1**2)
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
    _usual_training = Training(n_restarts=9, batch_size=64)
    _no_training = ("loss", "backward")

    def __init__(
        self,
        n_layers: int = 2,
        *,
        library: Mapping[str, int] | Sequence[str] | None = None,
        units: Mapping[str, str] | None = None,
        training: Training | Effort | str | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_layers = n_layers
        self.library = library
        self.units = units
        self.training = training
        self.random_state = random_state

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
        training = self._training()
        schedule = make_schedule(training, n_train)
        self.seed_ = seed_of(self.random_state)
        monitor = Monitor(verbose=training.verbose, max_time=training.max_time)
        with monitor.watching():
            self.fit_: Fitted = fit_regression(
                Samples(values, targets, weight),
                library=LIBRARY if self.library is None else self.library,
                n_layers=self.n_layers, training=training, schedule=schedule, seed=self.seed_, monitor=monitor,
            )  # fmt: skip
        self.history_ = self.fit_.population.history
        self.status_ = status_of(self.fit_.population, schedule.n_steps(n_train), monitor.stopped)
        self._use(self.fit_.chosen)
        warn_unless_ok(self.status_)
        return self

    def _use(self, index: int) -> None:
        self.chosen_ = index
        self.formulas_: Formulas = self.fit_.front[index].model
        self.expressions_ = self._written()

    def _written(self, model: Formulas | None = None) -> Expressions:
        formulas = self.formulas_ if model is None else model
        return extract(formulas, self._names(), self.y_names_, self.units)

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

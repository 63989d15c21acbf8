"""EQLRegressor: plain symbolic regression by an equation-learner network, with the interface of scikit-learn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from isr.bijections.formula import Formulas
from isr.equations.extract import output_names
from isr.estimators.equation_model import EquationModel
from isr.estimators.regression_fit import Samples, fit_regression
from isr.estimators.rows import n_held_out
from isr.estimators.settings import Effort, Training, explains_wrong_options
from isr.tables.arrays import LARGEST, refuse_extremes, without_times
from isr.tables.tables import check_units

LIBRARY = {"constant": 1, "id": 2, "square": 2, "sin2pi": 2, "exp": 1, "sigmoid": 1, "product": 2}


@explains_wrong_options
@dataclass(eq=False, repr=False)
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
        >>> model.front_["n_parameters"].tolist(), model.errors_.shape, len(model.formulas_.trees)
        ([1], (1,), 1)
        >>> model.choose(complexity=100).to_bundle()
        <saved EQLRegressor of x1, giving y>
        >>> import isr, pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "law.isr"
        >>> model.save(path)
        >>> isr.load(path).expressions
        y = 2*x1**2
    """

    n_layers: int = 2
    _: KW_ONLY
    library: Mapping[str, int] | Sequence[str] | None = None
    units: Mapping[str, str] | None = None
    training: Training | Effort | str | None = None
    random_state: int | np.random.RandomState | None = None

    _usual_training: ClassVar[Training] = Training(n_restarts=9, batch_size=64)
    _no_training: ClassVar[tuple[str, ...]] = ("loss", "backward")

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> EQLRegressor:
        """Learn formulas for y, one column or several, from the rows of X."""
        X, y_checked = without_times(X), without_times(y, what="y")
        options: Any = {"multi_output": True, "y_numeric": True, "ensure_min_samples": 4}
        values, targets = validate_data(self, X, y_checked, dtype=np.float64, **options)
        for rows, what in ((values, "X"), (targets.reshape(len(targets), -1), "y")):
            refuse_extremes(
                rows, [f"{what}{i + 1}" for i in range(rows.shape[1])], what=what, largest=LARGEST
            )
        weight = None
        if sample_weight is not None:
            weight = _check_sample_weight(sample_weight, values, dtype=np.float64)
            used = weight > 0
            values, targets, weight = values[used], targets[used], weight[used]
        self.single_output_ = targets.ndim == 1
        targets = np.asarray(targets, dtype=float).reshape(len(values), -1)
        self.y_names_ = _names_of(y, targets.shape[1], self._x_names())
        check_units(self.units or {}, [*self._x_names(), *self.y_names_], what="x and y")
        library = LIBRARY if self.library is None else self.library
        fit = partial(fit_regression, Samples(values, targets, weight), library, self.n_layers)
        self._run(fit, len(values) - n_held_out(len(values)))
        return self

    @property
    def formulas_(self) -> Formulas:
        """The chosen model."""
        return self._chosen.model

    def _x_names(self) -> list[str]:
        given = getattr(self, "feature_names_in_", None)
        return [f"x{i + 1}" for i in range(self.n_features_in_)] if given is None else list(given)

    def _y_names(self) -> tuple[str, ...]:
        return self.y_names_

    def _metadata(self, **more: Any) -> dict[str, Any]:
        return super()._metadata(equations=[str(e) for e in self.expressions_], **more)

    def predict(self, X: Any) -> np.ndarray:
        """Return the formulas' values for rows."""
        check_is_fitted(self, "fit_")
        values: Any = validate_data(self, without_times(X), dtype=np.float64, reset=False)
        with jax.enable_x64(True):
            predicted = np.asarray(self.formulas_.columns(jnp.asarray(values.T))[0]).T
        return predicted[:, 0] if self.single_output_ else predicted


def _names_of(y: Any, n: int, taken: list[str]) -> tuple[str, ...]:
    """The names a frame or series gives its columns, unless they are no text or stand in x too."""
    columns = [getattr(y, "name", None)] if getattr(y, "ndim", 2) == 1 else getattr(y, "columns", ())
    given = tuple(name for name in columns if isinstance(name, str) and name.strip())
    return given if len(given) == n and not set(given) & set(taken) else output_names(n, taken)

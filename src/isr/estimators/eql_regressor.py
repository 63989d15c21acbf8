"""EQLRegressor: plain symbolic regression by an equation-learner network, with the interface of scikit-learn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from isr.estimators.formula_regressor import FormulaRegressor
from isr.estimators.regression_fit import fit_regression
from isr.estimators.rows import n_held_out
from isr.estimators.settings import Effort, Training, explains_wrong_options
from isr.tables.arrays import LARGEST, refuse_extremes

LIBRARY = {"constant": 1, "id": 2, "square": 2, "sin2pi": 2, "exp": 1, "sigmoid": 1, "product": 2}


@explains_wrong_options
@dataclass(eq=False, repr=False)
class EQLRegressor(FormulaRegressor):
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

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> EQLRegressor:
        """Learn formulas for y, one column or several, from the rows of X."""
        rows = self._checked(X, y, sample_weight)
        for values, what in ((rows.x, "X"), (rows.y, "y")):
            names = [f"{what}{i + 1}" for i in range(values.shape[1])]
            refuse_extremes(values, names, what=what, largest=LARGEST)
        library = LIBRARY if self.library is None else self.library
        fit = partial(fit_regression, rows, library, self.n_layers)
        self._run(fit, len(rows.x) - n_held_out(len(rows.x)))
        return self

    def _training(self) -> Training:
        training = super()._training()
        if training.backward is not None:
            raise ValueError("backward means nothing to EQLRegressor; leave it out of its training")
        return training

    def _metadata(self, **more: Any) -> dict[str, Any]:
        return super()._metadata(equations=[str(e) for e in self.expressions_], **more)

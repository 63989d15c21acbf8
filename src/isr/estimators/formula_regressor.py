"""What `LawRegressor` and `EQLRegressor` share: how rows are checked, what columns are called, and predictions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from isr.bijections.formula import Formulas
from isr.equations.extract import output_names
from isr.estimators.equation_model import EquationModel
from isr.tables.arrays import without_times
from isr.tables.tables import check_units


@dataclass(frozen=True)
class Rows:
    """What is fitted: rows of inputs, of outputs, and the weight of each row."""

    x: np.ndarray
    y: np.ndarray
    weight: np.ndarray | None

    def some(self, index: np.ndarray) -> Rows:
        """Return some of the rows."""
        return Rows(self.x[index], self.y[index], None if self.weight is None else self.weight[index])


class FormulaRegressor(MultiOutputMixin, RegressorMixin, EquationModel):
    """Base of the regressors whose model is a formula for each output."""

    y_names_: tuple[str, ...]
    single_output_: bool

    def _checked(self, X: Any, y: Any, sample_weight: Any) -> Rows:
        """Return rows of numbers, those of no weight left out, and remember what columns are called."""
        options: Any = {"multi_output": True, "y_numeric": True, "ensure_min_samples": 4}
        times_out = without_times(X), without_times(y, what="y")
        x, targets = validate_data(self, *times_out, dtype=np.float64, **options)
        weight = None
        if sample_weight is not None:
            weight = _check_sample_weight(sample_weight, x, dtype=np.float64)
            used = weight > 0
            x, targets, weight = x[used], targets[used], weight[used]
        self.single_output_ = targets.ndim == 1
        targets = np.asarray(targets, dtype=float).reshape(len(x), -1)
        self.y_names_ = names_of(y, targets.shape[1], self._x_names())
        check_units(self.units or {}, [*self._x_names(), *self.y_names_], what="x and y")
        return Rows(x, targets, weight)

    @property
    def formulas_(self) -> Formulas:
        """The chosen model."""
        return self._chosen.model

    def _x_names(self) -> list[str]:
        given = getattr(self, "feature_names_in_", None)
        return [f"x{i + 1}" for i in range(self.n_features_in_)] if given is None else list(given)

    def _y_names(self) -> tuple[str, ...]:
        return self.y_names_

    def predict(self, X: Any) -> np.ndarray:
        """Return the formulas' values for rows."""
        check_is_fitted(self, "fit_")
        values: Any = validate_data(self, without_times(X), dtype=np.float64, reset=False)
        with jax.enable_x64(True):
            predicted = np.asarray(self.formulas_.columns(jnp.asarray(values.T))[0]).T
        return predicted[:, 0] if self.single_output_ else predicted


def names_of(y: Any, n: int, taken: list[str]) -> tuple[str, ...]:
    """Return the names a frame or series gives its columns, unless they are no text or stand in x too."""
    columns = [getattr(y, "name", None)] if getattr(y, "ndim", 2) == 1 else getattr(y, "columns", ())
    given = tuple(name for name in columns if isinstance(name, str) and name.strip())
    return given if len(given) == n and not set(given) & set(taken) else output_names(n, taken)

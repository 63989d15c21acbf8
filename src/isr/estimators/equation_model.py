"""What every fitted estimator offers: a summary, figures, a file; and most of them a front to choose from."""

from __future__ import annotations

import sys
import warnings
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from isr.bijections.formula import Formulas
from isr.bijections.parameters import flatten
from isr.estimators.pipeline import Fitted
from isr.estimators.settings import Effort, Plan, Training, make_schedule, seed_of, training_of
from isr.estimators.status import Status, status_of
from isr.formulas.front import Front, Point, choose
from isr.storage import Bundle, save
from isr.tables.arrays import checked_rows, warn_if_not_finite
from isr.tables.tables import check_units
from isr.tables.workers import is_watched
from isr.training.checkpoint import History
from isr.training.loop import keep_compiled_programs
from isr.training.monitor import Monitor

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from isr.equations import Expressions

# Of all models of a front that are saved beside the chosen one; they take eight bytes each.
MOST_NUMBERS = 200_000


class Shown:
    """Gives estimators that have ``to_bundle`` what their bundle says and draws, files, and lines of progress.

    Example:
        >>> from isr.estimators.inversion import Inversion
        >>> x = np.random.default_rng(0).uniform(1, 2, size=(50, 1))
        >>> model = Inversion(law="x1**2", noise=0.1, fallback=False).fit(x, x**2)
        >>> print(model.summary())
        Inversion of x1, giving y1
        ...
        >>> len(model.plot(x, x**2).axes)
        2
    """

    def summary(self) -> str:
        """Return what was found: the equations, how the fit ended, and how accurate it is."""
        return self.to_bundle().summary()  # type: ignore[attr-defined]

    def plot(self, x: Any = None, y: Any = None) -> Figure:
        """Return a figure of the model, over rows of data where they are given; see `Bundle.plot`."""
        return self.to_bundle().plot(x, y)  # type: ignore[attr-defined]

    def _say(self, line: str) -> None:
        model: Any = self
        if is_watched() if model.verbose is None else model.verbose:
            print(line, file=sys.stderr, flush=True)

    def save(self, path: str | Path) -> None:
        """Write the model to a file; `isr.load` reads it without any training code."""
        save(self, path)

    def _repr_html_inner(self) -> str:
        return self._found_html() + super()._repr_html_inner()  # type: ignore[misc]

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        forms = super()._repr_mimebundle_(**kwargs)  # type: ignore[misc]
        return {k: self._found_html() + v if k == "text/html" else v for k, v in forms.items()}

    def _found_html(self) -> str:
        """What was found, for notebooks; scikit-learn's own form shows the parameters."""
        model: Any = self
        return model.to_bundle()._repr_html_() if hasattr(self, "fit_") or hasattr(self, "law_") else ""


class EquationModel(Shown, BaseEstimator):
    """Base of the estimators; a subclass gives names and a function that fits."""

    units: Mapping[str, str] | None
    random_state: Any
    n_features_in_: int
    fit_: Fitted
    chosen_: int
    history_: History
    status_: Status
    seed_: int
    _expressions: Expressions | None
    training: Training | Effort | str | None
    _usual_training: ClassVar[Training]

    def set_params(self, **params: Any) -> Self:
        """Set options as scikit-learn does; ``training__effort="quick"`` works whatever ``training`` was."""
        if "training" not in params and any(name.startswith("training__") for name in params):
            self.training = training_of(self.training)
        return super().set_params(**params)

    def _training(self) -> Training:
        """The options of training, complete."""
        return training_of(self.training, self._usual_training)

    def _run(
        self, fit: Callable[[Plan], Fitted], n_train: int, *, sparse: bool = True, peak: float | None = None
    ) -> None:
        """Fit by a plan (see `make_schedule` for ``sparse`` and ``peak``), and say how it ended."""
        training = self._training()
        self.seed_ = seed_of(self.random_state)
        monitor = Monitor(verbose=training.verbose, max_time=training.max_time)
        schedule = make_schedule(training, n_train, sparse=sparse, peak=peak)
        keep_compiled_programs()
        # Training itself runs in single precision, by the dtype of its arrays.
        with monitor.watching(), jax.enable_x64(True):
            self.fit_ = fit(Plan(training, schedule, self.seed_, monitor))
        self.history_ = self.fit_.population.history
        self.status_ = status_of(self.fit_.population, schedule.n_steps(n_train), monitor.stopped)
        self._use(self.fit_.chosen)
        if self.status_.ok:
            self.status_ = self._misfit() or self.status_
        if not self.status_.ok:
            warnings.warn(str(self.status_), ConvergenceWarning, stacklevel=4)

    def _misfit(self) -> Status | None:
        """Return what is wrong with a fit that ended as it should, or None."""
        return None

    def _use(self, index: int) -> None:
        """Make point ``index`` of the front the model that is used."""
        self.chosen_, self._expressions = index, None

    @property
    def _chosen(self) -> Point:
        check_is_fitted(self, "fit_")
        return self.fit_.front[self.chosen_]

    @property
    def expressions_(self) -> Expressions:
        """The equations of the chosen model, written when they are first asked for: long ones take seconds."""
        model = self._chosen.model
        if self._expressions is None:
            self._expressions = self._written(model)
        return self._expressions

    def _written(self, model: Any) -> Expressions:
        from isr.equations import extract

        return extract(model, self._x_names(), self._y_names() or None, self._units())

    @abstractmethod
    def _x_names(self) -> Sequence[str]:
        """Return what the variables are called."""

    def _y_names(self) -> tuple[str, ...]:
        return ()

    def _units(self) -> Mapping[str, str]:
        return dict(self.units or {})

    def to_bundle(self) -> Bundle:
        """Return what a file of this model holds: the model, names, units and where it comes from."""
        return Bundle(
            model=self._chosen.model, x_names=tuple(self._x_names()), y_names=self._y_names(),
            units=self._units(), kind=type(self).__name__, metadata=self._metadata(), others=self._others(),
        )  # fmt: skip

    def choose(self, *, complexity: int | None = None, rule: str | None = None) -> Self:
        """Use another model of the front: the best no more complex than ``complexity``, or by another rule."""
        check_is_fitted(self, "fit_")
        rule = rule or self._training().selection
        self._use(choose(self.fit_.front, rule, n_rows=self.fit_.n_train, complexity=complexity))
        return self

    @property
    def front_(self) -> Front:
        """Accuracy against complexity: one row per model, the chosen one marked; a pandas frame.

        ``n_parameters`` counts learned numbers that are not zero, ``n_constants`` the numbers in the equations.
        """
        columns, written = self._figures(), [self._written(p.model) for p in self.fit_.front]
        columns |= {"n_constants": [e.n_constants for e in written], "equations": [e.text() for e in written]}
        return Front(columns)

    def _figures(self) -> dict[str, list[Any]]:
        check_is_fitted(self, "fit_")
        points = self.fit_.front
        return {
            "complexity": [p.complexity for p in points],
            "nll": [p.held_out_nats for p in points],
            "nll_train": [p.train_nats for p in points],
            "n_parameters": [p.n_constants for p in points],
            "chosen": [i == self.chosen_ for i in range(len(points))],
        }

    @property
    def errors_(self) -> np.ndarray:
        """Standard errors of the constants of the chosen model, NaN where snapped or not fitted."""
        chosen = self._chosen
        return np.full(len(flatten(chosen.model)[0]), np.nan) if chosen.errors is None else chosen.errors

    def _metadata(self, **more: Any) -> dict[str, Any]:
        history = self.history_.frame().items()
        labels = {str(index): label for index, label in self._chosen.labels.items()}
        known: dict[str, Any] = {
            "front": self._figures(),
            "history": {n: c.to_numpy() if c.dtype.kind in "if" else c.tolist() for n, c in history},
            "status": str(self.status_),
            "seed": self.seed_,
        }
        if self._chosen.errors is not None:
            known["constants"] = {"errors": self._chosen.errors, "labels": labels}
        return {**known, **more}

    def _others(self) -> dict[str, Any]:
        """The other models of the front, simple ones first, as many as a file should hold."""
        models = {f"front {i}": p.model for i, p in enumerate(self.fit_.front) if i != self.chosen_}
        total = np.cumsum([len(flatten(model)[0]) for model in models.values()])
        return dict(list(models.items())[: int(np.searchsorted(total, MOST_NUMBERS, side="right"))])


@dataclass(frozen=True)
class Samples:
    """What a regressor is fitted to: rows of inputs, of outputs, and the weight of each row."""

    x: np.ndarray
    y: np.ndarray
    weight: np.ndarray | None

    def some(self, index: np.ndarray) -> Samples:
        """Return some of the rows."""
        return Samples(self.x[index], self.y[index], None if self.weight is None else self.weight[index])


class FormulaRegressor(MultiOutputMixin, RegressorMixin, EquationModel):
    """Base of the regressors whose model is a formula for each output."""

    y_names_: tuple[str, ...]
    single_output_: bool

    def _checked(self, X: Any, y: Any, sample_weight: Any) -> Samples:
        """Return rows of numbers, those of no weight left out, and remember what columns are called."""
        options: Any = {"multi_output": True, "y_numeric": True, "ensure_min_samples": 4}
        rows = checked_rows(X), checked_rows(y, what="y")
        x, targets = validate_data(self, *rows, dtype=np.float64, **options)
        weight = None
        if sample_weight is not None:
            weight = _check_sample_weight(sample_weight, x, dtype=np.float64)
            used = weight > 0
            x, targets, weight = x[used], targets[used], weight[used]
        self.single_output_ = targets.ndim == 1
        targets = np.asarray(targets, dtype=float).reshape(len(x), -1)
        if not np.isfinite(targets).all():  # None among objects
            raise ValueError("y contains NaN or infinite values; drop these rows or fill them in")
        self.y_names_ = names_of(y, targets.shape[1], self._x_names())
        check_units(self.units or {}, [*self._x_names(), *self.y_names_], what="x and y")
        return Samples(x, targets, weight)

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
        values: Any = validate_data(self, checked_rows(X), dtype=np.float64, reset=False)
        with jax.enable_x64(True):
            predicted = np.asarray(self.formulas_.columns(jnp.asarray(values.T))[0]).T
        warn_if_not_finite(predicted)
        return predicted[:, 0] if self.single_output_ else predicted


def names_of(y: Any, n: int, taken: list[str]) -> tuple[str, ...]:
    """Return the names a frame or series gives its columns, unless they are no text or stand in x too."""
    from isr.equations.extract import output_names

    columns = [getattr(y, "name", None)] if getattr(y, "ndim", 2) == 1 else getattr(y, "columns", ())
    given = tuple(name for name in columns if isinstance(name, str) and name.strip())
    return given if len(given) == n and not set(given) & set(taken) else output_names(n, taken)

"""What every estimator that learns equations offers once it is fitted: a front, a choice from it, errors, a file."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from isr.bijections.parameters import flatten
from isr.estimators.settings import Effort, Training, training_of
from isr.formulas.front import Point, choose
from isr.storage import Bundle, save
from isr.storage.bundle import model_html
from isr.training.history import History

if TYPE_CHECKING:
    import pandas as pd

    from isr.equations import Expressions
    from isr.storage.front import Front

# Of all models of a front that are saved beside the chosen one; they take eight bytes each.
MOST_NUMBERS = 200_000


class EquationModel(BaseEstimator):
    """Base of the estimators; a subclass sets ``fit_`` (with front, chosen, errors) and calls `_use`."""

    fit_: Any
    training: Training | Effort | str | None
    _usual_training: ClassVar[Training]
    _no_training: ClassVar[tuple[str, ...]] = ()

    def set_params(self, **params: Any) -> Self:
        """Set options as scikit-learn does; ``training__effort="quick"`` works whatever ``training`` was."""
        if "training" not in params and any(name.startswith("training__") for name in params):
            self.training = training_of(self.training)
        return super().set_params(**params)

    def _training(self) -> Training:
        """The options of training, complete."""
        training, usual = training_of(self.training, self._usual_training), Training()
        for name in self._no_training:
            if getattr(training, name) != getattr(usual, name):
                raise ValueError(
                    f"{name} means nothing to {type(self).__name__}; leave it out of its training"
                )
        return training

    @abstractmethod
    def _use(self, index: int) -> None:
        """Make point ``index`` of the front the model that is used."""

    @abstractmethod
    def _written(self, model: Any = None) -> Expressions:
        """Return the equations of a model, of the one in use when left out."""

    @abstractmethod
    def to_bundle(self) -> Bundle:
        """Return what a file of this model holds."""

    def choose(self, *, complexity: int | None = None, rule: str | None = None) -> Self:
        """Use another model of the front: the best no more complex than ``complexity``, or by another rule."""
        check_is_fitted(self, "fit_")
        self._use(
            choose(
                self.fit_.front,
                rule or self._training().selection,
                n_rows=self.fit_.n_train,
                complexity=complexity,
            )
        )
        return self

    @property
    def front_(self) -> Front:
        """Accuracy against complexity: one row per model, the chosen one marked; a pandas frame.

        ``n_parameters`` counts learned numbers that are not zero, ``n_constants`` the numbers in the equations.
        """
        return self._front(equations=True)

    def _front(self, *, equations: bool) -> Front:
        from isr.storage.front import Front

        check_is_fitted(self, "fit_")
        points: list[Point] = self.fit_.front
        columns = {
            "complexity": [p.complexity for p in points],
            "nll": [p.held_out_nats for p in points],
            "nll_train": [p.train_nats for p in points],
            "n_parameters": [p.n_constants for p in points],
            "chosen": [i == self.chosen_ for i in range(len(points))],
        }
        if equations:
            written = [self._written(p.model) for p in points]
            columns["n_constants"] = [e.n_constants for e in written]
            columns["equations"] = [e.text() for e in written]
        return Front(columns)

    @property
    def errors_(self) -> np.ndarray:
        """Standard errors of the constants of the model that the rule chose, NaN where snapped or not fitted."""
        check_is_fitted(self, "fit_")
        return self.fit_.errors

    def save(self, path: str | Path) -> None:
        """Write the model to a file; `isr.load` reads it without any training code."""
        save(self, path)

    def _repr_html_inner(self) -> str:
        return self._fitted_html() + super()._repr_html_inner()

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        forms = super()._repr_mimebundle_(**kwargs)
        return {k: self._fitted_html() + v if k == "text/html" else v for k, v in forms.items()}

    def _fitted_html(self) -> str:
        """What was learned, for notebooks; scikit-learn's own form shows the parameters."""
        if not hasattr(self, "fit_"):
            return ""
        return model_html(self.to_bundle().title, self._written(), self.front_, str(self.status_))

    def _metadata(self, **more: Any) -> dict[str, Any]:
        known = {
            "front": self._front(equations=False).to_dict("list"),
            "history": _columns(self.history_.frame()),
            "status": str(self.status_),
            "seed": self.seed_,
        }
        if self.chosen_ == self.fit_.chosen:  # errors were taken at the model that the rule chose
            labels = {str(index): label for index, label in self.fit_.labels.items()}
            known["constants"] = {"errors": np.asarray(self.errors_, dtype=float), "labels": labels}
        return {**known, **more}

    def _others(self) -> dict[str, Any]:
        """The other models of the front, simple ones first, as many as a file should hold."""
        kept, total = {}, 0
        for i, point in enumerate(self.fit_.front):
            total += len(flatten(point.model)[0]) if i != self.chosen_ else 0
            if total > MOST_NUMBERS:
                break
            if i != self.chosen_:
                kept[f"front {i}"] = point.model
        return kept

    chosen_: int
    history_: History
    status_: Any
    seed_: int


def _columns(frame: pd.DataFrame) -> dict[str, Any]:
    """The columns of a frame as a file holds them: numbers as arrays, words as lists."""
    columns = {str(name): frame[name].to_numpy() for name in frame}
    return {name: column.tolist() if column.dtype == object else column for name, column in columns.items()}

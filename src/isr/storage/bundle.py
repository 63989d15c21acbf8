"""Bundle: a model with its names, units and history, as it is saved and loaded, and all that can be asked of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from isr.bijections.flow import Flow, Precision
from isr.bijections.formula import Formulas
from isr.formulas.front import Front, Point, choose
from isr.tables.arrays import warn_if_not_finite
from isr.tables.memory import draw_count
from isr.tables.names import check_names, names_given, visible
from isr.tables.tables import Columns, read_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from isr.equations import Expressions
    from isr.posterior.abstract import AbstractPosterior
REMEDY = "restore it from a backup or save the model again"


# A file sorts what it holds by name; frames made of it have the order their readers know.
_ORDER = (
    "epoch", "phase", "train", "held_out", "held_out_median", "n_members",
    "complexity", "nll", "nll_train", "n_parameters", "chosen",
)  # fmt: skip


class ModelFileError(ValueError):
    """A file that cannot be read as a saved model; the message says why and what to do."""


@dataclass(frozen=True)
class Bundle:
    """A saved model with what is needed to use it.

    Args:
        model: A `Flow`, or another module of the library such as an `EQL` network.
        x_names: Display names of x; x1, x2, ... where empty.
        y_names: Display names of y; y1, y2, ... where empty.
        units: Unit of a variable, by display name.
        kind: What wrote it, such as ``"ConditionalISR"``.
        metadata: Where it comes from: versions, seed, hash of the data, front, history, errors of constants, anything
            made of numbers, text, arrays, lists and mappings.
        others: Further models by name, such as the other choices along the front.

    Example:
        >>> from isr.bijections.affine import Linear
        >>> flow = Flow(Linear(np.array([[1.0, 1.0], [1.0, -1.0]])), noise=(0.1,))
        >>> front = {"complexity": [9], "nll": [0.5], "chosen": [True]}
        >>> known = {"units": {"mass": "kg"}, "kind": "ISR", "metadata": {"front": front}}
        >>> saved = Bundle(flow, ("mass", "charge"), **known)
        >>> saved.title, saved.abilities, saved.flow.dim
        ('ISR of mass (kg), charge, giving y1', ('posterior', 'predict', 'sample', 'score_samples'), 2)
        >>> saved.posterior([3.0]), saved.predict([[1.0, 2.0]]), saved.sample(5, [3.0]).shape
        (Posterior of mass, charge given y1 = 3, array([[3.]]), (5, 2))
        >>> saved.draws(np.array([[3.0], [4.0]]), 5).shape, saved.printed_errors
        ((2, 5, 2), {})
        >>> saved.score_samples([[1.0, 2.0]], [[3.0]]).round(3), saved.log_prob([[1.0, 2.0]], [[3.0]]).round(3)
        (array([0.658]), array([0.658]))
        >>> Bundle.of(saved) is saved, len(saved.front), saved.chosen, len(saved.points), saved.choose(9) is saved
        (True, 1, 0, 1, True)
        >>> saved.history, saved.errors, saved.labels, saved.require("predict"), saved.columns("y").names
        (None, None, {}, None, ('y1',))
        >>> "charge" in saved.expressions.text("inverse"), saved.sections, saved.motion, "def forward" in saved.code()
        (True, [], None, True)
        >>> saved.summary().splitlines()[0] == saved.title
        True
        >>> len(saved.plot([[1.0, 2.0], [2.0, 1.0]], [[3.0], [3.1]]).axes)
        3
    """

    model: eqx.Module
    x_names: tuple[str, ...] = ()
    y_names: tuple[str, ...] = ()
    units: Mapping[str, str] = field(default_factory=dict)
    kind: str = "flow"
    metadata: Mapping[str, Any] = field(default_factory=dict)
    others: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        n_x, n_y = self._widths
        for letter, given, n in (("x", self.x_names, n_x), ("y", self.y_names, n_y)):
            if n is not None and (given or letter == "x"):
                object.__setattr__(self, f"{letter}_names", names_given(given, letter, n))
        if not self.y_names and n_y:
            from isr.equations.extract import output_names

            plain = tuple(f"y{i + 1}" for i in range(n_y))
            is_flow = isinstance(self.model, Flow)
            object.__setattr__(self, "y_names", plain if is_flow else output_names(n_y, self.x_names))
        names = check_names((*self.x_names, *self.y_names), what="a saved model")
        unknown = sorted(set(self.units) - set(names)) if names else []
        if unknown:
            raise ValueError(f"units name {unknown}, which are no variables; known: {list(names)}")

    @classmethod
    def of(cls, model: Any, purpose: str = "save") -> Bundle:
        """Return the bundle of a fitted estimator, of a flow or another module, or of a bundle itself."""
        if isinstance(model, Bundle):
            return model
        if hasattr(model, "to_bundle"):
            return model.to_bundle()
        if isinstance(model, eqx.Module):
            return cls(model, kind=type(model).__name__.lower())
        raise TypeError(
            f"cannot {purpose} a {type(model).__name__}; give a flow, a fitted estimator or a Bundle"
        )

    @property
    def _widths(self) -> tuple[int | None, int | None]:
        """How many variables of x and of y the model has; None where it does not say."""
        if isinstance(self.model, Flow):
            return self.model.dim, self.model.condition_dim
        return getattr(self.model, "n_inputs", 0) or None, getattr(self.model, "n_outputs", 0) or None

    # What it is -----------------------------------------------------------------------------------------------

    @property
    def title(self) -> str:
        """What the model is, in one line: its kind, and its variables with their units."""
        way = "given" if getattr(self.model, "condition_map", None) is not None else "giving"
        y = f", {way} {self._listed(self.y_names)}" if self.y_names else ""
        return visible(f"{self.kind} of {self._listed(self.x_names)}{y}" if self.x_names else self.kind)

    def _listed(self, names: tuple[str, ...]) -> str:
        shown = [f"{n} ({self.units[n]})" if n in self.units else n for n in names]
        return ", ".join(shown if len(shown) <= 8 else [*shown[:8], f"… ({len(shown)} in all)"])

    def __repr__(self) -> str:
        return f"<saved {self.title}>"

    def _repr_html_(self) -> str:
        from isr.equations.expressions import as_html

        note = str(self.metadata.get("status", ""))
        if self._laws is not None or not isinstance(self.model, Flow | Formulas):
            return as_html(self.title, self.sections, note=note)
        front = "" if self.front is None else self.front._repr_html_() or ""
        return self.expressions._repr_html_(self.title, table=front, note=note, errors=self.printed_errors)

    @property
    def flow(self) -> Flow:
        """The model as a flow."""
        if not isinstance(self.model, Flow):
            raise TypeError(f"this file holds a {type(self.model).__name__}, not a flow; see .model")
        return self.model

    @cached_property
    def expressions(self) -> Expressions:
        """The equations of a flow, the formulas of a regressor or the law of an `Inversion`, made on first use."""
        from isr.equations import extract

        if self.motion is not None:
            raise TypeError("a law of motion is an equation for rates, not for y; see summary() and code()")
        if self._laws is not None:
            return self._laws.expressions(self.x_names, self.units)
        model = self.model if isinstance(self.model, Formulas) else self.flow
        return extract(model, self.x_names, self.y_names or None, self.units)

    @cached_property
    def printed_errors(self) -> dict[float, float]:
        """The standard error of each printed constant that has one, by its absolute value, the largest first."""
        from isr.equations.extract import printed_errors

        if self._laws is not None:
            formulas = getattr(self._laws.to_law(), "all_formulas", ())
            known = {value: e for f in formulas for value, e in f.known_errors.items()}
        else:
            known = printed_errors(self.model, self.expressions, self.errors)
        return dict(sorted(known.items(), reverse=True))

    @property
    def front(self) -> Front | None:
        """Accuracy against complexity, one row per model; None where the file has none, or half of one."""
        frame = self._frame("front")
        if frame is None or not {"complexity", "nll"} <= set(frame):
            return None
        numeric = all(frame[name].dtype.kind in "biuf" for name in ("complexity", "nll"))
        return Front(frame) if numeric else None

    @property
    def history(self) -> pd.DataFrame | None:
        """Training curves, one row per epoch; None where the file has none."""
        return self._frame("history")

    @property
    def errors(self) -> np.ndarray | None:
        """Standard error of each learned number of the model, NaN where it has none; None where the file has none."""
        errors = self._known("constants").get("errors")
        return errors if isinstance(errors, np.ndarray) else None

    @property
    def labels(self) -> dict[int, str]:
        """Learned numbers that were set to simple values, by index."""
        return {int(index): str(label) for index, label in self._known("constants").get("labels", {}).items()}

    def _known(self, name: str) -> Mapping[str, Any]:
        known = self.metadata.get(name)
        return known if isinstance(known, Mapping) else {}

    def _frame(self, name: str) -> pd.DataFrame | None:
        columns = self._known(name)
        order = sorted(columns, key=lambda c: _ORDER.index(c) if c in _ORDER else len(_ORDER))
        try:
            return pd.DataFrame({c: columns[c] for c in order}) if columns else None
        except ValueError:  # columns of different lengths
            return None

    @property
    def chosen(self) -> int | None:
        """Which model of the front this one is; None where that is not known."""
        marks = [] if self.front is None else list(self.front.get("chosen", ()))
        return next((i for i, mark in enumerate(marks) if mark), None)

    @property
    def points(self) -> list[Point]:
        """The models of the front from simple to complex, each with its model where the file holds it."""
        rows, chosen = [] if self.front is None else self.front.to_dict("records"), self.chosen
        return [
            Point(
                self.model if i == chosen else self.others.get(f"front {i}"), row["complexity"],
                int(row.get("n_parameters", 0)), row.get("nll_train", np.nan), float(row["nll"]),
            )
            for i, row in enumerate(rows)
        ]  # fmt: skip

    def choose(self, complexity: int) -> Bundle:
        """Return the best model of the front that is no more complex than ``complexity``."""
        points = self.points
        if not points:
            raise ValueError(f"the file holds no model of complexity {complexity} or less")
        index = choose(points, n_rows=1, complexity=complexity)
        if index == self.chosen:
            return self
        if points[index].model is None:
            raise ValueError(
                f"the file does not hold the model of complexity {points[index].complexity}, only its figures; fit "
                "again to save the whole front"
            )
        front = {**self.metadata["front"], "chosen": [i == index for i in range(len(points))]}
        # The errors of constants are those of the model that was chosen before.
        kept = {name: value for name, value in self.metadata.items() if name != "constants"}
        return replace(self, model=points[index].model, metadata={**kept, "front": front})

    def summary(self) -> str:
        """Return what was found as text: the laws, or the equations, how good they are and how the fit ended."""
        from isr.storage.shown import parts

        return "\n".join([self.title, *(f"\n{title}\n{text}" for title, text in parts(self))])

    def plot(self, x: Any = None, y: Any = None, *more: Any) -> Figure:
        """Return a figure of predictions of y and of what they leave, or of draws over rows of x in grey.

        Without rows what the model knows by itself is drawn: rows of its density, or of its law of x with what the law
        of y makes of them. A law of motion takes times and values of trajectories, and the x they were made with.
        """
        from isr.storage.shown import plot

        return plot(self, x, y, more)

    # What it can do -------------------------------------------------------------------------------------------

    @property
    def abilities(self) -> tuple[str, ...]:
        """Which of ``posterior``, ``predict``, ``sample`` and ``score_samples`` this kind of model has."""
        if isinstance(self.model, Formulas) or hasattr(self.model, "trajectory"):
            return ("predict",)
        if self._laws is not None:
            return ("posterior", "predict")
        if not isinstance(self.model, Flow):
            return ()
        posterior = ("posterior",) if self.model.condition_dim else ()
        predict = ("predict",) if self.model.n_observed else ()
        return (*posterior, *predict, "sample", "score_samples")

    @property
    def motion(self) -> Any:
        """The law of motion that the file holds, or None."""
        law = self.model.to_law() if hasattr(self.model, "to_law") else None
        return law if hasattr(law, "channels") else None

    def code(self, language: str = "python") -> str:
        """Return the model as source that stands alone; of a law of motion its rates, with an integrator."""
        return self.expressions.code(language) if self.motion is None else self.motion.code(language)

    @property
    def _laws(self) -> Any:
        """The laws of an `Inversion`, or None."""
        return self.model if type(self.model).__name__ == "SavedLaws" else None

    @property
    def sections(self) -> list[tuple[str, str]]:
        """What an `Inversion` or a `MotionRegressor` found as text, under a heading each; empty for other models."""
        from isr.storage.shown import sections

        return sections(self) if hasattr(self.model, "sections") else []

    @cached_property
    def _read_laws(self) -> Any:
        return self._laws.read(self.x_names)

    def require(self, ability: str) -> None:
        """Raise a `TypeError` that says what the model can do unless ``ability`` is among it."""
        if ability not in self.abilities:
            *others, last = self.abilities or ("only .model",)
            known = f"{', '.join(others)} and {last}" if others else last
            raise TypeError(f"this {self.title} has no {ability}; it has {known}")

    def posterior(self, y_star: Any, *, prior: Any = None) -> AbstractPosterior:
        """Return the posterior of x given one observation, or several of the same x as rows; see `Posterior`.

        Args:
            y_star: Values in order, or a mapping by name; or rows.
            prior: Density of x that the model was trained on, where the posterior needs it.
        """
        from isr.posterior.posterior import Posterior, read_observations

        self.require("posterior")
        if self._laws is not None:
            rows = read_observations(y_star, self.columns("y"))
            self._warn_if_unlike(rows)
            return self._laws.posterior(
                rows, self.x_names, self.y_names, units=self.units,
                prior=prior, extent=self.metadata.get("extent"),
                known=None if prior is not None else self._read_laws,
            )  # fmt: skip
        return Posterior(
            self.flow, y_star, x_names=self.x_names, y_names=self.y_names, units=self.units,
            training=self.metadata.get("training"), extent=self.metadata.get("extent"), prior=prior,
        )  # fmt: skip

    def predict(self, x: Any, *given: Any) -> np.ndarray:
        """Return y for rows of x, a column per output: the surrogate of an `ISR`, or the formulas of a regressor.

        A law of motion takes times, the values at the first of them and its parameters, as `MotionRegressor.predict`.
        """
        self.require("predict")
        if hasattr(self.model, "trajectory"):
            return self.model.trajectory(x, *given)
        rows = read_table(x, like=self.columns("x"), what="x").values
        known: Any = slice(None)
        if self._laws is not None:
            law = self._laws.to_law()
            predicted, known = law.predict(rows, len(self.y_names)), [c.index for c in law.columns]
        elif isinstance(self.model, Formulas):
            with jax.enable_x64(True):
                predicted = np.asarray(self.model.columns(jnp.asarray(rows.T))[0]).T
        else:
            predicted = self.flow.forward(rows)[0][:, : self.flow.n_observed]
        warn_if_not_finite(predicted[:, known])
        return predicted

    def sample(
        self, n: int, y: np.ndarray | None = None, *, seed: int = 0, precision: Precision = "double"
    ) -> np.ndarray:
        """Return ``n`` rows of x, given y where there is a condition."""
        self.require("sample")
        return self.flow.sample(jax.random.key(seed), n, y, precision=precision)

    def draws(self, y: np.ndarray, n: int, *, seed: int = 0) -> np.ndarray:
        """Return ``n`` draws of x for each row of y, ``(rows, n, x)``: all together where the model can."""
        self.require("posterior")
        n = draw_count(n, len(y) * len(self.x_names))
        if self._laws is not None:
            return np.stack([self.posterior(row)._draw(n, seed + i)[0] for i, row in enumerate(y)])
        self._warn_if_unlike(y)
        return self.sample(len(y) * n, np.repeat(y, n, axis=0), seed=seed).reshape(len(y), n, -1)

    def _warn_if_unlike(self, y: np.ndarray) -> None:
        from isr.posterior.outliers import TrainingRecord, warn_if_unlike

        if self._known("training"):
            record = TrainingRecord.from_dict(self._known("training"))
            warn_if_unlike(record, y, self.columns("y").names, stacklevel=3)

    def score_samples(
        self, x: np.ndarray, y: np.ndarray | None = None, *, precision: Precision = "double"
    ) -> np.ndarray:
        """Return the log-densities (nats) of rows of x, given y where there is a condition."""
        self.require("score_samples")
        return self.flow.log_prob(x, y, precision=precision)

    log_prob = score_samples

    def columns(self, letter: str) -> Columns:
        """Return the columns of ``"x"`` or of ``"y"``."""
        names = self.x_names if letter == "x" else self.y_names
        return Columns(names, tuple(self.units.get(name) for name in names))

"""Bundle: a model with its names, units and history, as it is saved and loaded."""

from __future__ import annotations

import html
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import numpy as np

from isr.bijections.flow import Flow, Precision
from isr.bijections.formula import Formulas
from isr.tables.names import check_names

if TYPE_CHECKING:
    import pandas as pd

    from isr.equations import Expressions
    from isr.equations.formulas import FormulaExpressions
    from isr.storage.front import Front

REMEDY = "restore it from a backup or save the model again"


# A file sorts what it holds by name; frames made of it have the order their readers know.
_ORDER = (
    "epoch", "phase", "train", "held_out", "held_out_median", "n_members",
    "complexity", "nll", "nll_train", "n_parameters", "chosen",
)  # fmt: skip


def _place(column: str) -> int:
    return _ORDER.index(column) if column in _ORDER else len(_ORDER)


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
        >>> from isr.bijections.affine import Standardise
        >>> saved = Bundle(Flow(Standardise((2.0,), (0.5,))), ("depth",), units={"depth": "m"}, kind="SymbolicFlow")
        >>> saved, saved.sample(3).shape
        (<saved SymbolicFlow of depth (m)>, (3, 1))
        >>> saved.title, saved.flow.dim, saved.log_prob([[2.0]]).round(3)
        ('SymbolicFlow of depth (m)', 1, array([-0.226]))
        >>> saved.expressions.complexity, saved.front, saved.history, saved.errors, saved.labels
        (5, None, None, None, {})
    """

    model: eqx.Module
    x_names: tuple[str, ...] = ()
    y_names: tuple[str, ...] = ()
    units: Mapping[str, str] = field(default_factory=dict)
    kind: str = "flow"
    metadata: Mapping[str, Any] = field(default_factory=dict)
    others: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = check_names((*self.x_names, *self.y_names), what="a saved model")
        if isinstance(self.model, Flow):
            for letter, given, n in (
                ("x", self.x_names, self.model.dim),
                ("y", self.y_names, self.model.condition_dim),
            ):
                if given and len(given) != n:
                    raise ValueError(
                        f"{letter} has {n} variables, but {len(given)} names were given: {given}"
                    )
        unknown = sorted(set(self.units) - set(names)) if names else []
        if unknown:
            raise ValueError(f"units name {unknown}, which are no variables; known: {list(names)}")

    @property
    def title(self) -> str:
        """What the model is, in one line: its kind, and its variables with their units."""
        way = "given" if getattr(self.model, "condition_map", None) is not None else "giving"
        y = f", {way} {self._named(self.y_names)}" if self.y_names else ""
        return f"{self.kind} of {self._named(self.x_names)}{y}" if self.x_names else self.kind

    def _named(self, names: tuple[str, ...]) -> str:
        shown = [f"{n} ({self.units[n]})" if n in self.units else n for n in names]
        return ", ".join(shown if len(shown) <= 8 else [*shown[:8], f"… ({len(shown)} in all)"])

    def __repr__(self) -> str:
        return f"<saved {self.title}>"

    def _repr_html_(self) -> str:
        equations = self.expressions if isinstance(self.model, Flow | Formulas) else None
        return model_html(self.title, equations, self.front)

    @property
    def flow(self) -> Flow:
        """The model as a flow."""
        if not isinstance(self.model, Flow):
            raise TypeError(f"this file holds a {type(self.model).__name__}, not a flow; see .model")
        return self.model

    @property
    def front(self) -> Front | None:
        """Accuracy against complexity, one row a model; None where the file has none."""
        from isr.storage.front import Front

        frame = self._frame("front")
        return None if frame is None else Front(frame)

    @property
    def history(self) -> pd.DataFrame | None:
        """Training curves, one row an epoch; None where the file has none."""
        return self._frame("history")

    @property
    def errors(self) -> np.ndarray | None:
        """Standard error of each learned number of the model, NaN where it has none; None where the file has none."""
        errors = self._constants.get("errors")
        return errors if isinstance(errors, np.ndarray) else None

    @property
    def labels(self) -> dict[int, str]:
        """Learned numbers that were set to simple values, by index."""
        return {int(index): str(label) for index, label in self._constants.get("labels", {}).items()}

    @property
    def _constants(self) -> Mapping[str, Any]:
        known = self.metadata.get("constants")
        return known if isinstance(known, Mapping) else {}

    def _frame(self, name: str) -> pd.DataFrame | None:
        import pandas as pd

        columns = self.metadata.get(name)
        if not isinstance(columns, Mapping):
            return None
        return pd.DataFrame({c: columns[c] for c in sorted(columns, key=_place)})

    @cached_property
    def expressions(self) -> Expressions | FormulaExpressions:
        """The equations of a flow, or the formulas of a regressor, made on first use."""
        from isr.equations import extract
        from isr.equations.formulas import formula_expressions

        if isinstance(self.model, Formulas):
            return formula_expressions(self.model, self.x_names, self.y_names, self.units)
        return extract(self.flow, self.x_names or None, self.y_names or None, self.units)

    def sample(
        self, n: int, y: np.ndarray | None = None, *, seed: int = 0, precision: Precision = "double"
    ) -> np.ndarray:
        """Return ``n`` rows of x, given y where there is a condition."""
        return self.flow.sample(jax.random.key(seed), n, y, precision=precision)

    def log_prob(
        self, x: np.ndarray, y: np.ndarray | None = None, *, precision: Precision = "double"
    ) -> np.ndarray:
        """Return the log-densities (nats) of rows of x, given y where there is a condition."""
        return self.flow.log_prob(x, y, precision=precision)


def model_html(
    title: str, equations: Expressions | FormulaExpressions | None, front: Front | None, note: str = ""
) -> str:
    """Return a model as HTML for notebooks, with every text in it escaped.

    Args:
        title: What the model is.
        equations: Its equations.
        front: Its front.
        note: What else to say.
    """
    written = "" if equations is None else equations._repr_html_()
    table = "" if front is None else front._repr_html_() or ""
    last = f"<p>{html.escape(note)}</p>" if note else ""
    return f"<div><p><b>{html.escape(title)}</b></p>{written}{table}{last}</div>"

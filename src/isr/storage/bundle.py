"""Bundle: a model with its names, units and history, as it is saved and loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import numpy as np

from isr.data.names import check_names
from isr.model.flow import Flow
from isr.model.formula import Formulas

if TYPE_CHECKING:
    import pandas as pd

    from isr.expressions import Expressions
    from isr.expressions.formulas import FormulaExpressions

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
    def flow(self) -> Flow:
        """The model as a flow."""
        if not isinstance(self.model, Flow):
            raise TypeError(f"this file holds a {type(self.model).__name__}, not a flow; see .model")
        return self.model

    @property
    def front(self) -> pd.DataFrame | None:
        """Accuracy against complexity, one row a model; None where the file has none."""
        return self._frame("front")

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
        from isr.expressions import extract
        from isr.expressions.formulas import formula_expressions

        if isinstance(self.model, Formulas):
            return formula_expressions(self.model, self.x_names, self.y_names)
        return extract(self.flow, self.x_names or None, self.y_names or None, self.units)

    def sample(self, n: int, y: np.ndarray | None = None, *, seed: int = 0) -> np.ndarray:
        """Return ``n`` rows of x, given y where there is a condition."""
        return self.flow.sample(jax.random.key(seed), n, y)

    def log_prob(self, x: np.ndarray, y: np.ndarray | None = None) -> np.ndarray:
        """Return the log-densities (nats) of rows of x, given y where there is a condition."""
        return self.flow.log_prob(x, y)

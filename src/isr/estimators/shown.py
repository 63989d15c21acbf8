"""What every fitted model shows of itself: a summary in words and equations, and a figure of rows against it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Shown:
    """Gives `summary` and `plot` to estimators that have ``to_bundle`` and either ``predict`` or ``sample``.

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
        model: Any = self
        if hasattr(model, "law_"):
            parts = [str(model.law_), "", str(model.prior_), "", model.verdict_]
        else:
            chosen = model.front_.loc[model.front_["chosen"]].iloc[0]
            figures = f"complexity {chosen['complexity']:g}, held-out loss {chosen['nll']:.4f} nats"
            parts = [str(model.expressions_), "", figures, f"the fit: {model.status_}"]
        return "\n".join([model.to_bundle().title, "", *parts])

    def plot(self, x: Any, y: Any = None) -> Figure:
        """Return a figure of rows against the model.

        A model that predicts y is shown by its predictions and by what they leave against each variable of x, any
        other by its draws, one for each row of y where it reads one, over the rows of x in grey.

        Args:
            x: Rows of x.
            y: Rows of y; a density has none.
        """
        from isr.posterior.plots import fit_plot, pair_plot

        model: Any = self
        bundle = model.to_bundle().named()
        rows = _rows(x)
        labels = [
            f"{n} ({bundle.units[n]})" if n in bundle.units else n for n in (*bundle.x_names, *bundle.y_names)
        ]
        if y is not None and hasattr(model, "predict"):
            n = len(bundle.x_names)
            return fit_plot(rows, _rows(y), _rows(model.predict(x)), labels[:n], labels[n:])
        drawn = model.sample(len(rows)) if y is None else model.sample(y, 1)[:, 0]
        return pair_plot(
            drawn[np.isfinite(drawn).all(axis=1)], bundle.x_names, units=bundle.units, prior=rows,
            title="rows in grey, draws of the model in blue",
        )  # fmt: skip

    def _repr_html_inner(self) -> str:
        return self._found_html() + super()._repr_html_inner()  # type: ignore[misc]

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        forms = super()._repr_mimebundle_(**kwargs)  # type: ignore[misc]
        return {k: self._found_html() + v if k == "text/html" else v for k, v in forms.items()}

    def _found_html(self) -> str:
        """What was found, for notebooks; scikit-learn's own form shows the parameters."""
        model: Any = self
        return model.to_bundle()._repr_html_() if hasattr(self, "fit_") or hasattr(self, "law_") else ""


def _rows(values: Any) -> np.ndarray:
    array = np.asarray(values, dtype=float)
    return array[:, None] if array.ndim == 1 else array

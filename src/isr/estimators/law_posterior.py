"""The posterior that the laws of a `LawRegressor` imply, with a stated prior and noise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import sympy

from isr.inversion.law import Column, Group, Law
from isr.inversion.posterior import LawPosterior
from isr.inversion.prior import of_prior
from isr.posterior.posterior import read_observations
from isr.posterior.priors import parse_prior
from isr.search.evaluate import symbol
from isr.search.formula import Formula
from isr.tables.names import symbol_names
from isr.tables.tables import Columns

if TYPE_CHECKING:
    from isr.estimators.law_regressor import LawRegressor


def posterior_of(model: LawRegressor, y_star: Any, prior: Any, noise: Any) -> LawPosterior:
    """Return the posterior of x given observations of y under a model's laws."""
    x_names, y_names = model._x_names(), model.y_names_
    sd = np.broadcast_to(np.asarray(noise, dtype=float), (len(y_names),))
    if not np.all(np.isfinite(sd) & (sd >= 0)):
        raise ValueError(f"noise is a standard deviation of 0 or more for each output, got {noise!r}")
    names = symbol_names([*x_names, *y_names])[: len(x_names)]
    table = {symbol(f"x{j + 1}"): symbol(name) for j, name in enumerate(names)}
    laws = [c.expression.xreplace(table) for c in model.fit_.candidates[model.chosen_]]
    columns = tuple(
        Column(name, i, Formula(law), Formula(sympy.Float(s) if s else sympy.Integer(0)))
        for i, (name, law, s) in enumerate(zip(y_names, laws, sd.tolist(), strict=True))
    )
    law = Law(tuple(names), columns, tuple(Group((i,)) for i in range(len(columns))))
    units = model.units or {}
    known = Columns(tuple(y_names), tuple(units.get(n) for n in y_names))
    rows = read_observations(y_star, known)
    return LawPosterior(law, of_prior(parse_prior(prior), names), rows, x_names, y_names, units=units)

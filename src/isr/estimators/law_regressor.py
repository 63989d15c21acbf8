"""LawRegressor: symbolic regression that finds laws, with the interface of scikit-learn."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, Self

import jax
import numpy as np
import sympy
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from isr.estimators.formula_regressor import FormulaRegressor, Rows
from isr.estimators.law_fit import fit_laws, left_over, refitted
from isr.estimators.rows import n_held_out
from isr.estimators.settings import explains_wrong_options, seed_of
from isr.estimators.status import Status
from isr.formulas.front import Point
from isr.search import FUNCTIONS
from isr.search.evaluate import symbol
from isr.search.formula import Formula
from isr.tables.names import did_you_mean, symbol_names
from isr.tables.tables import Columns, split_rows
from isr.tables.workers import is_watched
from isr.training.checkpoint import History

if TYPE_CHECKING:
    from isr.posterior.abstract import AbstractPosterior


@explains_wrong_options
@dataclass(eq=False, repr=False)
class LawRegressor(FormulaRegressor):
    """Finds ``y = f(x)`` as short laws, one for each output.

    Args:
        library: ``"auto"``, or names of the functions that a law may call: sqrt, reciprocal, exp, log, sin, cos,
            tan, asin, acos, atan, sinh, cosh, tanh, sigmoid, abs. Sums, products and whole powers are always there.
        units: Unit of a variable of x or y, by name; laws whose units cannot match are not tried.
        max_time: Seconds after which the best so far is kept.
        verbose: Whether progress is shown; None for only when standard error is a terminal.
        random_state: Seed.

    Attributes:
        formulas_: The model.
        expressions_: Its equations; as a sequence, a SymPy expression for each output.
        y_names_: What the outputs are called: the columns of y, or y, y1, y2, ...
        front_: Accuracy against complexity, a pandas frame; the constant and the linear law come first.
        errors_: Standard errors of the constants.
        residual_sd_: Standard deviation of what each law leaves.
        status_: How the fit ended.

    Example:
        >>> import numpy as np
        >>> x = np.random.default_rng(0).uniform(1, 3, size=(200, 2))
        >>> model = LawRegressor().fit(x, x[:, 0] / (1 + x[:, 1] ** 2))
        >>> model.expressions_, model.expressions_[0]
        (y = x1/(x2**2 + 1), x1/(x2**2 + 1))
        >>> model.predict([[1.0, 2.0]]), model.errors_.shape, len(model.formulas_.trees)
        (array([0.2]), (0,), 1)
        >>> model.front_["equations"].iloc[0][:5], model.choose(complexity=1).expressions_.n_constants
        ('y = 0', 1)
        >>> box = {"x1": (1, 3), "x2": (1, 3)}
        >>> LawRegressor().fit(x, x[:, 0] * x[:, 1]).posterior(2.0, prior=box, noise=0.1)
        Posterior of x1, x2 given y = 2
        >>> import isr, pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "law.isr"
        >>> model.save(path)
        >>> isr.load(path).predict([[1.0, 2.0]]).shape
        (1, 1)
    """

    library: str | Iterable[str] = "auto"
    _: KW_ONLY
    units: Mapping[str, str] | None = None
    max_time: float = 60.0
    verbose: bool | None = None
    random_state: int | np.random.RandomState | None = None

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Find laws of y, one column or several, from the rows of X."""
        functions = _functions(self.library)
        if not (isinstance(self.max_time, int | float) and self.max_time > 0):
            raise ValueError(f"max_time is a number of seconds above 0, got {self.max_time!r}")
        rows = self._checked(X, y, sample_weight)
        self.seed_ = seed_of(self.random_state)
        split = split_rows(len(rows.x), held_out=n_held_out(len(rows.x)), random_state=self.seed_)
        is_shown = is_watched() if self.verbose is None else self.verbose
        with jax.enable_x64(True):
            laws = fit_laws(
                rows.some(split.train), rows.some(split.held_out), library=functions, units=self._units_of_outputs(),
                max_time=float(self.max_time), seed=self.seed_,
                say=(lambda what: print(f"search: {what}", file=sys.stderr)) if is_shown else None,
            )  # fmt: skip
            self.fit_: Any = refitted(laws, rows)
        self.history_ = History()
        self.residual_sd_ = np.array([c.residual_sd for c in self.fit_.candidates[self.fit_.chosen]])
        self._use(self.fit_.chosen)
        self.status_ = self._judged(rows)
        if not self.status_.ok:
            warnings.warn(str(self.status_), ConvergenceWarning, stacklevel=2)
        return self

    def _units_of_outputs(self) -> list[dict[str, str] | None]:
        if not self.units:
            return [None] * len(self.y_names_)
        known = {f"x{j + 1}": self.units[n] for j, n in enumerate(self._x_names()) if n in self.units}
        return [{**known, **({"y": self.units[n]} if n in self.units else {})} for n in self.y_names_]

    def _judged(self, rows: Rows) -> Status:
        """How the fit ended: what the laws leave unexplained, and the best that was found."""
        left = left_over(self.fit_, rows)
        if not left:
            return Status(True, f"converged in {self.fit_.seconds:.1f} s")
        i, share = max(left, key=lambda item: item[1])
        best = sorted((c[i] for c in self.fit_.candidates), key=lambda c: c.description_length)[:3]
        texts = "; ".join(Formula(c.expression).text() for c in best)
        what = f"what the law of {self.y_names_[i]} leaves, {share:.2g} of the spread, still depends on x"
        return Status(
            False, f"{what}; best found: {texts}", "give it more time, more rows, or another library"
        )

    @property
    def errors_(self) -> np.ndarray:
        """Standard errors of the constants of the model in use."""
        check_is_fitted(self, "fit_")
        return self.fit_.errors(self.chosen_)

    def choose(self, *, complexity: int | None = None, rule: str | None = None) -> Self:
        """Use another law of the front: the most accurate one no more complex than ``complexity``, or by a rule.

        ``rule`` is ``"description"`` (the shortest description of law and rows, as after the fit) or ``"accuracy"``.
        """
        check_is_fitted(self, "fit_")
        points: list[Point] = self.fit_.front
        fitting = [i for i, p in enumerate(points) if complexity is None or p.complexity <= complexity]
        if not fitting:
            least = min(p.complexity for p in points)
            raise ValueError(
                f"no law has complexity {complexity} or less; the simplest on the front has {least}"
            )
        if rule not in (None, "description", "accuracy"):
            raise ValueError(f"unknown rule {rule!r}; known: description, accuracy")
        if complexity is None and rule != "accuracy":
            self._use(self.fit_.chosen)
        else:
            self._use(min(fitting, key=lambda i: points[i].held_out_nats))
        return self

    def _metadata(self, **more: Any) -> dict[str, Any]:
        return {
            "front": self._figures(), "status": str(self.status_), "seed": self.seed_,
            "constants": {"errors": self.errors_, "labels": {}}, "equations": [str(e) for e in self.expressions_],
            **more,
        }  # fmt: skip

    def posterior(self, y_star: Any, *, prior: Any, noise: Any = None) -> AbstractPosterior:
        """Return the posterior of x given one observation of y, or several of the same x as rows.

        Args:
            y_star: Values in order, or a mapping by name.
            prior: What is known of x: a mapping from name to ``(low, high)`` or to a frozen SciPy distribution.
            noise: Standard deviation of an observation, one number or one for each output; that of the residuals if
                left out.
        """
        from isr.inversion.law import Column, Group, Law
        from isr.inversion.posterior import LawPosterior
        from isr.inversion.prior import of_prior
        from isr.posterior.posterior import read_observations
        from isr.posterior.priors import parse_prior

        check_is_fitted(self, "fit_")
        x_names, y_names, units = self._x_names(), self.y_names_, self.units or {}
        given = self.residual_sd_ if noise is None else noise
        sd = np.broadcast_to(np.asarray(given, dtype=float), (len(y_names),))
        if not np.all(np.isfinite(sd) & (sd >= 0)):
            raise ValueError(f"noise is a standard deviation of 0 or more for each output, got {noise!r}")
        names = symbol_names([*x_names, *y_names])[: len(x_names)]
        table = {symbol(f"x{j + 1}"): symbol(name) for j, name in enumerate(names)}
        laws = [c.expression.xreplace(table) for c in self.fit_.candidates[self.chosen_]]
        columns = tuple(
            Column(name, i, Formula(law), Formula(sympy.Float(s) if s else sympy.Integer(0)))
            for i, (name, law, s) in enumerate(zip(y_names, laws, sd.tolist(), strict=True))
        )
        law = Law(tuple(names), columns, tuple(Group((i,)) for i in range(len(columns))))
        rows = read_observations(y_star, Columns(y_names, tuple(units.get(n) for n in y_names)))
        return LawPosterior(law, of_prior(parse_prior(prior), names), rows, x_names, y_names, units=units)


def _functions(library: Any) -> str | frozenset[str]:
    if isinstance(library, str):
        if library != "auto":
            raise ValueError(
                f"library is 'auto' or a list of names of functions, got {library!r}; write [{library!r}]"
            )
        return library
    names, known = frozenset(library), sorted(FUNCTIONS)
    for name in sorted(names - FUNCTIONS, key=str):
        raise ValueError(
            f"unknown function {name!r}{did_you_mean(str(name), known)}; known: {', '.join(known)}"
        )
    return names

"""LawRegressor: symbolic regression that finds laws, with the interface of scikit-learn."""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import jax
import numpy as np
import sympy
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from isr.bijections.formula import Formulas, Tree
from isr.bijections.parameters import on_device
from isr.equations import extract
from isr.estimators.equation_model import FormulaRegressor, Samples
from isr.estimators.rows import n_held_out
from isr.estimators.settings import explains_wrong_options, seed_of
from isr.estimators.status import Status
from isr.formulas.front import Point
from isr.search import FUNCTIONS, Candidate, Found, find_laws
from isr.search.candidates import fitted, is_flexible, with_errors
from isr.search.evaluate import opened, symbol
from isr.search.formula import Formula
from isr.search.rows import REFIT_ROWS, Data
from isr.search.surrogate import lack_of_fit
from isr.tables.names import did_you_mean, symbol_names
from isr.tables.tables import Columns, split_rows
from isr.training.checkpoint import History

if TYPE_CHECKING:
    from isr.posterior.abstract import AbstractPosterior


# A held-out variance below this share of y's is rounding, not misfit.
FLOOR = 1e-24
# What is left depends on x, by a test at this level, and is more than rounding: the law is not all there is.
REFUTED, LEAST_LEFT = 1e-4, 1e-6


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
        with jax.enable_x64(True):
            laws = fit_laws(
                rows.some(split.train), rows.some(split.held_out), library=functions, units=self._units_of_outputs(),
                max_time=float(self.max_time), seed=self.seed_,
                say=lambda what: self._say(f"search: {self._named(what)}"),
            )  # fmt: skip
            self.fit_: Any = refitted(laws, rows)
        self.history_ = History()
        self.residual_sd_ = np.array([c.residual_sd for c in self.fit_.candidates[self.fit_.chosen]])
        self._use(self.fit_.chosen)
        self.status_ = self._judged(rows)
        if not self.status_.ok:
            warnings.warn(str(self.status_), ConvergenceWarning, stacklevel=2)
        return self

    def _named(self, text: str) -> str:
        """The text of a search, which calls the variables x1, x2, ..., with the user's names."""
        names = self._x_names()
        return re.sub(r"\bx(\d+)\b", lambda found: str(names[int(found[1]) - 1]), text)

    def _units_of_outputs(self) -> list[dict[str, str] | None]:
        if not self.units:
            return [None] * len(self.y_names_)
        known = {f"x{j + 1}": self.units[n] for j, n in enumerate(self._x_names()) if n in self.units}
        return [{**known, **({"y": self.units[n]} if n in self.units else {})} for n in self.y_names_]

    def _judged(self, rows: Samples) -> Status:
        """How the fit ended: what the laws leave unexplained, and the best that was found."""
        left = left_over(self.fit_, rows)
        if not left:
            laws = zip(self.y_names_, self.fit_.candidates[self.fit_.chosen], strict=True)
            long = [f"{n} ({c.n_numbers} numbers)" for n, c in laws if is_flexible(c.expression, len(rows.x))]
            if long:
                what = f"a flexible fit rather than a law: that of {', '.join(long)} is longer than laws are"
                return Status(
                    False, what, "trust it near these rows alone, or look at the shorter laws of front_"
                )
            return Status(True, f"converged in {self.fit_.seconds:.1f} s")
        i, share = max(left, key=lambda item: item[1])
        best = sorted((c[i] for c in self.fit_.candidates), key=lambda c: c.description_length)[:3]
        texts = self._named("; ".join(Formula(c.expression).text() for c in best))
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


@dataclass(frozen=True)
class Laws:
    """Laws of all outputs, from simple to complex; the constant and the linear laws are the first two."""

    front: list[Point]
    candidates: list[list[Candidate]]  # the laws of each output for each point
    chosen: int
    seconds: float  # that the search took

    def errors(self, point: int) -> np.ndarray:
        """Return the standard error of each constant of a point's formulas."""
        return np.array([e for c in self.candidates[point] for e in c.standard_errors])


def fit_laws(
    train: Samples,
    held_out: Samples,
    *,
    library: str | Iterable[str],
    units: Sequence[Mapping[str, str] | None],
    max_time: float,
    seed: int,
    say: Callable[[str], None] | None,
) -> Laws:
    """Search a law for each column of y, each with the forms that the others found as hints."""
    began, names = time.monotonic(), [f"x{j + 1}" for j in range(train.x.shape[1])]
    n, found, hints = train.y.shape[1], [], []
    for i in range(n):
        left = max_time - (time.monotonic() - began)
        told = None if say is None else (lambda what, i=i: say(f"output {i + 1}: {what}" if n > 1 else what))
        found.append(
            find_laws(
                train.x, train.y[:, i], names, weight=train.weight, library=library, units=units[i],
                max_time=max(left / (n - i), 0.1), random_state=seed, say=told, hints=hints,
            )
        )  # fmt: skip
        hints.append(found[-1].best.expression)
    ladders = [_ladder(f, held_out, i, names) for i, f in enumerate(found)]
    down = max(place for _, place in ladders)
    up = max(len(steps) - place for steps, place in ladders)
    combined = [[f.constant for f in found], [f.linear for f in found]]
    for level in range(-down, up):
        combined.append([s[int(np.clip(place + level, 0, len(s) - 1))] for s, place in ladders])
    kept = list({tuple(map(id, laws)): laws for laws in combined}.values())
    best = [id(steps[place]) for steps, place in ladders]
    chosen = next(i for i, laws in enumerate(kept) if [id(law) for law in laws] == best)
    points = [_point(laws, train, held_out, names) for laws in kept]
    return Laws(points, kept, chosen, time.monotonic() - began)


def _ladder(found: Found, held_out: Samples, output: int, names: list[str]) -> tuple[list[Candidate], int]:
    """Laws of which each more complex one leaves less, and the place of the one to use."""
    losses = {id(c): _loss(c, held_out, output, names) for c in found.candidates}
    fine = [c for c in found.candidates if losses[id(c)] <= losses[id(found.linear)] or c is found.constant]
    best = fine[0] if fine else found.linear
    steps: list[Candidate] = []
    for c in sorted(found.candidates, key=lambda c: (c.complexity, c.residual_sd)):
        if c is best or not steps or c.residual_sd < 0.98 * steps[-1].residual_sd:
            steps.append(c)
    return steps, next(i for i, c in enumerate(steps) if c is best)


def _gaps(candidate: Candidate, rows: Samples, output: int, names: Sequence[str]) -> np.ndarray:
    law = opened(candidate.expression, [symbol(n) for n in names])
    return rows.y[:, output] - law.values(list(rows.x.T))


def _loss(candidate: Candidate, rows: Samples, output: int, names: Sequence[str]) -> float:
    gaps = _gaps(candidate, rows, output, names)
    w = np.ones(len(gaps)) if rows.weight is None else rows.weight
    with np.errstate(all="ignore"):
        loss = float(np.average(gaps**2, weights=w)) if len(gaps) and w.sum() > 0 else 0.0
    return loss if np.isfinite(loss) else np.inf


def _point(laws: Sequence[Candidate], train: Samples, held_out: Samples, names: list[str]) -> Point:
    formulas = as_formulas([c.expression for c in laws], names)
    variances = [np.var(y) or 1.0 for y in train.y.T]

    def nats(rows: Samples) -> float:
        losses = [_loss(c, rows, i, names) / variances[i] for i, c in enumerate(laws)]
        return sum(0.5 * float(np.log(loss + FLOOR)) for loss in losses)

    squares = sum(_gaps(c, held_out, i, names) ** 2 / variances[i] for i, c in enumerate(laws))
    cost, size = extract(formulas).complexity, len(formulas.constants)
    return Point(formulas, cost, size, nats(train), nats(held_out), np.asarray(squares))


def refitted(laws: Laws, rows: Samples) -> Laws:
    """Return the same laws with constants fitted to all rows, those that are not used to as many as it takes."""
    names = tuple(f"x{j + 1}" for j in range(rows.x.shape[1]))
    data = [Data.of(names, rows.x, column, rows.weight) for column in rows.y.T]
    some = [d.some(REFIT_ROWS, 0) for d in data]

    def again(number: int, point: list[Candidate]) -> list[Candidate]:
        return [
            with_errors(d, fitted(d, candidate.expression) or candidate)
            for d, candidate in zip(data if number == laws.chosen else some, point, strict=True)
        ]

    every = [again(*pair) for pair in enumerate(laws.candidates)]
    models = [as_formulas([c.expression for c in point], names) for point in every]
    front = [replace(p, model=model) for p, model in zip(laws.front, models, strict=True)]
    return replace(laws, front=front, candidates=every)


def left_over(laws: Laws, rows: Samples) -> list[tuple[int, float]]:
    """Return the outputs whose law leaves something that depends on x, with the share of the spread that it leaves."""
    names, found = [f"x{j + 1}" for j in range(rows.x.shape[1])], []
    index = np.linspace(0, len(rows.x) - 1, min(len(rows.x), 2000)).astype(int)
    some = rows.some(index)
    root = np.ones(len(index)) if some.weight is None else np.sqrt(some.weight / some.weight.mean())
    for i, candidate in enumerate(laws.candidates[laws.chosen]):
        gaps, y = _gaps(candidate, some, i, names), some.y[:, i]
        share = float(np.sqrt(np.mean(gaps**2)) / (np.std(y) or 1.0))
        if share > LEAST_LEFT and len(index) >= 30 and lack_of_fit(some.x, gaps, root) < REFUTED:
            found.append((i, share))
    return found


def as_formulas(expressions: Sequence[sympy.Expr], names: Sequence[str]) -> Formulas:
    """Return expressions as formulas, their decimal numbers as constants in order of appearance.

    Example:
        >>> x = symbol("x1")
        >>> as_formulas([2.5 * sympy.sqrt(x) + 1], ["x1"]).trees[0][0]
        'add'
    """
    places = {symbol(name): j for j, name in enumerate(names)}
    constants: list[float] = []
    trees = tuple(_tree(sympy.sympify(e, strict=True), places, constants) for e in expressions)
    return Formulas(on_device(np.array(constants, dtype=np.float64).reshape(-1)), trees, 1, len(names))


def _tree(e: Any, places: Mapping[Any, int], constants: list[float]) -> Tree:
    if e in places:
        return ("input", places[e])
    if e.is_Float:
        constants.append(float(e))
        return ("constant", len(constants) - 1)
    if e.is_Integer and abs(e) < 2**53:
        return ("number", int(e))
    if e.is_number and not e.has(sympy.Float):
        return ("number", float(e))
    if e.is_Add or e.is_Mul:
        return ("add" if e.is_Add else "mul", *(_tree(a, places, constants) for a in e.args))
    if e.is_Pow:
        base = _tree(e.base, places, constants)
        if e.exp.is_Integer:
            return ("pow", base, int(e.exp))
        if e.exp == sympy.S.Half:
            return ("plain", "sqrt", base)
        power = ("number", float(e.exp)) if e.exp.is_number else _tree(e.exp, places, constants)
        return ("plain", "power", base, power)
    return ("plain", type(e).__name__, _tree(e.args[0], places, constants))

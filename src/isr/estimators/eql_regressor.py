"""EQLRegressor: plain symbolic regression by an equation-learner network, with the interface of scikit-learn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
import sympy
from jaxtyping import Array, Float

from isr.bijections.affine import Standardise, standardise
from isr.bijections.formula import Formulas
from isr.bijections.networks import EQL, build_eql
from isr.bijections.parameters import flatten, n_constants
from isr.equations import extract
from isr.estimators import pipeline
from isr.estimators.equation_model import FormulaRegressor, Samples
from isr.estimators.pipeline import MAX_CONSTANTS, Arrays, Criterion, Fitted
from isr.estimators.rows import n_held_out
from isr.estimators.settings import Effort, Plan, Training, explains_wrong_options
from isr.estimators.status import DivergedError
from isr.formulas import to_formulas
from isr.formulas.front import choose, pareto
from isr.formulas.to_formulas import input_symbols, network_expressions, without_idle_guards
from isr.tables.arrays import LARGEST, refuse_extremes
from isr.tables.tables import split_rows
from isr.training.monitor import Monitor
from isr.training.population import Population

N_REFINED = 5
# A residual variance below this share of y's is rounding, not misfit; a network is not expected to be that exact.
FLOOR = 1e-24
COARSE_FLOOR = 1e-8

Library = Mapping[str, int] | Sequence[str]

LIBRARY = {"constant": 1, "id": 2, "square": 2, "sin2pi": 2, "exp": 1, "sigmoid": 1, "product": 2}


@explains_wrong_options
@dataclass(eq=False, repr=False)
class EQLRegressor(FormulaRegressor):
    """Learns ``y = f(x)`` as short formulas, one for each output.

    Args:
        n_layers: Hidden layers of the network that is pruned into formulas.
        library: Library of functions with multiplicities; constant, identity, square, sine, exponential, sigmoid
            and product when None.
        units: Unit of a variable of x or y, by name.
        training: How it is trained, an `isr.Training`; its effort alone (``"quick"``) will do.
        random_state: Seed.

    Attributes:
        formulas_: The model.
        expressions_: Its equations; as a sequence, a SymPy expression for each output.
        y_names_: What the outputs are called: the columns of y, or y, y1, y2, ...
        front_: Accuracy against complexity, a pandas frame.
        errors_: Standard errors of the constants.
        history_: Training curves.
        status_: How the fit ended.

    Example:
        >>> import numpy as np
        >>> x = np.linspace(-1, 1, 64)[:, None]
        >>> model = EQLRegressor(n_layers=1, training="quick", random_state=0).set_params(training__n_restarts=2)
        >>> model = model.fit(x, 2 * x[:, 0] ** 2)
        >>> model.expressions_, model.expressions_[0]
        (y = 2*x1**2, 2*x1**2)
        >>> model.predict([[0.5]]), model.score(x, 2 * x[:, 0] ** 2)
        (array([0.5]), 1.0)
        >>> model.front_["n_parameters"].tolist(), model.errors_.shape, len(model.formulas_.trees)
        ([1], (1,), 1)
        >>> model.choose(complexity=100).to_bundle()
        <saved EQLRegressor of x1, giving y>
        >>> import isr, pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "law.isr"
        >>> model.save(path)
        >>> isr.load(path).expressions
        y = 2*x1**2
    """

    n_layers: int = 2
    _: KW_ONLY
    library: Library | None = None
    units: Mapping[str, str] | None = None
    training: Training | Effort | str | None = None
    random_state: int | np.random.RandomState | None = None

    _usual_training: ClassVar[Training] = Training(n_restarts=9, batch_size=64)

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> EQLRegressor:
        """Learn formulas for y, one column or several, from the rows of X."""
        rows = self._checked(X, y, sample_weight)
        for values, what in ((rows.x, "X"), (rows.y, "y")):
            names = [f"{what}{i + 1}" for i in range(values.shape[1])]
            refuse_extremes(values, names, what=what, largest=LARGEST)
        library = LIBRARY if self.library is None else self.library
        fit = partial(fit_regression, rows, library, self.n_layers)
        self._run(fit, len(rows.x) - n_held_out(len(rows.x)))
        return self

    def _training(self) -> Training:
        training = super()._training()
        if training.backward is not None:
            raise ValueError("backward means nothing to EQLRegressor; leave it out of its training")
        return training

    def _metadata(self, **more: Any) -> dict[str, Any]:
        return super()._metadata(equations=[str(e) for e in self.expressions_], **more)


def fit_regression(samples: Samples, library: Library, n_layers: int, plan: Plan) -> Fitted:
    """Fit formulas for every column of y to rows of x, by least squares: train, prune, refine, choose, polish."""
    split = split_rows(len(samples.x), held_out=n_held_out(len(samples.x)), random_state=plan.seed)
    x_scale, y_scale = standardise(samples.x[split.train]), standardise(samples.y[split.train])
    raw = [_arrays(samples.some(rows), samples, np.asarray(y_scale.scale)) for rows in split]
    train, held_out = (_standard(arrays, x_scale) for arrays in raw)
    networks, population = _train(train, held_out, library, n_layers, plan)
    pruned = pipeline.prune(networks, row_loss, train, plan.monitor, nats=_nats(COARSE_FLOOR))
    criterion = _criterion(*raw, plan.monitor)
    front = pareto(pipeline.refine(_open(pruned, x_scale, y_scale), criterion))
    if not front:
        raise DivergedError
    chosen = choose(front, plan.training.selection, n_rows=len(split.train))
    front[chosen] = pipeline.polish(front[chosen], criterion, snapping=plan.training.snap)
    front = [replace(p, model=without_idle_guards(p.model, samples.x)) for p in front]
    return Fitted(front, chosen, population, len(split.train))


def _arrays(rows: Samples, every: Samples, width: np.ndarray) -> Arrays:
    """Rows, batch last; errors of y count in its own spread."""
    arrays = {"x": rows.x.T, "y": rows.y.T, "scale": np.broadcast_to(width[:, None], rows.y.T.shape)}
    if rows.weight is not None and every.weight is not None:
        arrays["weight"] = (rows.weight / np.mean(every.weight))[None, :]
    return arrays


def _standard(arrays: Arrays, x_scale: Standardise) -> Arrays:
    shift, scale = np.asarray(x_scale.shift)[:, None], np.asarray(x_scale.scale)[:, None]
    y = arrays["y"] / arrays["scale"]
    return {**arrays, "x": (arrays["x"] - shift) / scale, "y": y, "scale": np.ones_like(y)}


def row_loss(formulas: Formulas | EQL, data: dict[str, Float[Array, "width n"]]) -> Float[Array, " n"]:
    """Return the squared error of every row, summed over the outputs, in units of y's variance."""
    residual = (formulas.columns(data["x"])[0] - data["y"]) / data["scale"]
    return jnp.sum(residual**2, axis=0)


def _criterion(train: Arrays, held_out: Arrays, monitor: Monitor) -> Criterion:
    def tidy(formulas: Formulas) -> Formulas:
        return _formulas([to_formulas.with_small_phases(e) for e in network_expressions(formulas)], formulas)

    def is_finite(formulas: Formulas) -> bool:
        losses = row_loss(formulas, {k: jnp.asarray(v[:, :512]) for k, v in train.items()})
        return bool(np.all(np.isfinite(np.asarray(losses))))

    def cost(formulas: Formulas) -> int:
        return extract(formulas).complexity

    return Criterion(row_loss, train, held_out, cost, tidy, is_finite, monitor, _nats(FLOOR))


def _nats(floor: float) -> Callable[[float], float]:
    return lambda loss: 0.5 * float(np.log(loss + floor))


def _formulas(expressions: Sequence[to_formulas.Expression], like: Formulas | EQL) -> Formulas:
    short = [to_formulas.shortest(e) for e in expressions]
    return to_formulas.build_formulas(short, like.n_inputs, stack=1)


@dataclass(frozen=True)
class _Objective:
    """The mean loss of a batch, weighted where the rows are."""

    restore: Callable[[Any], EQL]

    def __call__(self, weights: Any, batch: Any, key: Any, moment: Any) -> Any:
        losses = row_loss(self.restore(weights), batch)
        return jnp.mean(losses * batch["weight"][0] if "weight" in batch else losses)


def _train(
    data: Arrays, held_out: Arrays, library: Library, n_layers: int, plan: Plan
) -> tuple[list[EQL], Population]:
    """Return the networks that a few constants take far, one for each set of functions in use, and all of them."""
    shape: dict[str, Any] = {"n_layers": n_layers, "library": library, "skip": True, "last_scale": 0.3}
    population, restore = pipeline.train_networks(
        plan, lambda key: build_eql(key, len(data["x"]), len(data["y"]), **shape), _Objective, data, held_out,
        about=repr((library, n_layers)),
    )  # fmt: skip
    networks = [restore(np.asarray(w, np.float64)) for w in population.weights if np.all(np.isfinite(w))]
    pairs = zip(networks, population.held_out, strict=False)
    worth = [float(np.log(loss + 1e-6)) + 0.1 * n_constants(network) for network, loss in pairs]
    kept: dict[frozenset[str], EQL] = {}
    for i in np.argsort(worth, kind="stable"):
        network = _thinned(networks[i])
        kept.setdefault(to_formulas.functions_in(network_expressions(network)), network)
        if len(kept) == N_REFINED:
            break
    return list(kept.values()), population


def _thinned(network: EQL) -> EQL:
    """Return the network with at most so many weights in use as can be refined: the largest."""
    vector, restore = flatten(network)
    size = np.abs(np.asarray(vector))
    if np.count_nonzero(size) <= MAX_CONSTANTS:
        return network
    return restore(jnp.where(size >= np.sort(size)[-MAX_CONSTANTS], vector, 0.0))


def _open(networks: Sequence[EQL], x_scale: Standardise, y_scale: Standardise) -> list[Formulas]:
    """Return networks as formulas in units of x and y, no two of the same structure."""
    scales = zip(input_symbols(x_scale.dim), x_scale.shift, x_scale.scale, strict=True)
    raw = {s: (s - sympy.Float(m) if m else s) / sympy.Float(w) for s, m, w in scales}
    opened: dict[Any, Formulas] = {}
    for network in networks:
        outputs = zip(y_scale.scale, network_expressions(network), strict=True)
        formulas = _formulas([sympy.Float(width) * e.xreplace(raw) for width, e in outputs], network)
        opened.setdefault(formulas.trees, formulas)
    return list(opened.values())

"""One refit of all constants of a law together, by maximum likelihood, with standard errors, sharing and snapping.

Equal numbers are one constant: sharing two constants means giving them the same value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import sympy
from jaxtyping import Float

from isr.equations.program import replaced
from isr.inversion.law import Group, Law
from isr.search.formula import Formula, _floats, symbol

MOST_ROWS, MOST_STEPS = 30_000, 100
# Constants smaller than this share of the largest count as so large where steps of derivatives are chosen.
LEAST_STEP = 1e-3
FLOORS = (0.3, 0.1, 0.03, 0.01, 3e-3, 1e-3, 1e-4, 0.0)
FULL_CIRCLE = float(2 * np.pi)
# A scale that falls below this share of its median may have a floor.
VANISHING = 0.1
# A constant may become a simple number where its error is below this share of the step between such numbers.
FINE = 0.06


@dataclass(frozen=True, eq=False)
class Refitted:
    """A law with its best constants, their values and covariance, and its likelihood over the rows that were used.

    Values come in the order of `constants_of` its law.
    """

    law: Law
    log_likelihood: float
    values: Float[np.ndarray, " k"]
    covariance: Float[np.ndarray, "k k"]
    n_rows: int

    @property
    def bic(self) -> float:
        """Bayesian information criterion; smaller is better."""
        return len(self.values) * float(np.log(self.n_rows)) - 2 * self.log_likelihood


def refit(
    law: Law,
    x: Float[np.ndarray, "n d"],
    y: Float[np.ndarray, "n d_y"],
    *,
    frozen: Sequence[float] = (),
) -> Refitted:
    """Return the law with the constants of largest likelihood, and their errors; frozen ones stay as they are."""
    if len(x) > MOST_ROWS:
        rows = np.random.default_rng(0).choice(len(x), MOST_ROWS, replace=False)
        x, y = x[rows], y[rows]
    values = np.array(constants_of(law, frozen))
    if not len(values):
        total = float(np.sum(law.log_prob(x, y, paired=True)))
        return Refitted(law, total, values, np.zeros((0, 0)), len(x))
    objective = _Objective.of(law, frozen, x, y)
    is_log = objective.is_log
    values[is_log] = np.log(values[is_log])
    # A scale that all but vanishes somewhere ties constants down too hard to start with: its floor is lowered in steps.
    vanishing = any(c.scale.variables and not own_floor(c.scale) for c in law.columns)
    for floor in FLOORS if vanishing else (0.0,):
        values = _minimised(objective, values, floor)
    covariance = _inverse(objective.hessian(values, 0.0) * len(x), objective.units(values))
    log_likelihood = -objective.value(values, 0.0) * len(x)
    values[is_log] = np.exp(values[is_log])
    size = np.where(is_log, values, 1.0)
    covariance = covariance * np.outer(size, size)
    best = _with_values(law, constants_of(law, frozen), values, np.sqrt(np.maximum(np.diag(covariance), 0.0)))
    has_ring = any(g.noise.kind == "ring" for g in law.groups)  # which is fitted as a whole one
    total = log_likelihood if has_ring else float(np.sum(best.log_prob(x, y, paired=True)))
    # Terms change places with their values, and so do the constants of the law.
    place = {value: i for i, value in enumerate(values.tolist())}
    order = [place[v] for v in constants_of(best, frozen) if v in place]
    return Refitted(best, total, values[order], covariance[np.ix_(order, order)], len(x))


def _free_numbers(group: Group) -> tuple[float, ...]:
    """Those numbers of the noise of a group that a refit may move."""
    return group.noise.parameters[: group.noise.family.free]


def constants_of(law: Law, frozen: Sequence[float]) -> list[float]:
    """Return every constant that may move, once."""
    own = [v for formula in law.all_formulas for v in formula.constants]
    own += [v for group in law.groups for v in _free_numbers(group)]
    return [v for v in dict.fromkeys(own) if v not in set(frozen)]


def own_floor(scale: Formula) -> set[float]:
    """Return the numbers below which the square of a scale does not fall."""
    e = scale.expression
    parts = e.base.args if e.is_Pow and e.exp == sympy.S.Half and e.base.is_Add else ()
    return {float(part) for part in parts if part.is_Float and part > 0}


def with_floors(law: Law, x: np.ndarray) -> Law | None:
    """Return the law with a floor below scales that all but vanish somewhere; None where none does."""
    columns, sizes = list(law.columns), law.parts(x)[1]
    for j, (column, size) in enumerate(zip(law.columns, sizes, strict=True)):
        middle = float(np.median(size))
        if column.scale.variables and not own_floor(column.scale) and size.min() < VANISHING * middle:
            floor = sympy.Float((VANISHING * middle) ** 2)
            columns[j] = replace(column, scale=Formula(sympy.sqrt(column.scale.expression**2 + floor)))
    return None if columns == list(law.columns) else replace(law, columns=tuple(columns))


def _mapped(law: Law, moved: Callable[[Formula], Formula], number: Callable[[float], float]) -> Law:
    """The law with its formulas and the numbers of its noise replaced."""
    columns = tuple(replace(c, mean=moved(c.mean), scale=moved(c.scale)) for c in law.columns)
    groups = []
    for group in law.groups:
        free = _free_numbers(group)
        numbers = (*map(number, free), *group.noise.parameters[len(free) :])
        correlation = None if group.correlation is None else moved(group.correlation)
        groups.append(replace(group, noise=replace(group.noise, parameters=numbers), correlation=correlation))
    return replace(law, columns=columns, groups=tuple(groups))


def _with_values(law: Law, constants: Sequence[float], values: np.ndarray, errors: np.ndarray) -> Law:
    fresh = dict(zip(constants, values.tolist(), strict=True))
    known = dict(zip(values.tolist(), errors.tolist(), strict=True))
    table = {sympy.Float(old): sympy.Float(new) for old, new in fresh.items()}

    def moved(formula: Formula) -> Formula:
        new = replaced(formula.expression, table)
        return Formula(new, tuple(known.get(float(c), float("nan")) for c in _floats(new)))

    return _mapped(law, moved, lambda v: fresh.get(v, v))


@dataclass(frozen=True, eq=False)
class _Objective:
    """The mean negative log-likelihood of constants with its gradient, where scales without a floor are given one.

    Constants are floats as they are, but logarithms where they are the floor of a scale, which stays positive.
    """

    evaluate: Callable[[np.ndarray, float], tuple[float, np.ndarray]]
    is_log: np.ndarray
    least: np.ndarray

    @classmethod
    def of(cls, law: Law, frozen: Sequence[float], x: np.ndarray, y: np.ndarray) -> _Objective:
        import jax
        import jax.numpy as jnp

        n, k, function = len(x), len(law.columns), _opened(law, frozen)
        floors = [own_floor(c.scale) for c in law.columns]
        is_log = np.array([any(v in own for own in floors) for v in constants_of(law, frozen)])
        typical = np.median(law.parts(x)[1], axis=1)
        place = {c: i for i, c in enumerate(constants_of(law, frozen))}

        def mean_loss(values: Any, floor: Any, columns: Any, targets: Any) -> Any:
            found = [jnp.broadcast_to(jnp.asarray(v, float), (n,)) for v in function(*columns, *values)]
            # The size of a scale without a floor is taken as it is, for the root of its square has no slope at 0.
            scales = [
                v if own else jnp.where(floor > 0, jnp.sqrt(v * v + (floor * t) ** 2 + 1e-300), v)
                for v, t, own in zip(found[k : 2 * k], typical, floors, strict=True)
            ]
            noises = [
                [
                    values[place[v]] if i < g.noise.family.free and v in place else v
                    for i, v in enumerate(_circle(g))
                ]
                for g in law.groups
            ]
            return -jnp.mean(law.log_density([*found[:k], *scales, *found[2 * k :]], targets, jnp, noises))

        compiled = jax.jit(jax.value_and_grad(mean_loss))
        given = [np.asarray(c.transformed(y[:, c.index])) for c in law.columns]
        columns = [np.ascontiguousarray(c) for c in x.T]

        def evaluate(values: np.ndarray, floor: float) -> tuple[float, np.ndarray]:
            with (
                jax.enable_x64(True),
                jax.numpy_dtype_promotion("standard"),
                jax.numpy_rank_promotion("allow"),
            ):
                raw = np.where(is_log, np.exp(np.where(is_log, values, 0.0)), values)
                loss, gradient = compiled(raw, float(floor), columns, given)
            return float(loss), np.asarray(gradient) * np.where(is_log, raw, 1.0)

        return cls(evaluate, is_log, np.where(is_log, LEAST_STEP, _least_steps(law, frozen)))

    def units(self, values: np.ndarray) -> np.ndarray:
        """The sizes of constants, those near zero at least so large that derivatives have steps."""
        return np.maximum(np.abs(values), self.least)

    def value(self, values: np.ndarray, floor: float) -> float:
        return self.evaluate(values, floor)[0]

    def hessian(self, values: np.ndarray, floor: float) -> np.ndarray:
        steps, rows = 1e-5 * self.units(values), []
        for step in np.diag(steps):
            ahead, behind = (self.evaluate(v, floor)[1] for v in (values + step, values - step))
            rows.append((ahead - behind) / (2 * step.sum()))
        hessian = np.nan_to_num(np.array(rows))
        return 0.5 * (hessian + hessian.T)


def _least_steps(law: Law, frozen: Sequence[float]) -> np.ndarray:
    """The size below which constants count as none: of means and of scales apart, which may be in tiny units."""
    roles, constants = _roles(law), np.abs(constants_of(law, frozen))
    kinds = np.array([roles.get(v, "noise").split()[0] for v in constants_of(law, frozen)])
    largest = [min(1.0, float(constants[kinds == kind].max())) for kind in kinds]
    return LEAST_STEP * np.array(largest)


def _opened(law: Law, frozen: Sequence[float]) -> Callable[..., Any]:
    """A function of the columns of x and of the constants that gives every formula, in JAX."""
    import jax.scipy.special as special

    constants = constants_of(law, frozen)
    symbols = [sympy.Symbol(f"constant_{i}", real=True) for i in range(len(constants))]
    table = {sympy.Float(c): s for c, s in zip(constants, symbols, strict=True)}
    modules = [{"Phi": special.ndtr, "PhiInverse": special.ndtri}, "jax"]
    expressions = [f.expression.xreplace(table) for f in law.all_formulas]
    return sympy.lambdify([*map(symbol, law.x_names), *symbols], expressions, modules=modules, cse=True)


def _circle(group: Group) -> tuple[float, ...]:
    """Numbers of the noise; a ring is fitted as a whole one, for its ends are no smooth function of constants."""
    numbers = group.noise.parameters
    return (numbers[0], 0.0, FULL_CIRCLE) if group.noise.kind == "ring" else numbers


def _decomposed(hessian: np.ndarray, unit: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The size of each constant's slope, no smaller than its unit lets it, and eigenvalues and vectors in that size."""
    size = np.sqrt(np.maximum(np.abs(np.diag(hessian)), 1e-12 / unit**2))
    return size, *np.linalg.eigh(hessian / np.outer(size, size))


def _inverse(information: np.ndarray, unit: np.ndarray) -> np.ndarray:
    """The inverse of an information matrix; directions that the rows do not fix have a huge variance."""
    size, eigenvalues, vectors = _decomposed(information, unit)
    return (vectors / np.maximum(eigenvalues, 1e-9)) @ vectors.T / np.outer(size, size)


def _minimised(objective: _Objective, start: np.ndarray, floor: float) -> np.ndarray:
    """Newton's method with a second-order model that is made positive and a step that is halved until it helps."""
    values, current = start, objective.value(start, floor)
    for _ in range(MOST_STEPS):
        slope = objective.evaluate(values, floor)[1]
        if not np.all(np.isfinite(slope)):
            break
        size, eigenvalues, vectors = _decomposed(objective.hessian(values, floor), objective.units(values))
        step = -(vectors @ ((vectors.T @ (slope / size)) / np.maximum(np.abs(eigenvalues), 1e-7))) / size
        length = 1.0
        while length > 1e-6:
            tried = objective.value(values + length * step, floor)
            if np.isfinite(tried) and tried <= current + 1e-4 * length * float(slope @ step):
                break
            length /= 2
        else:
            break
        gain, values, current = current - tried, values + length * step, tried
        if gain < (1e-6 if floor else 1e-9):
            break
    return values


# Sharing and snapping ------------------------------------------------------------------------------------------


def simplified(
    fitted: Refitted,
    x: Float[np.ndarray, "n d"],
    y: Float[np.ndarray, "n d_y"],
    *,
    frozen: Sequence[float] = (),
) -> Refitted:
    """Return the law with constants shared, and then snapped to simple numbers, where BIC gains by it."""
    for _ in range(8):
        table = _clusters(fitted, frozen)
        tried = refit(_replaced(fitted.law, table), x, y, frozen=frozen) if table else fitted
        if not tried.bic < fitted.bic:
            break
        fitted = tried
    return _snapped(fitted, x, y, frozen)


def _roles(law: Law) -> dict[float, str]:
    """What a constant does: constants of means, of scales, of correlations and of noise are not shared."""
    roles: dict[float, str] = {}
    formulas = [(kind, f) for c in law.columns for kind, f in (("mean", c.mean), ("scale", c.scale))]
    formulas += [("correlation", g.correlation) for g in law.groups if g.correlation is not None]
    for kind, formula in formulas:
        for number, constant in enumerate(formula.constants):
            roles.setdefault(constant, f"{kind} {number}")
    for group in law.groups:
        for number, value in enumerate(_free_numbers(group)):
            roles.setdefault(value, f"noise {number}")
    return roles


def _replaced(law: Law, table: Mapping[float, Any]) -> Law:
    exchange = {sympy.Float(old): sympy.sympify(new, strict=True) for old, new in table.items()}
    return _mapped(law, lambda f: Formula(replaced(f.expression, exchange)), lambda v: float(table.get(v, v)))


def _clusters(fitted: Refitted, frozen: Sequence[float]) -> dict[float, float]:
    """Constants of one role that lie within their errors of each other, with the mean that they may share."""
    roles, price, constants = (
        _roles(fitted.law),
        float(np.log(fitted.n_rows)),
        constants_of(fitted.law, frozen),
    )
    variance, table, used = np.diag(fitted.covariance), dict[float, float](), set[int]()

    def is_near(i: int, j: int) -> bool:
        spread = max(variance[i] + variance[j] - 2 * fitted.covariance[i, j], 0.0)
        same = roles.get(constants[i]) == roles.get(constants[j])
        return same and (constants[i] - constants[j]) ** 2 < 0.9 * price * spread

    for i in range(len(constants)):
        if i in used:
            continue
        cluster = [i, *(j for j in range(i + 1, len(constants)) if j not in used and is_near(i, j))]
        if len(cluster) > 1:
            used |= set(cluster)
            weights = 1 / np.maximum(variance[cluster], 1e-300)
            mean = float(np.average([constants[j] for j in cluster], weights=weights))
            table |= {constants[j]: mean for j in cluster}
    return table


def _snapped(fitted: Refitted, x: np.ndarray, y: np.ndarray, frozen: Sequence[float]) -> Refitted:
    """Constants that lie within their errors of a simple number become that number: all at once, else one by one."""
    refused: set[float] = set()
    together = True
    for _ in range(12):
        near = _near(fitted, frozen, refused)
        if not near:
            return fitted
        chosen = near if together else near[:1]
        law = _replaced(fitted.law, dict(chosen))
        is_lost = any(
            c.is_exact and not k.is_exact for c, k in zip(law.columns, fitted.law.columns, strict=True)
        )
        tried = None if is_lost else refit(law, x, y, frozen=frozen)
        if tried is not None and tried.bic < fitted.bic + 1e-9:
            fitted, refused = tried, set()
        elif together and len(chosen) > 1:
            together = False
        else:
            refused.add(chosen[0][0])
    return fitted


def _near(fitted: Refitted, frozen: Sequence[float], refused: set[float]) -> list[tuple[float, sympy.Expr]]:
    """Constants with the simple number that they are near, nearest first; noise keeps its numbers."""
    roles, found = _roles(fitted.law), []
    errors = np.sqrt(np.maximum(np.diag(fitted.covariance), 0.0)).tolist()
    for value, error in zip(constants_of(fitted.law, frozen), errors, strict=True):
        role = roles.get(value, "noise")
        simple = (
            None if role.startswith("noise") else _simple(value, error, is_scale=role.startswith("scale"))
        )
        if simple is not None and value not in refused:
            found.append((abs(value - float(simple)) / max(error, 1e-300), value, simple))
    return [(value, simple) for _, value, simple in sorted(found, key=lambda f: f[0])]


def _simple(value: float, error: float, *, is_scale: bool) -> sympy.Expr | None:
    """The simple number within two errors of a value, where that is no accident; 0 within the price of a term."""
    if abs(value) < 2.6 * error:
        return sympy.Integer(0)
    for denominator in (1,) if is_scale else (1, 2, 3, 4):
        near = Fraction(round(value * denominator), denominator)
        if near != 0 and abs(value - float(near)) < 2.2 * error and error < FINE / denominator**2:
            return sympy.Rational(near.numerator, near.denominator)
    return None

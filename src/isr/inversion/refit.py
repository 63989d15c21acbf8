"""One refit of all constants of a law together, by maximum likelihood, with standard errors, sharing and snapping.

Equal numbers are one constant: sharing two constants means giving them the same value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import sympy
from jaxtyping import Float

from isr.equations.program import replaced
from isr.inversion.law import Group, Law
from isr.search.formula import Formula, _floats, symbol

MOST_ROWS = 30_000
MOST_STEPS = 60
FLOORS = (0.3, 0.1, 0.03, 0.01, 3e-3, 1e-3, 1e-4, 0.0)
FULL_CIRCLE = float(2 * np.pi)
# A constant may become a simple number where its error is below this share of the step between such numbers.
FINE = 0.06


@dataclass(frozen=True, eq=False)
class Refitted:
    """A law with its best constants.

    Args:
        law: The law.
        log_likelihood: Sum over the rows that were used.
        values: Its constants, each once.
        covariance: Of their errors.
        n_rows: How many rows were used.
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


@dataclass(frozen=True, eq=False)
class _Opened:
    """A law with a symbol for each constant."""

    law: Law
    constants: tuple[float, ...]
    noises: tuple[tuple[int, ...], ...]
    function: Any

    def with_values(self, values: np.ndarray, errors: np.ndarray | None = None) -> Law:
        table = {sympy.Float(c): sympy.Float(float(v)) for c, v in zip(self.constants, values, strict=True)}
        known = {} if errors is None else dict(zip(map(float, values), map(float, errors), strict=True))

        def moved(formula: Formula) -> Formula:
            new = replaced(formula.expression, table)
            return Formula(new, tuple(known.get(float(c), float("nan")) for c in _floats(new)))

        columns = tuple(replace(c, mean=moved(c.mean), scale=moved(c.scale)) for c in self.law.columns)
        groups = []
        for group, places in zip(self.law.groups, self.noises, strict=True):
            numbers = (*(float(values[i]) for i in places), *group.noise.parameters[len(places) :])
            correlation = None if group.correlation is None else moved(group.correlation)
            groups.append(
                replace(group, noise=replace(group.noise, parameters=numbers), correlation=correlation)
            )
        return replace(self.law, columns=columns, groups=tuple(groups))


def _open(law: Law, frozen: Sequence[float] = ()) -> _Opened:
    import jax.scipy.special as special

    formulas = [c.mean for c in law.columns] + [c.scale for c in law.columns]
    formulas += [g.correlation for g in law.groups if g.correlation is not None]
    own = [float(v) for f in formulas for v in _floats(f.expression)]
    own += [v for g in law.groups for v in g.noise.parameters[: g.noise.family.free]]
    constants = tuple(v for v in dict.fromkeys(own) if v not in set(frozen))
    symbols = [sympy.Symbol(f"constant_{i}", real=True) for i in range(len(constants))]
    table = {sympy.Float(c): s for c, s in zip(constants, symbols, strict=True)}
    place = {c: i for i, c in enumerate(constants)}
    noises = tuple(
        tuple(place[v] for v in g.noise.parameters[: g.noise.family.free] if v in place) for g in law.groups
    )
    modules = [{"Phi": special.ndtr, "PhiInverse": special.ndtri}, "jax"]
    names = [symbol(name) for name in law.x_names]
    expressions = [f.expression.xreplace(table) for f in formulas]
    function = sympy.lambdify([*names, *symbols], expressions, modules=modules, cse=True)
    return _Opened(law, constants, noises, function)


@dataclass(frozen=True, eq=False)
class _Objective:
    """The mean negative log-likelihood of constants, where scales have a floor, with its derivatives."""

    value: Callable[[np.ndarray, float], float]
    gradient: Callable[[np.ndarray, float], np.ndarray]

    def hessian(self, values: np.ndarray, floor: float) -> np.ndarray:
        steps, rows = 1e-5 * np.maximum(np.abs(values), 1e-3), []
        for i, step in enumerate(steps):
            moved = np.zeros(len(values))
            moved[i] = step
            ahead, behind = self.gradient(values + moved, floor), self.gradient(values - moved, floor)
            rows.append((ahead - behind) / (2 * step))
        hessian = np.nan_to_num(np.array(rows))
        return 0.5 * (hessian + hessian.T)


def _objective(opened: _Opened, x: np.ndarray, y: np.ndarray) -> _Objective:
    import jax
    import jax.numpy as jnp

    law = opened.law
    given = [np.asarray(c.transformed(y[:, c.index])) for c in law.columns]
    n, k = len(x), len(law.columns)
    typical = np.median(law.parts(x)[1], axis=1)

    def mean_loss(values: Any, floor: Any, columns: Any, targets: Any) -> Any:
        found = opened.function(*columns, *values)
        found = [jnp.broadcast_to(jnp.asarray(v, float), (n,)) for v in found]
        # The size of a scale without a floor is taken as it is, for the root of its square has no slope at 0.
        scales = [
            jnp.where(floor > 0, jnp.sqrt(v * v + (floor * t) ** 2 + 1e-300), v)
            for v, t in zip(found[k : 2 * k], typical, strict=True)
        ]
        found = [*found[:k], *scales, *found[2 * k :]]
        noises = [
            (*(values[i] for i in places), *_circle(g)[len(places) :])
            for g, places in zip(law.groups, opened.noises, strict=True)
        ]
        return -jnp.mean(law.log_density(found, targets, jnp, noises))

    compiled = jax.jit(jax.value_and_grad(mean_loss))
    data = [np.ascontiguousarray(c) for c in x.T], given

    def evaluate(values: np.ndarray, floor: float) -> tuple[float, np.ndarray]:
        with jax.enable_x64(True), jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
            loss, gradient = compiled(np.asarray(values, float), float(floor), *data)
        return float(loss), np.asarray(gradient)

    return _Objective(lambda v, f: evaluate(v, f)[0], lambda v, f: evaluate(v, f)[1])


def _circle(group: Group) -> tuple[float, ...]:
    """Numbers of the noise; a ring is fitted as a whole one, for its ends are no smooth function of constants."""
    numbers = group.noise.parameters
    return (numbers[0], 0.0, FULL_CIRCLE) if group.noise.kind == "ring" else numbers


def refit(
    law: Law,
    x: Float[np.ndarray, "n d"],
    y: Float[np.ndarray, "n d_y"],
    *,
    frozen: Sequence[float] = (),
    seed: int = 0,
) -> Refitted:
    """Return the law with the constants of largest likelihood, and their errors.

    Args:
        law: Where to start.
        x: Rows of x.
        y: Rows of y.
        frozen: Constants that stay as they are, such as those the user stated.
        seed: Of the choice of rows, where there are too many.
    """
    if len(x) > MOST_ROWS:
        rows = np.random.default_rng(seed).choice(len(x), MOST_ROWS, replace=False)
        x, y = x[rows], y[rows]
    opened = _open(law, frozen)
    start = np.array(opened.constants)
    if not len(start):
        total = float(np.sum(law.log_prob(x, y, paired=True)))
        return Refitted(law, total, start, np.zeros((0, 0)), len(x))
    objective = _objective(opened, x, y)
    values = start
    # A scale that all but vanishes somewhere ties constants down too hard to start with: its floor is lowered in steps.
    for floor in FLOORS if any(c.scale.variables for c in law.columns) else (0.0,):
        values = _minimised(objective, values, floor)
    covariance = _inverse(objective.hessian(values, 0.0) * len(x))
    errors = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    best = opened.with_values(values, errors)
    total = (
        -objective.value(values, 0.0) * len(x)
        if _has_ring(law)
        else float(np.sum(best.log_prob(x, y, paired=True)))
    )
    return Refitted(best, total, values, covariance, len(x))


def _has_ring(law: Law) -> bool:
    return any(g.noise.kind == "ring" for g in law.groups)


def _inverse(information: np.ndarray) -> np.ndarray:
    """The inverse of an information matrix; directions that the rows do not fix have a huge variance."""
    size = np.sqrt(np.maximum(np.abs(np.diag(information)), 1e-12))
    eigenvalues, vectors = np.linalg.eigh(information / np.outer(size, size))
    inverse = (vectors / np.maximum(eigenvalues, 1e-9)) @ vectors.T
    return inverse / np.outer(size, size)


def _minimised(objective: _Objective, start: np.ndarray, floor: float) -> np.ndarray:
    """Newton's method with a second-order model that is made positive and a step that is halved until it helps."""
    values, current = start, objective.value(start, floor)
    for _ in range(MOST_STEPS):
        slope = objective.gradient(values, floor)
        if not np.all(np.isfinite(slope)):
            break
        hessian = objective.hessian(values, floor)
        size = np.sqrt(np.maximum(np.abs(np.diag(hessian)), 1e-12))
        eigenvalues, vectors = np.linalg.eigh(hessian / np.outer(size, size))
        step = -(vectors @ ((vectors.T @ (slope / size)) / np.maximum(np.abs(eigenvalues), 1e-7))) / size
        length = 1.0
        while length > 1e-6:
            tried = objective.value(values + length * step, floor)
            if np.isfinite(tried) and tried <= current + 1e-4 * length * float(slope @ step):
                break
            length /= 2
        else:
            break
        gain = current - tried
        values, current = values + length * step, tried
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
    fitted = _shared(fitted, x, y, frozen)
    return _snapped(fitted, x, y, frozen)


def _roles(law: Law) -> dict[float, str]:
    """What a constant does: constants of means, of scales, of correlations and of noise are not shared."""
    roles: dict[float, str] = {}
    for column in law.columns:
        for kind, formula in (("mean", column.mean), ("scale", column.scale)):
            for number, constant in enumerate(formula.constants):
                roles.setdefault(constant, f"{kind} {number}")
    for group in law.groups:
        if group.correlation is not None:
            for number, constant in enumerate(group.correlation.constants):
                roles.setdefault(constant, f"correlation {number}")
        for number, value in enumerate(group.noise.parameters[: group.noise.family.free]):
            roles.setdefault(value, f"noise {number}")
    return roles


def _replaced(law: Law, table: dict[float, Any]) -> Law:
    exchange = {sympy.Float(old): new for old, new in table.items()}

    def moved(formula: Formula) -> Formula:
        return Formula(replaced(formula.expression, exchange))

    columns = tuple(replace(c, mean=moved(c.mean), scale=moved(c.scale)) for c in law.columns)
    groups = []
    for group in law.groups:
        numbers = tuple(float(table.get(v, v)) for v in group.noise.parameters)
        correlation = None if group.correlation is None else moved(group.correlation)
        groups.append(replace(group, noise=replace(group.noise, parameters=numbers), correlation=correlation))
    return replace(law, columns=columns, groups=tuple(groups))


def _shared(fitted: Refitted, x: np.ndarray, y: np.ndarray, frozen: Sequence[float]) -> Refitted:
    """Constants of one role that lie within their errors of each other become one."""
    for _ in range(8):
        roles, price = _roles(fitted.law), float(np.log(fitted.n_rows))
        constants = _open(fitted.law, frozen).constants
        if len(constants) < 2:
            return fitted
        values, table, used = np.array(constants), {}, set()
        for i in range(len(values)):
            if i in used:
                continue
            cluster = [i]
            for j in range(i + 1, len(values)):
                if j in used or roles.get(constants[i]) != roles.get(constants[j]):
                    continue
                variance = fitted.covariance[i, i] + fitted.covariance[j, j] - 2 * fitted.covariance[i, j]
                if (values[i] - values[j]) ** 2 < 0.9 * price * max(variance, 0.0):
                    cluster.append(j)
            if len(cluster) > 1:
                used |= set(cluster)
                weights = 1 / np.maximum(np.diag(fitted.covariance)[cluster], 1e-300)
                mean = float(np.sum(weights * values[cluster]) / weights.sum())
                table |= {constants[j]: mean for j in cluster}
        if not table:
            return fitted
        tried = refit(
            _replaced(fitted.law, {k: sympy.Float(v) for k, v in table.items()}), x, y, frozen=frozen
        )
        if not tried.bic < fitted.bic:
            return fitted
        fitted = tried
    return fitted


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
        lost = any(
            c.scale.expression == 0 and not k.is_exact
            for c, k in zip(law.columns, fitted.law.columns, strict=True)
        )
        tried = None if lost else refit(law, x, y, frozen=frozen)
        if tried is not None and tried.bic < fitted.bic + 1e-9:
            fitted, refused = tried, set()
        elif together and len(chosen) > 1:
            together = False
        else:
            refused.add(chosen[0][0])
    return fitted


def _near(fitted: Refitted, frozen: Sequence[float], refused: set[float]) -> list[tuple[float, sympy.Expr]]:
    """Constants with the simple number that they are near, nearest first; noise keeps its numbers."""
    roles, constants = _roles(fitted.law), _open(fitted.law, frozen).constants
    found = []
    for i, value in enumerate(constants):
        error = float(np.sqrt(max(fitted.covariance[i, i], 0.0)))
        if roles.get(value, "noise").startswith("noise") or value in refused:
            continue
        simple = _simple(value, error, is_scale=roles[value].startswith("scale"))
        if simple is not None:
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

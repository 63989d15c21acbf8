"""Which residuals belong together: pairs whose product has a mean or a trend, and columns whose sizes go together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
import sympy
from jaxtyping import Float

from isr.inversion.law import Column, Group, Law
from isr.inversion.means import Search
from isr.inversion.refit import own_floor, refit
from isr.inversion.screen import LEVEL, Features, classes, normal_scores, two_sided
from isr.inversion.sums import fit_polynomial
from isr.search.formula import Formula, symbol

# Residuals are clipped here before they are multiplied, so that no single row decides.
CLIP = 4.0
MOST_COLUMNS = 40
# Rows that scatter by less than this share of a scale that was stated do not have that noise.
LEAST_SCATTER = 0.01
# Share of a residual that is its own where others tell the rest.
LEAST_OWN = 1e-6
EDGE = sympy.Rational(999, 1000)


@dataclass(frozen=True, eq=False)
class Pair:
    """Two columns whose residuals go together, how strongly, and whether their product depends on x."""

    columns: tuple[int, int]
    strength: float
    varies: bool


def correlated_pairs(features: Features, u: Float[np.ndarray, "m n"]) -> list[Pair]:
    """Return the pairs of residuals whose product has a mean or a trend.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> x, u = rng.normal(size=(3000, 1)), rng.normal(size=(3, 3000))
        >>> u[2] += np.tanh(2 * x[:, 0]) * u[0]
        >>> [(pair.columns, pair.varies) for pair in correlated_pairs(Features(x), u)]
        [((0, 2), True)]
    """
    v = np.clip(u / np.sqrt(np.mean(u * u, axis=1, keepdims=True)), -CLIP, CLIP)[:MOST_COLUMNS]
    pairs, found = list(combinations(range(len(v)), 2)), []
    for i, j in pairs:
        product = v[i] * v[j]
        mean_score, trend = abs(_mean_score(product)), features.p_value(product)
        if 2 * len(pairs) * min(two_sided(mean_score), trend) < LEVEL:
            strength = max(mean_score, float(np.max(np.abs(features.scores(product)))))
            found.append(Pair((i, j), strength, 2 * trend * len(pairs) < LEVEL))
    return found


def joined_sizes(u: Float[np.ndarray, "m n"]) -> list[tuple[int, int]]:
    """Return the pairs of residuals whose sizes go together: a common scale, or noise around a circle.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> u = rng.normal(size=(3, 3000))
        >>> u[:2] *= rng.choice([0.3, 1.0], 3000)
        >>> joined_sizes(u)
        [(0, 1)]
    """
    sizes = [normal_scores(np.abs(row)) for row in u[:MOST_COLUMNS]]
    pairs = list(combinations(range(len(sizes)), 2))
    return [(i, j) for i, j in pairs if len(pairs) * two_sided(_mean_score(sizes[i] * sizes[j])) < LEVEL]


def _mean_score(values: np.ndarray) -> float:
    return float(values.mean() / values.std() * np.sqrt(len(values)))


def find_groups(
    law: Law,
    features: Features,
    y: Float[np.ndarray, "n d_y"],
    search: Search | None,
    frozen: Sequence[float],
) -> Law:
    """Return the law with its columns sorted into groups, and the correlations of pairs as numbers or formulas."""
    u = law.residuals(features.x, y)
    scatters = np.std(u, axis=1) > LEAST_SCATTER
    noisy = [
        j for j, column in enumerate(law.columns) if scatters[j] and not (column.is_exact or column.is_count)
    ]
    pairs = [
        replace(p, columns=(noisy[p.columns[0]], noisy[p.columns[1]]))
        for p in correlated_pairs(features, u[noisy])
    ]
    matched = _matched(pairs)
    taken = {j for columns in matched for j in columns}
    groups = _with_formulas(law, features, y, matched, pairs, search, frozen)
    for members in _components([p.columns for p in pairs if not taken & set(p.columns)]):
        matrix = (1 - LEAST_OWN) * np.corrcoef(u[members]) + LEAST_OWN * np.eye(len(members))
        groups.append(Group(tuple(members), matrix=tuple(map(tuple, matrix.tolist()))))
        taken |= set(members)
    left = [j for j in noisy if j not in taken]
    for members in _components([(left[i], left[j]) for i, j in joined_sizes(u[left])]):
        groups.append(Group(tuple(members)))
        taken |= set(members)
    groups += [Group((j,)) for j in range(len(law.columns)) if j not in taken]
    return replace(law, groups=tuple(sorted(groups, key=lambda g: g.columns)))


def _matched(pairs: Sequence[Pair]) -> list[tuple[int, int]]:
    """Pairs apart from all others, and pairs that vary with x, strongest first."""
    found: list[tuple[int, int]] = []
    taken: set[int] = set()
    for pair in sorted(pairs, key=lambda p: -p.strength):
        alone = sum(bool(set(pair.columns) & set(other.columns)) for other in pairs) == 1
        if (alone or pair.varies) and not taken & set(pair.columns):
            found.append(pair.columns)
            taken |= set(pair.columns)
    return found


def _components(edges: Sequence[tuple[int, int]]) -> list[list[int]]:
    """What edges connect, as sorted lists."""
    found = [{j} for j in sorted({j for edge in edges for j in edge})]
    for i, j in edges:
        touched = [part for part in found if i in part or j in part]
        found = [part for part in found if part not in touched] + [set().union(*touched)]
    return [sorted(part) for part in sorted(found, key=min)]


def _with_formulas(
    law: Law, features: Features, y: np.ndarray, matched: Sequence[tuple[int, int]], pairs: Sequence[Pair],
    search: Search | None, frozen: Sequence[float],
) -> list[Group]:  # fmt: skip
    """The correlation of each pair; pairs whose products are alike share it."""
    u, groups = law.residuals(features.x, y), list[Group]()
    products = [np.clip(u[i] * u[j], -3 * CLIP, 3 * CLIP) for i, j in matched]
    varying = {p.columns for p in pairs if p.varies}
    for members in classes(features, products):
        product = np.mean([products[k] for k in members], axis=0)
        together = [Group(matched[k], correlation=_constant(product)) for k in members]
        if varying & {matched[k] for k in members}:
            together = _correlated(law, features, y, product, together, search, frozen)
        groups += together
    return groups


def _constant(product: np.ndarray) -> Formula:
    return Formula(sympy.Float(float(np.clip(product.mean(), -0.99, 0.99)) or 1e-3))


def _correlated(
    law: Law, features: Features, y: np.ndarray, product: np.ndarray, groups: Sequence[Group],
    search: Search | None, frozen: Sequence[float],
) -> list[Group]:  # fmt: skip
    """Pairs with the correlation of best likelihood: a number, tanh of a line, a polynomial, or a find."""
    names, level = law.x_names, _constant(product)
    read = features.variables(product) or list(range(len(names)))
    slopes = [3 * np.corrcoef(product, features.x[:, j])[0, 1] / features.x[:, j].std() for j in read]
    line = sympy.Add(*(sympy.Float(s) * symbol(names[j]) for s, j in zip(slopes, read, strict=True)))
    found = [fit_polynomial(features.x, product, names, degree=3).formula]
    if search is not None:
        found += search(features.x[:, read], product, None, [names[j] for j in read])
    candidates = [level, Formula(sympy.tanh(line + sympy.Float(np.arctanh(float(level.expression)))))]
    candidates += [f if f.expression.func is sympy.tanh else _cut_off(f) for f in found]
    part = law.part(groups)
    held = [*frozen, *(c for k in part.columns for f in (k.mean, k.scale) for c in f.constants)]
    best, least = list(groups), np.inf
    ways = [lambda formula, columns: formula]
    if any(own_floor(column.scale) for column in part.columns):
        ways.append(_above_floors)
    for formula, way in ((f, w) for f in candidates for w in ways):
        own = [
            replace(g, correlation=way(formula, [part.columns[j] for j in g.columns])) for g in part.groups
        ]
        fitted = refit(replace(part, groups=tuple(own)), features.x, y, frozen=held)
        length = fitted.bic + 0.5 * float(sympy.count_ops(formula.expression)) * np.log(len(y))
        if length < least:
            least, pairs = length, zip(groups, fitted.law.groups, strict=True)
            best = [replace(old, correlation=new.correlation) for old, new in pairs]
    return best


def _cut_off(formula: Formula) -> Formula:
    return Formula(sympy.Max(sympy.Min(formula.expression, EDGE), -EDGE))


def _above_floors(formula: Formula, columns: Sequence[Column]) -> Formula:
    """The correlation of columns where floors of their scales are noise of their own, apart from what they share."""
    e = formula.expression
    for column in (c for c in columns if own_floor(c.scale)):
        floor = sum(own_floor(column.scale))
        factor, shared = (column.scale.expression.base - sympy.Float(floor)).as_coeff_Mul()
        e = e * sympy.sqrt(shared) / sympy.sqrt(shared + sympy.Float(floor / float(factor)))
    return Formula(e)

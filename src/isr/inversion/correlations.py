"""Which residuals belong together: pairs whose product has a mean or a trend, and columns whose sizes go together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import sympy
from jaxtyping import Float

from isr.inversion.law import Group, Law
from isr.inversion.means import Search, linear
from isr.inversion.polynomials import fit_polynomial
from isr.inversion.refit import refit
from isr.inversion.screen import LEVEL, Features, _two_sided, classes, normal_scores
from isr.search.formula import Formula

# Residuals are clipped here before they are multiplied, so that no single row decides.
CLIP = 4.0
MOST_COLUMNS = 40
# Rows that scatter by less than this share of a scale that was stated do not have that noise.
LEAST_SCATTER = 0.01
# Share of a residual that is its own where others tell the rest.
LEAST_OWN = 1e-6


@dataclass(frozen=True, eq=False)
class Pair:
    """Two columns whose residuals go together.

    Args:
        columns: Their numbers.
        strength: The larger of two scores: of the mean product, and of its dependence on x.
        varies: Whether the product depends on x.
    """

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
    m = min(len(u), MOST_COLUMNS)
    n_pairs, found = max(1, m * (m - 1) // 2), []
    v = np.clip(u / np.sqrt(np.mean(u * u, axis=1, keepdims=True)), -CLIP, CLIP)
    for i in range(m):
        for j in range(i + 1, m):
            product = v[i] * v[j]
            mean_score = abs(product.mean() / product.std() * np.sqrt(len(product)))
            trend = features.p_value(product)
            p_value = min(2 * _two_sided(float(mean_score)), 2 * trend) * n_pairs
            if p_value < LEVEL:
                strength = max(float(mean_score), float(np.max(np.abs(features.scores(product)))))
                found.append(Pair((i, j), strength, 2 * trend * n_pairs < LEVEL))
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
    m = min(len(u), MOST_COLUMNS)
    n_pairs = max(1, m * (m - 1) // 2)
    sizes = [normal_scores(np.abs(row)) for row in u[:m]]
    found = []
    for i in range(m):
        for j in range(i + 1, m):
            product = sizes[i] * sizes[j]
            score = product.mean() / product.std() * np.sqrt(len(product))
            if n_pairs * _two_sided(float(score)) < LEVEL:
                found.append((i, j))
    return found


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
    noisy = [j for j, column in enumerate(law.columns) if scatters[j] and not column.is_exact]
    pairs = [
        replace(p, columns=(noisy[p.columns[0]], noisy[p.columns[1]]))
        for p in correlated_pairs(features, u[noisy])
    ]
    groups, taken = _matched(pairs)
    groups, taken = _blocks(law, u, pairs, groups, taken)
    groups = _with_formulas(law, features, y, u, groups, pairs, search, frozen)
    left = [j for j in noisy if j not in taken]
    for members in _components(
        left, [(left[i], left[j]) for i, j in joined_sizes(u[left])] if len(left) > 1 else []
    ):
        groups.append(Group(tuple(members)))
    groups += [Group((j,)) for j in range(len(law.columns)) if j not in noisy]
    return replace(law, groups=tuple(sorted(groups, key=lambda g: g.columns)))


def _matched(pairs: Sequence[Pair]) -> tuple[list[Group], set[int]]:
    """Pairs apart from all others, and pairs that vary with x, strongest first."""
    groups: list[Group] = []
    taken: set[int] = set()
    for pair in sorted(pairs, key=lambda p: -p.strength):
        alone = sum(bool(set(pair.columns) & set(other.columns)) for other in pairs) == 1
        if (alone or pair.varies) and not taken & set(pair.columns):
            groups.append(Group(pair.columns))
            taken |= set(pair.columns)
    return groups, taken


def _blocks(
    law: Law, u: np.ndarray, pairs: Sequence[Pair], groups: list[Group], taken: set[int]
) -> tuple[list[Group], set[int]]:
    """Three columns and more with constant correlations."""
    edges = [p.columns for p in pairs if not taken & set(p.columns)]
    for members in _components(sorted({j for edge in edges for j in edge}), edges):
        matrix = (1 - LEAST_OWN) * np.corrcoef(u[members]) + LEAST_OWN * np.eye(len(members))
        rows = tuple(tuple(float(v) for v in row) for row in matrix)
        groups, taken = [*groups, Group(tuple(members), matrix=rows)], taken | set(members)
    return groups, taken


def _components(members: Sequence[int], edges: Sequence[tuple[int, int]]) -> list[list[int]]:
    found = [{j} for j in members]
    for i, j in edges:
        touched = [part for part in found if i in part or j in part]
        found = [part for part in found if part not in touched] + [set().union(*touched)]
    return [sorted(part) for part in sorted(found, key=min)]


def _with_formulas(
    law: Law, features: Features, y: np.ndarray, u: np.ndarray, groups: list[Group], pairs: Sequence[Pair],
    search: Search | None, frozen: Sequence[float],
) -> list[Group]:  # fmt: skip
    """The correlation of each pair; pairs whose products are alike share it."""
    two = [g for g in groups if len(g.columns) == 2 and not g.matrix]
    others = [g for g in groups if g not in two]
    products = [np.clip(u[g.columns[0]] * u[g.columns[1]], -3 * CLIP, 3 * CLIP) for g in two]
    for members in classes(features, products):
        varies = any(p.varies for p in pairs for k in members if p.columns == two[k].columns)
        product = np.mean([products[k] for k in members], axis=0)
        together = [two[k] for k in members]
        formula = _correlation(law, features, y, product, together, varies, search, frozen)
        others += [replace(g, correlation=formula) for g in together]
    return others


def _correlation(
    law: Law, features: Features, y: np.ndarray, product: np.ndarray, groups: Sequence[Group], varies: bool,
    search: Search | None, frozen: Sequence[float],
) -> Formula:  # fmt: skip
    """The formula of the correlation with the best likelihood: a number, tanh of a line, a polynomial, or a find."""
    level = float(np.clip(product.mean(), -0.99, 0.99))
    constant = Formula(sympy.Float(level or 1e-3))
    if not varies:
        return constant
    names = law.x_names
    read = features.variables(product) or list(range(len(names)))
    start = np.array([np.corrcoef(product, features.x[:, j])[0, 1] / features.x[:, j].std() for j in read])
    slope = linear([names[j] for j in read], [*(3 * start), np.arctanh(level) or 1e-3])
    candidates = [constant, Formula(sympy.tanh(slope))]
    polynomial = fit_polynomial(features.x, product, names, degree=3).formula
    inner = sympy.Max(sympy.Min(polynomial.expression, sympy.Rational(999, 1000)), -sympy.Rational(999, 1000))
    candidates.append(Formula(inner))
    if search is not None:
        shown = [names[j] for j in read]
        found = search(features.x[:, read], product, None, shown)
        edge = sympy.Rational(999, 1000)
        candidates += [Formula(sympy.Max(sympy.Min(f.expression, edge), -edge)) for f in found]
    tried = []
    for formula in candidates:
        columns = [j for g in groups for j in g.columns]
        place = {j: i for i, j in enumerate(columns)}
        own = tuple(Group((place[a], place[b]), correlation=formula) for a, b in (g.columns for g in groups))
        part = Law(names, tuple(law.columns[j] for j in columns), own, n_y=law.n_y)
        held = [*frozen, *(c for k in part.columns for f in (k.mean, k.scale) for c in f.constants)]
        fitted = refit(part, features.x, y, frozen=held)
        size = 0.5 * float(sympy.count_ops(formula.expression)) * np.log(len(y))
        tried.append((fitted.bic + size, fitted.law.groups[0].correlation))
    best = min(
        (pair for pair in tried if np.isfinite(pair[0])), key=lambda pair: pair[0], default=(0.0, constant)
    )
    return best[1] or constant

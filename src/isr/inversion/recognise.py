"""Recognising the law of x from its rows: which columns depend on which, and by what law."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import numpy as np
from jaxtyping import Float

from isr.inversion.find import find_law
from isr.inversion.marginals import recognise
from isr.inversion.means import Search
from isr.inversion.prior import Alone, Given, Joint, Part, PriorLaw
from isr.inversion.screen import N_ROWS, Features, depends
from isr.posterior.priors import parse_prior

MOST_COMPONENTS = 12
# Orders of columns tried, for which column follows which.
MOST_ORDERS = 6


def recognise_prior(
    x: Float[np.ndarray, "n d"],
    names: Sequence[str],
    search: Search | None = None,
    say: Callable[[str], None] | None = None,
) -> PriorLaw:
    """Return the law of x recognised from rows: marginals, laws of columns that follow others, or a mixture of normals.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> a = rng.normal(size=2000)
        >>> print(recognise_prior(np.column_stack([a, a**2 + 0.5 * rng.normal(size=2000)]), ["a", "b"]))
        a ~ norm(...)  (p = ...)
        b = a**2 ± 0.4...
    """
    if say is not None:
        say("the law of x")
    x = x[:N_ROWS]
    parts = [_part(x, names, members, search) for members in _dependent(x)]
    return PriorLaw(tuple(names), tuple(parts), was_stated=False)


def _dependent(x: np.ndarray) -> list[list[int]]:
    """Columns sorted into sets that depend on each other."""
    d = x.shape[1]
    sets = [{j} for j in range(d)]
    n_tests = max(1, d * (d - 1) // 2)
    for j in range(1, d):
        for i in range(j):
            tied = depends(Features(x[:, [i]]), x[:, j], n_tests) or depends(
                Features(x[:, [j]]), x[:, i], n_tests
            )
            if tied:
                touched = [s for s in sets if i in s or j in s]
                sets = [s for s in sets if s not in touched] + [set().union(*touched)]
    return [sorted(s) for s in sorted(sets, key=min)]


def _part(x: np.ndarray, names: Sequence[str], members: list[int], search: Search | None) -> Part:
    if len(members) == 1:
        return Alone(members[0], recognise(x[:, members[0]]))
    found = [given for order in _orders(members) if (given := _given(x, names, order, search)) is not None]
    mixture = _mixture(x[:, members], tuple(members))
    judged = [*found, mixture]
    if found and search is not None:
        return found[0]
    rows = x[:, members]
    return max(
        judged,
        key=lambda part: float(np.sum(part.log_prob(rows[:, [members.index(c) for c in part.columns]]))),
    )


def _orders(members: list[int]) -> list[tuple[int, ...]]:
    return list(permutations(members))[:MOST_ORDERS] if len(members) <= 3 else [tuple(members)]


def _given(x: np.ndarray, names: Sequence[str], order: Sequence[int], search: Search | None) -> Given | None:
    """The first column alone and the others by a law of it; None where that law does not pass."""
    first, rest = order[0], list(order[1:])
    found = find_law(x[:, [first]], x[:, rest], [names[first]], [names[j] for j in rest], search=search)
    law = found.law
    simple = all(g.noise.kind == "normal" and len(g.columns) == 1 for g in law.groups)
    if not (found.passed and simple and len(law.columns) == len(rest)) or any(
        c.transform for c in law.columns
    ):
        return None
    return Given((Alone(first, recognise(x[:, first])),), law, tuple(order))


@dataclass(frozen=True, eq=False)
class Mixture:
    """A mixture of normals of some columns, as a prior."""

    model: Any
    names: tuple[str, ...]

    def sample(self, n: int, random_state: int = 0) -> np.ndarray:
        """Return draws."""
        rng = np.random.default_rng(random_state)
        rows = self.model.set_params(random_state=random_state).sample(n)[0]
        return rng.permutation(rows)

    def log_prob(self, rows: np.ndarray) -> np.ndarray:
        """Return the log-density of rows."""
        return self.model.score_samples(rows)

    def __repr__(self) -> str:
        return f"mixture of {self.model.n_components} normals"


def _mixture(x: np.ndarray, columns: tuple[int, ...]) -> Joint:
    from sklearn.mixture import GaussianMixture

    best: Any = None
    for k in (1, 2, 3, 4, 6, 8, MOST_COMPONENTS):
        model = GaussianMixture(k, random_state=0, reg_covar=1e-6 * float(np.mean(x.var(axis=0)))).fit(x)
        if best is not None and model.bic(x) > best.bic(x):
            break
        best = model
    return Joint(columns, parse_prior(Mixture(best, tuple(f"c{j}" for j in columns))))

"""PriorLaw: the law of x as a map from standard normal numbers, part by part; parts are independent of each other.

It is stated, or recognised from rows: marginals, laws of columns that follow others, or mixtures of normals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, islice, permutations

import numpy as np
from jaxtyping import Float
from scipy import stats

from isr.densities.mixtures import find_mixture
from isr.inversion.find import find_law
from isr.inversion.marginals import Marginal, recognise, stated
from isr.inversion.parts import Alone, Given, Joint, NormalMixture, Part, Tied
from isr.inversion.screen import N_ROWS, Features, depends
from isr.posterior.priors import Prior
from isr.tables.bounds import Bounds

# Draws that tell the law of one variable that depends on others.
N_SEEN = 4000
# Modes of a mixture, and orders of columns tried, for which column follows which.
MOST_COMPONENTS, MOST_ORDERS = 12, 6
# Directions across columns in which rows are compared with a law.
N_DIRECTIONS = 12


@dataclass(frozen=True, eq=False)
class PriorLaw:
    """The law of x: names of its variables, and independent parts that hold every variable once.

    Example:
        >>> from scipy import stats
        >>> from isr.posterior.priors import parse_prior
        >>> law = of_prior(parse_prior({"height": (0.0, 2.0), "angle": stats.norm(0, 0.5)}), ("height", "angle"))
        >>> print(law)
        height ~ uniform(0, 2)
        angle ~ norm(0, 0.5)
        >>> law.sample(3, np.random.default_rng(0)).shape, law.log_prob(np.array([[1.0, 0.0], [3.0, 0.0]])).round(3)
        ((3, 2), array([-0.919,   -inf]))
    """

    names: tuple[str, ...]
    parts: tuple[Part, ...]

    @property
    def blocks(self) -> list[tuple[int, ...]]:
        """Which variables belong together."""
        return [part.columns for part in self.parts]

    def rows(self, u: np.ndarray, columns: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """Return whole rows of x whose ``columns``, those of whole parts, come from coordinates, and their density."""
        x, log_prob = np.zeros((len(u), len(self.names))), np.zeros(len(u))
        place = {column: i for i, column in enumerate(columns)}
        for part in self.parts:
            if part.columns[0] in place:
                found, density = part.rows(u[:, [place[c] for c in part.columns]])
                x[:, list(part.columns)] = found
                log_prob += density
        return x, log_prob

    def log_prob(
        self, x: Float[np.ndarray, "n d"], columns: Sequence[int] | None = None
    ) -> Float[np.ndarray, " n"]:
        """Return the log-density of rows, or of some of their columns, those of whole parts."""
        parts = [p for p in self.parts if columns is None or p.columns[0] in columns]
        return np.sum([part.log_prob(x[:, list(part.columns)]) for part in parts], axis=0)

    def _part(self, column: int) -> Part:
        return next(part for part in self.parts if column in part.columns)

    def is_discrete(self, column: int) -> bool:
        """Whether a variable takes single values with a probability."""
        part = self._part(column)
        return isinstance(part, Alone) and part.marginal.is_discrete

    def marginal(self, column: int) -> Marginal:
        """Return the law of one variable alone, recognised from draws where it depends on others."""
        part = self._part(column)
        if isinstance(part, Alone):
            return part.marginal
        if isinstance(part, Tied):
            return part.marginals[part.columns.index(column)]
        if column not in self._recognised:
            self._recognised[column] = recognise(self.sample(N_SEEN, np.random.default_rng(0))[:, column])
        return self._recognised[column]

    @cached_property
    def _recognised(self) -> dict[int, Marginal]:
        return {}

    def sample(self, n: int, rng: np.random.Generator) -> Float[np.ndarray, "n d"]:
        """Return rows."""
        x = np.empty((n, len(self.names)))
        for part in self.parts:
            x[:, list(part.columns)] = part.sample(n, rng)
        return x

    def p_value(self, x: Float[np.ndarray, "n d"]) -> float:
        """Return the p-value of rows against this law: of each column, and of a few directions across them."""
        rng, d = np.random.default_rng(0), x.shape[1]
        drawn = self.sample(10 * len(x), rng)
        across = (
            rng.normal(size=(d, N_DIRECTIONS)) / np.std(x, axis=0)[:, None] if d > 1 else np.zeros((d, 0))
        )
        directions = np.hstack([np.eye(d), across]).T
        least = min(float(stats.ks_2samp(x @ v, drawn @ v).pvalue) for v in directions)
        return min(1.0, least * len(directions))

    @property
    def bounds(self) -> Bounds:
        """The box that no row leaves, open where it has no end."""
        pairs: list[tuple[float | None, float | None]] = [(None, None)] * len(self.names)
        for part in self.parts:
            if isinstance(part, Alone | Tied):
                for column in part.columns:
                    low, high = self.marginal(column).support
                    pairs[column] = (low if np.isfinite(low) else None, high if np.isfinite(high) else None)
            elif isinstance(part, Joint) and part.prior.bounds is not None:
                for column, pair in zip(part.columns, part.prior.bounds, strict=True):
                    pairs[column] = pair
        return Bounds.from_pairs(pairs)

    def __str__(self) -> str:
        return "\n".join(line for part in self.parts for line in part.lines(self.names))

    __repr__ = __str__


def of_prior(prior: Prior, names: Sequence[str]) -> PriorLaw:
    """Return a stated prior as a law; variables of a mapping are independent of each other."""
    known = [stated(distribution) for distribution in prior.marginals]
    if not known or any(m is None for m in known):
        return PriorLaw(tuple(names), (Joint(tuple(range(len(names))), prior),))
    order = [list(prior.names or names).index(name) for name in names]
    return PriorLaw(tuple(names), tuple(Alone(i, known[j]) for i, j in enumerate(order)))  # type: ignore[arg-type]


# Recognising ----------------------------------------------------------------------------------------------------


def recognise_prior(
    x: Float[np.ndarray, "n d"], names: Sequence[str], say: Callable[[str], None] | None = None
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
    return PriorLaw(
        tuple(names), tuple(p for members in _dependent(x) for p in _recognised(x, names, members))
    )


def _dependent(x: np.ndarray) -> list[list[int]]:
    """Columns sorted into sets that depend on each other."""
    pairs = list(combinations(range(x.shape[1]), 2))
    sets = [{j} for j in range(x.shape[1])]
    for i, j in pairs:
        if any(depends(Features(x[:, [a]]), x[:, b], len(pairs)) for a, b in ((i, j), (j, i))):
            touched = [s for s in sets if i in s or j in s]
            sets = [s for s in sets if s not in touched] + [set().union(*touched)]
    return [sorted(s) for s in sorted(sets, key=min)]


def _recognised(x: np.ndarray, names: Sequence[str], members: list[int]) -> Sequence[Part]:
    """The law of columns that seem to depend on each other; it may be that of each alone, which costs least."""
    alone = [Alone(j, recognise(x[:, j])) for j in members]
    if len(members) == 1:
        return alone
    apart = sum(_price(len(part.marginal.parameters), part, x) for part in alone)
    orders: Iterable[tuple[int, ...]] = permutations(members) if len(members) <= 3 else [tuple(members)]
    laws = [given for order in islice(orders, MOST_ORDERS) if (given := _given(x, names, order))]
    priced: list[tuple[float, int, Sequence[Part]]] = [(apart, -1, alone)]
    for number, law in enumerate(laws):
        n_constants = law.law.n_constants + len(law.first.marginal.parameters)
        priced.append((_price(n_constants, law, x), number, [law]))
    if tied := Tied.of(x, alone):
        n_constants = sum(len(m.parameters) for m in tied.marginals) + len(members) * (len(members) - 1) // 2
        priced.append((_price(n_constants, tied, x), len(laws) + 1, [tied]))
    mixture = find_mixture(x[:, members], most=MOST_COMPONENTS, kinds=("full",))
    if mixture is not None:
        normals = NormalMixture(mixture.weights, mixture.means, mixture.covariances)
        priced.append((mixture.price, len(laws), [Joint(tuple(members), normals)]))
    return min(priced, key=lambda one: one[:2])[2]


def _price(n_constants: int, part: Part, x: np.ndarray) -> float:
    """Half the BIC of a part."""
    log_likelihood = float(np.sum(part.log_prob(x[:, list(part.columns)])))
    return 0.5 * float(np.log(len(x))) * n_constants - log_likelihood


def _given(x: np.ndarray, names: Sequence[str], order: Sequence[int]) -> Given | None:
    """The first column alone and the others by a law of it; None where that law does not pass."""
    first, rest = order[0], list(order[1:])
    found = find_law(x[:, [first]], x[:, rest], [names[first]], [names[j] for j in rest])
    law = found.law
    is_simple = all(g.noise.kind == "normal" and len(g.columns) == 1 for g in law.groups)
    if not (found.passed and is_simple and len(law.columns) == len(rest)) or any(
        c.transform for c in law.columns
    ):
        return None
    return Given(Alone(first, recognise(x[:, first])), law, tuple(order))

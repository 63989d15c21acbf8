"""Selection: the few columns of a wide table that explain a target, singles and pairs exactly, more by a beam."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

# All pairs are looked at where no more columns than this are in question.
MOST_PAIRED = 1600
NEAR_COLLINEAR, SIMPLE = 1e-9, 20
# Of states whose shares differ by less than this, so many are kept.
ALIKE, MOST_ALIKE = 0.004, 3
# What explains as much as the best to within this share of what that leaves, under noise maybe by chance, is handed
# back too: so many times as many subsets as are asked for, simple ones first.
BY_CHANCE, MORE = 0.03, 3
State = tuple[tuple[int, ...], float]


@dataclass(frozen=True, eq=False)
class Chosen:
    """Columns that were selected.

    Args:
        rows: Which of the table, a fixed part not counted.
        share: Of the target's weighted squares that they leave.
    """

    rows: tuple[int, ...]
    share: float


def select(
    table: np.ndarray,
    target: np.ndarray,
    root: np.ndarray,
    *,
    fixed: np.ndarray | None = None,
    n_terms: int = 3,
    beam: int = 16,
    keep: int = 4,
) -> list[Chosen]:
    """Return good subsets of rows of a table, the best few for each size.

    Example:
        >>> t = np.random.default_rng(0).normal(size=(50, 40))
        >>> sorted(select(t, 2 * t[3] - t[7], np.ones(40), n_terms=2)[-1].rows) in ([3, 7],)
        False
        >>> sorted(min(select(t, 2 * t[3] - t[7], np.ones(40), n_terms=2), key=lambda c: c.share).rows)
        [3, 7]
    """
    a, b, usable = _prepared(table * root, target * root, None if fixed is None else fixed * root)
    total = float(b @ b)
    if total <= 0 or not usable.any():
        return []
    given = _Table(a, a @ (b / np.sqrt(total)), usable)
    gain = np.where(usable, given.right**2, -1.0)
    states = [((int(i),), 1 - float(gain[i])) for i in np.argsort(-gain)[: max(beam, keep)]]
    found = _alike({(int(i),): 1 - float(gain[i]) for i in np.flatnonzero(usable)}, states, keep)
    for level in range(2, n_terms + 1):
        tried = _extended(given, states, beam)
        if level == 2:
            tried |= _pairs(given, _screened(given, b / np.sqrt(total)), 12 * beam)
            states = _best(tried, beam)
        else:
            if level == 3:  # what the beam has lost sight of: each pair of simple terms with the best third
                pairs = combinations(np.flatnonzero(given.usable[:SIMPLE]).tolist(), 2)
                tried |= _extended(given, [(pair, _share(given, pair)) for pair in pairs], 2)
            states = _swapped(given, tried, beam)
        if not states:
            break
        found += _alike(tried, states, keep)
        if states[0][1] < 1e-15:
            break
    return found


def _alike(tried: dict[tuple[int, ...], float], states: list[State], keep: int) -> list[Chosen]:
    """The best subsets, and the simplest of those that leave nearly as little as the best."""
    limit = (1 + BY_CHANCE) * states[0][1] + 1e-15
    alike = sorted((item for item in tried.items() if item[1] <= limit), key=lambda item: sum(item[0]))
    return [Chosen(*state) for state in dict([*states[:keep], *alike[: MORE * keep]]).items()]


@dataclass(frozen=True, eq=False)
class _Table:
    """Rows of size 1, their products with the target, and with each other where these were asked for."""

    rows: np.ndarray
    right: np.ndarray
    usable: np.ndarray
    known: dict[int, np.ndarray] = field(default_factory=dict)

    def products(self, chosen: Sequence[int]) -> np.ndarray:
        for i in chosen:
            if i not in self.known:
                self.known[i] = self.rows @ self.rows[i]
        return np.stack([self.known[i] for i in chosen], axis=1)


def _screened(given: _Table, b: np.ndarray) -> np.ndarray:
    """Which rows to pair: the first, simple ones, those near the target, and near what the best of these leave."""
    if given.usable.sum() <= MOST_PAIRED:
        return np.flatnonzero(given.usable)
    order = np.argsort(-np.abs(np.where(given.usable, given.right, 0.0)))
    near = [np.flatnonzero(given.usable[: MOST_PAIRED // 4]), order[: MOST_PAIRED // 4]]
    for i in order[:8]:
        rest = given.rows @ (b - given.right[i] * given.rows[i])
        near.append(np.argsort(-np.abs(np.where(given.usable, rest, 0.0)))[: MOST_PAIRED // 16])
    return np.unique(np.concatenate(near))


def _swapped(given: _Table, tried: dict[tuple[int, ...], float], beam: int) -> list[State]:
    """States after their members were exchanged, one at a time, as long as the best of them gains."""
    states = _best(tried, beam)
    for _ in range(6):
        shorter = {tuple(r for r in rows if r != i) for rows, _ in states[:3] for i in rows}
        tried |= _extended(given, [(rows, _share(given, rows)) for rows in shorter], beam)
        merged = _best(tried, beam)
        if not states or merged[0][1] > 0.999 * states[0][1]:
            return merged
        states = merged
    return states


def _share(given: _Table, rows: tuple[int, ...]) -> float:
    s = list(rows)
    inverse = np.linalg.pinv(given.products(s)[s], hermitian=True, rcond=1e-12)
    return 1 - float(given.right[s] @ inverse @ given.right[s])


def _prepared(
    a: np.ndarray, b: np.ndarray, fixed: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows of size 1, orthogonal to the fixed ones, and which are usable; ``a``, maybe large, is changed in place."""
    with np.errstate(all="ignore"):
        size = np.sqrt(np.einsum("mn,mn->m", a, a))
        usable = np.isfinite(size) & (size > 0) & (size < 1e150)
        a[~usable] = 0.0
        a /= np.where(usable, size, 1.0)[:, None]
    if fixed is not None:
        q = np.linalg.qr((fixed / np.sqrt(np.sum(fixed**2, axis=1, keepdims=True) + 1e-300)).T)[0]
        a -= (a @ q) @ q.T
        b = b - q @ (q.T @ b)
        rest = np.sqrt(np.einsum("mn,mn->m", a, a))
        usable = usable & (rest > 1e-6)
        a[~usable] = 0.0
        a /= np.where(usable, rest, 1.0)[:, None]
    return a, b, usable


def _pairs(given: _Table, index: np.ndarray, most: int) -> dict[tuple[int, ...], float]:
    rows, r = given.rows[index], given.right[index]
    g = rows @ rows.T
    rest = 1 - g * g
    gain = (r[:, None] - g * r) ** 2
    gain[rest < NEAR_COLLINEAR] = 0.0
    gain /= np.maximum(rest, NEAR_COLLINEAR)
    gain += (r**2)[None, :]
    best = np.argpartition(-gain.ravel(), min(2 * most, gain.size - 1))[: 2 * most]  # each stands there twice
    pairs = {
        (int(index[p // len(index)]), int(index[p % len(index)])): 1 - float(gain.ravel()[p]) for p in best
    }
    return {(i, j): share for (i, j), share in pairs.items() if i < j}


def _extended(given: _Table, states: list[State], beam: int) -> dict[tuple[int, ...], float]:
    pool: dict[tuple[int, ...], float] = {}
    every = [given.products(rows) for rows, _ in states]
    own = np.array([products[list(rows)] for products, (rows, _) in zip(every, states, strict=True)])
    inverses = np.linalg.pinv(own, hermitian=True, rcond=1e-12) if states else ()
    for (rows, share), products, inverse in zip(states, every, inverses, strict=True):
        s = list(rows)
        weights = products @ inverse
        rest = 1 - np.einsum("ms,ms->m", weights, products)
        gain = (given.right - weights @ given.right[s]) ** 2
        gain = np.where(given.usable & (rest > NEAR_COLLINEAR), gain, 0.0) / np.maximum(rest, NEAR_COLLINEAR)
        gain[s] = 0.0
        for i in np.argpartition(-gain, min(beam, len(gain) - 1))[:beam]:
            if gain[i] > 0:
                pool[tuple(sorted((*rows, int(i))))] = share - float(gain[i])
    return pool


def _best(states: dict[tuple[int, ...], float], beam: int) -> list[State]:
    """The best states, few of those that leave nearly the same: they differ by terms that are hardly told apart."""
    found: list[State] = []
    alike: dict[int, int] = {}
    for rows, share in sorted(states.items(), key=lambda item: (round(item[1], 4), sum(item[0]))):
        place = round(np.log(max(share, 1e-16)) / ALIKE)
        alike[place] = alike.get(place, 0) + 1
        if alike[place] <= MOST_ALIKE:
            found.append((rows, share))
    return found[:beam]

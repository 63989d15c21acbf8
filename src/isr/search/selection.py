"""Selection: the few columns of a wide table that explain a target, singles and pairs exactly, more by a beam."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

# All pairs are looked at where no more columns than this are in question.
MOST_PAIRED = 2500
NEAR_COLLINEAR = 1e-9


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
    beam: int = 12,
    keep: int = 4,
) -> list[Chosen]:
    """Return good subsets of rows of a table, the best few for each size.

    Args:
        table: Candidates (m, n).
        target: What to explain.
        root: Square root of the weight of each of the n places.
        fixed: Rows that are always there (f, n).
        n_terms: Largest size.
        beam: Subsets that are extended, for each size.
        keep: Subsets that are handed back, for each size.

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
    b = b / np.sqrt(total)
    index = _screened(a, b, usable)
    a, usable = a[index], usable[index]
    gram, right = a @ a.T, a @ b
    gain = np.where(usable, right**2, -1.0)
    order = np.argsort(-gain)[: max(beam, keep)]
    states = [((int(i),), 1 - float(gain[i])) for i in order]
    found = [Chosen(rows, share) for rows, share in states[:keep]]
    for level in range(2, n_terms + 1):
        pool = (
            _pairs(gram, right, usable, beam) if level == 2 else _extended(gram, right, usable, states, beam)
        )
        if not pool:
            break
        states = _swapped(gram, right, usable, pool, beam) if level > 2 else pool
        found += [Chosen(rows, share) for rows, share in states[:keep]]
        if states[0][1] < 1e-15:
            break
    return [Chosen(tuple(int(index[i]) for i in c.rows), c.share) for c in found]


def _screened(a: np.ndarray, b: np.ndarray, usable: np.ndarray) -> np.ndarray:
    """Which rows of a long table to look at: those near the target, and near what the best of them leave."""
    if len(a) <= MOST_PAIRED:
        return np.arange(len(a))
    right = np.where(usable, a @ b, 0.0)
    order = np.argsort(-np.abs(right))
    near = [order[: MOST_PAIRED // 2]]
    for i in order[:8]:
        rest = np.where(usable, a @ (b - right[i] * a[i]), 0.0)
        near.append(np.argsort(-np.abs(rest))[: MOST_PAIRED // 16])
    return np.unique(np.concatenate(near))


def _swapped(gram: np.ndarray, right: np.ndarray, usable: np.ndarray, states: list, beam: int) -> list:
    """States after their members were exchanged, one at a time, as long as the best of them gains."""
    for _ in range(6):
        shorter = {tuple(r for r in rows if r != i) for rows, _ in states[:3] for i in rows}
        tried = _extended(gram, right, usable, [(rows, _share(gram, right, rows)) for rows in shorter], beam)
        merged = sorted(dict([*states, *tried]).items(), key=lambda item: item[1])[:beam]
        if merged[0][1] > 0.999 * states[0][1]:
            return merged
        states = merged
    return states


def _share(gram: np.ndarray, right: np.ndarray, rows: tuple[int, ...]) -> float:
    s = list(rows)
    return 1 - float(right[s] @ np.linalg.pinv(gram[np.ix_(s, s)], hermitian=True, rcond=1e-12) @ right[s])


def _prepared(
    a: np.ndarray, b: np.ndarray, fixed: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    with np.errstate(all="ignore"):
        size = np.sqrt(np.einsum("mn,mn->m", a, a))
        usable = np.isfinite(size) & (size > 0) & (size < 1e150)
        a = np.where(usable[:, None], a / np.where(usable, size, 1.0)[:, None], 0.0)
    if fixed is not None:
        q = np.linalg.qr((fixed / np.sqrt(np.sum(fixed**2, axis=1, keepdims=True) + 1e-300)).T)[0]
        a, b = a - (a @ q) @ q.T, b - q @ (q.T @ b)
        rest = np.sqrt(np.einsum("mn,mn->m", a, a))
        usable = usable & (rest > 1e-6)
        a = np.where(usable[:, None], a / np.where(usable, rest, 1.0)[:, None], 0.0)
    return a, b, usable


def _pairs(
    gram: np.ndarray, right: np.ndarray, usable: np.ndarray, beam: int
) -> list[tuple[tuple[int, ...], float]]:
    index = np.flatnonzero(usable)
    if len(index) > MOST_PAIRED:
        index = index[np.argsort(-np.abs(right[index]))[:MOST_PAIRED]]
    g, r = gram[np.ix_(index, index)], right[index]
    rest = 1 - g * g
    gain = np.where(rest > NEAR_COLLINEAR, (r[:, None] - g * r) ** 2 / np.maximum(rest, NEAR_COLLINEAR), 0.0)
    gain = np.triu(gain + (r**2)[None, :], 1)
    best = np.argpartition(-gain.ravel(), min(beam, gain.size - 1))[:beam]
    best = best[np.argsort(-gain.ravel()[best])]
    i, j = np.unravel_index(best, gain.shape)
    return [
        ((int(index[a]), int(index[b])), 1 - float(gain[a, b]))
        for a, b in zip(i, j, strict=True) if a != b
    ]  # fmt: skip


def _extended(
    gram: np.ndarray, right: np.ndarray, usable: np.ndarray, states: list, beam: int
) -> list[tuple[tuple[int, ...], float]]:
    pool: dict[tuple[int, ...], float] = {}
    for rows, share in states:
        s = list(rows)
        inverse = np.linalg.pinv(gram[np.ix_(s, s)], hermitian=True, rcond=1e-12)
        weights = gram[:, s] @ inverse
        rest = 1 - np.einsum("ms,ms->m", weights, gram[:, s])
        gain = np.where(usable & (rest > NEAR_COLLINEAR), (right - weights @ right[s]) ** 2, 0.0)
        gain = gain / np.maximum(rest, NEAR_COLLINEAR)
        gain[s] = 0.0
        for i in np.argsort(-gain)[:beam]:
            pool[tuple(sorted((*rows, int(i))))] = share - float(gain[i])
    return sorted(pool.items(), key=lambda item: item[1])[:beam]

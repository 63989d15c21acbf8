"""Charts of two variables found from rows: polar coordinates around the middle of a ring, and spirals."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from jaxtyping import Float
from scipy import optimize, stats

from isr.bijections.bijection import AbstractBijection
from isr.bijections.charts import Polar, Spiral
from isr.bijections.parameters import on_device
from isr.densities.marginals import Marginal, find_marginal

# Rows that charts are found on, and how many it takes.
N_ROWS, LEAST_ROWS = 2000, 200
# Of a spiral: how well its turns must agree, where 1 is perfect; half of the rows all around agree to 0.
CONCENTRATED = 0.75
# Of directions: the length of their mean from which they have a side where hardly any is.
ONE_SIDED = 0.3

Rows = Float[np.ndarray, "n 2"]


def find_charts(x: Rows) -> Iterator[tuple[str, AbstractBijection]]:
    """Yield polar coordinates around the middle of a ring, and the spiral whose arms agree best.

    Example:
        >>> angle = np.random.default_rng(0).uniform(0, 6, 500)
        >>> [name for name, _ in find_charts(np.column_stack([np.cos(angle), np.sin(angle)]))]
        ['polar', 'plain polar']
    """
    if len(x) < LEAST_ROWS:
        return
    for centre in _centres(x):
        mean = complex(np.mean(np.exp(1j * np.arctan2(*(x - centre).T[::-1]))))
        cut = round(float(np.angle(mean)) - math.pi, 2) if abs(mean) > ONE_SIDED else -math.pi
        yield "polar", Polar(on_device(centre), (0, 1), 2, cut)
        yield "plain polar", Polar(on_device(centre), (0, 1), 2, cut, plain=True)
    spiral = _spiral(x)
    if spiral is not None:
        yield "spiral", spiral


def marginals_of(chart: AbstractBijection, seen: Rows) -> list[Marginal]:
    """Return the marginals of what a chart makes of rows."""
    found = [find_marginal(column, soft=True) for column in seen.T]
    if isinstance(chart, Polar) and chart.cut is not None:
        around = find_marginal(seen[:, 1], ends=(chart.cut, chart.cut + 2 * math.pi))
        found[1] = min(found[1], around, key=lambda m: m.price)
    return found


def _centres(x: Rows) -> list[np.ndarray]:
    """The centre around which radius and angle tell most when they are told apart, and the origin if it is inside."""
    some = x[:: -(-len(x) // N_ROWS)]
    scale = float(np.std(x))

    def misfit(p: np.ndarray) -> np.ndarray:
        return (np.hypot(*(some - p[:2] * scale).T) - np.exp(p[2]) * scale) / scale

    def entropy(p: np.ndarray) -> float:
        w = (some / scale - p) @ [1, 1j]
        with np.errstate(divide="ignore", invalid="ignore"):  # rows that repeat themselves
            r, angle = np.abs(w), np.angle(w * np.exp(-1j * np.angle(np.mean(w / np.abs(w)))))
            nats = stats.differential_entropy(r) + np.mean(np.log(r)) + stats.differential_entropy(angle)
        return float(np.nan_to_num(nats, nan=1e3, neginf=-1e3, posinf=1e3))

    middle, box = x.mean(axis=0) / scale, 0.5 * (x.min(axis=0) + x.max(axis=0)) / scale
    circle = optimize.least_squares(misfit, [*middle, 0.3], loss="soft_l1", f_scale=0.1, max_nfev=200)
    starts = [circle.x[:2], middle, box, np.zeros(2)]
    options = {"maxiter": 100}
    found = [optimize.minimize(entropy, start, method="Nelder-Mead", options=options) for start in starts]
    centre = min(found, key=lambda f: f.fun).x * scale
    is_origin = np.hypot(*centre) < 0.05 * np.mean(np.hypot(*(x - centre).T))
    centres = [] if is_origin else [centre]
    if np.all((x.min(axis=0) < 0) & (x.max(axis=0) > 0)):
        centres.append(np.zeros(2))
    near = [c for c in centres if np.all(np.abs(c - middle * scale) < 10 * scale)]
    return [c for c in near if np.min(np.hypot(*(x - c).T)) > 0]


def _spiral(x: Rows) -> Spiral | None:
    some = x[:: -(-len(x) // N_ROWS)]
    size = float(np.sqrt(np.mean((some - some.mean(axis=0)) ** 2)))

    def turned(p: np.ndarray) -> complex:
        a, b = (some - p[:2]).T
        return complex(np.mean(np.exp(1j * (np.hypot(a, b) / p[2] - np.arctan2(b, a)))))

    pitches = size * np.concatenate([s * np.geomspace(0.02, 0.6, 120) for s in (1, -1)])
    best: tuple[float, np.ndarray] = (0.0, np.zeros(3))
    for centre in (np.zeros(2), some.mean(axis=0), np.median(some, axis=0)):
        starts = sorted(((abs(turned(np.array([*centre, b]))), b) for b in pitches), reverse=True)[:3]
        for _, pitch in starts:
            first = np.array([*centre, pitch])
            simplex = np.stack([first, *(first + np.diag([0.1 * size, 0.1 * size, 0.02 * pitch]))])
            options = {"maxiter": 300, "initial_simplex": simplex}
            found = optimize.minimize(
                lambda p: -abs(turned(p)), [*centre, pitch], method="Nelder-Mead", options=options
            )
            best = max(best, (-float(found.fun), found.x), key=lambda pair: pair[0])
    agreement, (a, b, pitch) = best
    if agreement < CONCENTRATED:
        return None
    start = float(np.angle(turned(best[1]))) * pitch
    centre = np.where(np.abs([a, b]) < 0.01 * size, 0.0, [a, b])
    return Spiral(on_device(centre), on_device(start), on_device(pitch), (0, 1), 2)

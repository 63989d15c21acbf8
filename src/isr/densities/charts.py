"""Charts found from rows: polar coordinates around the middle of a ring, spirals, independent components."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from scipy import optimize, stats

from isr.bijections.affine import Linear
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

# With more variables there are no charts of pairs, nor components; nats per row that a chart of a pair must gain.
MOST_CHARTED, LEAST_GAIN = 5, 0.03

Rows = Float[np.ndarray, "n 2"]


@dataclass(frozen=True, eq=False)
class Charted:
    """What charts make of rows, with the marginals of that and the price of the charts alone."""

    kind: str
    steps: tuple[AbstractBijection, ...]
    price: float
    seen: Float[np.ndarray, "n d"]
    alone: Sequence[Marginal]

    @property
    def total(self) -> float:
        """The price with that of the marginals."""
        return self.price + sum(marginal.price for marginal in self.alone)


def find_chains(x: Float[np.ndarray, "n d"], alone: Sequence[Marginal], dim: int) -> Iterator[Charted]:
    """Yield charts of two variables; of more, radius and angle of pairs, that which gains most first.

    Example:
        >>> x = np.random.default_rng(0).normal(size=(500, 3))
        >>> x /= np.linalg.norm(x, axis=1, keepdims=True) * np.random.default_rng(1).uniform(0.9, 1.1, (500, 1))
        >>> alone = [find_marginal(column) for column in x.T]
        >>> [c.kind for c in find_chains(x, alone, 3)]
        ['plain polar', 'plain polar, plain polar']
    """
    d, start = x.shape[1], Charted("", (), 0.0, x, alone)
    for _ in range(d - 1 if d <= MOST_CHARTED else 0):
        gains = {pair: _gain(start.seen, pair) if d > 2 else np.inf for pair in combinations(range(d), 2)}
        pair = max(gains, key=gains.__getitem__)
        found = list(_behind(start, pair, dim)) if gains[pair] > LEAST_GAIN else []
        if not found:
            return
        yield from found
        start = min(found, key=lambda chart: chart.total)


def _gain(x: Float[np.ndarray, "n d"], pair: tuple[int, int]) -> float:
    """Nats per row by which radius and angle of two variables tell more than these, each by itself."""
    some = x[:: -(-len(x) // N_ROWS), list(pair)]
    for _, chart in find_charts(some):
        seen, log_det = mapped(chart, some, 2)
        entropies = [stats.differential_entropy(rows, axis=0).sum() for rows in (some, seen)]
        return float(np.nan_to_num(entropies[0] - entropies[1] + np.mean(log_det), nan=-np.inf))
    return -np.inf


def _behind(start: Charted, pair: tuple[int, int], dim: int) -> Iterator[Charted]:
    for kind, chart in find_charts(start.seen[:, list(pair)]):
        if start.seen.shape[1] > 2 and kind != "plain polar":  # other radii would not do for the next chart
            continue
        in_place = replace(chart, pair=pair, dim=dim)  # type: ignore[type-var]
        seen, log_det = mapped(in_place, start.seen, dim)
        own = dict(zip(pair, marginals_of(in_place, seen[:, list(pair)]), strict=True))
        price = start.price + np.log(len(seen)) - float(np.sum(log_det))
        alone = [own.get(i, marginal) for i, marginal in enumerate(start.alone)]
        name = f"{start.kind}, {kind}" if start.kind else kind
        yield Charted(name, (*start.steps, in_place), price, seen[:, : start.seen.shape[1]], alone)


def find_components(x: Float[np.ndarray, "n d"], dim: int) -> Iterator[Charted]:
    """Yield the linear map whose images are least normal, and so as independent as can be.

    Example:
        >>> x = np.random.default_rng(0).exponential(size=(1000, 2)) @ [[1.0, 0.5], [-0.5, 1.0]]
        >>> next(find_components(x, 2)).seen.std(axis=0).round(2).tolist()
        [1.0, 1.0]
    """
    n, d = x.shape
    if not 2 <= d <= MOST_CHARTED or d != dim or n < LEAST_ROWS:
        return
    white = np.linalg.inv(np.linalg.cholesky(np.cov(x.T) + 1e-9 * np.diag(np.var(x, axis=0))))
    some = (x[:: -(-n // N_ROWS)] - x.mean(axis=0)) @ white.T
    matrix = _least_normal(some) @ white
    seen = x @ matrix.T
    price = 0.5 * np.log(n) * matrix.size - n * float(np.linalg.slogdet(matrix)[1])
    alone = [find_marginal(column, soft=True) for column in seen.T]
    yield Charted("components", (Linear(on_device(matrix)),), price, seen, alone)


def _least_normal(z: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "d d"]:
    """Return the rotation, pair by pair, whose images have the least entropies (Learned-Miller and Fisher 2003)."""
    d, turn = z.shape[1], np.eye(z.shape[1])
    for i, j in list(combinations(range(d), 2)) * (1 if d == 2 else 3):

        def turned(angle: float, rows: tuple[int, int] = (i, j)) -> np.ndarray:
            c, s = np.cos(angle), np.sin(angle)
            return np.array([[c, s], [-s, c]]) @ turn[list(rows)]

        def entropy(angle: float, turned: Callable[[float], np.ndarray] = turned) -> float:
            return float(np.sum(stats.differential_entropy(z @ turned(angle).T, axis=0)))

        angles = np.linspace(0, np.pi / 2, 90, endpoint=False)
        best = angles[int(np.argmin([entropy(angle) for angle in angles]))]
        step = angles[1]
        best = optimize.minimize_scalar(entropy, bounds=(best - step, best + step), method="bounded").x
        turn[[i, j]] = turned(float(best))
    return turn


def mapped(chart: AbstractBijection, x: Float[np.ndarray, "n d"], dim: int) -> tuple[np.ndarray, np.ndarray]:
    """Return what a chart of ``dim`` variables makes of rows, zeros beside them, and its log-determinants."""
    padded = np.concatenate([x, np.zeros((len(x), dim - x.shape[1]))], axis=1)
    with jax.enable_x64(True):
        seen, log_det = jax.vmap(chart.forward_and_log_det)(jnp.asarray(padded))
        return np.asarray(seen), np.asarray(log_det)


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
    centres = [np.zeros(2) if is_origin else centre]
    if not is_origin and np.all((x.min(axis=0) < 0) & (x.max(axis=0) > 0)):
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

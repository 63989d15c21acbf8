"""Rows for a fit: x opened from its bounds and split, y beside it, in the forms that the stages of a fit take.

A network is trained on *standard* rows; formulas are refitted on *raw* ones, in the user's units, as are the points
that trained networks become. Training takes y as it came, since fresh noise is added at every step; everything else
takes it with the observation noise added once. Arrays have the batch last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from isr.bijections.affine import Bounded, Spread, Standardise, spread, standardise
from isr.bijections.bijection import AbstractBijection, Chain
from isr.bijections.build import Architecture, in_units
from isr.bijections.flow import Flow
from isr.bijections.parameters import cast, n_constants
from isr.estimators import pipeline
from isr.formulas.front import Point
from isr.formulas.refit import flow_row_loss
from isr.tables.tables import split_rows

# Share of the rows held out, and at most how many.
HELD_OUT, MAX_HELD_OUT = 0.2, 20_000
# What a weight in use adds to the complexity of a network written out with scales, guards and clamps, roughly.
ROUGH_COST = 8
# Rows that constants are refitted on: more would cost time and tell little.
MAX_REFIT_ROWS = 100_000

Arrays = dict[str, np.ndarray]


def n_held_out(n_rows: int) -> int:
    """Return how many of so many rows are held out."""
    return min(max(round(HELD_OUT * n_rows), 1), MAX_HELD_OUT)


@dataclass(frozen=True)
class FlowTask:
    """What a flow is fitted to, rows of x and of y where it is no plain density, and what kind of flow."""

    x: np.ndarray
    bounds: Bounded | None = None
    y: np.ndarray | None = None
    noise: np.ndarray | float = 0.0  # deviation of what is to be added to y; 0 where it has its noise already
    architecture: Architecture = field(default_factory=Architecture)
    joint: bool = False  # whether y, where there is one, is an output (ISR) rather than a condition (cISR)
    closed: bool = False  # whether closed forms compete that need no training (densities only)
    edges: bool = True  # whether these may take sharp ends of rows for bounds


@dataclass(frozen=True)
class Part:
    """Training rows or held-out rows: x opened from its bounds, with the log-determinant of that; y with noise."""

    x: np.ndarray
    y: np.ndarray | None
    clean_y: np.ndarray | None
    log_det: np.ndarray

    def __len__(self) -> int:
        return len(self.x)


@dataclass(frozen=True)
class Rows:
    """Rows ready for a fit, and what makes standard ones of them; ``jitter`` is the noise of each standard y."""

    train: Part
    held_out: Part
    bounds: Bounded | None
    scale: Standardise
    y_scale: Standardise | None
    jitter: tuple[float, ...]

    @property
    def dim(self) -> int:
        return self.scale.dim

    @property
    def n_padding(self) -> int:
        """How many variables a flow of x has beside it."""
        return int(self.dim == 1)

    @property
    def n_observed(self) -> int:
        """How many variables y has."""
        return 0 if self.y_scale is None else self.y_scale.dim

    @property
    def width(self) -> float:
        """What the standardisation of x adds to a loss in nats."""
        return float(np.sum(np.log(self.scale.scale)))

    def fresh(self, part: Part) -> Arrays:
        """Return standard arrays for training: without noise, without padding."""
        return _columns(_scaled(part.x, self.scale), _scaled(part.clean_y, self.y_scale))

    def standard(self, part: Part) -> Arrays:
        """Return standard arrays."""
        return _columns(_scaled(part.x, self.scale), _scaled(part.y, self.y_scale), self.n_padding)

    def raw(self, part: Part) -> Arrays:
        """Return arrays in the user's units."""
        return _columns(part.x, part.y, self.n_padding)

    def together(self) -> Rows:
        """Return the same with the held-out rows among those that are fitted to."""
        names = ("x", "log_det") if self.train.y is None else ("x", "log_det", "y", "clean_y")
        whole = {n: np.concatenate([getattr(p, n) for p in (self.train, self.held_out)]) for n in names}
        return replace(self, train=replace(self.train, **whole))


def prepare(task: FlowTask, *, seed: int, fold: tuple[int, int] | None = None) -> Rows:
    """Return rows ready for a fit, x of one scale where there are polar coordinates.

    ``fold`` is a number and how many there are: that one of so many equal parts is held out, if it is not too large.
    """
    x, log_det = _opened(task.x, task.bounds)
    if fold is not None:
        size = max(1, min(len(x) // fold[1], MAX_HELD_OUT))
        order = np.random.default_rng(seed).permutation(len(x))
        held_out, train = np.split(np.roll(order, -fold[0] * size), [size])
    else:
        train, held_out = split_rows(len(x), held_out=n_held_out(len(x)), random_state=seed)
    y, y_scale, jitter = None, None, np.zeros(0)
    if task.y is not None:
        y = task.y + task.noise * np.random.default_rng([seed, 1]).normal(size=task.y.shape)
        y_scale = spread(y[train], (np.broadcast_to(task.noise, y.shape[1]) == 0) & (not task.joint))
        jitter = task.noise / np.asarray(y_scale.scale)

    def part(index: np.ndarray) -> Part:
        some_y, clean_y = (None if rows is None else rows[index] for rows in (y, task.y))
        return Part(x[index], some_y, clean_y, log_det[index])

    scale = standardise(x[train])
    if "polar" in task.architecture.charts:
        width = float(np.sqrt(np.mean(np.square(scale.scale))))
        scale = Standardise(scale.shift, (width,) * scale.dim)
    return Rows(part(train), part(held_out), task.bounds, scale, y_scale, tuple(jitter.tolist()))


def _opened(x: np.ndarray, bounds: Bounded | None) -> tuple[np.ndarray, np.ndarray]:
    """Rows of x opened from their bounds, and the log-determinant of that."""
    if bounds is None:
        return x, np.zeros(len(x))
    with jax.enable_x64(True):
        opened, log_det = map(np.asarray, jax.vmap(bounds.forward_and_log_det)(jnp.asarray(x)))
    if not np.all(np.isfinite(opened)):
        column = int(np.flatnonzero(~np.isfinite(opened).all(axis=0))[0])
        raise ValueError(
            f"column {column} of x has values exactly on its bound, where only one side is bounded; "
            "move the bound a little outwards or drop these rows"
        )
    return opened, log_det


def _scaled(rows: Any, scale: Any) -> Any:
    rows = scale.columns(rows) if isinstance(scale, Spread) else rows
    return None if rows is None else (rows - np.asarray(scale.shift)) / np.asarray(scale.scale)


def _columns(x: np.ndarray, y: np.ndarray | None, n_padding: int = 0) -> Arrays:
    x = x.T
    if n_padding:
        x = np.concatenate([x, np.random.default_rng(0).normal(size=(n_padding, x.shape[1]))])
    return {"x": x} if y is None else {"x": x, "y": y.T}


# Trained flows as points of a front ---------------------------------------------------------------------------


def network_point(network: Flow, rows: Rows, dtype: type = np.float64) -> Point:
    """Return a trained network as a point of the front; what its equations cost is estimated."""
    train, held_out = rows.standard(rows.train), rows.standard(rows.held_out)
    train = {name: values[:, :MAX_REFIT_ROWS] for name, values in train.items()}
    # All at once: rows of two lengths would be two programs.
    some = {name: np.concatenate([values, held_out[name]], axis=1) for name, values in train.items()}
    fast = network.accelerated() if dtype is np.float32 else network
    losses = pipeline.row_losses(fast, flow_row_loss, some, dtype) + rows.width
    of_train, held = np.split(losses, [train["x"].shape[1]])
    n = n_constants(network)
    nats = float(np.mean(of_train)), float(np.mean(held))
    return Point(raw_flow(network, rows), ROUGH_COST * n, n, *nats, held, is_network=True)


def raw_flow(network: Flow, rows: Rows) -> Flow:
    """Return a trained network with standardisation around it: it takes and gives the user's units."""
    return in_units(cast(network, jnp.float64), rows.scale, rows.y_scale)


def with_steps(flow: Flow, steps: Sequence[AbstractBijection]) -> Flow:
    return replace(flow, bijection=Chain(tuple(steps)))


def finished(point: Point, rows: Rows, **changes: Any) -> Point:
    """Return a point, changed as told, whose model maps x itself, its losses in nats of that."""
    return replace(
        point,
        **changes,
        model=in_units(point.model, bounds=rows.bounds),
        train_nats=point.train_nats - float(np.mean(rows.train.log_det)),
        held_out_nats=point.held_out_nats - float(np.mean(rows.held_out.log_det)),
        held_out_rows=point.held_out_rows - rows.held_out.log_det,
    )


def weighed(point: Point, rows: Rows) -> Point:
    """Return a point with the cost of its equations, unless they are too long to be written out."""
    if point.n_constants > 3 * pipeline.MAX_CONSTANTS:
        return point
    return replace(point, complexity=complexity_of(point.model, rows))


def complexity_of(flow: Flow, rows: Rows) -> int:
    from isr.equations import extract

    return extract(in_units(flow, bounds=rows.bounds)).complexity

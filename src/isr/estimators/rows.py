"""Rows for a fit: x charted and standardised, y beside it, split into training and held-out rows.

A network is trained on *standard* rows; formulas are refitted on *raw* ones, opened from their bounds but in the
user's units. Training rows of y stay as they came, since fresh noise is added at every step; in all others the
observation noise has been added once.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from isr.bijections.affine import Bounded, Standardise, standardise
from isr.tables.splits import split_rows

# Share of the rows held out, and at most how many.
HELD_OUT, MAX_HELD_OUT = 0.2, 20_000

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Pairs:
    """What a flow is fitted to.

    Args:
        x: Rows.
        bounds: Chart of the box x lies in.
        y: Rows beside them, ``None`` for a plain density.
        noise: Standard deviation of the noise to add to each column of y; zeros where y has its noise already.
        n_held_out: How many rows are held out; a share of them when None.
    """

    x: np.ndarray
    bounds: Bounded | None = None
    y: np.ndarray | None = None
    noise: np.ndarray | None = None
    n_held_out: int | None = None


@dataclass(frozen=True)
class Rows:
    """Rows ready for a fit; arrays of rows, x and, where there is one, y."""

    bounds: Bounded | None
    scale: Standardise
    y_scale: Standardise | None
    train: np.ndarray
    held_out: np.ndarray
    raw_train: np.ndarray
    raw_held_out: np.ndarray
    y_train: np.ndarray | None
    y_held_out: np.ndarray | None
    raw_y_train: np.ndarray | None
    raw_y_held_out: np.ndarray | None
    jitter: tuple[float, ...]
    log_det_train: np.ndarray
    log_det_held_out: np.ndarray

    @property
    def dim(self) -> int:
        """Number of variables in x."""
        return self.train.shape[1]

    @property
    def n_observed(self) -> int:
        """Number of variables in y."""
        return 0 if self.y_scale is None else self.y_scale.dim

    @property
    def width(self) -> float:
        """What the standardisation of x adds to a loss in nats."""
        return float(np.sum(np.log(self.scale.scale)))

    def fresh(self, *, held_out: bool = False) -> Arrays:
        """Standard arrays, batch last, y without its noise."""
        return (
            _batch_last(self.held_out, self.y_held_out) if held_out else _batch_last(self.train, self.y_train)
        )

    def standard(self, *, held_out: bool = False, n_padding: int = 0) -> Arrays:
        """Standard arrays with noise in y."""
        x = self.held_out if held_out else self.train
        y = self.raw_y_held_out if held_out else self.raw_y_train
        if y is not None and self.y_scale is not None:
            y = _standardised(y, self.y_scale)
        return _batch_last(x, y, n_padding)

    def standardised(self, x: np.ndarray, y: np.ndarray | None) -> Arrays:
        """Standard arrays of other rows, batch last, y without its noise."""
        opened, _ = _opened(x, self.bounds)
        if y is not None and self.y_scale is not None:
            y = _standardised(y, self.y_scale)
        return _batch_last(_standardised(opened, self.scale), y)

    def raw(self, *, held_out: bool = False, n_padding: int = 0) -> Arrays:
        """Arrays in the user's units, x opened from its bounds, with noise in y."""
        if held_out:
            return _batch_last(self.raw_held_out, self.raw_y_held_out, n_padding)
        return _batch_last(self.raw_train, self.raw_y_train, n_padding)


def prepare(pairs: Pairs, *, seed: int, isotropic: bool) -> Rows:
    """Return x opened from its bounds, split and standardised, with y beside it.

    Args:
        pairs: The user's rows.
        seed: Of the split and of the noise that is added once.
        isotropic: Whether all of x gets one and the same scale, as polar coordinates need.
    """
    x, log_det = _opened(pairs.x, pairs.bounds)
    held = int(np.clip(round(HELD_OUT * len(x)), 1, MAX_HELD_OUT)) if len(x) > 1 else 0
    held = held if pairs.n_held_out is None else pairs.n_held_out
    split = split_rows(len(x), held_out=held, random_state=seed)
    scale = standardise(x[split.train])
    if isotropic:
        width = float(np.sqrt(np.mean(np.square(scale.scale))))
        scale = Standardise(scale.shift, (width,) * scale.dim)
    standard = _standardised(x, scale)
    parts = {
        "bounds": pairs.bounds, "scale": scale, "train": standard[split.train],
        "held_out": standard[split.held_out], "raw_train": x[split.train], "raw_held_out": x[split.held_out],
        "log_det_train": log_det[split.train], "log_det_held_out": log_det[split.held_out],
    }  # fmt: skip
    if pairs.y is None or pairs.noise is None:
        return Rows(
            **parts,
            y_scale=None,
            y_train=None,
            y_held_out=None,
            raw_y_train=None,
            raw_y_held_out=None,
            jitter=(),
        )
    noisy = pairs.y + pairs.noise * np.random.default_rng([seed, 1]).normal(size=pairs.y.shape)
    y_scale = standardise(noisy[split.train])
    return Rows(
        **parts,
        y_scale=y_scale,
        y_train=_standardised(pairs.y[split.train], y_scale),
        y_held_out=_standardised(pairs.y[split.held_out], y_scale),
        raw_y_train=noisy[split.train],
        raw_y_held_out=noisy[split.held_out],
        jitter=tuple(float(s) for s in pairs.noise / np.asarray(y_scale.scale)),
    )


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


def _standardised(values: np.ndarray, scale: Standardise) -> np.ndarray:
    return (values - np.asarray(scale.shift)) / np.asarray(scale.scale)


def _batch_last(x: np.ndarray, y: np.ndarray | None, n_padding: int = 0) -> Arrays:
    x = x.T
    if n_padding:
        x = np.concatenate([x, np.random.default_rng(0).normal(size=(n_padding, x.shape[1]))])
    return {"x": x} if y is None else {"x": x, "y": y.T}

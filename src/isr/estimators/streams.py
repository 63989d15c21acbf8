"""Fits to more rows than memory holds: a sample of them stays in memory, the others are read block by block.

The sample serves for everything but training: scales, held-out losses, pruning and refitting, which use no more rows
anyway. Training takes a block each epoch. Rows that are held out of training lie in no block.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from isr.estimators.rows import Arrays, Rows, n_held_out
from isr.tables.bounds import Bounds, parse_bounds
from isr.tables.sources import RowSource

BLOCK_ROWS = 128_000
SAMPLE_ROWS = 100_000

Both = tuple[np.ndarray, np.ndarray | None]
"""Rows of x, and of y beside them where there is one."""


@dataclass(frozen=True)
class Stream:
    """Rows of x, and of y beside them, in blocks of equal size; the few that are left over are not used.

    Args:
        x: Source of x.
        y: Source of y, if there is one.
        seed: Of the rows that are held out of each block.
        block_rows: Rows of a block, before those held out are taken away.
        n_held: Rows held out of each block.
        bounds: The box that all rows of x must lie in.
    """

    x: RowSource
    y: RowSource | None
    seed: int
    block_rows: int
    n_held: int
    bounds: Bounds | None = None

    @classmethod
    def over(cls, x: RowSource, y: RowSource | None, *, seed: int, bounds: Any = None) -> Stream:
        """Return the stream over sources of equally many rows."""
        if y is not None and y.n_rows != x.n_rows:
            raise ValueError(f"x has {x.n_rows} rows but y has {y.n_rows}")
        if x.n_rows < 10:
            raise ValueError(f"x has {x.n_rows} rows, too few: at least 10 are needed")
        n_blocks = -(-x.n_rows // BLOCK_ROWS)
        n_held = max(1, n_held_out(x.n_rows) // n_blocks)
        return cls(x, y, seed, x.n_rows // n_blocks, n_held, parse_bounds(bounds, x.names))

    @property
    def n_blocks(self) -> int:
        return self.x.n_rows // self.block_rows

    @property
    def n_trained(self) -> int:
        """How many rows of a block are trained on."""
        return self.block_rows - self.n_held

    @property
    def n_held_out(self) -> int:
        return self.n_blocks * self.n_held

    def read(self, number: int) -> tuple[Both, Both]:
        """Return the rows of a block to train on, and those held out."""
        start, stop = number * self.block_rows, (number + 1) * self.block_rows
        x = _finite_rows(self.x, start, stop, "x")
        y = None if self.y is None else _finite_rows(self.y, start, stop, "y")
        if self.bounds is not None:
            self.bounds.check(x, self.x.names, what="x")
        held = np.zeros(len(x), dtype=bool)
        held[np.random.default_rng([self.seed, number]).permutation(len(x))[: self.n_held]] = True
        train, held_out = ((x[rows], None if y is None else y[rows]) for rows in (~held, held))
        return train, held_out

    def sample(self) -> Both:
        """Return the rows that stay in memory, all that are held out at the end."""
        most = max(1, SAMPLE_ROWS // self.n_blocks)
        some = np.arange(self.n_trained)[:: max(1, self.n_trained // most)][:most]
        parts: list[Both] = []
        for number in range(self.n_blocks):
            (x, y), held = self.read(number)
            parts.insert(number, (x[some], None if y is None else y[some]))
            parts.append(held)
        x, y = zip(*parts, strict=True)
        return np.concatenate(x), None if self.y is None else np.concatenate(y)


def _finite_rows(source: RowSource, start: int, stop: int, what: str) -> np.ndarray:
    values = source.read(start, stop)
    if not np.isfinite(values).all():
        row, column = np.argwhere(~np.isfinite(values))[0]
        raise ValueError(
            f"{what} has a value that is not finite in row {start + row + 1}, column {source.names[column]!r}; "
            "drop these rows or fill them in"
        )
    return values


@dataclass(frozen=True)
class StandardBlocks:
    """The blocks of a stream as training wants them: opened, scaled, batch last, without held-out rows."""

    stream: Stream
    rows: Rows

    @property
    def n_blocks(self) -> int:
        return self.stream.n_blocks

    def block(self, number: int) -> Arrays:
        """Return the arrays of a block."""
        return self.rows.standardised(*self.stream.read(number)[0])

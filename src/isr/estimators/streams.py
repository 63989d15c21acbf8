"""Fits to more rows than memory holds: a sample of them stays in memory, the others are read block by block.

The sample serves for everything but training: scales, held-out losses, pruning and refitting, which use no more rows
anyway. Training takes a block each epoch. Rows that are held out of training lie in no block.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from isr.estimators.rows import HELD_OUT, MAX_HELD_OUT, Rows
from isr.tables.bounds import Bounds, parse_bounds
from isr.tables.sources import RowSource
from isr.tables.splits import Split, split_rows

BLOCK_ROWS = 128_000
SAMPLE_ROWS = 100_000


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
        held = min(round(HELD_OUT * x.n_rows), MAX_HELD_OUT)
        return cls(x, y, seed, x.n_rows // n_blocks, max(1, held // n_blocks), parse_bounds(bounds, x.names))

    @property
    def n_blocks(self) -> int:
        """How many blocks there are."""
        return self.x.n_rows // self.block_rows

    @property
    def n_trained(self) -> int:
        """Rows of a block that are trained on."""
        return self.block_rows - self.n_held

    @property
    def n_held_out(self) -> int:
        """Rows held out of all blocks."""
        return self.n_blocks * self.n_held

    def read(self, number: int) -> tuple[np.ndarray, np.ndarray | None, np.ndarray]:
        """Return x, y and which rows are held out of a block; raises where a value is not finite."""
        start, stop = number * self.block_rows, (number + 1) * self.block_rows
        x = self.x.read(start, stop)
        y = None if self.y is None else self.y.read(start, stop)
        for what, source, values in (("x", self.x, x), ("y", self.y, y)):
            if values is not None and source is not None and not np.isfinite(values).all():
                row, column = np.argwhere(~np.isfinite(values))[0]
                raise ValueError(
                    f"{what} has a value that is not finite in row {start + row + 1}, column {source.names[column]!r}; "
                    "drop these rows or fill them in"
                )
        if self.bounds is not None:
            self.bounds.check(x, self.x.names, what="x")
        held = np.zeros(len(x), dtype=bool)
        held[np.random.default_rng([self.seed, number]).permutation(len(x))[: self.n_held]] = True
        return x, y, held

    def sample(self) -> tuple[np.ndarray, np.ndarray | None]:
        """Return the rows that stay in memory, in an order whose held-out part lies in no block."""
        share = max(1, SAMPLE_ROWS // self.n_blocks)
        held_out: list[tuple] = []
        train: list[tuple] = []
        for number in range(self.n_blocks):
            x, y, held = self.read(number)
            rest = np.flatnonzero(~held)[:: max(1, (~held).sum() // share)][:share]
            for rows, parts in ((np.flatnonzero(held), held_out), (rest, train)):
                parts.append((x[rows], None if y is None else y[rows]))
        x_parts = [np.concatenate([part[0] for part in parts]) for parts in (train, held_out)]
        split = split_rows(sum(map(len, x_parts)), held_out=len(x_parts[1]), random_state=self.seed)
        y_parts = (
            None
            if self.y is None
            else [np.concatenate([part[1] for part in parts]) for parts in (train, held_out)]
        )
        return _placed(x_parts, split), None if y_parts is None else _placed(y_parts, split)


def _placed(parts: list[np.ndarray], split: Split) -> np.ndarray:
    """Rows put where the split will find them again."""
    rows = np.empty((sum(map(len, parts)), parts[0].shape[1]))
    rows[split.train], rows[split.held_out] = parts
    return rows


@dataclass(frozen=True)
class StandardBlocks:
    """The blocks of a stream as training wants them: opened, scaled, batch last, without held-out rows."""

    stream: Stream
    rows: Rows

    @property
    def n_blocks(self) -> int:
        """How many blocks there are."""
        return self.stream.n_blocks

    def block(self, number: int) -> dict[str, np.ndarray]:
        """Return the arrays of a block."""
        x, y, held = self.stream.read(number)
        return self.rows.standardised(x[~held], None if y is None else y[~held])

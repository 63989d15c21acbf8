"""Training data too large for memory: blocks of rows, read when their turn comes, one an epoch."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np


@runtime_checkable
class Blocks(Protocol):
    """Blocks of equally many rows."""

    @property
    def n_blocks(self) -> int:
        """How many blocks there are."""
        ...

    def block(self, number: int) -> dict[str, np.ndarray]:
        """Return the arrays of a block, rows along the last axis."""
        ...

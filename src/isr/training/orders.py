"""The order in which an epoch reads its rows."""

from __future__ import annotations

import numpy as np
from jaxtyping import Int

from isr.bijections.parameters import Seed, generator, sequence_of


class Orders:
    """Rows of the batches of each epoch: several passes over few rows, or a part of a pass over many.

    Every pass has a new order. That of the last one is kept: the parts of a pass share it.

    Args:
        n_rows: Rows there are.
        batch_size: Rows of a batch.
        n_steps: Batches of an epoch.
    """

    def __init__(self, *, n_rows: int, batch_size: int, n_steps: int) -> None:
        self.n_rows, self.n_steps = n_rows, n_steps
        self.size = min(batch_size, n_rows)
        self.steps_of_pass = max(1, n_rows // batch_size)
        self.n_parts = max(1, self.steps_of_pass // n_steps)
        self._kept = ((), np.empty(0, np.int32))

    def rows(self, seed: Seed, part: int) -> Int[np.ndarray, "steps size"]:
        """Return the rows of each batch in part number ``part`` of the passes that ``seed`` gives."""
        root = sequence_of(seed)
        mark = (root.entropy, root.spawn_key)
        if self._kept[0] != mark:
            self._kept = (mark, self._passes(root))
        n = self.n_steps * self.size
        return self._kept[1][part * n : (part + 1) * n].reshape(self.n_steps, self.size)

    def _passes(self, seed: Seed) -> Int[np.ndarray, " n"]:
        rng, rows = generator(seed), np.arange(self.n_rows, dtype=np.int32)
        n_passes = max(1, self.n_steps // self.steps_of_pass)
        used = self.steps_of_pass * self.size
        return np.concatenate([rng.permutation(rows)[:used] for _ in range(n_passes)])

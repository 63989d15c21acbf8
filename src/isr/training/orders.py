"""The order in which an epoch reads its rows."""

from __future__ import annotations

import numpy as np
from jaxtyping import Int

from isr.bijections.keys import Words, permutations, split_words


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
        self.n_steps_pass = max(1, n_rows // batch_size)
        self.n_parts = max(1, n_rows // batch_size // n_steps)
        self._kept: tuple[bytes, np.ndarray] = (b"", np.empty(0, np.int32))

    def rows(self, words: Words, part: int) -> Int[np.ndarray, "steps size"]:
        """Return the rows of each batch: part number ``part`` of the passes that a key of these words gives."""
        if self._kept[0] != words.tobytes():
            passes = split_words(words, max(1, self.n_steps // self.n_steps_pass))
            order = permutations(passes, self.n_rows)[:, : self.n_steps_pass * self.size].ravel()
            self._kept = (words.tobytes(), order)
        n = self.n_steps * self.size
        return self._kept[1][part * n : (part + 1) * n].reshape(self.n_steps, self.size)

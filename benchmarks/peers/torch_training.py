"""The training loop of a PyTorch flow: Adam over shuffled batches of rows held in memory."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

RATE = 1e-3
CHUNK = 100_000


class TorchFlow:
    """A flow of any PyTorch library.

    Args:
        model: Holds the parameters.
        log_prob: Log-density of rows of x given rows of y.
        sample: Draws n rows of x for one row of y.
        x: Rows to train on.
        y: Rows beside them.
        batch_size: Rows a step.
    """

    def __init__(
        self,
        model: nn.Module,
        log_prob: Callable[[Tensor, Tensor], Tensor],
        sample: Callable[[Tensor, int], Tensor],
        x: np.ndarray,
        y: np.ndarray,
        *,
        batch_size: int,
    ) -> None:
        self.model, self._log_prob, self._sample = model, log_prob, sample
        self.n_parameters = sum(p.numel() for p in model.parameters() if p.requires_grad)
        self.optimiser = torch.optim.Adam(model.parameters(), lr=RATE)
        self.x, self.y = torch.from_numpy(x), torch.from_numpy(y)
        self.batch_size = batch_size
        self.order, self.position = torch.randperm(len(x)), 0

    def train(self, n_steps: int, rate: float = RATE) -> None:
        self.model.train()
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        for _ in range(n_steps):
            rows = self._next_rows()
            self.optimiser.zero_grad()
            loss = -self._log_prob(self.x[rows], self.y[rows]).mean()
            loss.backward()
            self.optimiser.step()

    def _next_rows(self) -> Tensor:
        if self.position + self.batch_size > len(self.order):
            self.order, self.position = torch.randperm(len(self.x)), 0
        self.position += self.batch_size
        return self.order[self.position - self.batch_size : self.position]

    def sample(self, y: np.ndarray, n: int) -> np.ndarray:
        """Return ``n`` rows of x for one y, in chunks that fit the caches."""
        self.model.eval()
        one = torch.from_numpy(np.atleast_2d(y).astype(np.float32))
        with torch.no_grad():
            parts = [self._sample(one, min(CHUNK, n - start)) for start in range(0, n, CHUNK)]
        return torch.cat(parts).numpy()

    def log_prob(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        self.model.eval()
        rows = torch.from_numpy(np.asarray(x, np.float32))
        given = torch.from_numpy(np.asarray(y, np.float32)).expand(len(rows), -1)
        with torch.no_grad():
            pairs = zip(rows.split(CHUNK), given.split(CHUNK), strict=True)
            return torch.cat([self._log_prob(a, b) for a, b in pairs]).numpy()

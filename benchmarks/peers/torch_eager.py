"""The same cISR and cINN written in PyTorch in the plain way, without a compiler: what most published code does."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from peers.torch_training import TorchFlow
from shape import Shape

GUARD = 6.0


class EQLLayer(nn.Module):
    """A linear map, then the units of the paper's library: identity, four squares, sine, sigmoid, product."""

    def __init__(self, n_inputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(n_inputs, 9)

    def forward(self, h: Tensor) -> Tensor:
        g = self.linear(h)
        return torch.cat(
            [
                g[:, 0:1], g[:, 1:5] ** 2, torch.sin(2 * math.pi * g[:, 5:6]), torch.sigmoid(g[:, 6:7]),
                g[:, 7:8] * g[:, 8:9],
            ],
            dim=1,
        )  # fmt: skip


def eql(n_inputs: int, n_outputs: int, shape: Shape) -> nn.Module:
    """Return an equation-learner network that starts near zero."""
    layers: list[nn.Module] = [EQLLayer(n_inputs), *(EQLLayer(8) for _ in range(shape.n_layers - 1))]
    network = nn.Sequential(*layers, nn.Linear(8, n_outputs))
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.mul_(0.5)
    return network


def mlp(n_inputs: int, n_outputs: int, shape: Shape) -> nn.Module:
    """Return a leaky-ReLU network."""
    layers: list[nn.Module] = []
    for width in [n_inputs, *[shape.width] * (shape.n_layers - 1)]:
        layers += [nn.Linear(width, shape.width), nn.LeakyReLU()]
    return nn.Sequential(*layers, nn.Linear(shape.width, n_outputs))


class Block(nn.Module):
    """A two-sided affine coupling with networks of their own for each log-scale and shift."""

    def __init__(self, shape: Shape, subnet: Callable[[int, int, Shape], nn.Module]) -> None:
        super().__init__()
        self.split, self.clamp = shape.dim // 2, shape.clamp
        rest = shape.dim - self.split
        self.s1, self.t1 = (subnet(rest + shape.condition_dim, self.split, shape) for _ in range(2))
        self.s2, self.t2 = (subnet(self.split + shape.condition_dim, rest, shape) for _ in range(2))

    def _clamped(self, s: Tensor) -> Tensor:
        return self.clamp * (2 / math.pi) * torch.atan(s / self.clamp)

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        u1, u2 = x[:, : self.split], x[:, self.split :]
        read = torch.cat([u2, y], dim=1).clamp(-GUARD, GUARD)
        s1 = self._clamped(self.s1(read))
        v1 = u1 * torch.exp(s1) + self.t1(read)
        read = torch.cat([v1, y], dim=1).clamp(-GUARD, GUARD)
        s2 = self._clamped(self.s2(read))
        o2 = u2 * torch.exp(s2) + self.t2(read)
        return torch.cat([v1, o2], dim=1), s1.sum(1) + s2.sum(1)

    def inverse(self, z: Tensor, y: Tensor) -> Tensor:
        v1, o2 = z[:, : self.split], z[:, self.split :]
        read = torch.cat([v1, y], dim=1).clamp(-GUARD, GUARD)
        u2 = (o2 - self.t2(read)) * torch.exp(-self._clamped(self.s2(read)))
        read = torch.cat([u2, y], dim=1).clamp(-GUARD, GUARD)
        return torch.cat([(v1 - self.t1(read)) * torch.exp(-self._clamped(self.s1(read))), u2], dim=1)


class CouplingFlow(nn.Module):
    """Blocks with fixed random permutations between them."""

    def __init__(self, shape: Shape, subnet: Callable[[int, int, Shape], nn.Module]) -> None:
        super().__init__()
        self.dim = shape.dim
        self.blocks = nn.ModuleList(Block(shape, subnet) for _ in range(shape.n_blocks))
        self.orders = [torch.randperm(shape.dim) for _ in range(shape.n_blocks)]

    def log_prob(self, x: Tensor, y: Tensor) -> Tensor:
        total = torch.zeros(len(x))
        for block, order in zip(self.blocks, self.orders, strict=True):
            x, log_det = block(x[:, order], y)
            total = total + log_det
        return total - 0.5 * (x**2).sum(1) - 0.5 * self.dim * math.log(2 * math.pi)

    def sample(self, y: Tensor, n: int) -> Tensor:
        x = torch.randn(n, self.dim)
        for block, order in zip(reversed(self.blocks), reversed(self.orders), strict=True):
            x = block.inverse(x, y)[:, torch.argsort(order)]  # type: ignore[operator]
        return x


def build(
    shape: Shape, x: np.ndarray, y: np.ndarray, *, batch_size: int, seed: int, subnet: str
) -> TorchFlow:
    """Return cISR (``subnet="eql"``) or cINN (``"mlp"``)."""
    torch.manual_seed(seed)
    model = CouplingFlow(shape, eql if subnet == "eql" else mlp)
    return TorchFlow(
        model, model.log_prob, lambda y, n: model.sample(y.expand(n, -1), n), x, y, batch_size=batch_size
    )

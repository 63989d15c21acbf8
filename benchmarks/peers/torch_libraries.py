"""Conditional flows of FrEIA, nflows, normflows, zuko and sbi, each from the parts its documentation uses for them."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from peers.torch_eager import mlp
from peers.torch_training import TorchFlow
from shape import Shape


def build_freia(shape: Shape, x: np.ndarray, y: np.ndarray, *, batch_size: int, seed: int) -> TorchFlow:
    """FrEIA: ``GLOWCouplingBlock``, whose one network gives log-scale and shift, and permutations."""
    from FrEIA.framework import SequenceINN
    from FrEIA.modules import GLOWCouplingBlock, PermuteRandom

    torch.manual_seed(seed)
    model = SequenceINN(shape.dim)
    for number in range(shape.n_blocks):
        model.append(
            GLOWCouplingBlock, cond=0, cond_shape=(shape.condition_dim,), clamp=shape.clamp,
            subnet_constructor=lambda n_inputs, n_outputs: mlp(n_inputs, n_outputs, shape),
        )  # fmt: skip
        model.append(PermuteRandom, seed=number)

    def log_prob(x: Tensor, y: Tensor) -> Tensor:
        z, log_det = model(x, c=[y])
        return log_det - 0.5 * (z**2).sum(1) - 0.5 * shape.dim * np.log(2 * np.pi)

    def sample(y: Tensor, n: int) -> Tensor:
        return model(torch.randn(n, shape.dim), c=[y.expand(n, -1)], rev=True)[0]

    return TorchFlow(model, log_prob, sample, x, y, batch_size=batch_size)


def build_nflows(shape: Shape, x: np.ndarray, y: np.ndarray, *, batch_size: int, seed: int) -> TorchFlow:
    """nflows: one-sided ``AffineCouplingTransform``s, twice as many, over residual networks, as in its examples."""
    from nflows.distributions.normal import StandardNormal
    from nflows.flows.base import Flow
    from nflows.nn.nets import ResidualNet
    from nflows.transforms.base import CompositeTransform
    from nflows.transforms.coupling import AffineCouplingTransform
    from nflows.transforms.permutations import RandomPermutation

    torch.manual_seed(seed)

    def network(n_inputs: int, n_outputs: int) -> nn.Module:
        # One residual block holds two layers; with the layer before it these are three.
        return ResidualNet(
            n_inputs, n_outputs, hidden_features=shape.width, context_features=shape.condition_dim,
            num_blocks=max(1, (shape.n_layers - 1) // 2),
        )  # fmt: skip

    steps: list[nn.Module] = []
    for number in range(2 * shape.n_blocks):
        mask = (np.arange(shape.dim) + number) % 2
        steps.append(AffineCouplingTransform(mask.tolist(), network))
        if number % 2:
            steps.append(RandomPermutation(shape.dim))
    flow = Flow(CompositeTransform(steps), StandardNormal([shape.dim]))
    return TorchFlow(
        flow, lambda x, y: flow.log_prob(x, context=y), lambda y, n: flow.sample(n, context=y)[0], x, y,
        batch_size=batch_size,
    )  # fmt: skip


def build_normflows(shape: Shape, x: np.ndarray, y: np.ndarray, *, batch_size: int, seed: int) -> TorchFlow:
    """normflows: its affine couplings take no condition; its conditional example uses masked affine autoregression."""
    import normflows as nf

    torch.manual_seed(seed)
    steps: list[nn.Module] = []
    for _ in range(shape.n_blocks):
        steps.append(
            nf.flows.MaskedAffineAutoregressive(
                shape.dim, shape.width, context_features=shape.condition_dim,
                num_blocks=max(1, (shape.n_layers - 1) // 2),
            )
        )  # fmt: skip
        steps.append(nf.flows.LULinearPermute(shape.dim))
    flow = nf.ConditionalNormalizingFlow(nf.distributions.DiagGaussian(shape.dim, trainable=False), steps)
    return TorchFlow(
        flow, lambda x, y: flow.log_prob(x, context=y),
        lambda y, n: flow.sample(n, context=y.expand(n, -1))[0], x, y, batch_size=batch_size,
    )  # fmt: skip


def build_zuko(shape: Shape, x: np.ndarray, y: np.ndarray, *, batch_size: int, seed: int) -> TorchFlow:
    """zuko: ``NICE``, whose couplings are affine by default, one-sided, twice as many."""
    import zuko

    torch.manual_seed(seed)
    flow = zuko.flows.NICE(
        shape.dim, shape.condition_dim, transforms=2 * shape.n_blocks, randmask=True,
        hidden_features=(shape.width,) * shape.n_layers,
    )  # fmt: skip
    return TorchFlow(
        flow, lambda x, y: flow(y).log_prob(x), lambda y, n: flow(y[0]).sample(torch.Size((n,))), x, y,
        batch_size=batch_size,
    )  # fmt: skip


def build_sbi(shape: Shape, x: np.ndarray, y: np.ndarray, *, batch_size: int, seed: int) -> TorchFlow:
    """sbi: the density estimator that ``NPE`` trains by default, a masked autoregressive flow of its default size."""
    from sbi.neural_nets import posterior_nn

    torch.manual_seed(seed)
    estimator = posterior_nn("maf")(torch.from_numpy(x[:1000]), torch.from_numpy(y[:1000]))
    return TorchFlow(
        estimator, lambda x, y: estimator.log_prob(x[None], condition=y)[0],
        lambda y, n: estimator.sample((n,), condition=y)[:, 0], x, y, batch_size=batch_size,
    )  # fmt: skip

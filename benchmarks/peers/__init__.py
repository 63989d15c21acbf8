"""Conditional flows of several libraries behind one small face, each built as its documentation advises.

A flow has ``n_parameters``; ``train(n_steps)`` takes Adam steps over shuffled batches of the rows it was built with
and waits for them; ``sample(y, n)`` draws rows of x for one y; ``log_prob(x, y)`` gives the log-density of rows.
Arrays are NumPy's. All rows are standardised already, and every flow has the `Shape` it is given, as far as its
library allows.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple, Protocol

import numpy as np

from shape import Shape


class TrainedFlow(Protocol):
    """What every module of this package builds."""

    n_parameters: int

    def train(self, n_steps: int, rate: float = ...) -> None: ...
    def sample(self, y: np.ndarray, n: int) -> np.ndarray: ...
    def log_prob(self, x: np.ndarray, y: np.ndarray) -> np.ndarray: ...


class Peer(NamedTuple):
    """Where a flow is built and what it needs.

    Args:
        module: Module of this package.
        build: Function in it: ``build(shape, x, y, batch_size=..., seed=...)``.
        needs: Distributions to be installed.
        options: Further arguments of ``build``.
    """

    module: str
    build: str
    needs: tuple[str, ...] = ()
    options: tuple[tuple[str, Any], ...] = ()


FLOWS = {
    "isr cISR": Peer("ours", "build", options=(("subnet", "eql"),)),
    "isr cINN": Peer("ours", "build", options=(("subnet", "mlp"),)),
    "PyTorch eager cISR": Peer("torch_eager", "build", ("torch",), (("subnet", "eql"),)),
    "PyTorch eager cINN": Peer("torch_eager", "build", ("torch",), (("subnet", "mlp"),)),
    "FrEIA cINN": Peer("torch_libraries", "build_freia", ("torch", "FrEIA")),
    "nflows cINN": Peer("torch_libraries", "build_nflows", ("torch", "nflows")),
    "normflows MAF": Peer("torch_libraries", "build_normflows", ("torch", "normflows")),
    "zuko NICE": Peer("torch_libraries", "build_zuko", ("torch", "zuko")),
    "sbi MAF": Peer("torch_libraries", "build_sbi", ("torch", "sbi")),
    "FlowJAX coupling": Peer("flowjax_flows", "build", ("flowjax",)),
    "FlowJAX spline": Peer("flowjax_flows", "build", ("flowjax",), (("spline", True),)),
}


def build(
    name: str, shape: Shape, x: np.ndarray, y: np.ndarray, *, batch_size: int, seed: int, **more: Any
) -> TrainedFlow:
    """Return the flow called ``name`` over rows to train on."""
    peer = FLOWS[name]
    make = getattr(import_module(f"peers.{peer.module}"), peer.build)
    return make(shape, x, y, batch_size=batch_size, seed=seed, **dict(peer.options), **more)

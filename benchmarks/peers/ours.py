"""isr's own conditional flows, trained by the loop that every fit uses."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np

from isr.bijections.build import Architecture, build_flow
from isr.bijections.flow import Flow, Precision
from isr.bijections.parameters import child, flatten, jax_keys
from isr.bijections.primitives import PAPER_LIBRARY
from isr.training.loop import batches, make_epoch, start
from isr.training.losses import FlowObjective
from isr.training.penalties import SmoothHalfNorm
from shape import Shape

RATE = 1e-3


class OurFlow:
    """One flow, or several restarts of it side by side.

    Args:
        shape: Size of the flow.
        x: Rows to train on.
        y: Rows beside them.
        batch_size: Rows a step.
        seed: Of weights and batches.
        subnet: ``"eql"`` or ``"mlp"``.
        backward: Weight of the backward term, as in `isr.ConditionalISR`; 0 leaves the likelihood alone.
        mixing: What stands between blocks.
        library: Primitives with their multiplicities; the paper's when left out.
        n_members: Restarts.
        steps_a_call: Steps of one compiled call.
    """

    def __init__(
        self,
        shape: Shape,
        x: np.ndarray,
        y: np.ndarray,
        *,
        batch_size: int,
        seed: int,
        subnet: str,
        backward: float = 0.0,
        mixing: str = "permutation",
        library: Mapping[str, int] = PAPER_LIBRARY,
        n_members: int = 1,
        steps_a_call: int = 50,
    ) -> None:
        architecture = Architecture(
            shape.n_blocks, shape.n_layers, subnet=subnet, library=library, width=shape.width, clamp=shape.clamp,
            mixing=mixing,
        )  # fmt: skip
        flow = build_flow(
            jax.random.key(seed), shape.dim, condition_dim=shape.condition_dim, architecture=architecture
        )
        weights, self.restore = flatten(flow)
        self.n_parameters, self.steps_a_call = len(weights), steps_a_call
        spread = np.random.default_rng(seed).normal(1.0, 0.01, (n_members, len(weights)))
        self.state = start(jnp.asarray(spread * np.asarray(weights), jnp.float32))
        self.data = {"x": jnp.asarray(x.T, jnp.float32), "y": jnp.asarray(y.T, jnp.float32)}
        self.epoch = make_epoch(FlowObjective(self.restore, backward), SmoothHalfNorm())
        self.shape = {"n_rows": len(x), "batch_size": batch_size, "n_steps": steps_a_call}
        self.strengths = jnp.zeros(n_members, jnp.float32)
        self.masks = jnp.ones((n_members, len(weights)), jnp.float32)
        self.n_calls, self.seed = 0, seed

    def arguments(self, rate: float = RATE) -> tuple:
        """Return what the next call of the compiled epoch takes."""
        rates = np.full(self.steps_a_call, rate, np.float32)
        keys = jax_keys(child(self.seed, 0, self.n_calls), self.steps_a_call, len(self.masks))
        rows = batches(child(self.seed, 1, self.n_calls), **self.shape)
        return self.state, self.data, rates, self.strengths, self.masks, self.masks[0], keys, rows

    def train(self, n_steps: int, rate: float = RATE) -> None:
        """Take at least ``n_steps``, a whole number of compiled calls."""
        for _ in range(-(-n_steps // self.steps_a_call)):
            self.state, loss = self.epoch(*self.arguments(rate))
            self.n_calls += 1
        jax.block_until_ready(loss)

    @property
    def flow(self) -> Flow:
        """The first member."""
        return self.restore(np.asarray(self.state.weights[0]))

    def sample(self, y: np.ndarray, n: int, *, precision: Precision = "double") -> np.ndarray:
        return self.flow.sample(jax.random.key(self.seed), n, y, precision=precision)

    def log_prob(self, x: np.ndarray, y: np.ndarray, *, precision: Precision = "double") -> np.ndarray:
        return self.flow.log_prob(x, y, precision=precision)


build = OurFlow

"""FlowJAX's coupling flows, affine or rational-quadratic, trained by its own step or by ``fit_to_data``."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import paramax
from flowjax.bijections import RationalQuadraticSpline
from flowjax.distributions import Normal
from flowjax.flows import coupling_flow
from flowjax.train import fit_to_data
from flowjax.train.losses import MaximumLikelihoodLoss
from flowjax.train.train_utils import step

from shape import Shape

RATE = 1e-3
CHUNK = 100_000


def make_flow(shape: Shape, seed: int, *, spline: bool = False) -> Any:
    """Return an untrained flow: one-sided couplings, twice as many as a two-sided flow has."""
    return coupling_flow(
        jr.key(seed), base_dist=Normal(jnp.zeros(shape.dim)), cond_dim=shape.condition_dim,
        transformer=RationalQuadraticSpline(knots=8, interval=5) if spline else None,
        flow_layers=2 * shape.n_blocks, nn_width=shape.width, nn_depth=shape.n_layers,
        nn_activation=jax.nn.leaky_relu,
    )  # fmt: skip


class FlowJaxFlow:
    """A coupling flow of FlowJAX.

    Args:
        shape: Size of the flow.
        x: Rows to train on.
        y: Rows beside them.
        batch_size: Rows a step.
        seed: Of weights and batches.
        spline: Whether the couplings are splines.
        scheduled: Whether the learning rate may change between calls, which costs the optimiser a little.
    """

    moments: Any

    def __init__(
        self,
        shape: Shape,
        x: np.ndarray,
        y: np.ndarray,
        *,
        batch_size: int,
        seed: int,
        spline: bool = False,
        scheduled: bool = False,
    ) -> None:
        flow = make_flow(shape, seed, spline=spline)
        self.parameters, self.static = eqx.partition(
            flow, eqx.is_inexact_array, is_leaf=lambda leaf: isinstance(leaf, paramax.NonTrainable)
        )
        self.n_parameters = sum(leaf.size for leaf in jax.tree.leaves(self.parameters))
        adam = optax.inject_hyperparams(optax.adam) if scheduled else optax.adam
        self.optimiser = adam(learning_rate=RATE)
        self.scheduled = scheduled
        self.moments = self.optimiser.init(self.parameters)
        self.loss = MaximumLikelihoodLoss()
        self.x, self.y, self.batch_size = x, y, batch_size
        self.key, self.position = jr.key(seed + 1), len(x)
        self.rng = np.random.default_rng(seed)

    def train(self, n_steps: int, rate: float = RATE) -> None:
        if self.scheduled:
            self.moments.hyperparams["learning_rate"] = jnp.asarray(rate, jnp.float32)
        loss = None
        for _ in range(n_steps):
            x, y = self._next_rows()
            self.key, key = jr.split(self.key)
            self.parameters, self.moments, loss = step(
                self.parameters, self.static, x, y, optimizer=self.optimiser, opt_state=self.moments,
                loss_fn=self.loss, key=key,
            )  # fmt: skip
        jax.block_until_ready(loss)

    def _next_rows(self) -> tuple[jax.Array, jax.Array]:
        if self.position + self.batch_size > len(self.x):
            order = self.rng.permutation(len(self.x))  # by NumPy, in a tenth of the time of JAX's own
            self.shuffled = [jnp.asarray(rows[order]) for rows in (self.x, self.y)]
            self.position = 0
        rows = slice(self.position, self.position + self.batch_size)
        self.position += self.batch_size
        return self.shuffled[0][rows], self.shuffled[1][rows]

    @property
    def flow(self) -> Any:
        """The flow with its present parameters."""
        return paramax.unwrap(eqx.combine(self.parameters, self.static))

    def sample(self, y: np.ndarray, n: int) -> np.ndarray:
        """Return ``n`` rows of x for one y, in compiled chunks."""
        self.key, *keys = jr.split(self.key, 1 + -(-n // CHUNK))
        condition = jnp.asarray(y, jnp.float32).reshape(-1)
        return np.concatenate([_draw(self.flow, k, condition, min(CHUNK, n)) for k in keys])[:n]

    def log_prob(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        given = jnp.asarray(y, jnp.float32)
        flow, parts = self.flow, []
        for start in range(0, len(x), CHUNK):
            condition = (
                given[start : start + CHUNK] if given.ndim == 2 and len(given) > 1 else given.reshape(-1)
            )
            parts.append(_log_prob(flow, jnp.asarray(x[start : start + CHUNK], jnp.float32), condition))
        return np.concatenate(parts)


@eqx.filter_jit
def _draw(flow: Any, key: jax.Array, condition: jax.Array, n: int) -> jax.Array:
    return flow.sample(key, (n,), condition=condition)


@eqx.filter_jit
def _log_prob(flow: Any, x: jax.Array, condition: jax.Array) -> jax.Array:
    return flow.log_prob(x, condition)


def fit(shape: Shape, x: np.ndarray, y: np.ndarray, *, n_epochs: int, batch_size: int, seed: int) -> float:
    """Fit by FlowJAX's own loop and return the least held-out loss."""
    _, losses = fit_to_data(
        jr.key(seed), make_flow(shape, seed), (x, y), learning_rate=RATE, max_epochs=n_epochs,
        max_patience=n_epochs, batch_size=batch_size, show_progress=False,
    )  # fmt: skip
    return float(min(losses["val"]))


build = FlowJaxFlow

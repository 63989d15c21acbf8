"""Leaky-ReLU networks, the subnetworks of the INN and cINN baselines, stacked as EQL networks are."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Array, Float

from isr.bijections.arrays import all_on_device
from isr.bijections.seeds import Seed, generator

NEGATIVE_SLOPE = 0.01


class MLP(eqx.Module):
    """``stack`` fully connected networks with leaky ReLUs over the same inputs.

    Args:
        weights: One array ``(stack, rows, columns)`` a layer, the last one linear.
        biases: One array ``(stack, rows)`` a layer.
    """

    weights: tuple[Float[Array, "stack rows columns"], ...]
    biases: tuple[Float[Array, "stack rows"], ...]

    @property
    def stack(self) -> int:
        """How many networks run side by side."""
        return self.weights[0].shape[0]

    @property
    def n_inputs(self) -> int:
        """How many inputs each has."""
        return self.weights[0].shape[2]

    @property
    def n_outputs(self) -> int:
        """How many outputs each has."""
        return self.weights[-1].shape[1]

    def __call__(self, inputs: Float[Array, " n_inputs"]) -> Float[Array, "stack n_outputs"]:
        h = jnp.broadcast_to(inputs, (self.stack, self.n_inputs))
        for layer, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            h = jax.vmap(jnp.matmul)(weight, h) + bias
            if layer < len(self.weights) - 1:
                h = checkpoint_name(jax.nn.leaky_relu(h, NEGATIVE_SLOPE), "hidden")
        return h

    def columns(self, inputs: Float[Array, "n_inputs n"]) -> Float[Array, "stack n_outputs n"]:
        """Return the values at many inputs, one a column.

        The same as calling for each, and faster: one product a layer instead of one a column.
        """
        first, bias = self.weights[0], self.biases[0]
        h = (first.reshape(-1, self.n_inputs) @ inputs).reshape(*bias.shape, -1) + bias[..., None]
        for weight, bias in zip(self.weights[1:], self.biases[1:], strict=True):
            h = weight @ jax.nn.leaky_relu(h, NEGATIVE_SLOPE) + bias[..., None]
        return h


def build_mlp(
    key: Seed,
    n_inputs: int,
    n_outputs: int,
    *,
    n_layers: int = 2,
    width: int = 32,
    stack: int = 1,
    last_scale: float = 0.1,
) -> MLP:
    """Return a leaky-ReLU network with random weights (He's scaling).

    Args:
        key: Seed of the weights.
        n_inputs: Number of variables read.
        n_outputs: Number of values given.
        n_layers: Hidden layers; with none the network is a linear map.
        width: Units of a hidden layer.
        stack: How many networks of this shape run side by side.
        last_scale: Factor on the last layer's weights; small starts a coupling near the identity.
    """
    if n_layers < 0 or width < 1:
        raise ValueError(f"a hidden layer needs a unit, got n_layers={n_layers}, width={width}")
    widths = [n_inputs, *[width] * n_layers, n_outputs]
    shapes = list(zip(widths[1:], widths[:-1], strict=True))
    rng, weights = generator(key), []
    for layer, shape in enumerate(shapes):
        spread = (2 / max(shape[1], 1)) ** 0.5 * (last_scale if layer == n_layers else 1.0)
        weights.append(spread * rng.normal(size=(stack, *shape)))
    arrays = all_on_device([*weights, *(np.zeros(w.shape[:2]) for w in weights)])
    return MLP(tuple(arrays[: len(weights)]), tuple(arrays[len(weights) :]))

"""Equation networks with their small matrix products written out as sums, for many samples at once.

A matrix of nine rows and columns times many samples is slower through a matrix library, which packs and unpacks, than
as a sum of scaled rows. Training does not use this form: its gradient is slower.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
from jax.lax import optimization_barrier
from jaxtyping import Array, Float

from isr.bijections.bijection import AbstractBijection
from isr.bijections.coupling import Coupling
from isr.bijections.eql import EQL, activate

# Longer sums are left to the matrix library.
LONGEST_SUM = 32


class Unrolled(eqx.Module):
    """An equation network whose values at many inputs are sums of scaled rows.

    Args:
        network: The network.
    """

    network: EQL

    def __call__(self, inputs: Float[Array, " n_inputs"]) -> Float[Array, "stack outputs"]:
        return self.network(inputs)

    def columns(self, inputs: Float[Array, "n_inputs n"]) -> Float[Array, "stack outputs n"]:
        """Return the values at many inputs, one a column."""
        seen, n_layers = [inputs[None]], len(self.network.weights)
        g = self._linear(0, seen)
        for layer in range(1, n_layers):
            # Without the barrier XLA would work a unit out again for every row that reads it.
            seen.append(optimization_barrier(activate(self.network.library, g, axis=1)))
            g = self._linear(layer, seen if self.network.skip and layer == n_layers - 1 else seen[-1:])
        return g

    def _linear(self, layer: int, read: list[Float[Array, "_ units n"]]) -> Float[Array, "stack rows n"]:
        weight, biases = self.network.weights[layer], self.network.biases
        rows = [h[:, k, None] for h in read for k in range(h.shape[1])]
        terms = [weight[:, :, k, None] * row for k, row in enumerate(rows)]
        return sum(terms[1:], terms[0]) if biases is None else sum(terms, biases[layer][:, :, None])


def unroll(bijection: AbstractBijection) -> AbstractBijection:
    """Return the same map with the networks of its couplings written out, where they are small enough."""

    def changed(step: Any) -> Any:
        if not isinstance(step, Coupling):
            return step
        return replace(step, first=_unrolled(step.first), second=_unrolled(step.second))

    return jax.tree.map(changed, bijection, is_leaf=lambda step: isinstance(step, Coupling))


def _unrolled(network: Any) -> Any:
    is_small = isinstance(network, EQL) and max(w.shape[2] for w in network.weights) <= LONGEST_SUM
    return Unrolled(network) if is_small else network

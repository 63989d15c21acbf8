"""Equation networks with their small matrix products written out as sums, for many samples at once.

A matrix of nine rows and columns times many samples is slower through a matrix library, which packs and unpacks, than
as a sum of scaled rows. Training does not use this form: its gradient is slower.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jax.lax import optimization_barrier
from jaxtyping import Array, Float

from isr.model.bijection import AbstractBijection
from isr.model.coupling import Coupling
from isr.model.elementary import arctan, sin2pi
from isr.model.eql import EQL, activate

# Longer sums are left to the matrix library.
LONGEST_SUM = 32
_FORMS: Mapping[str, Callable[..., Any]] = {
    "sin2pi": sin2pi,
    "sin": lambda g: sin2pi(g / (2 * math.pi)),
    "cos": lambda g: sin2pi(g / (2 * math.pi) + 0.25),
}


class Unrolled(eqx.Module):
    """An equation network that gives a log-scale and a shift, the clamp of the log-scale included.

    Args:
        network: The two, stacked.
        clamp: Bound of the log-scale; ``None`` leaves it free.
    """

    network: EQL
    clamp: float | None = eqx.field(static=True)

    def __call__(self, inputs: Float[Array, " n_inputs"]) -> tuple[Array, Array]:
        return self._clamped(self.network(inputs))

    def columns(self, inputs: Float[Array, "n_inputs n"]) -> tuple[Array, Array]:
        """Return clamped log-scales and shifts at many inputs, one a column."""
        seen, n_layers = [inputs[None]], len(self.network.weights)
        g = self._linear(0, seen)
        for layer in range(1, n_layers):
            # Without the barrier XLA would work a unit out again for every row that reads it.
            seen.append(optimization_barrier(activate(self.network.library, g, axis=1, forms=_FORMS)))
            g = self._linear(layer, seen if self.network.skip and layer == n_layers - 1 else seen[-1:])
        return self._clamped(g)

    def _linear(self, layer: int, read: list[Float[Array, "_ units n"]]) -> Float[Array, "stack rows n"]:
        weight, biases = self.network.weights[layer], self.network.biases
        rows = [h[:, k, None] for h in read for k in range(h.shape[1])]
        terms = [weight[:, :, k, None] * row for k, row in enumerate(rows)]
        return sum(terms[1:], terms[0]) if biases is None else sum(terms, biases[layer][:, :, None])

    def _clamped(self, values: Float[Array, "2 *shape"]) -> tuple[Array, Array]:
        s, t = values
        return s if self.clamp is None else self.clamp * (2 / np.pi) * arctan(s / self.clamp), t


def unroll(bijection: AbstractBijection) -> AbstractBijection:
    """Return the same map with the networks of its couplings written out, where they are small enough."""

    def changed(step: Any) -> Any:
        if not isinstance(step, Coupling):
            return step
        networks = [n for n in (step.first, step.second) if isinstance(n, EQL) and _is_small(n)]
        if len(networks) < 2:
            return step
        first, second = (Unrolled(network, step.clamp) for network in networks)
        return replace(step, first=first, second=second, clamp=None)

    return jax.tree.map(changed, bijection, is_leaf=lambda step: isinstance(step, Coupling))


def _is_small(network: EQL) -> bool:
    return max(weight.shape[2] for weight in network.weights) <= LONGEST_SUM

"""Penalties that drive weights to zero. Each gives one number for one flat vector of weights."""

from __future__ import annotations

import math
from abc import abstractmethod

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

Weights = Float[Array, " n"]


class AbstractPenalty(eqx.Module):
    """A sparsity penalty; ``strength`` multiplies ``value`` in the loss.

    ``gate`` says which numbers the model really computes with, given the raw weights: the weights themselves,
    except under a stochastic penalty, which keeps ``n_gates`` further numbers a weight.
    """

    @property
    def n_gates(self) -> int:
        """How many gate parameters a weight has."""
        return 0

    @abstractmethod
    def value(self, weights: Weights, gates: Weights) -> Float[Array, ""]:
        """Return the penalty."""

    def gate(self, weights: Weights, gates: Weights, key: PRNGKeyArray | None) -> Weights:
        """Return the numbers the model computes with; without a key, the deterministic ones."""
        return weights


class SmoothHalfNorm(AbstractPenalty):
    """Smoothed L0.5 (Kim et al. 2020): the sum of ``sqrt(s(w))``.

    ``s(w) = |w|`` from ``width`` on, else ``-w^4/(8 a^3) + 3 w^2/(4 a) + 3 a/8``, which has no cusp at zero.

    Args:
        width: The ``a`` of the formula.
    """

    width: float = eqx.field(static=True, default=0.05)

    def value(self, weights: Weights, gates: Weights) -> Float[Array, ""]:
        a, size = self.width, jnp.abs(weights)
        near = -(weights**4) / (8 * a**3) + 3 * weights**2 / (4 * a) + 3 * a / 8
        return jnp.sum(jnp.sqrt(jnp.where(size >= a, size, near)) - math.sqrt(3 * a / 8))


class L1Norm(AbstractPenalty):
    """The sum of absolute weights."""

    def value(self, weights: Weights, gates: Weights) -> Float[Array, ""]:
        return jnp.sum(jnp.abs(weights))


class HardConcrete(AbstractPenalty):
    """Expected number of weights in use under stochastic gates (Louizos et al. 2018).

    Args:
        temperature: Of the gates' concrete distribution.
        low: Lower end of the stretched gate.
        high: Upper end of the stretched gate.
    """

    temperature: float = eqx.field(static=True, default=2 / 3)
    low: float = eqx.field(static=True, default=-0.1)
    high: float = eqx.field(static=True, default=1.1)

    @property
    def n_gates(self) -> int:
        """How many gate parameters a weight has."""
        return 1

    def value(self, weights: Weights, gates: Weights) -> Float[Array, ""]:
        return jnp.sum(jax.nn.sigmoid(gates + 2.0 - self.temperature * math.log(-self.low / self.high)))

    def gate(self, weights: Weights, gates: Weights, key: PRNGKeyArray | None) -> Weights:
        logits = gates + 2.0  # gates start open: weights must be used before they can be judged
        if key is not None:
            u = jax.random.uniform(key, weights.shape, weights.dtype, 1e-6, 1 - 1e-6)
            logits = (logits + jnp.log(u) - jnp.log1p(-u)) / self.temperature
        stretched = jax.nn.sigmoid(logits) * (self.high - self.low) + self.low
        return weights * jnp.clip(stretched, 0.0, 1.0)


PENALTIES = {"l0.5": SmoothHalfNorm, "l1": L1Norm, "l0": HardConcrete}


def parse_penalty(penalty: str | AbstractPenalty) -> AbstractPenalty:
    """Return the penalty called ``penalty``, or the object itself."""
    if isinstance(penalty, AbstractPenalty):
        return penalty
    if penalty not in PENALTIES:
        raise ValueError(f"unknown penalty {penalty!r}; known: {', '.join(PENALTIES)}, or an AbstractPenalty")
    return PENALTIES[penalty]()

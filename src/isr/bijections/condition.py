"""What a conditional flow does to its condition before the couplings read it."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Array, Float

from isr.bijections.affine import Standardise
from isr.bijections.eql import EQL
from isr.bijections.mlp import MLP


class ConditionMap(eqx.Module):
    """Standardises the condition and, where there is a conditioning network, feeds it through.

    Args:
        standardise: Fixed shift and scale of the condition.
        network: Gives the features the couplings read; ``None`` passes the standardised condition on.
        guard: Bound of the network's inputs; ``None`` leaves them free.
    """

    standardise: Standardise
    network: EQL | MLP | None
    guard: float | None = eqx.field(static=True)

    @property
    def n_features(self) -> int:
        """How many numbers the subnetworks read."""
        return self.standardise.dim if self.network is None else self.network.n_outputs

    def __call__(self, y: Float[Array, " condition"]) -> Float[Array, " features"]:
        with jax.named_scope("condition"):
            return self.features(checkpoint_name(self.standardise.forward_and_log_det(y)[0], "c"))

    def features(self, standardised: Float[Array, " condition"]) -> Float[Array, " features"]:
        """Return what the couplings read, from a condition that is standardised already."""
        if self.network is None:
            return standardised
        if self.guard is not None:
            standardised = checkpoint_name(jnp.clip(standardised, -self.guard, self.guard), "gc")
        return checkpoint_name(self.network(standardised)[0], "f")

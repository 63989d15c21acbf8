"""What every flow of the comparison is built for: the planar arm, six blocks, three hidden layers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from isr.problems import kinematics


@dataclass(frozen=True)
class Shape:
    """The size of a conditional flow of two-sided affine couplings.

    Args:
        dim: Variables of x.
        condition_dim: Variables of y.
        n_blocks: Two-sided couplings.
        n_layers: Hidden layers of a subnetwork.
        width: Units of a hidden layer of the networks that are not symbolic.
        clamp: Bound of the log-scale.
    """

    dim: int = 4
    condition_dim: int = 2
    n_blocks: int = 6
    n_layers: int = 3
    width: int = 32
    clamp: float = 2.0


ARM = Shape()


@cache
def arm_rows(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return standardised arms and their noisy end points in single precision, the same for every peer."""
    x, y = kinematics.sample(n, random_state=seed)
    return tuple(((v - v.mean(axis=0)) / v.std(axis=0)).astype(np.float32) for v in (x, y))  # type: ignore[return-value]

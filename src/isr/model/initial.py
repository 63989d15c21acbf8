"""Initial weights: NumPy's generator, seeded by a JAX key.

JAX would compile a program for every shape it draws, which takes longer than a short fit.
"""

from __future__ import annotations

import jax
import numpy as np
from jaxtyping import PRNGKeyArray


def generator(key: PRNGKeyArray) -> np.random.Generator:
    """Return the generator that ``key`` stands for."""
    return np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel())

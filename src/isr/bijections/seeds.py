"""Seeds: everything random around a compiled program is drawn by NumPy, from a tree of seed sequences.

JAX would compile a program for every shape it draws, which takes longer than a short fit. Random numbers inside of
compiled programs are JAX's own; their keys are random words.
"""

from __future__ import annotations

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from isr.bijections.arrays import on_device

Seed = int | np.random.SeedSequence | PRNGKeyArray


def sequence_of(seed: Seed) -> np.random.SeedSequence:
    """Return the seed sequence that a number or a key of JAX stands for."""
    if isinstance(seed, np.random.SeedSequence):
        return seed
    if isinstance(seed, jax.Array):
        return np.random.SeedSequence(np.asarray(jax.random.key_data(seed)).ravel().tolist())
    return np.random.SeedSequence(seed)


def child(seed: Seed, *path: int) -> np.random.SeedSequence:
    """Return the seed at a place of the tree below ``seed``; other places have other random numbers.

    Example:
        >>> first, second, again = (child(7, 0, place).generate_state(1).item() for place in (0, 1, 0))
        >>> first == again, first == second
        (True, False)
    """
    root = sequence_of(seed)
    return np.random.SeedSequence(root.entropy, spawn_key=(*root.spawn_key, *path))


def children(seed: Seed, n: int) -> list[np.random.SeedSequence]:
    """Return the first ``n`` seeds below ``seed``."""
    return [child(seed, place) for place in range(n)]


def generator(seed: Seed) -> np.random.Generator:
    """Return NumPy's generator of this seed."""
    return np.random.default_rng(sequence_of(seed))


def jax_keys(seed: Seed, *shape: int) -> PRNGKeyArray:
    """Return independent keys of JAX, an array of this shape."""
    words = generator(seed).integers(2**32, size=(*shape, 2), dtype=np.uint32)
    return jax.random.wrap_key_data(on_device(words), impl="threefry2x32")

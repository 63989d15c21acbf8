"""Initial weights: NumPy's generator, seeded by a JAX key.

JAX would compile a program for every shape it draws, which takes longer than a short fit.
"""

from __future__ import annotations

import numpy as np

from isr.bijections.keys import Key, words_of


def generator(key: Key) -> np.random.Generator:
    """Return the generator that ``key`` stands for."""
    return np.random.default_rng(words_of(key))

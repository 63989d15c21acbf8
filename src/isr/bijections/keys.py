"""Keys of JAX's random numbers, derived on the host: the bits JAX would give, and nothing compiled for them.

Random numbers inside of compiled programs are JAX's own. Around them a fit needs a few dozen keys and the order of its
rows, for which JAX would compile a program each. The generator is Threefry-2x32 of Salmon et al. (2011), with counters
as JAX counts.
"""

from __future__ import annotations

import jax
import numpy as np
from jaxtyping import Int, PRNGKeyArray, UInt32

from isr.bijections.arrays import on_device

Words = UInt32[np.ndarray, "*keys 2"]
Key = PRNGKeyArray | UInt32[np.ndarray, "2"]
ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = np.uint32(0x1BD11BDA)
MASK = 0xFFFFFFFF
FEW = 4


def key_of(seed: int) -> PRNGKeyArray:
    """Return the key of a seed, as ``jax.random.key`` does.

    Example:
        >>> bool(key_of(3) == jax.random.key(3))
        True
    """
    return wrapped(np.array([seed >> 32 & MASK, seed & MASK], np.uint32))


def fold_in(key: PRNGKeyArray, number: int) -> PRNGKeyArray:
    """Return the key that ``number`` makes of another, as ``jax.random.fold_in`` does."""
    return wrapped(fold_words(words_of(key), number))


def fold_words(words: Words, number: int) -> Words:
    """Return the words of `fold_in`."""
    return np.array(_one(words, 0, number), np.uint32)


def words_of(key: Key) -> Words:
    """Return the two words of a key; words are their own, so that a key that no program reads need not be made."""
    return key if isinstance(key, np.ndarray) else np.asarray(jax.random.key_data(key)).ravel()[:2]


def wrapped(words: Words) -> PRNGKeyArray:
    """Return the key, or the array of keys, of these words."""
    return jax.random.wrap_key_data(on_device(words), impl="threefry2x32")


def split_words(words: Words, n: int) -> Words:
    """Return the words of ``n`` new keys for each one given."""
    if words.ndim == 1 and n <= FEW:
        return np.array([_one(words, 0, count) for count in range(n)], np.uint32)
    return np.stack(_counted(words, n), axis=-1)


def permutations(words: Words, n: int) -> Int[np.ndarray, "*keys n"]:
    """Return an order of ``n`` things for each key, as ``jax.random.permutation`` does.

    Things are sorted by random words, as often as ties of those words ask for.
    """
    order = np.broadcast_to(np.arange(n, dtype=np.int32), (*words.shape[:-1], n))
    for _ in range(int(np.ceil(3 * np.log(max(1, n)) / np.log(2**32 - 1)))):
        words, own = np.moveaxis(split_words(words, 2), -2, 0)
        high, low = _counted(own, n)
        order = np.take_along_axis(order, _sorting(high ^ low), axis=-1)
    return order


def _sorting(words: np.ndarray) -> np.ndarray:
    """Return the stable order of words: by their lower halves, then by their upper ones.

    NumPy counts numbers of 16 bits instead of comparing them, which takes a quarter of the time.
    """
    lower = np.argsort(words.astype(np.uint16), axis=-1, kind="stable")
    upper = np.take_along_axis((words >> np.uint32(16)).astype(np.uint16), lower, axis=-1)
    return np.take_along_axis(lower, np.argsort(upper, axis=-1, kind="stable"), axis=-1)


def _counted(words: Words, n: int) -> tuple[np.ndarray, np.ndarray]:
    count = np.arange(n, dtype=np.uint64)
    return threefry(words[..., None, :], (count >> np.uint64(32)).astype(np.uint32), count.astype(np.uint32))


def _one(words: Words, high: int, low: int) -> tuple[int, int]:
    """The two random words of one counter: for a few of them NumPy takes ten times as long."""
    first, second = int(words[0]), int(words[1])
    schedule = (first, second, first ^ second ^ int(PARITY))
    a, b = (high + first) & MASK, (low + second) & MASK
    for i in range(5):
        for r in ROTATIONS[i % 2]:
            a = (a + b) & MASK
            b = (b << r | b >> 32 - r) & MASK ^ a
        a = (a + schedule[(i + 1) % 3]) & MASK
        b = (b + schedule[(i + 2) % 3] + i + 1) & MASK
    return a, b


def threefry(words: Words, high: np.ndarray, low: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the two random words of each counter: five times four rounds of adding, turning and mixing."""
    first, second = words[..., 0], words[..., 1]
    schedule = (first, second, first ^ second ^ PARITY)
    a, b = np.array(high + first), np.array(low + second)
    turned = np.empty_like(b)
    with np.errstate(over="ignore"):
        for i in range(5):
            for r in ROTATIONS[i % 2]:
                a += b
                np.right_shift(b, np.uint32(32 - r), out=turned)
                np.left_shift(b, np.uint32(r), out=b)
                b |= turned
                b ^= a
            a += schedule[(i + 1) % 3]
            b += schedule[(i + 2) % 3] + np.uint32(i + 1)
    return a, b

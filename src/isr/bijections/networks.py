"""Networks: equation learners, layers ``g = W h + b`` followed by primitives, and leaky ReLUs for the INN baselines.

Several networks of one shape run *stacked*: weights carry a leading ``stack`` axis and all of them read the
same inputs. A coupling runs its log-scale and its shift this way, twice as fast as one after the other.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Array, Float

from isr.bijections.bijection import told
from isr.bijections.parameters import Seed, all_on_device, generator
from isr.bijections.primitives import PAPER_LIBRARY, Primitive, lookup, parse_library

Library = tuple[tuple[str, int], ...]


class AbstractNetwork(eqx.Module):
    """``stack`` layered networks over the same inputs."""

    weights: eqx.AbstractVar[tuple[Float[Array, "stack rows columns"], ...]]
    biases: eqx.AbstractVar[tuple[Float[Array, "stack rows"], ...] | None]

    stack = told("How many networks run side by side.", lambda self: self.weights[0].shape[0])
    n_inputs = told("How many inputs each has.", lambda self: self.weights[0].shape[2])
    n_outputs = told("How many outputs each has.", lambda self: self.weights[-1].shape[1])

    def __call__(self, inputs: Float[Array, " n_inputs"]) -> Float[Array, "stack n_outputs"]:
        return self.columns(inputs[:, None])[..., 0]

    @abstractmethod
    def columns(self, inputs: Float[Array, "n_inputs n"]) -> Float[Array, "stack n_outputs n"]:
        """Return the values at many inputs, one per column."""


class EQL(AbstractNetwork):
    """``stack`` equation-learner networks over the same ``n_inputs`` variables, ``n_outputs`` each.

    Args:
        weights: One array ``(stack, rows, columns)`` a layer, the last one linear.
        biases: One array ``(stack, rows)`` a layer; absent where the library holds no constant.
        library: Primitives of a hidden layer, as (name, multiplicity) pairs.
        skip: Whether the last layer reads the inputs and every hidden layer instead of the last one only.
    """

    weights: tuple[Float[Array, "stack rows columns"], ...]
    biases: tuple[Float[Array, "stack rows"], ...] | None
    library: Library = eqx.field(static=True)
    skip: bool = eqx.field(static=True)

    def columns(self, inputs: Float[Array, "n_inputs n"]) -> Float[Array, "stack n_outputs n"]:
        # One product per layer serves the whole stack: small products cost more than the zeros of networks that do not
        # read each other. Row `i` of network `s` is row `i * stack + s`, so units of one kind lie together.
        one = [] if self.biases is None else [jnp.ones((1, inputs.shape[-1]), inputs.dtype)]
        library = tuple((name, count * self.stack) for name, count in self.library)
        read = seen = [inputs]
        for layer in range(len(self.weights) - 1):
            g = self._matrix(layer) @ jnp.concatenate([*read, *one])
            read = [checkpoint_name(h, "hidden") for h in unit_values(library, g, axis=0)]
            seen = [*seen, *read]
        g = self._matrix(len(self.weights) - 1) @ jnp.concatenate([*(seen if self.skip else read), *one])
        return jnp.moveaxis(g.reshape(-1, self.stack, g.shape[-1]), 1, 0)

    def _matrix(self, layer: int) -> Float[Array, "rows_stack columns"]:
        """A layer of the stack as one matrix: all read the same inputs, each its own hidden units."""
        weight = self.weights[layer]
        is_last = layer == len(self.weights) - 1
        n_shared = self.n_inputs if layer == 0 or (self.skip and is_last) else 0
        n_hidden = (weight.shape[2] - n_shared) // n_units(self.library)
        shared, *own = jnp.split(weight, n_shared + n_units(self.library) * np.arange(n_hidden), axis=2)
        parts = [jnp.moveaxis(shared, 0, 1).reshape(-1, n_shared)] if n_shared else []
        parts += map(_interleaved, own)
        if self.biases is not None:
            parts.append(self.biases[layer].T.reshape(-1, 1))
        return jnp.concatenate(parts, axis=1)


def _interleaved(weight: Float[Array, "stack rows columns"]) -> Float[Array, "rows_stack columns_stack"]:
    stack, rows, columns = weight.shape
    own = np.eye(stack, dtype=bool)[:, None, :]
    return jnp.where(own, jnp.moveaxis(weight, 0, 1)[..., None], 0).reshape(rows * stack, columns * stack)


def units(library: Library) -> list[tuple[Primitive, int]]:
    """Return the primitives that make units, with their multiplicities, in the order of a layer's rows."""
    return [(lookup(name), count) for name, count in library if lookup(name).arity]


def n_rows(library: Library) -> int:
    """Return how many arguments the units of a layer take together."""
    return sum(p.arity * count for p, count in units(library))


def n_units(library: Library) -> int:
    """Return how many values a layer gives."""
    return sum(count for _, count in units(library))


def unit_values(library: Library, g: Float[Array, "..."], *, axis: int) -> list[Float[Array, "..."]]:
    """Return the values of units, an array for each kind; one of two arguments reads rows ``i`` and ``i + count``."""
    widths = [count for primitive, count in units(library) for _ in range(primitive.arity)]
    # A split's gradient is one concatenation; that of slices is a sum of padded arrays, which is slower.
    pieces = iter(jnp.split(g, np.cumsum(widths)[:-1], axis=axis))
    return [p.apply(*(next(pieces) for _ in range(p.arity))) for p, _ in units(library)]


def build_eql(
    key: Seed,
    n_inputs: int,
    n_outputs: int,
    *,
    n_layers: int = 2,
    library: Mapping[str, int] | Sequence[str] = PAPER_LIBRARY,
    stack: int = 1,
    skip: bool = False,
    scale: float = 0.5,
    last_scale: float = 0.1,
) -> EQL:
    """Return an equation-learner network with random weights, ``stack`` of them side by side. ``scale`` is the
    spread of the hidden weights, which layers of squares need small; ``last_scale`` that of the last layer's,
    small to start a coupling near the identity.
    """
    if n_layers < 1:
        raise ValueError(f"an EQL network needs at least one hidden layer, got n_layers={n_layers}")
    pairs = parse_library(library)
    with_bias = any(name == "constant" for name, _ in pairs)
    rows, columns = n_rows(pairs), n_units(pairs)
    last_columns = n_inputs + n_layers * columns if skip else columns
    shapes = [(rows, n_inputs), *[(rows, columns)] * (n_layers - 1), (n_outputs, last_columns)]
    spreads = [scale] * n_layers + [last_scale]
    rng, weights, biases = generator(key), [], []
    for shape, spread in zip(shapes, spreads, strict=True):
        weights.append(spread / max(shape[1], 1) ** 0.5 * rng.normal(size=(stack, *shape)))
        biases.append(0.2 * spread * rng.normal(size=(stack, shape[0])))
    arrays = all_on_device(weights + biases if with_bias else weights)
    n = len(weights)
    return EQL(tuple(arrays[:n]), tuple(arrays[n:]) if with_bias else None, pairs, skip)


NEGATIVE_SLOPE = 0.01


class MLP(AbstractNetwork):
    """``stack`` fully connected networks with leaky ReLUs over the same inputs; arrays as in `EQL`."""

    weights: tuple[Float[Array, "stack rows columns"], ...]
    biases: tuple[Float[Array, "stack rows"], ...]

    def columns(self, inputs: Float[Array, "n_inputs n"]) -> Float[Array, "stack n_outputs n"]:
        first, bias = self.weights[0], self.biases[0]
        h = (first.reshape(-1, self.n_inputs) @ inputs).reshape(*bias.shape, -1) + bias[..., None]
        for weight, bias in zip(self.weights[1:], self.biases[1:], strict=True):
            h = checkpoint_name(jax.nn.leaky_relu(h, NEGATIVE_SLOPE), "hidden")
            h = weight @ h + bias[..., None]
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
    """Return a leaky-ReLU network with random weights (He's scaling); without hidden layers it is a linear map.
    ``last_scale`` multiplies the last layer's weights; small starts a coupling near the identity.
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

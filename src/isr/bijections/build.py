"""Build flows: the order of charts, blocks and permutations in one place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from isr.bijections.affine import Bounded, Inverted, Linear, Permutation, Spread, Standardise
from isr.bijections.bijection import AbstractBijection, Chain
from isr.bijections.charts import Polar, split_of
from isr.bijections.coupling import AbstractTransformer, Affine, ConditionMap, Coupling
from isr.bijections.flow import Flow
from isr.bijections.networks import build_eql, build_mlp
from isr.bijections.parameters import Seed, children, generator, on_device
from isr.bijections.primitives import PAPER_LIBRARY
from isr.bijections.shapes import SinhArcsinh

SUBNETS = ("eql", "mlp")
CHARTS = ("polar", "split", "sinh_arcsinh")
# A split must promise so many nats per row before it is offered to a variable.
LEAST_GAIN = 0.05
MIXINGS = ("permutation", "linear", "none")
CONDENSERS = {"network": (2, 64), "wide network": (2, 128), "linear": (0, 0)}
"""Hidden layers of what condenses a condition, and their least width."""


@dataclass(frozen=True)
class Architecture:
    """The shape of a flow, apart from its dimensions and its data.

    Args:
        n_blocks: Coupling blocks.
        n_layers: Hidden layers of a subnetwork.
        subnet: ``"eql"`` for equations, ``"mlp"`` for the INN and cINN baselines.
        library: Primitives of an EQL layer with their multiplicities.
        width: Units of an MLP layer.
        skip: Whether an EQL network's last layer reads the inputs and all hidden layers.
        mixing: What stands between blocks: a fixed random ``"permutation"``, a learned ``"linear"`` map
            (before the first block too), or ``"none"``.
        charts: Closed-form charts before the blocks, by name.
        clamp: Bound of the log-scale of an affine coupling.
        transformer: What a coupling does to each variable; affine, with that clamp, when None.
        guard: Bound of the subnetworks' inputs, in standard deviations.
        n_features: Outputs of the conditioning network; 0 passes the standardised condition on.
        condenser: What that network is: leaky ReLUs (``"network"``, or twice as wide ``"wide network"``) or a
            ``"linear"`` map.
    """

    n_blocks: int = 2
    n_layers: int = 2
    subnet: str = "eql"
    library: Mapping[str, int] | Sequence[str] = field(default_factory=lambda: dict(PAPER_LIBRARY))
    width: int = 32
    skip: bool = False
    mixing: str = "permutation"
    charts: tuple[str, ...] = ()
    clamp: float | None = 2.0
    transformer: AbstractTransformer | None = None
    guard: float | None = 6.0
    n_features: int = 0
    condenser: str = "network"

    def __post_init__(self) -> None:
        given = [("subnet", self.subnet, SUBNETS), ("mixing", self.mixing, MIXINGS)]
        given += [("condenser", self.condenser, tuple(CONDENSERS))] + [
            ("chart", c, CHARTS) for c in self.charts
        ]
        for name, value, known in given:
            if value not in known:
                raise ValueError(f"unknown {name} {value!r}; known: {', '.join(known)}")
        if self.n_blocks < 1:
            raise ValueError(f"a flow needs at least one block, got n_blocks={self.n_blocks}")


def build_flow(
    key: Seed,
    dim: int,
    *,
    condition_dim: int = 0,
    noise: Sequence[float] = (),
    architecture: Architecture | None = None,
    standardise: Standardise | None = None,
    standardise_condition: Standardise | None = None,
    bounds: Bounded | None = None,
    rows: np.ndarray | None = None,
) -> Flow:
    """Return a flow with random weights.

    Args:
        key: Seed of the weights and permutations.
        dim: Number of variables in x.
        condition_dim: Number of variables in y that the subnetworks read (cISR).
        noise: Standard deviations of the observed outputs, in y's units, which makes the joint form (ISR).
        architecture: Shape of the flow; the default when left out.
        standardise: Fixed shift and scale of x (after ``bounds``).
        standardise_condition: Fixed shift and scale of y.
        bounds: Chart of the prior box, applied first.
        rows: Standardised data, from which charts take their start; standard normal when left out.

    Example:
        >>> import jax
        >>> flow = build_flow(jax.random.key(0), 4, condition_dim=2, architecture=Architecture(n_blocks=6))
        >>> flow.dim, flow.condition_dim
        (4, 2)
    """
    if dim < 1:
        raise ValueError(f"x needs at least one variable, got dim={dim}")
    if condition_dim and noise:
        raise ValueError("give condition_dim (cISR) or noise (ISR), not both")
    shape = architecture or Architecture()
    n_padding = 1 if dim == 1 else 0
    full = dim + n_padding
    k_blocks, k_condition = children(key, 2)
    condition_map = _condition_map(k_condition, condition_dim, shape)
    if standardise_condition and standardise_condition.dim != (d_y := condition_dim or len(noise)):
        raise ValueError(
            f"standardise_condition covers {standardise_condition.dim} variables, condition_dim is {d_y}"
        )
    n_features = condition_map.n_features if condition_map else 0
    if rows is None and shape.charts:
        rows = np.random.default_rng(0).normal(size=(1000, full))
    charts = chart_steps(shape.charts, rows) if rows is not None else []
    core = Chain(tuple(build_core(k_blocks, full, n_features, shape, charts)))
    flow = Flow(core, condition_map, tuple(float(s) for s in noise), n_padding)
    flow = in_units(flow, standardise, standardise_condition, bounds)
    return replace(flow, noise=tuple(float(s) for s in noise))


def in_units(
    flow: Flow,
    scale: Standardise | None = None,
    y_scale: Standardise | Spread | None = None,
    bounds: Bounded | None = None,
) -> Flow:
    """Return a flow of standard x, and y, as one of the user's own units: what makes them standard stands around it."""
    steps, n = flow.steps, flow.n_padding
    if scale is not None:
        steps = (_padded(scale, n), *steps)
    if bounds is not None:
        steps = (Bounded(bounds.low + (None,) * n, bounds.high + (None,) * n), *steps)
    if y_scale is not None and flow.noise:
        steps = (*steps, Inverted(_padded(y_scale, flow.bijection.dim - y_scale.dim)))
        flow = replace(flow, noise=tuple(s * w for s, w in zip(flow.noise, y_scale.scale, strict=True)))
    elif y_scale is not None:
        flow = replace(flow, condition_map=replace(flow.condition_map, standardise=y_scale))
    return replace(flow, bijection=Chain(steps))


def build_core(
    key: Seed,
    dim: int,
    n_features: int,
    shape: Architecture,
    charts: Sequence[AbstractBijection] = (),
) -> list[AbstractBijection]:
    """Return the learned part of a flow: charts, then blocks with mixing between them."""
    steps: list[AbstractBijection] = list(charts)
    for index, k in enumerate(children(key, shape.n_blocks)):
        k_mix, k_block = children(k, 2)
        if shape.mixing == "linear":
            steps.append(Linear(on_device(np.eye(dim))))
        elif index and shape.mixing == "permutation":
            steps.append(_random_permutation(k_mix, dim))
        steps.append(_block(k_block, dim, n_features, shape))
    return steps


def chart_steps(names: Sequence[str], rows: np.ndarray) -> list[AbstractBijection]:
    """Return the charts called ``names``, started where ``rows`` (standardised) suggest.

    ``"split"`` opens every variable that two modes describe better than one; there may be none.
    """
    dim, steps = rows.shape[1], []
    for name in names:
        if name == "polar":
            if dim < 2:
                raise ValueError("polar coordinates need two variables")
            steps.append(Polar(centre=on_device(np.zeros(2)), pair=(0, 1), dim=dim))
        elif name == "split":
            splits = (split_of(rows, i) for i in range(dim))
            steps += [split for split, gain in splits if gain > LEAST_GAIN]
        else:
            steps.append(SinhArcsinh(on_device(np.zeros(dim)), on_device(np.zeros(dim))))
    return steps


def _random_permutation(key: Seed, dim: int) -> Permutation:
    if dim == 2:  # a random order is the identity half of the time, which would waste the block
        return Permutation((1, 0))
    return Permutation(tuple(int(i) for i in generator(key).permutation(dim)))


def _block(key: Seed, dim: int, n_features: int, shape: Architecture) -> Coupling:
    k_first, k_second = children(key, 2)
    split, transformer = dim // 2, shape.transformer or Affine(shape.clamp)
    options = {"n_layers": shape.n_layers, "stack": len(transformer.names)}
    own = {"width": shape.width} if shape.subnet == "mlp" else {"library": shape.library, "skip": shape.skip}
    build: Any = build_mlp if shape.subnet == "mlp" else build_eql
    first = build(k_first, dim - split + n_features, split, **options, **own)
    second = build(k_second, split + n_features, dim - split, **options, **own)
    return Coupling(first, second, split, dim, transformer, shape.guard)


def _condition_map(key: Seed, dim: int, shape: Architecture) -> ConditionMap | None:
    if not dim:
        return None
    network = None
    if shape.n_features:
        n_layers, width = CONDENSERS[shape.condenser]
        size = {"n_layers": n_layers, "width": max(width, shape.width)}
        network = build_mlp(key, dim, shape.n_features, **size, last_scale=1.0)
    return ConditionMap(Standardise((0.0,) * dim, (1.0,) * dim), network, shape.guard)


def _padded(standardise: Standardise | Spread, n: int) -> Standardise:
    return Standardise(standardise.shift + (0.0,) * n, standardise.scale + (1.0,) * n)

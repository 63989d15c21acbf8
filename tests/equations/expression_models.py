"""The models whose equations the tests look at, by name; a new kind of model joins by one line."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from isr.bijections.affine import Bounded, Shift, Standardise
from isr.bijections.bijection import Chain
from isr.bijections.build import Architecture, build_flow
from isr.bijections.charts import Polar, Spiral, Split, mixture_of
from isr.bijections.coupling import Affine, Coupling
from isr.bijections.flow import Flow
from isr.bijections.formula import Formulas, Triangular
from isr.bijections.parameters import flatten
from isr.bijections.primitives import PRIMITIVES
from isr.bijections.shapes import SHAPES, Edges, Shapes, Tails


def sparse(flow, share=0.15, seed=0):
    """Return the flow with all but a share of its weights set to zero, the others made larger."""
    vector, restore = flatten(flow)
    rng = np.random.default_rng(seed)
    kept = rng.random(vector.shape[0]) < share
    return restore(jnp.where(kept, 2.0 * vector, 0.0))


def spread(shift, scale):
    return Standardise(tuple(map(float, shift)), tuple(map(float, scale)))


def one_primitive(name):
    library = {"constant": 1, name: 2} if name != "constant" else {"constant": 1, "id": 1}
    return lambda key: build_flow(key, 2, architecture=Architecture(n_blocks=1, n_layers=2, library=library))


def tails(key):
    flow = build_flow(key, 3, architecture=Architecture(n_blocks=1, n_layers=1, charts=("sinh_arcsinh",)))
    chart = flow.bijection.bijections[0]
    bent = eqx.tree_at(
        lambda c: (c.log_tail, c.skew), chart, (jnp.array([0.3, 0.0, -0.2]), jnp.array([0.1, 0.0, -0.4]))
    )
    return eqx.tree_at(lambda f: f.bijection.bijections[0], flow, bent)


def polar(key):
    flow = build_flow(key, 3, architecture=Architecture(n_blocks=1, n_layers=1, charts=("polar",)))
    return eqx.tree_at(lambda f: f.bijection.bijections[0].centre, flow, jnp.array([0.3, -4.0]))


def shifted(key):
    flow = build_flow(key, 3, architecture=Architecture(n_blocks=1, n_layers=1))
    return Flow(Chain((Shift(jnp.array([0.5, 0.0, -2.0])), *flow.bijection.bijections)))


def linear(key):
    flow = build_flow(key, 3, architecture=Architecture(n_layers=1, mixing="linear"))
    matrix = jnp.array([[1.0, 0.0, 0.3], [0.2, -1.5, 0.0], [0.0, 0.0, 0.7]])
    return eqx.tree_at(lambda f: f.bijection.bijections[0].matrix, flow, matrix)


def shapes(key):
    n = len(SHAPES)
    numbers = (jnp.linspace(-1, 1, n), jnp.linspace(-0.3, 0.3, n), jnp.full(n, 0.2), jnp.full(n, -0.3))
    return Flow(Shapes(*numbers, tuple(SHAPES)))


def mixture(key):
    """Of two variables and a half: three tilted normal laws of the first and the last of three variables."""
    covariances = np.array([[[1.0, 0.6], [0.6, 0.5]], [[0.3, 0.0], [0.0, 0.4]], [[0.2, -0.1], [-0.1, 0.8]]])
    means = [[-1.0, 0.5], [1.5, 0.0], [0.0, -2.0]]
    return Flow(mixture_of(np.array([0.2, 0.5, 0.3]), means, covariances, variables=(2, 0), dim=3))


def triangular(key):
    square = ("mul", ("constant", 0), ("pow", ("input", 1), 2))
    scales = (("call", "exp", ("mul", ("constant", 1), ("input", 2))), ("number", 1), ("constant", 2))
    centres = (("call", "sin", ("input", 2)), ("number", 0), square)
    return Flow(Triangular(Formulas(jnp.array([0.3, -0.2, 1.5]), (*scales, *centres), 2, 3), (1, 2, 0)))


def spiral(key):
    return Flow(Spiral(jnp.array([0.3, -0.2]), jnp.array(0.1), jnp.array(0.3), pair=(2, 0), dim=3))


def plain_polar(key):
    return Flow(Polar(jnp.array([0.3, -0.2]), pair=(2, 0), dim=3, cut=-2.5, plain=True))


def edges(key):
    sides, softness = ("low", "", "both", "high"), (0.01, 0.0, 0.002, 0.05)
    return Flow(Edges(jnp.array([0.5, 0.0, -1.0, 0.2]), jnp.array([0.0, 0.0, 0.7, 0.0]), sides, softness))


def long_tails(key):
    return Flow(Chain((Shift(jnp.array([0.3, -0.2])), Tails(2, 2, 1.5))))


def split(key):
    chart = Split(jnp.array(0.3), jnp.array([-2.0, 1.5]), jnp.array([-0.3, 0.2]), cut=0.1, variable=1, dim=3)
    flow = build_flow(key, 3, architecture=Architecture(n_blocks=1, n_layers=1))
    return Flow(Chain((spread([0, 0.2, 0], [1, 0.5, 1]), chart, *flow.bijection.bijections)))


def formulas(key):
    trees = (
        ("add", ("constant", 0), ("mul", ("constant", 1), ("pow", ("input", 0), 2))),
        ("call", "sigmoid", ("mul", ("constant", 2), ("input", 0))),
    )
    network = Formulas(jnp.array([0.3, -0.2, 1.5]), trees, stack=2, n_inputs=1)
    return Flow(Coupling(network, network, 1, 2, Affine(2.0), guard=6.0))


def bounded(key):
    box = Bounded((0.0, None, 2.0, None), (1.0, 5.0, None, None))
    fixed = spread([0, 1, 0, 0], [1, 2, 1, 0.5])
    return build_flow(
        key, 4, bounds=box, standardise=fixed, architecture=Architecture(n_blocks=1, n_layers=1)
    )


def conditional(key, **shape):
    return build_flow(
        key,
        4,
        condition_dim=2,
        standardise=spread([1, 2, 3, 4], [1, 0.5, 2, 1]),
        standardise_condition=spread([10, -1], [3, 0.2]),
        architecture=Architecture(**shape),
    )


def joint(key):
    fixed = spread([1, -1], [2, 0.5])
    return build_flow(
        key,
        4,
        noise=(0.1, 0.2),
        standardise_condition=fixed,
        architecture=Architecture(n_blocks=1, n_layers=1),
    )


def leaky_relu(key):
    return build_flow(key, 3, architecture=Architecture(n_blocks=1, subnet="mlp", width=6))


def padded(key):
    shape = Architecture(n_blocks=2, n_layers=1)
    return build_flow(key, 1, condition_dim=1, standardise=spread([3], [2]), architecture=shape)


def far_from_zero(key):
    shape = Architecture(n_blocks=1, n_layers=1)
    return build_flow(key, 2, standardise=spread([1e7, -1e7], [0.5, 1.0]), architecture=shape)


MODELS = {
    **{f"primitive {name}": one_primitive(name) for name in PRIMITIVES},
    "one block": lambda key: build_flow(key, 2, architecture=Architecture(n_blocks=1)),
    "three layers": lambda key: build_flow(key, 3, architecture=Architecture(n_layers=3)),
    "sparse": lambda key: sparse(build_flow(key, 4, architecture=Architecture(n_blocks=3))),
    "sparse skip": lambda key: sparse(build_flow(key, 3, architecture=Architecture(skip=True))),
    "dense skip": lambda key: build_flow(key, 3, architecture=Architecture(skip=True)),
    "no clamp, no guard": lambda key: build_flow(key, 2, architecture=Architecture(clamp=None, guard=None)),
    "odd clamp": lambda key: build_flow(key, 2, architecture=Architecture(clamp=1.7, guard=2.5)),
    "leaky ReLU": leaky_relu,
    "sparse leaky ReLU": lambda key: sparse(leaky_relu(key), share=0.3),
    "tails": tails,
    "shapes": shapes,
    "mixture": mixture,
    "triangular": triangular,
    "spiral": spiral,
    "polar": polar,
    "plain polar": plain_polar,
    "edges": edges,
    "long tails": long_tails,
    "shifted": shifted,
    "split": split,
    "formulas": formulas,
    "linear": linear,
    "bounded": bounded,
    "conditional": conditional,
    "conditioning network": lambda key: conditional(key, n_blocks=1, n_features=3),
    "linear condenser": lambda key: conditional(key, n_blocks=1, n_features=2, condenser="linear"),
    "joint": joint,
    "padded": padded,
    "far from zero": far_from_zero,
    "identity": lambda key: sparse(build_flow(key, 3), share=0.0),
}  # fmt: skip


def rows_for(flow, n=400, seed=0):
    """Return rows of x like the data the flow was scaled to, tails included, and y where the flow reads one."""
    from isr.equations.check import _typical

    rng = np.random.default_rng(seed)
    x = _typical(flow.bijection, n, rng)[:, : flow.dim]
    y = None if flow.condition_map is None else _typical(flow.condition_map.standardise, n, rng)
    return x, y


def make(name):
    return MODELS[name](jax.random.key(3))

"""Small models that reports are written about, by name; none is trained."""

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

import isr
from isr.bijections.affine import Bounded, Standardise
from isr.bijections.bijection import Chain
from isr.bijections.build import Architecture, build_flow
from isr.bijections.coupling import Coupling
from isr.bijections.flow import Flow
from isr.bijections.formula import Formulas
from isr.bijections.networks import EQL
from isr.problems import kinematics
from isr.report import Calibration, gather
from isr.storage import Bundle

SHAPE = Architecture(n_blocks=2, n_layers=1)
SPREAD_X = Standardise((0.0,) * 4, kinematics.PRIOR_STD)
SPREAD_Y = Standardise((0.0, 1.7), (0.8, 0.3))


def banana_law():
    """The flow whose equations are ``z1 = x0 / 2`` and ``z2 = x1 - 0.2 x0² + 0.8``."""
    # One hidden square unit a network. s1 = -ln 2, t1 = s2 = 0, t2 = 0.8 - 0.8 v1².
    with jax.enable_x64(True):
        first = _one_square(last_weights=(0.0, 0.0), last_biases=(-np.log(2.0), 0.0))
        second = _one_square(last_weights=(0.0, -0.8), last_biases=(0.0, 0.8))
    return Flow(Coupling(first, second, split=1, dim=2))


def _one_square(last_weights, last_biases):
    """Log-scale and shift, each ``weight * u² + bias``."""
    used = jnp.array([float(w != 0) for w in last_weights]).reshape(2, 1, 1)
    weights = (used, jnp.array(last_weights).reshape(2, 1, 1))
    biases = (jnp.zeros((2, 1)), jnp.array(last_biases).reshape(2, 1))
    return EQL(weights, biases, library=(("constant", 1), ("square", 1)), skip=False)


def arm_flow(shape=SHAPE):
    return build_flow(
        jax.random.key(1),
        4,
        condition_dim=2,
        standardise=SPREAD_X,
        standardise_condition=SPREAD_Y,
        architecture=shape,
    )


def arm():
    """A conditional model with everything a report can show."""
    x, y = kinematics.sample(300, random_state=0)
    rng = np.random.default_rng(0)
    calibration = Calibration.of(rng.normal(size=(80, 4)), rng.normal(size=(80, 50, 4)), kinematics.X_NAMES)
    history = {"epoch": [1, 2, 3, 4], "phase": ["warm up", "warm up", "refit", "refit"],
               "train": [3.0, 2.0, 1.5, 1.4], "held_out": [3.1, 2.2, 1.7, 1.6]}  # fmt: skip
    bundle = Bundle(
        arm_flow(), kinematics.X_NAMES, kinematics.Y_NAMES, {"angle1": "rad"}, kind="ConditionalISR",
        metadata={"history": history},
    )  # fmt: skip
    return gather(
        bundle, data=(x, y), title="An arm", calibration=calibration, provenance={"command": "isr fit"}
    )


def laws():
    """An inversion: the law of a voltage, and a prior that was stated."""
    rng = np.random.default_rng(0)
    x = pd.DataFrame(rng.uniform([10, 1], [80, 3], size=(200, 2)), columns=["temperature", "pressure"])
    y = pd.DataFrame({"voltage": 0.02 * x["temperature"] * x["pressure"] + 0.02 * rng.normal(size=200)})
    law, prior = "0.02*temperature*pressure", {"temperature": (10, 80), "pressure": (1, 3)}
    model = isr.Inversion(law=law, prior=prior, fallback=False, random_state=0).fit(x, y)
    return gather(model, data=(x, y), title="A sensor", y_star=[1.6])


def joint():
    flow = build_flow(
        jax.random.key(2),
        3,
        noise=(0.1,),
        architecture=SHAPE,
        standardise_condition=Standardise((2.0,), (0.5,)),
    )
    return gather(Bundle(flow, ("a", "b", "c"), ("seen",)), checks=False)


def density():
    """A density with a front of three models, the exact Banana in the middle; of the last the figures alone."""
    front = {"complexity": [8, 14, 60], "nll": [3.9, 3.53, 3.52], "n_parameters": [2, 3, 20],
             "chosen": [False, True, False]}  # fmt: skip
    others = {"front 0": build_flow(jax.random.key(0), 2, architecture=SHAPE)}
    rows = np.random.default_rng(0).normal(size=(200, 2))
    bundle = Bundle(banana_law(), ("x0", "x1"), kind="SymbolicFlow", metadata={"front": front}, others=others)
    return gather(bundle, data=rows)


def padded():
    return gather(build_flow(jax.random.key(3), 1, condition_dim=1, architecture=SHAPE), checks=False)


def bounded():
    box = Bounded((0.0, None), (1.0, None))
    flow = build_flow(jax.random.key(4), 2, condition_dim=1, bounds=box, architecture=SHAPE)
    return gather(flow, checks=False, y_star=[0.3])


def spiked():
    """The density of angle rises without end to both of its bounds."""
    steps = (Bounded((0.0, 0.0), (1.0, 1.0)), Standardise((0.0, 0.0), (1.0, 2.0)))
    flow = Flow(Chain(steps), noise=(0.1,))
    return gather(Bundle(flow, ("depth", "angle"), ("seen",)), checks=False, y_star=[0.0])


def many():
    """More observations than sliders, more parameters than a corner plot shows."""
    flow = build_flow(jax.random.key(5), 7, condition_dim=12, architecture=SHAPE)
    return gather(flow, checks=False)


def law():
    tree = ("add", ("constant", 0), ("mul", ("constant", 1), ("call", "sin2pi", ("input", 0))))
    formulas = Formulas(jnp.array([0.25, 1.5]), (tree,), stack=1, n_inputs=1)
    x = np.linspace(-1, 1, 50)[:, None]
    constants = {"errors": np.array([0.01, np.nan])}
    bundle = Bundle(formulas, ("t",), kind="EQLRegressor", metadata={"constants": constants})
    return gather(bundle, data=(x, 0.25 + 1.5 * np.sin(2 * np.pi * x)))


PAGES = {
    "arm": arm,
    "joint": joint,
    "density": density,
    "padded": padded,
    "bounded": bounded,
    "many": many,
    "law": law,
    "laws": laws,
}
STILL = ("law", "laws")
"""Pages without an explorer."""

HOSTILE = (
    "</script><script>window.hacked = 1</script>",
    "<img src=x onerror=window.hacked=2>",
    '"><svg onload=window.hacked=3>',
    "<!--<script>window.hacked = 4//",
    "'];window.hacked=5;['",
    "${window.hacked=6}{{7*7}}",
)


def hostile():
    """Every text a user can give tries to run."""
    flow = build_flow(jax.random.key(1), 4, condition_dim=2, architecture=SHAPE)
    units = {HOSTILE[0]: "</style><script>window.hacked=7</script>"}
    front = {"complexity": [3, 5], "nll": [2.0, 1.0], "n_parameters": [1, 2], "chosen": [True, False]}
    history = {"phase": list(HOSTILE[:2]), "train": [2.0, 1.0]}
    known = {"status": HOSTILE[0], "front": front, "history": history}
    bundle = Bundle(flow, HOSTILE[:4], HOSTILE[4:], units, kind=HOSTILE[1], metadata=known)
    x, y = kinematics.sample(50, random_state=0)
    return gather(bundle, data=(x, y), title=HOSTILE[0], checks=False, provenance={HOSTILE[1]: HOSTILE[2]})

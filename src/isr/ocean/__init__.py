"""Geoacoustics: underwater sound by normal modes, and the SWellEx-96 inversion problem of the paper.

Pressures follow KRAKEN: time factor exp(i omega t), outgoing exp(-i k r), amplitude relative to the free field at 1 m.
"""

from isr.ocean.environment import Array, Attenuation, Environment, HalfSpace, Layer
from isr.ocean.field import pressure
from isr.ocean.modes import CutOffWarning, Mesh, MeshError, Modes, NoModesError, modes
from isr.ocean.simulate import Simulation, simulate
from isr.ocean.swellex import (
    FREQUENCIES,
    PARAMETER_NAMES,
    TASK_1,
    TASK_2,
    TRUTH,
    UniformPrior,
    hydrophone_depths,
    kraken_reference,
    prior,
    swellex96,
)

__all__ = [
    "FREQUENCIES",
    "PARAMETER_NAMES",
    "TASK_1",
    "TASK_2",
    "TRUTH",
    "Array",
    "Attenuation",
    "CutOffWarning",
    "Environment",
    "HalfSpace",
    "Layer",
    "Mesh",
    "MeshError",
    "Modes",
    "NoModesError",
    "Simulation",
    "UniformPrior",
    "hydrophone_depths",
    "kraken_reference",
    "modes",
    "pressure",
    "prior",
    "simulate",
    "swellex96",
]

"""Geoacoustics: underwater sound by normal modes, and the SWellEx-96 inversion problem of the paper.

Pressures follow KRAKEN: time factor exp(i omega t), outgoing exp(-i k r), amplitude relative to the free field at 1 m.
"""

from isr.ocean.environment import Array, Attenuation, Environment, HalfSpace, Layer
from isr.ocean.field import pressure
from isr.ocean.gradients import pressure_and_gradient
from isr.ocean.modes import CutOffWarning, Mesh, MeshError, Modes, NoModesError, modes
from isr.ocean.recordings import bartlett_likelihood, covariances, read_sio, snapshots
from isr.ocean.simulate import simulate
from isr.ocean.swellex import (
    FREQUENCIES,
    PARAMETER_NAMES,
    TASK_1,
    TASK_2,
    TASK_3,
    TRUTH,
    UniformPrior,
    event_s5,
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
    "TASK_3",
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
    "UniformPrior",
    "bartlett_likelihood",
    "covariances",
    "event_s5",
    "hydrophone_depths",
    "kraken_reference",
    "modes",
    "pressure",
    "pressure_and_gradient",
    "prior",
    "read_sio",
    "simulate",
    "snapshots",
    "swellex96",
]

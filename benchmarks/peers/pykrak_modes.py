"""pykrak, a translation of KRAKEN to Python and Numba, behind the face of `isr.ocean.pressure`.

pykrak works out the shapes of the modes on the coarsest mesh and extrapolates only their wavenumbers. Its pressures are
relative to a source of unit strength, -1/(4 pi) times those relative to the free field at 1 m, and spread from the
range of the cable for all its hydrophones; here they spread from the range of each, as FIELD's and ours do.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from pykrak.field import get_pressure
from pykrak.pykrak_env import FluidEnv

from isr.ocean import Environment, HalfSpace

POINTS = 20.0


def pressure(
    environment: Environment, frequencies: Sequence[float], *, points_per_wavelength: float = POINTS
) -> np.ndarray:
    """Return the complex pressures at the hydrophones, shape (frequencies, hydrophones).

    Args:
        environment: Layers over a half-space.
        frequencies: In Hz.
        points_per_wavelength: Of the coarsest mesh, by the slowest speed of each layer; the wavenumbers also get twice
            as many, and more where they have not settled.
    """
    return np.array([_at(environment, float(f), points_per_wavelength) for f in frequencies])


def _at(environment: Environment, frequency: float, points: float) -> np.ndarray:
    array = environment.array
    # A mesh left out is kept in a default argument of pykrak's from the first frequency on.
    mesh = [
        int(np.ceil((layer.bottom - layer.top) * points * frequency / min(layer.speeds))) + 1
        for layer in environment.layers
    ]
    wavenumbers, depths, shapes, _ = _medium(environment, frequency).get_modes(
        frequency, mesh, rmax=array.ranges.max(), c_low=environment.min_phase_speed,
        c_high=environment.max_phase_speed or 1e10,
    )  # fmt: skip
    field = get_pressure(
        wavenumbers, depths, shapes, environment.source_depth, np.array(array.depths), array.range,
        array.ranges - array.range, frequency,
    )  # fmt: skip
    spread = np.sqrt(array.range / array.ranges)
    return -4 * np.pi / environment.density_at(environment.source_depth) * spread * field[0, :, 0]


def _medium(environment: Environment, frequency: float) -> FluidEnv:
    layers, bottom = environment.layers, environment.bottom
    if not isinstance(bottom, HalfSpace):
        raise TypeError(f"only a half-space is passed on to pykrak, got bottom={bottom!r}")
    return FluidEnv(
        [np.array(layer.depths) for layer in layers],
        [np.array(layer.speeds) for layer in layers],
        [np.full(len(layer.depths), layer.density) for layer in layers],
        [np.array([layer.attenuation.nepers_per_metre(frequency, c) for c in layer.speeds]) for layer in layers],
        cp_top=0.0, rho_top=0.0, attnp_top=0.0, cp_bott=bottom.speed, rho_bott=bottom.density,
        attnp_bott=bottom.attenuation.nepers_per_metre(frequency, bottom.speed), attn_units="npm",
    )  # fmt: skip

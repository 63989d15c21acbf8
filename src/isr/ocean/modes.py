"""Normal modes of one environment at one frequency."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from isr.ocean.environment import Environment, HalfSpace
from isr.ocean.solve import COARSE_MESH, NEAR_CUT_OFF, NO_MODES, NOT_CONVERGED, OK, solve_column


class NoModesError(ValueError):
    """The environment carries no mode within the phase-speed limits."""


class CutOffWarning(UserWarning):
    """A mode lies so close to the half-space's cut-off that it may come or go with a small change."""


class MeshError(ValueError):
    """The mesh is too coarse to separate the modes."""


@dataclass(frozen=True)
class Mesh:
    """How finely the depth equation is sampled.

    Args:
        points_per_wavelength: Least number of mesh points in a wavelength of the local sound speed, on the coarsest
            mesh; at least 10.
        refinements: The meshes, as multiples of the coarsest; with n of them the extrapolated error is of order
            h^(2n). ``(1,)`` switches the extrapolation off.
        decay: Nepers by which the last mode must have decayed in the bottom before the mesh may end; the rest is
            closed by a half-space, at a relative error of about exp(-2 decay).

    Example:
        >>> Mesh(points_per_wavelength=20.0).refinements
        (1, 2)
    """

    points_per_wavelength: float = 10.0
    refinements: tuple[int, ...] = (1, 2)
    decay: float = 12.0

    def __post_init__(self) -> None:
        if not self.points_per_wavelength >= 10:
            raise MeshError(
                f"mesh too coarse: at least 10 points per wavelength are needed to count modes reliably, "
                f"got {self.points_per_wavelength}"
            )
        steps = tuple(int(r) for r in self.refinements)
        object.__setattr__(self, "refinements", steps)
        if not steps or steps[0] < 1 or any(b <= a for a, b in pairwise(steps)):
            raise ValueError(f"refinements must be increasing positive integers such as (1, 2), got {steps}")
        if not self.decay > 0:
            raise ValueError(f"decay must be positive, got {self.decay} nepers")


DEFAULT_MESH = Mesh()


@dataclass(frozen=True)
class Modes:
    """The modes of one environment at one frequency, in order of falling wavenumber.

    Attributes:
        wavenumbers: Complex horizontal wavenumbers, 1/m; the imaginary part is negative (decay with exp(-i k r)).
        shapes: Mode functions at ``depths``, one row per mode; the integral of psi^2/density over depth is one,
            density in g/cm^3. Complex where loss is taken in full, and psi^2 then is not a square of moduli.
        correction: Largest change of k^2 made by the extrapolation, in units of the spacing of modes.
    """

    frequency: float
    depths: np.ndarray
    wavenumbers: np.ndarray
    shapes: np.ndarray
    correction: float

    def __len__(self) -> int:
        return len(self.wavenumbers)

    @property
    def phase_speeds(self) -> np.ndarray:
        """Phase speed of every mode, m/s."""
        return 2 * np.pi * self.frequency / np.real(self.wavenumbers)


def modes(
    environment: Environment,
    frequency: float,
    depths: Sequence[float] | np.ndarray | None = None,
    *,
    mesh: Mesh = DEFAULT_MESH,
) -> Modes:
    """Return the modes that propagate, sampled at ``depths`` (by default the source and the hydrophones).

    Raises:
        NoModesError: No mode lies within the phase-speed limits.
        MeshError: The mesh is too coarse.

    Example:
        >>> from isr.ocean import modes, swellex96
        >>> found = modes(swellex96(), 49.0)
        >>> len(found), bool(found.phase_speeds.max() < 1650)
        (6, True)
    """
    check_frequencies([frequency])
    if depths is None:
        depths = [environment.source_depth, *environment.array.depths]
    samples = np.array(depths, dtype=float).reshape(-1)
    if not np.all(np.isfinite(samples) & (samples >= 0)):
        raise ValueError(f"depths must be finite and not negative, got {samples}")
    status, real, imaginary, shapes, _, correction = solve_column(
        *pack(environment), samples, float(frequency), *phase_speed_limits(environment), *mesh_arguments(mesh),
        environment.loss == "full",
    )  # fmt: skip
    if status == NEAR_CUT_OFF:
        warn_near_cut_off(environment, 1)
    elif status != OK:
        raise failure(status, environment, frequency, mesh)
    if not np.any(shapes.imag):
        shapes = shapes.real.copy()
    return Modes(float(frequency), samples, np.sqrt(real - 1j * imaginary), shapes, float(correction))


def warn_near_cut_off(environment: Environment, n: int) -> None:
    """Warn of so many cases with a mode near cut-off."""
    remedy = "use loss='full', or " if environment.loss == "first order" else ""
    warnings.warn(
        f"a mode lies close to the cut-off of the half-space in {n} case(s), where its loss is uncertain and a small "
        f"change makes it come or go: {remedy}see whether the answer depends on max_phase_speed",
        CutOffWarning,
        stacklevel=3,
    )


def check_frequencies(frequencies: Sequence[float] | np.ndarray) -> None:
    """Raise if a frequency is not positive."""
    for frequency in frequencies:
        if not (math.isfinite(frequency) and frequency > 0):
            raise ValueError(f"frequencies must be positive and finite, got {frequency} Hz")


def mesh_arguments(mesh: Mesh) -> tuple[float, np.ndarray, float]:
    """Return the mesh as the kernels take it."""
    return float(mesh.points_per_wavelength), np.array(mesh.refinements, dtype=np.int64), float(mesh.decay)


def pack(environment: Environment) -> tuple[np.ndarray, np.ndarray]:
    """Return the pieces of linear sound speed, one per row, and the half-space, as the kernels take them."""
    rows = [
        (top, bottom, upper, lower, layer.density, *layer.attenuation.coefficients)
        for layer in environment.layers
        for top, bottom, upper, lower in zip(
            layer.depths, layer.depths[1:], layer.speeds, layer.speeds[1:], strict=False
        )
    ]
    under = environment.bottom
    if isinstance(under, HalfSpace):
        closing = (under.speed, under.density, *under.attenuation.coefficients)
    else:
        closing = (math.inf, math.inf, 0.0, 0.0, 0.0)
    return np.array(rows), np.array(closing)


def numbers(environment: Environment) -> tuple[np.ndarray, ...]:
    """Return pieces, half-space, depths of source and hydrophones, ranges, and the density at the source."""
    density = np.array([environment.density_at(environment.source_depth)])
    samples = np.array([environment.source_depth, *environment.array.depths])
    return (*pack(environment), samples, environment.array.ranges, density)


def phase_speed_limits(environment: Environment) -> tuple[float, float]:
    """Return the least and largest phase speed wanted."""
    highest = environment.max_phase_speed
    return float(environment.min_phase_speed), math.inf if highest is None else float(highest)


def failure(status: int, environment: Environment, frequency: float, mesh: Mesh) -> Exception:
    """Return the exception that explains a status of the solver and what to do about it."""
    if status == NO_MODES:
        slowest = min(min(layer.speeds) for layer in environment.layers)
        under = environment.bottom
        limit = min(
            phase_speed_limits(environment)[1], under.speed if isinstance(under, HalfSpace) else math.inf
        )
        return NoModesError(
            f"no propagating mode at {frequency:g} Hz with phase speed between "
            f"{max(environment.min_phase_speed, slowest):.6g} and {limit:.6g} m/s; "
            "raise the frequency or max_phase_speed, or check water depth and bottom speed"
        )
    if status == COARSE_MESH:
        return MeshError(
            f"mesh too coarse at {frequency:g} Hz: extrapolation moves a mode by more than half the spacing of "
            f"modes; raise points_per_wavelength above {mesh.points_per_wavelength:g}"
        )
    if status == NOT_CONVERGED:
        return RuntimeError(
            f"a mode did not converge at {frequency:g} Hz (a mode at its cut-off, or two ducts that hardly "
            "couple); change max_phase_speed slightly or raise points_per_wavelength"
        )
    raise ValueError(f"unknown status {status}")

"""A range-independent ocean: fluid layers over a half-space or a rigid bottom, a source and a tilted array.

Units everywhere: depths and ranges in metres, positive down from the pressure-release surface; speeds in m/s;
densities in g/cm^3; frequencies in Hz; angles in degrees.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DB_PER_NEPER = 20.0 / math.log(10.0)

AttenuationUnit = Literal["dB/(km Hz)", "dB/wavelength", "dB/m", "Np/m"]
_UNITS: tuple[AttenuationUnit, ...] = ("dB/(km Hz)", "dB/wavelength", "dB/m", "Np/m")


@dataclass(frozen=True)
class Attenuation:
    """How a plane wave decays in a medium.

    Args:
        value: At least zero.
        unit: ``"dB/(km Hz)"`` (proportional to frequency), ``"dB/wavelength"``, ``"dB/m"`` or ``"Np/m"``.

    Example:
        >>> round(Attenuation(0.2, "dB/(km Hz)").nepers_per_metre(100.0, 1600.0), 7)
        0.0023026
        >>> Attenuation(1.0, "dB/(km Hz)").coefficients
        (0.0, 0.0001151292546497023, 0.0)
    """

    value: float = 0.0
    unit: AttenuationUnit = "dB/(km Hz)"

    def __post_init__(self) -> None:
        if self.unit not in _UNITS:
            raise ValueError(f"unknown attenuation unit {self.unit!r}; use one of {', '.join(_UNITS)}")
        if not (math.isfinite(self.value) and self.value >= 0):
            raise ValueError(f"attenuation must be finite and not negative, got {self.value} {self.unit}")

    @property
    def coefficients(self) -> tuple[float, float, float]:
        """``(a, b, c)`` such that the attenuation is a + b f + c f / speed, in Np/m."""
        match self.unit:
            case "Np/m":
                return self.value, 0.0, 0.0
            case "dB/m":
                return self.value / DB_PER_NEPER, 0.0, 0.0
            case "dB/(km Hz)":
                return 0.0, self.value / (1000 * DB_PER_NEPER), 0.0
            case _:
                return 0.0, 0.0, self.value / DB_PER_NEPER

    def nepers_per_metre(self, frequency: float, speed: float) -> float:
        """Return the attenuation at ``frequency`` in a medium of that sound ``speed``."""
        constant, per_hz, per_cycle = self.coefficients
        return constant + per_hz * frequency + per_cycle * frequency / speed


@dataclass(frozen=True)
class Layer:
    """A fluid layer whose sound speed is linear between knots.

    Args:
        depths: Depths of the knots; the first and last are the layer's top and bottom.
        speeds: Sound speed at each knot.
        density: Constant within the layer.
        attenuation: Constant within the layer, in its unit.
        name: Used in messages and plots.

    Example:
        >>> water = Layer((0.0, 50.0, 200.0), (1520.0, 1500.0, 1490.0), name="water")
        >>> water.top, water.bottom
        (0.0, 200.0)
    """

    depths: tuple[float, ...]
    speeds: tuple[float, ...]
    density: float = 1.0
    attenuation: Attenuation = field(default_factory=Attenuation)
    name: str = "layer"

    def __post_init__(self) -> None:
        object.__setattr__(self, "depths", tuple(float(z) for z in self.depths))
        object.__setattr__(self, "speeds", tuple(float(c) for c in self.speeds))
        if len(self.depths) != len(self.speeds) or len(self.depths) < 2:
            raise ValueError(
                f"{self.name}: needs one speed for each of at least two depths, "
                f"got {len(self.depths)} depths and {len(self.speeds)} speeds"
            )
        for upper, lower in zip(self.depths, self.depths[1:], strict=False):
            if not lower > upper:
                raise ValueError(
                    f"{self.name}: depths must increase downward, got {upper} m followed by {lower} m; "
                    "sort the knots, and start a new layer where the speed jumps"
                )
        _check_positive(self.speeds, f"{self.name}: sound speed", "m/s")
        _check_positive((self.density,), f"{self.name}: density", "g/cm^3")

    @property
    def top(self) -> float:
        """Depth of its upper face, m."""
        return self.depths[0]

    @property
    def bottom(self) -> float:
        """Depth of its lower face, m."""
        return self.depths[-1]


@dataclass(frozen=True)
class HalfSpace:
    """The homogeneous fluid under the layers.

    Example:
        >>> HalfSpace(5200.0, density=2.66).speed
        5200.0
    """

    speed: float
    density: float = 1.0
    attenuation: Attenuation = field(default_factory=Attenuation)

    def __post_init__(self) -> None:
        _check_positive((self.speed,), "half-space: sound speed", "m/s")
        _check_positive((self.density,), "half-space: density", "g/cm^3")


@dataclass(frozen=True)
class Array:
    """Hydrophones at given depths, some way off, on a cable that may lean.

    Args:
        depths: Depth of every hydrophone.
        range: Horizontal distance from the source to the cable at ``pivot``.
        tilt: Lean of the cable; a hydrophone sits at range + (pivot - depth) tan(tilt), its depth unchanged.
        pivot: Depth about which the cable leans; None for the deepest hydrophone.

    Example:
        >>> Array((100.0, 200.0), range=3000.0, tilt=1.0, pivot=200.0).ranges.round(2)
        array([3001.75, 3000.  ])
    """

    depths: tuple[float, ...]
    range: float
    tilt: float = 0.0
    pivot: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "depths", tuple(float(z) for z in self.depths))
        if not self.depths or not all(math.isfinite(z) and z >= 0 for z in self.depths):
            raise ValueError(f"hydrophone depths must be given, finite and not negative, got {self.depths}")
        if not abs(self.tilt) < 90:
            raise ValueError(f"tilt must lie between -90 and 90 degrees, got {self.tilt}")
        if not np.all(self.ranges > 0):
            raise ValueError(
                f"every hydrophone must be at a positive range, got {self.ranges.min():.6g} m; "
                "move the array away from the source or reduce its tilt"
            )

    @property
    def ranges(self) -> np.ndarray:
        """Horizontal distance of every hydrophone from the source."""
        depths = np.asarray(self.depths)
        pivot = depths.max() if self.pivot is None else self.pivot
        return self.range + (pivot - depths) * math.tan(math.radians(self.tilt))


@dataclass(frozen=True)
class Environment:
    """Everything the pressure depends on but the frequency.

    Args:
        layers: From the surface down, each starting where the last ended.
        bottom: The half-space, or ``"rigid"``.
        source_depth: Depth of the point source.
        array: Where the pressure is wanted.
        max_phase_speed: Modes with a higher phase speed are left out; None keeps every trapped mode.
        min_phase_speed: Modes with a lower phase speed are left out.
        loss: ``"full"`` gives every mode its complex wavenumber and shape, as KRAKENC does; ``"first order"`` adds
            the loss to lossless modes, as KRAKEN does, four times as fast.

    Example:
        >>> water = Layer((0.0, 200.0), (1500.0, 1490.0))
        >>> bottom, array = HalfSpace(1700.0, density=1.8), Array((100.0,), range=3000.0)
        >>> shallow = Environment((water,), bottom, source_depth=60.0, array=array)
        >>> shallow.density_at(100.0), shallow.density_at(300.0), shallow.replace(source_depth=30.0).source_depth
        (1.0, 1.8, 30.0)
        >>> profile, layers = shallow.plot()
        >>> profile.get_xlabel()
        'sound speed (m/s)'
    """

    layers: tuple[Layer, ...]
    bottom: HalfSpace | Literal["rigid"]
    source_depth: float
    array: Array
    max_phase_speed: float | None = None
    min_phase_speed: float = 0.0
    loss: Literal["full", "first order"] = "full"

    def __post_init__(self) -> None:
        object.__setattr__(self, "layers", tuple(self.layers))
        if not self.layers:
            raise ValueError("an environment needs at least one layer, got none; add the water column")
        if self.layers[0].top != 0:
            raise ValueError(f"the first layer must start at the surface, 0 m, got {self.layers[0].top} m")
        for upper, lower in zip(self.layers, self.layers[1:], strict=False):
            if not math.isclose(upper.bottom, lower.top, rel_tol=0, abs_tol=1e-9):
                raise ValueError(
                    f"layers out of order: {lower.name!r} starts at {lower.top} m but {upper.name!r} above it ends "
                    f"at {upper.bottom} m; list layers from the surface down, without gaps or overlaps"
                )
        if self.bottom != "rigid" and not isinstance(self.bottom, HalfSpace):
            raise TypeError(f"bottom must be a HalfSpace or 'rigid', got {self.bottom!r}")
        if not 0 < self.source_depth < self.layers[-1].bottom:
            raise ValueError(
                f"the source must lie inside the layers, between 0 and {self.layers[-1].bottom} m, "
                f"got {self.source_depth} m"
            )
        if self.bottom == "rigid" and max(self.array.depths) > self.layers[-1].bottom:
            raise ValueError(
                f"a hydrophone at {max(self.array.depths)} m lies under the rigid bottom at "
                f"{self.layers[-1].bottom} m; raise it or deepen the last layer"
            )
        highest = math.inf if self.max_phase_speed is None else self.max_phase_speed
        if not 0 <= self.min_phase_speed < highest:
            raise ValueError(
                f"phase speeds must satisfy 0 <= min < max, got min {self.min_phase_speed} and max {highest} m/s"
            )

        if self.loss not in ("full", "first order"):
            raise ValueError(f"loss must be 'full' or 'first order', got {self.loss!r}")

    def density_at(self, depth: float) -> float:
        """Return the density at ``depth`` (of the upper layer at an interface)."""
        for layer in self.layers:
            if depth <= layer.bottom:
                return layer.density
        return self.bottom.density if isinstance(self.bottom, HalfSpace) else self.layers[-1].density

    def replace(self, **changes: Any) -> Environment:
        """Return a copy with some fields changed."""
        return replace(self, **changes)

    def plot(self, max_depth: float | None = None) -> tuple[Axes, Axes]:
        """Draw the sound-speed profile beside the layers, the source and the array.

        Args:
            max_depth: Lower edge of the picture; by default a little under the last layer but one.
        """
        from isr.ocean.plots import plot_environment

        return plot_environment(self, max_depth)


def _check_positive(values: Iterable[float], what: str, unit: str) -> None:
    for value in values:
        if not (math.isfinite(value) and value > 0):
            raise ValueError(f"{what} must be positive and finite, got {value} {unit}")

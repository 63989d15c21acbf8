"""The SWellEx-96 experiment as the paper sets it: the environment, its true parameters and the two priors."""

from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files

import numpy as np

from isr.ocean.environment import Array, Attenuation, Environment, HalfSpace, Layer

FREQUENCIES = (49.0, 79.0, 112.0, 148.0, 201.0, 283.0, 388.0)
SOURCE_DEPTH = 60.0
SOURCE_RANGE = 3000.0
MAX_PHASE_SPEED = 1650.0
PARAMETER_NAMES = ("water_depth_m", "sediment_speed_m_s", "tilt_deg", "sediment_thickness_m")
TRUTH = (216.5, 1572.368, 0.0, 23.5)


@dataclass(frozen=True)
class UniformPrior:
    """Independent uniform parameters; those a task leaves out keep their true value.

    Example:
        >>> depths = UniformPrior(("m1",), (200.0,), (240.0,))
        >>> depths.sample(3, np.random.default_rng(0)).shape, depths.bounds
        ((3, 1), ((200.0, 240.0),))
        >>> depths.contains(np.array([[210.0], [250.0]])), depths.log_prob(np.array([[210.0]])).round(3)
        (array([ True, False]), array([-3.689]))
    """

    names: tuple[str, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Return ``n`` draws, shape (n, number of parameters)."""
        return rng.uniform(self.low, self.high, size=(n, len(self.names)))

    def contains(self, parameters: np.ndarray) -> np.ndarray:
        """Return for each row whether it lies inside the bounds."""
        return np.all((parameters >= self.low) & (parameters <= self.high), axis=-1)

    def log_prob(self, parameters: np.ndarray) -> np.ndarray:
        """Return the log-density (nats) of each row, ``-inf`` outside the bounds."""
        volume = np.prod(np.subtract(self.high, self.low))
        return np.where(self.contains(parameters), -np.log(volume), -np.inf)

    @property
    def bounds(self) -> tuple[tuple[float, float], ...]:
        """``(low, high)`` of each parameter."""
        return tuple(zip(self.low, self.high, strict=True))


TASK_1 = UniformPrior(PARAMETER_NAMES[:2], (200.5, 1532.0), (236.5, 1592.0))
TASK_2 = UniformPrior(PARAMETER_NAMES, (200.5, 1532.0, -2.0, 18.5), (236.5, 1592.0, 2.0, 28.5))


# Seven parameters of published inversions of event S5 (W. F. Jenkins, P. Gerstoft, Y. Park, 2023 and 2024: Bayesian
# optimisation), with their search bounds; range and water depth are given around where they are.
EVENT_S5_NAMES = (
    "source_range_m", "source_depth_m", "water_depth_m", "tilt_deg", "sediment_thickness_m", "sediment_speed_m_s",
    "sediment_speed_rise_m_s",
)  # fmt: skip
EVENT_S5_TRUTH = (3000.0, 71.0, 217.2, 1.0, 22.0, 1572.0, 21.0)
TASK_3 = UniformPrior(
    EVENT_S5_NAMES,
    (2750.0, 60.0, 212.2, -3.0, 10.0, 1540.0, 0.0), (3250.0, 80.0, 222.2, 3.0, 40.0, 1640.0, 50.0),
)  # fmt: skip


def event_s5(*parameters: float) -> Environment:
    """Return the environment of task 3: source range and depth, water depth, tilt, and the sediment's thickness, speed
    at its top and rise of speed to its bottom.

    Example:
        >>> event_s5().source_depth, event_s5(2900.0).array.range
        (71.0, 2900.0)
    """
    given = (*parameters, *EVENT_S5_TRUTH[len(parameters) :])
    distance, source_depth, depth, tilt, thickness, speed, rise = given
    base = swellex96(depth, speed, tilt, thickness)
    water, sediment, *rest = base.layers
    sediment = replace(sediment, speeds=(speed, speed + rise))
    array = Array(hydrophone_depths(), distance, tilt)
    return base.replace(layers=(water, sediment, *rest), array=array, source_depth=source_depth)


def prior(task: int) -> UniformPrior:
    """Return the prior of task 1 (water depth, sediment speed), 2 (also tilt, sediment thickness), both the paper's, or
    3 (also source range, source depth and the rise of speed in the sediment, see `event_s5`).

    Example:
        >>> prior(1).names
        ('water_depth_m', 'sediment_speed_m_s')
    """
    if task not in (1, 2, 3):
        raise ValueError(f"there are three tasks, 1, 2 and 3, got {task!r}")
    return (TASK_1, TASK_2, TASK_3)[task - 1]


def swellex96(
    m1: float = TRUTH[0], m2: float = TRUTH[1], m3: float = TRUTH[2], m4: float = TRUTH[3]
) -> Environment:
    """Return the SWellEx-96 environment, with loss to first order, as in the paper's KRAKEN.

    Args:
        m1: Water depth, m.
        m2: Sound speed at the top of the sediment, m/s.
        m3: Tilt of the array, degrees.
        m4: Thickness of the sediment, m.

    Example:
        >>> swellex96().layers[1].bottom
        240.0
    """
    depths, speeds = _profile()
    if not m1 > depths[0]:
        raise ValueError(f"the water must be deeper than 0 m, got {m1}")
    keep = depths < m1
    water_depths = (*depths[keep], m1)
    water_speeds = (*speeds[keep], float(np.interp(m1, depths, speeds)))
    floor = m1 + m4
    return Environment(
        layers=(
            Layer(water_depths, water_speeds, 1.0, name="water"),
            Layer((m1, floor), (m2, 1593.0), 1.76, Attenuation(0.2), name="sediment"),
            Layer((floor, floor + 800), (1881.0, 3245.0), 2.06, Attenuation(0.06), name="mudstone"),
        ),
        bottom=HalfSpace(5200.0, 2.66, Attenuation(0.02)),
        source_depth=SOURCE_DEPTH,
        array=Array(hydrophone_depths(), SOURCE_RANGE, m3),
        max_phase_speed=MAX_PHASE_SPEED,
        loss="first order",
    )


@cache
def hydrophone_depths() -> tuple[float, ...]:
    """Return the depths of the 21 hydrophones.

    Example:
        >>> len(hydrophone_depths())
        21
    """
    return tuple(_read("hydrophones.csv", skip=1).ravel().tolist())


@cache
def _profile() -> tuple[np.ndarray, np.ndarray]:
    table = _read("profile.csv", skip=1)
    return table[:, 0], table[:, 1]


def kraken_reference() -> np.ndarray:
    """Return complex pressures computed with KRAKEN, one row per environment, frequency and hydrophone.

    The columns are the four parameters, frequency, hydrophone depth, and real and imaginary part of the pressure.

    Example:
        >>> kraken_reference().shape
        (588, 8)
    """
    return _read("kraken_reference.csv", skip=2)


def _read(name: str, skip: int) -> np.ndarray:
    with (files("isr.ocean") / "data" / name).open() as file:
        return np.loadtxt(file, delimiter=",", skiprows=skip, ndmin=2)

"""Ten environments, for comparison with KRAKEN and KRAKENC: pressures frozen in ``kraken_and_krakenc.csv``.

The file holds what the original programs gave with 100 points per wavelength (Munk's profile 40) on an x86 machine.
"""

from pathlib import Path

import numpy as np

from isr.ocean import Array, Attenuation, Environment, HalfSpace, Layer, swellex96


def per_wavelength(value):
    return Attenuation(value, "dB/wavelength")


def array(distance, *depths):
    return Array(depths or (20.0, 45.0, 70.0, 90.0), distance)


def munk(depths):
    eta = 2 * (depths - 1300) / 1300
    return 1500 * (1 + 0.00737 * (eta - 1 + np.exp(-eta)))


DEEP = np.linspace(0, 5000, 51)
WATER = (Layer((0, 100), (1500, 1500)),)
FALLING = (Layer((0, 100), (1520, 1490)),)
MUD = (
    Layer((0, 60, 80), (1510, 1500, 1495)),
    Layer((80, 90), (1460, 1480), 1.4, per_wavelength(0.2)),
    Layer((90, 110), (1620, 1660), 1.8, per_wavelength(0.6)),
)
ARCTIC = (Layer((0, 50, 200, 1000, 3000), (1435, 1437, 1445, 1460, 1495)),)


def bottom(speed, density, loss):
    return HalfSpace(speed, density, per_wavelength(loss))


CASES = {
    "SWellEx-96, tilt 1.5°": (swellex96(m3=1.5), (49.0, 112.0, 201.0)),
    "SWellEx-96, tilt −1.5°": (swellex96(m3=-1.5), (49.0, 112.0, 201.0)),
    "Pekeris, 1800 m/s": (Environment(WATER, bottom(1800, 1.8, 0.5), 30.0, array(5e3)), (50.0, 100.0, 200.0)),
    "Munk, 1600 m/s": (
        Environment(
            (Layer(DEEP, munk(DEEP)),), bottom(1600, 1.5, 0.8), 1000.0, array(5e4, 200.0, 1e3, 2e3, 4e3)
        ),
        (20.0, 50.0),
    ),
    "100 m, 1600 m/s": (Environment(WATER, bottom(1600, 1.5, 0.8), 30.0, array(5e3)), (50.0, 100.0, 200.0)),
    "100 m, 1700 m/s": (Environment(WATER, bottom(1700, 1.7, 0.5), 30.0, array(5e3)), (50.0, 100.0, 200.0)),
    "ice-free Arctic": (
        Environment(ARCTIC, bottom(1650, 1.6, 0.6), 100.0, array(3e4, 50.0, 100.0, 300.0, 1e3)),
        (20.0, 50.0),
    ),
    "three-layer mud": (
        Environment(MUD, bottom(2000, 2.1, 0.3), 30.0, array(4e3, 20.0, 45.0, 70.0, 78.0)),
        (80.0, 200.0),
    ),
    "hard bottom": (Environment(FALLING, bottom(2800, 2.4, 0.1), 30.0, array(5e3)), (50.0, 150.0)),
    "soft bottom": (Environment(FALLING, bottom(1540, 1.3, 0.3), 60.0, array(3e3)), (100.0, 300.0)),
}


def frozen(program):
    """What a program gave: environment to pressures (frequencies, hydrophones)."""
    rows = (Path(__file__).parent / "kraken_and_krakenc.csv").read_text(encoding="utf-8").splitlines()[1:]
    found = {name: [] for name in CASES}
    for name, which, _, real, imaginary in (row.rsplit(";", 4) for row in rows):
        if which == program:
            found[name].append(complex(float(real), float(imaginary)))
    return {name: np.reshape(values, (len(CASES[name][1]), -1)) for name, values in found.items()}

"""Modes against closed forms, SciPy's eigenvalues and quadrature."""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.integrate import solve_ivp
from scipy.linalg import eigh_tridiagonal
from scipy.optimize import brentq

from isr.ocean import (
    Array,
    Attenuation,
    Environment,
    HalfSpace,
    Layer,
    Mesh,
    MeshError,
    NoModesError,
    modes,
    swellex96,
)

pytestmark = pytest.mark.filterwarnings("ignore::isr.ocean.CutOffWarning")
DEPTH, SPEED = 100.0, 1500.0
ARRAY = Array((50.0,), 1000.0)
RIGID = Environment((Layer((0, DEPTH), (SPEED, SPEED)),), "rigid", 30.0, ARRAY)
PEKERIS = Environment((Layer((0, DEPTH), (SPEED, SPEED)),), HalfSpace(1800.0, 1.8), 30.0, ARRAY)
DUCTS = Environment(  # a surface duct over a deep one, hardly coupled
    (Layer((0, 40, 110, 180, 250), (1480, 1490, 1560, 1482, 1500)),),
    HalfSpace(1700.0, 1.5),
    20.0,
    Array((20.0, 180.0), 5000.0),
)


def rigid_wavenumbers(frequency):
    k = 2 * np.pi * frequency / SPEED
    kz = (np.arange(1, 200) - 0.5) * np.pi / DEPTH
    return np.sqrt(k**2 - kz[kz < k] ** 2)


def pekeris_wavenumbers(frequency):
    k, k_bottom = 2 * np.pi * frequency / SPEED, 2 * np.pi * frequency / 1800.0
    limit = math.sqrt(k**2 - k_bottom**2)

    def mismatch(kz):
        return 1.8 * kz * math.cos(kz * DEPTH) + math.sqrt(limit**2 - kz**2) * math.sin(kz * DEPTH)

    roots, m = [], 1
    while (m - 0.5) * np.pi / DEPTH < limit:
        low, high = (m - 0.5) * np.pi / DEPTH, min(m * np.pi / DEPTH, limit)
        roots.append(brentq(mismatch, low * (1 + 1e-14), high * (1 - 1e-15), xtol=1e-16, rtol=1e-15))
        m += 1
    return np.sqrt(k**2 - np.array(roots) ** 2)


WAVEGUIDES = {"rigid": (RIGID, rigid_wavenumbers), "Pekeris": (PEKERIS, pekeris_wavenumbers)}


def worst_error(environment, exact, frequency, mesh):
    found = modes(environment, frequency, mesh=mesh).wavenumbers.real
    expected = exact(frequency)
    shared = min(len(found), len(expected))  # without extrapolation a mode at the cut-off may be one too many
    assert abs(len(found) - len(expected)) <= (len(mesh.refinements) == 1)
    return np.abs(found[:shared] / expected[:shared] - 1).max()


@pytest.mark.parametrize(("environment", "exact"), WAVEGUIDES.values(), ids=WAVEGUIDES.keys())
@pytest.mark.parametrize("frequency", [20.0, 100.0, 400.0])
def test_refined_wavenumbers_are_those_of_the_closed_form(environment, exact, frequency):
    assert worst_error(environment, exact, frequency, Mesh(20, (1, 2, 3, 4), decay=20)) < 1e-9


@pytest.mark.parametrize(("environment", "exact"), WAVEGUIDES.values(), ids=WAVEGUIDES.keys())
@pytest.mark.parametrize(("refinements", "order"), [((1,), 2), ((1, 2), 4), ((1, 2, 3), 6)])
def test_each_further_mesh_adds_two_to_the_order(environment, exact, refinements, order):
    frequency = 100.0 if environment is RIGID else 400.0  # there the errors stay well above rounding
    errors = [
        worst_error(environment, exact, frequency, Mesh(n, refinements, decay=20)) for n in (12, 18, 27)
    ]
    orders = np.diff(np.log(errors)) / np.log(2 / 3)
    assert_allclose(orders, order, atol=0.35)


def test_mode_counts_are_right_at_any_frequency():
    for frequency in np.random.default_rng(1).uniform(10, 500, 150):
        for name, (environment, exact) in WAVEGUIDES.items():
            expected = exact(frequency)
            if name == "Pekeris" and expected[-1] * 1800 / (2 * np.pi * frequency) < 1 + 1e-5:
                continue  # at its cut-off a mode comes and goes with the last digits
            assert len(modes(environment, frequency)) == len(expected)


def test_rigid_mode_shapes_are_sines():
    depths = np.linspace(0, DEPTH, 23)
    found = modes(RIGID, 60.0, depths, mesh=Mesh(20, (1, 2, 3)))
    m = np.arange(1, len(found) + 1)[:, None]
    assert_allclose(found.shapes, np.sqrt(2 / DEPTH) * np.sin((m - 0.5) * np.pi * depths / DEPTH), atol=1e-9)


@pytest.mark.parametrize("frequency", [49.0, 201.0])
def test_modes_are_orthonormal_over_water_bottom_and_half_space(frequency):
    environment = swellex96(m4=20.0).replace(max_phase_speed=1600.0)
    faces = [0.0, *(layer.bottom for layer in environment.layers[:2]), 420.0]
    depths, weights = [], []
    points, base = np.polynomial.legendre.leggauss(12)
    for layer, top, bottom in zip(environment.layers, faces, faces[1:], strict=False):
        edges = np.linspace(top, bottom, 41)
        half = 0.5 * np.diff(edges)[:, None]
        depths.append((edges[:-1, None] + half * (points + 1)).ravel())
        weights.append((half * base / layer.density).ravel())
    found = modes(environment, frequency, np.concatenate(depths), mesh=Mesh(20, (1, 2, 3)))
    gram = (found.shapes * np.concatenate(weights)) @ found.shapes.T
    assert_allclose(gram, np.eye(len(found)), atol=2e-6)


def reference_eigenvalues(environment, frequency, n):
    """Dirichlet problem on one fine uniform mesh through LAPACK; a deep bottom stands in for the half-space."""
    omega, (layer,) = 2 * np.pi * frequency, environment.layers
    bottom, depth = environment.bottom, 3 * layer.bottom
    h = depth / n
    z = h * np.arange(1, n)
    inside = z < layer.bottom + 1e-9
    speed = np.where(inside, np.interp(z, layer.depths, layer.speeds), bottom.speed)
    face = np.isclose(z, layer.bottom)
    rho_up, rho_down = np.where(inside, 1.0, bottom.density), np.where(inside & ~face, 1.0, bottom.density)
    slowness2 = 0.5 * (1 / speed**2 / rho_up + np.where(face, 1 / bottom.speed**2, 1 / speed**2) / rho_down)
    mass = 0.5 * (1 / rho_up + 1 / rho_down)
    diagonal = omega**2 * slowness2 / mass - (1 / rho_up + 1 / rho_down) / h**2 / mass
    off = 1 / rho_down[:-1] / h**2 / np.sqrt(mass[:-1] * mass[1:])
    low = (omega / bottom.speed) ** 2
    return eigh_tridiagonal(diagonal, off, True, select="v", select_range=(low * 1.001, (omega / 1400) ** 2))[
        ::-1
    ]


def test_two_ducts_that_hardly_couple_have_the_modes_lapack_finds():
    frequency = 150.0
    coarse, fine = (reference_eigenvalues(DUCTS, frequency, n) for n in (3000, 6000))
    expected = np.sqrt(fine + (fine - coarse) / 3)
    found = modes(DUCTS, frequency, mesh=Mesh(20, (1, 2, 3), decay=20)).wavenumbers.real
    keep = slice(0, len(expected) - 1)  # the last mode feels the reference's false floor
    assert len(found) >= len(expected)
    assert_allclose(found[keep], expected[keep], rtol=2e-9)


def test_a_mode_in_a_gradient_solves_the_differential_equation():
    environment = Environment(
        (Layer((0, 80), (1480, 1520)), Layer((80, 95), (1550, 1600), 1.6)),
        HalfSpace(1750.0, 1.9),
        30.0,
        ARRAY,
    )
    frequency = 120.0
    k2 = modes(environment, frequency, mesh=Mesh(20, (1, 2, 3, 4), decay=20)).wavenumbers.real ** 2

    def right_side(z, state, layer, lam):
        speed = np.interp(z, layer.depths, layer.speeds)
        kz2 = (2 * np.pi * frequency / speed) ** 2 - lam
        return [layer.density * state[1], -kz2 * state[0] / layer.density]

    def mismatch(lam):
        state = [0.0, 1.0]
        for layer in environment.layers:
            span = (layer.top, layer.bottom)
            state = solve_ivp(right_side, span, state, "DOP853", args=(layer, lam), rtol=1e-12, atol=1e-12).y[
                :, -1
            ]
        return state[1] + math.sqrt(lam - (2 * np.pi * frequency / 1750) ** 2) / 1.9 * state[0]

    for lam in k2[[0, 3, -1]]:
        root = brentq(mismatch, lam * (1 - 1e-6), lam * (1 + 1e-6), xtol=1e-15)
        assert_allclose(lam, root, rtol=2e-9)


@pytest.mark.parametrize("where", ["layer", "half-space"])
def test_loss_is_the_derivative_of_the_exact_complex_wavenumber(where):
    """Root of the complex Pekeris equation, for a loss small enough that first order is exact."""
    frequency, loss = 60.0, Attenuation(1e-4, "dB/wavelength")
    lossless = Attenuation()
    environment = Environment(
        (Layer((0, DEPTH), (SPEED, SPEED), 1.0, loss if where == "layer" else lossless),),
        HalfSpace(1800.0, 1.8, loss if where == "half-space" else lossless),
        30.0,
        ARRAY,
    )
    found = modes(environment, frequency, mesh=Mesh(20, (1, 2, 3))).wavenumbers
    omega = 2 * np.pi * frequency

    def wavenumber(speed, on):
        return omega / speed - 1j * loss.nepers_per_metre(frequency, speed) * on

    k, k_bottom = wavenumber(SPEED, where == "layer"), wavenumber(1800.0, where == "half-space")

    def mismatch(kr):
        kz, gamma = np.sqrt(k**2 - kr**2 + 0j), np.sqrt(kr**2 - k_bottom**2 + 0j)
        return 1.8 * kz * np.cos(kz * DEPTH) + gamma * np.sin(kz * DEPTH)

    for start in found:
        a, b = start, start * (1 + 1e-9)
        for _ in range(30):  # secant
            fa, fb = mismatch(a), mismatch(b)
            if fa == fb:
                break
            a, b = b, b - fb * (b - a) / (fb - fa)
        assert_allclose(start.imag, b.imag, rtol=2e-4)
        assert start.imag < 0


def test_mode_counts_of_swellex_are_those_of_kraken():
    counts = [len(modes(swellex96(), f)) for f in (49, 79, 112, 148, 201, 283, 388)]
    assert counts == [6, 10, 15, 19, 26, 37, 51]


def test_phase_speed_limits_select_modes():
    every = modes(swellex96(), 112.0)
    some = modes(swellex96().replace(min_phase_speed=1500.0, max_phase_speed=1580.0), 112.0)
    keep = (every.phase_speeds >= 1500) & (every.phase_speeds <= 1580)
    assert 0 < len(some) < len(every)
    assert_allclose(some.wavenumbers, every.wavenumbers[keep], rtol=1e-6)


def test_a_long_evanescent_tail_does_not_overflow():
    rock = Layer((200, 5000), (3000, 3000), 2.0)
    deep = Environment(
        (Layer((0, 200), (1500, 1500)), rock), HalfSpace(5000.0, 2.5), 50.0, Array((100.0, 4900.0), 1e3)
    )
    found = modes(deep.replace(max_phase_speed=2000.0), 300.0)
    assert np.isfinite(found.shapes).all()
    assert np.abs(found.shapes[:, 2]).max() == 0 or np.abs(found.shapes[:, 2]).max() < 1e-100


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: modes(PEKERIS, 2.0),
            NoModesError,
            r"no propagating mode at 2 Hz .* raise the frequency or max_phase",
        ),
        (lambda: modes(PEKERIS, -2.0), ValueError, "frequencies must be positive and finite, got -2.0 Hz"),
        (lambda: modes(PEKERIS, 50.0, [-1.0]), ValueError, "depths must be finite and not negative"),
        (lambda: Mesh(5), MeshError, "mesh too coarse: at least 10 points per wavelength .* got 5"),
        (
            lambda: Mesh(20, (2, 1)),
            ValueError,
            r"increasing positive integers such as \(1, 2\), got \(2, 1\)",
        ),
        (lambda: Mesh(decay=0), ValueError, "decay must be positive"),
        (
            lambda: modes(_long_duct(), 1500.0),
            MeshError,
            "mesh too coarse at 1500 Hz.* raise points_per_wavelength above 10",
        ),
    ],
)
def test_what_cannot_be_solved_says_what_to_do(call, error, message):
    with pytest.raises(error, match=message):
        call()


def _long_duct():
    return Environment((Layer((0, 1000), (1500, 1500)),), HalfSpace(3000.0, 2.0), 30.0, ARRAY)

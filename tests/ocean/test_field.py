"""Pressures against KRAKEN's own, the image of a point source in free space, and laws of acoustics."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from isr import ocean as geoacoustics
from isr.ocean import (
    FREQUENCIES,
    Array,
    Environment,
    HalfSpace,
    Layer,
    Mesh,
    NoModesError,
    kraken_reference,
    modes,
    pressure,
    swellex96,
)


def reference_cases():
    rows = kraken_reference()
    for parameters in dict.fromkeys(map(tuple, rows[:, :4])):
        own = rows[(rows[:, :4] == parameters).all(axis=1)]
        yield parameters, (own[:, 6] + 1j * own[:, 7]).reshape(len(FREQUENCIES), -1)


def relative(error, truth):
    return np.linalg.norm(error, axis=-1) / np.linalg.norm(truth, axis=-1)


CASES = list(reference_cases())


@pytest.mark.parametrize(("parameters", "expected"), CASES, ids=[f"depth {p[0]:g} m" for p, _ in CASES])
def test_pressure_is_that_of_kraken(parameters, expected):
    found = pressure(swellex96(*parameters), FREQUENCIES)
    assert relative((found - expected).ravel(), expected.ravel()) < 3e-4
    assert relative(found - expected, expected).max() < 1e-3


def test_the_shallow_reference_has_hydrophones_in_the_sediment():
    depths = [parameters[0] for parameters, _ in CASES]
    assert min(depths) < max(swellex96().array.depths)


def test_the_default_mesh_is_converged_far_below_the_noise():
    environments = [swellex96(*parameters) for parameters, _ in CASES]
    usual = pressure(environments, FREQUENCIES)
    fine = pressure(environments, FREQUENCIES, mesh=Mesh(20, (1, 2, 3), decay=16))
    assert relative(usual - fine, fine).max() < 5e-4


def test_hydrophones_around_the_seabed_see_a_continuous_pressure():
    depth = 212.0
    near = Array((depth - 1e-3, depth, depth + 1e-3), 3000.0)
    found = pressure(swellex96(m1=depth).replace(array=near), [148.0])
    assert_allclose(found[0], found[0, 1], rtol=1e-3)


def test_exchanging_source_and_receiver_changes_nothing_but_the_density():
    base = swellex96(m1=205.0)
    water, sediment = 60.0, 212.25
    there = base.replace(source_depth=water, array=Array((sediment,), 2000.0))
    back = base.replace(source_depth=sediment, array=Array((water,), 2000.0))
    out, home = pressure(there, [79.0, 201.0]), pressure(back, [79.0, 201.0])
    assert_allclose(out * 1.0, home * 1.76, rtol=1e-12)


def test_a_deep_rigid_channel_gives_the_sum_over_images():
    """Near the axis of a wide channel the mode sum must be the direct wave and its reflections."""
    depth, speed, frequency, z_source, z_receiver, distance = 60.0, 1500.0, 100.0, 25.0, 40.0, 400.0
    channel = Environment(
        (Layer((0, depth), (speed, speed)),), "rigid", z_source, Array((z_receiver,), distance)
    )
    found = pressure(channel, [frequency], mesh=Mesh(20, (1, 2, 3)))[0, 0]
    wavenumbers = modes(channel, frequency).wavenumbers.real
    from scipy.special import hankel2

    m = np.arange(1, len(wavenumbers) + 1)
    kz = (m - 0.5) * np.pi / depth
    exact = (
        np.pi
        * 1j
        * 2
        / depth
        * np.sum(np.sin(kz * z_source) * np.sin(kz * z_receiver) * hankel2(0, wavenumbers * distance))
    )
    assert_allclose(found, exact, rtol=2e-2)
    k = 2 * np.pi * frequency / speed
    images = 0j
    for n in range(-4000, 4001):
        sign = (-1) ** n
        for offset, flip in ((z_receiver - z_source, 1), (z_receiver + z_source, -1)):
            r = np.hypot(distance, offset - 2 * n * depth)
            taper = np.cos(0.5 * np.pi * n / 4001) ** 2  # the sum converges only on average
            images += taper * sign * flip * np.exp(-1j * k * r) / r
    assert_allclose(abs(found), abs(images), rtol=3e-2)


def test_batches_threads_and_order_do_not_change_a_bit():
    environments = [swellex96(m1=depth) for depth in np.linspace(205, 230, 40)]
    together = pressure(environments, FREQUENCIES[:3], n_jobs=2)
    alone = np.array([pressure(e, FREQUENCIES[:3], n_jobs=1) for e in reversed(environments)])[::-1]
    assert_array_equal(together, alone)
    assert together.shape == (40, 3, 21)


def test_no_environments_give_no_pressures():
    assert pressure([], FREQUENCIES).size == 0


def test_one_bad_environment_is_named_or_becomes_nan():
    slow_bottom = Environment(
        (Layer((0, 100), (1500, 1500)),), HalfSpace(1450.0), 30.0, Array(swellex96().array.depths, 3000.0)
    )
    batch = [swellex96(), slow_bottom]
    with pytest.raises(
        NoModesError, match=r"environment 1: no propagating mode at 49 Hz .* check water depth"
    ):
        pressure(batch, [49.0])
    with pytest.raises(NoModesError, match=r"^no propagating mode"):
        pressure(slow_bottom, [49.0])
    found = pressure(batch, [49.0], on_error="nan")
    assert np.isfinite(found[0]).all()
    assert np.isnan(found[1]).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: pressure(swellex96(), [0.0]), "frequencies must be positive and finite, got 0.0 Hz"),
        (
            lambda: pressure(swellex96(), [49.0], engine="magic"),
            "unknown engine 'magic'; use 'modes' or 'kraken'",
        ),
        (
            lambda: pressure([swellex96(), swellex96().replace(array=Array((9.0,), 10.0))], [49.0]),
            r"same number of hydrophones, got \[1, 21\]",
        ),
    ],
)
def test_wrong_requests_are_explained(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_the_progress_bar_speaks_only_when_asked(capsys):
    pressure([swellex96()] * 3, [49.0])
    assert capsys.readouterr() == ("", "")
    pressure([swellex96()] * 3, [49.0], progress=True)
    assert "3/3" in capsys.readouterr().err


def test_the_module_lists_what_it_offers():
    for name in geoacoustics.__all__:
        assert getattr(geoacoustics, name).__doc__ is not None

"""An environment says what is wrong with it, and what it holds is what was asked for."""

import dataclasses
import math

import numpy as np
import pytest
from numpy.testing import assert_allclose

from isr.ocean import Array, Attenuation, Environment, HalfSpace, Layer, prior, swellex96

WATER = Layer((0, 50, 100), (1500, 1490, 1495), name="water")
ARRAY = Array((20.0, 80.0), 1000.0)


def make(**changes):
    parts = {"layers": (WATER,), "bottom": HalfSpace(1700, 1.8), "source_depth": 30.0, "array": ARRAY}
    return Environment(**(parts | changes))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: Attenuation(0.1, "dB/mile"), r"unknown attenuation unit 'dB/mile'; use one of dB/\(km Hz\)"),
        (lambda: Attenuation(-1.0), "must be finite and not negative, got -1.0"),
        (lambda: Layer((0, 10), (1500,)), "got 2 depths and 1 speeds"),
        (
            lambda: Layer((0, 20, 10), (1, 1, 1)),
            "depths must increase downward, got 20.0 m followed by 10.0 m",
        ),
        (lambda: Layer((0, 10), (1500, -3)), "sound speed must be positive and finite, got -3.0 m/s"),
        (lambda: Layer((0, 10), (1500, 1500), density=0), "density must be positive and finite, got 0"),
        (lambda: HalfSpace(math.nan), "half-space: sound speed must be positive"),
        (lambda: Array((), 10.0), "hydrophone depths must be given"),
        (lambda: Array((10, 100), 20.0, tilt=-45), "positive range, got -70 m; move the array away"),
        (lambda: Array((10,), 20.0, tilt=95), "tilt must lie between -90 and 90 degrees, got 95"),
        (lambda: make(layers=()), "at least one layer"),
        (lambda: make(layers=(Layer((5, 10), (1500, 1500)),)), "must start at the surface, 0 m, got 5.0 m"),
        (
            lambda: make(layers=(WATER, Layer((120, 130), (1600, 1600), name="sand"))),
            "layers out of order: 'sand' starts at 120.0 m but 'water' above it ends at 100.0 m",
        ),
        (
            lambda: make(source_depth=200.0),
            "source must lie inside the layers, between 0 and 100.0 m, got 200.0",
        ),
        (
            lambda: make(bottom="rigid", array=Array((150.0,), 10.0)),
            "hydrophone at 150.0 m lies under the rigid",
        ),
        (
            lambda: make(max_phase_speed=1500, min_phase_speed=1600),
            "phase speeds must satisfy 0 <= min < max",
        ),
        (lambda: prior(4), "there are three tasks, 1, 2 and 3, got 4"),
        (lambda: swellex96(m1=-5), "water must be deeper than 0 m, got -5"),
    ],
)
def test_a_wrong_value_is_named_with_its_remedy(wrong, message):
    with pytest.raises(ValueError, match=message):
        wrong()


def test_a_bottom_of_another_kind_is_refused():
    with pytest.raises(TypeError, match="bottom must be a HalfSpace or 'rigid', got 'soft'"):
        make(bottom="soft")


def test_attenuation_units_agree_where_they_must():
    frequency, speed = 250.0, 1600.0
    per_metre = 0.2 * frequency / 1000  # dB
    same = [
        Attenuation(0.2, "dB/(km Hz)"),
        Attenuation(per_metre, "dB/m"),
        Attenuation(per_metre * speed / frequency, "dB/wavelength"),
        Attenuation(per_metre / (20 * math.log10(math.e)), "Np/m"),
    ]
    values = [a.nepers_per_metre(frequency, speed) for a in same]
    assert_allclose(values, values[0], rtol=1e-14)


def test_swellex_is_the_environment_of_the_paper():
    environment = swellex96()
    water, sediment, mudstone = environment.layers
    assert (water.bottom, sediment.bottom, mudstone.bottom) == (216.5, 240.0, 1040.0)
    assert sediment.speeds == (1572.368, 1593.0)
    assert mudstone.speeds == (1881.0, 3245.0)
    assert [layer.density for layer in environment.layers] == [1.0, 1.76, 2.06]
    assert environment.bottom == HalfSpace(5200.0, 2.66, Attenuation(0.02))
    assert water.speeds[-1] == 1488.24
    assert len(environment.array.depths) == 21
    assert_allclose(environment.array.ranges, 3000.0)


def test_a_leaning_array_pivots_about_its_deepest_hydrophone():
    array = swellex96(m3=1.5).array
    depths = np.array(array.depths)
    assert_allclose(array.ranges, 3000 + (212.25 - depths) * np.tan(np.deg2rad(1.5)), rtol=1e-15)


def test_environments_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        swellex96().source_depth = 3.0


def test_priors_draw_inside_their_bounds():
    for task, dim in ((1, 2), (2, 4)):
        bounds = prior(task)
        draws = bounds.sample(500, np.random.default_rng(0))
        assert draws.shape == (500, dim)
        assert bounds.contains(draws).all()
        assert not bounds.contains(draws + 100).any()


@pytest.mark.parametrize("depth", [None, 1100.0])
def test_the_plot_shows_profile_source_and_array(depth):
    import matplotlib.pyplot as plt

    left, right = swellex96(m3=2.0).plot(max_depth=depth)
    try:
        assert left.get_ylim()[0] > left.get_ylim()[1] == 0
        assert {t.get_text() for t in right.get_legend().get_texts()} == {"hydrophones, tilt 2°", "source"}
    finally:
        plt.close(left.figure)

"""Recordings: files are read as they were written, tones come back, and a likelihood finds what made them."""

import struct

import numpy as np
import pytest
from numpy.testing import assert_allclose

from isr.ocean import (
    TASK_3,
    bartlett_likelihood,
    covariances,
    event_s5,
    pressure,
    read_sio,
    snapshots,
)
from isr.ocean.chains import gradient_posterior
from isr.ocean.swellex import EVENT_S5_TRUTH


def write_sio(path, series, order=">", kind="f4", record=512):
    """As the experiment's files are: a record of header, then records of each channel in turn."""
    n_channels, n_samples = series.shape
    width = int(kind[1])
    per_record = record // width
    blocks = -(-n_samples // per_record)
    padded = np.zeros((n_channels, blocks * per_record))
    padded[:, :n_samples] = series
    counts = (7, 1 + blocks * n_channels, record, n_channels, width, int(kind[0] == "f"), n_samples, 32677)
    header = struct.pack(f"{order}8i24s72s", *counts, b"event", b"a remark")
    data = padded.reshape(n_channels, blocks, per_record).transpose(1, 0, 2).astype(order + kind)
    path.write_bytes(header.ljust(record, bytes(1)) + data.tobytes())
    return path


@pytest.mark.parametrize("order", "><")
@pytest.mark.parametrize("kind", ["f4", "i2"])
def test_a_file_comes_back_with_its_channels_turned_round(tmp_path, order, kind):
    series = np.arange(3 * 700).reshape(3, 700) % 251
    found = read_sio(write_sio(tmp_path / "a.sio", series, order, kind))
    assert_allclose(found.series, series[::-1])
    assert (found.name, found.remark) == ("event", "a remark")
    assert_allclose(read_sio(tmp_path / "a.sio", reverse=False).series, series)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data[:60], "is no .sio file"),
        (lambda data: b"x" * 1000, "is no .sio file: 32677 does not stand"),
        (lambda data: data[:2000], "is shorter than its header says"),
        (
            lambda data: data[:12] + bytes(4) + data[16:],
            "a header that makes no sense: 512 bytes .* 0 channels",
        ),
        (lambda data: data[:24] + b"\x7f\xff\xff\xff" + data[28:], "is shorter than its header says"),
    ],
)
def test_a_file_that_is_none_is_refused(tmp_path, change, message):
    path = write_sio(tmp_path / "a.sio", np.ones((2, 700)))
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(ValueError, match=message):
        read_sio(path)


def test_tones_come_back_with_amplitude_and_phase():
    rate, tones, amplitudes = 1500.0, (49.0, 112.0), np.array([[2.0 + 1.0j, 0.5j], [-1.0, 3.0]])
    time = np.arange(int(12 * rate)) / rate
    series = np.real(
        sum(a[:, None] * np.exp(2j * np.pi * f * time) for a, f in zip(amplitudes.T, tones, strict=True))
    )
    found = snapshots(series, rate, tones, seconds=4.0)
    assert found.shape == (5, 2, 2)
    turned = found * np.exp(-2j * np.pi * np.outer(np.arange(5) * 2.0, tones))[:, :, None]
    assert_allclose(turned, np.tile(amplitudes.T, (5, 1, 1)), atol=2e-3)
    with pytest.raises(ValueError, match=r"a window of 30000 samples.* does not fit 18000 samples"):
        snapshots(series, rate, tones, seconds=20.0)
    with pytest.raises(ValueError, match=r"800.0 Hz is not below half the rate"):
        snapshots(series, rate, (800.0,))


def recorded(n, frequencies, seed=0):
    """Covariances of snapshots of event S5 with a source of changing level and phase, signal and noise as 15 dB."""
    rng = np.random.default_rng(seed)
    p = pressure(event_s5(), frequencies)
    levels = rng.normal(size=(n, len(frequencies), 2)) @ [1, 1j]
    noise = rng.normal(size=(n, *p.shape, 2)) @ [1, 1j] * np.sqrt(np.mean(np.abs(p) ** 2) * 10**-1.5 / 2)
    return covariances(levels[..., None] * p / np.sqrt(2) + noise)


TONES = (112.0, 201.0)


def test_the_likelihood_is_that_of_unknown_levels_and_its_gradient_that_of_differences():
    covariance, theta = recorded(10, TONES), np.array(EVENT_S5_TRUTH) + 0.01
    likelihood = bartlett_likelihood(covariance, 10, event_s5, TONES)
    value, gradient = likelihood(theta)
    p = pressure(event_s5(*theta), TONES)
    best = sum(
        -10 * 21 * np.log(np.trace(r).real - (q.conj() @ r @ q).real / np.vdot(q, q).real)
        for r, q in zip(covariance, p, strict=True)
    )
    assert_allclose(value, best, rtol=1e-10)
    scaled = bartlett_likelihood(9.0 * covariance, 10, event_s5, TONES)
    assert_allclose(
        scaled(theta)[0] - value, -10 * 21 * 2 * np.log(9.0)
    )  # the level of the source says nothing
    for i, h in enumerate(np.diag(np.full(7, 2e-3))):
        slope = (likelihood(theta + h)[0] - likelihood(theta - h)[0]) / 4e-3
        assert_allclose(gradient[i], slope, rtol=1e-3, atol=1e-3)


@pytest.mark.slow
def test_event_s5_from_a_recording_to_a_posterior():
    likelihood = bartlett_likelihood(recorded(10, TONES), 10, event_s5, TONES)
    width = np.array(TASK_3.high) - TASK_3.low
    starts = np.array([EVENT_S5_TRUTH]) + 0.02 * width * np.array([0.1, 1, -0.2, 1, 1, -1, 1])
    found = gradient_posterior(likelihood, starts, TASK_3.bounds, n_samples=60, n_warmup=40)
    assert likelihood(found.best)[0] >= likelihood(np.array(EVENT_S5_TRUTH))[0]
    assert np.all(TASK_3.contains(found.samples))
    offset = np.abs(found.samples.mean(axis=0) - EVENT_S5_TRUTH) / found.samples.std(axis=0)
    assert offset.max() < 4

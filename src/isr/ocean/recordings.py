"""Recordings of a vertical array: the ``.sio`` files of SWellEx-96, snapshots, covariances and their likelihood.

A file begins with one record of header: eight whole numbers of four bytes (identity, records, bytes per record,
channels, bytes per sample, 0 for whole and 1 for real numbers, samples per channel, and 32677, which tells the byte
order), a name of 24 and a remark of 72 characters. Then come records of the channels in turn. In the files of the
vertical array the channels run from the bottom up, against the published list of positions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Complex, Float

from isr.ocean.environment import Environment
from isr.ocean.gradients import pressure_and_gradient
from isr.tables.memory import refuse_too_large

_BYTE_ORDER_MARK = 32677
_HEADER_BYTES = 128


@dataclass(frozen=True)
class Recording:
    """What a file holds.

    Args:
        series: Samples of every channel, the first channel first.
        name: The file's own name for itself.
        remark: Free text.
    """

    series: Float[np.ndarray, "channels samples"]
    name: str
    remark: str


def read_sio(path: str | Path, *, reverse: bool = True) -> Recording:
    """Read an ``.sio`` file.

    Args:
        path: The file.
        reverse: Turn the order of channels round, so that they follow the published positions of the vertical array.

    Example:
        >>> import pathlib, struct, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "two.sio"
        >>> header = struct.pack(">8i24s72s", 1, 3, 128, 2, 4, 1, 32, 32677, b"two", b"channels")
        >>> _ = path.write_bytes(header.ljust(128, bytes(1)) + np.repeat([1.0, 2.0], 32).astype(">f4").tobytes())
        >>> read_sio(path).series[:, 0], read_sio(path).remark
        (array([2., 1.]), 'channels')
    """
    data = Path(path).read_bytes()
    order = next((o for o in "><" if int.from_bytes(data[28:32], _BYTES[o]) == _BYTE_ORDER_MARK), None)
    if len(data) < _HEADER_BYTES or order is None:
        raise ValueError(
            f"{path} is no .sio file: 32677 does not stand at byte 28, which tells the byte order"
        )
    counts = np.frombuffer(data, f"{order}i4", 7).tolist()
    _, _, record, n_channels, width, is_real, n_samples = counts
    kind = {(2, 0): "i2", (4, 0): "i4", (4, 1): "f4", (2, 1): "i2", (8, 1): "f8"}.get((width, is_real))
    if kind is None or n_channels < 1 or n_samples < 1 or record < _HEADER_BYTES or record % width:
        raise ValueError(
            f"{path} has a header that makes no sense: {record} bytes per record, {n_channels} channels, {width} bytes "
            f"per sample, kind {is_real}, {n_samples} samples"
        )
    per_record = record // width
    n_blocks = -(-n_samples // per_record)
    if len(data) < record * (1 + n_blocks * n_channels):
        raise ValueError(f"{path} is shorter than its header says; copy it again")
    refuse_too_large(8 * n_blocks * per_record * n_channels, f"the samples of {path}", "read a shorter file")
    samples = np.frombuffer(data, f"{order}{kind}", n_blocks * n_channels * per_record, offset=record)
    series = samples.reshape(n_blocks, n_channels, per_record).transpose(1, 0, 2).reshape(n_channels, -1)
    series = series[:: -1 if reverse else 1, :n_samples].astype(float)
    name, remark = (data[a:b].decode("ascii", "replace").strip("\0 ") for a, b in ((32, 56), (56, 128)))
    return Recording(series, name, remark)


_BYTES = {">": "big", "<": "little"}


def snapshots(
    series: Float[np.ndarray, "channels samples"],
    rate: float,
    frequencies: Sequence[float],
    *,
    seconds: float = 4.0,
    overlap: float = 0.5,
) -> Complex[np.ndarray, "snapshots frequencies channels"]:
    """Return the complex amplitudes of tones in windows of the series, with the time factor exp(i omega t).

    Args:
        series: Samples of every channel.
        rate: Samples per second; 1500 for the vertical array of SWellEx-96.
        frequencies: Tones in Hz, of a source at rest; for a moving one give the frequencies that arrive.
        seconds: Length of a window (Hamming's); its inverse is the resolution in Hz.
        overlap: Share of a window that the next one covers.

    Example:
        >>> time = np.arange(3000) / 1500.0
        >>> snapshots(np.cos(2 * np.pi * 100.0 * time)[None], 1500.0, [100.0], seconds=1.0).real.round(3).ravel()
        array([1., 1., 1.])
    """
    n = round(seconds * rate)
    n_samples = series.shape[1]
    if not (0 <= overlap < 1 and 2 <= n <= n_samples):
        raise ValueError(
            f"a window of {n} samples, overlapping by {overlap}, does not fit {n_samples} samples"
        )
    if max(frequencies) >= rate / 2:
        raise ValueError(f"{max(frequencies)} Hz is not below half the rate, {rate / 2} Hz")
    window = np.hamming(n) / np.hamming(n).sum()
    firsts = np.arange(0, n_samples - n + 1, max(1, round(n * (1 - overlap))))
    tones = window * np.exp(-2j * np.pi * np.outer(frequencies, np.arange(n)) / rate)
    return np.stack([2 * tones @ series[:, first : first + n].T for first in firsts])


def covariances(
    amplitudes: Complex[np.ndarray, "snapshots frequencies channels"],
) -> Complex[np.ndarray, "frequencies channels channels"]:
    """Return the sample covariance of the channels at each frequency.

    Example:
        >>> covariances(np.array([[[1.0, 1j]], [[1.0, -1j]]])).round(3).real.tolist()
        [[[1.0, 0.0], [0.0, 1.0]]]
    """
    return np.einsum("sfi,sfj->fij", amplitudes, amplitudes.conj()) / len(amplitudes)


def bartlett_likelihood(
    covariance: Complex[np.ndarray, "frequencies channels channels"],
    n_snapshots: float,
    build: Callable[..., Environment],
    frequencies: Sequence[float],
) -> Callable[[np.ndarray], tuple[float, np.ndarray]]:
    """Return the log-likelihood of parameters, with its gradient, for a source of unknown level and phase.

    In every snapshot and at every frequency the array measures a complex amplitude times the pressures, plus noise that
    is alike and independent on all hydrophones. With amplitudes and the noise's variance at their best the logarithm is
    -n h log(tr R - p* R p / |p|^2), summed over frequencies (h hydrophones, n snapshots).

    Args:
        covariance: Of the channels, in the order of ``build``'s hydrophones.
        n_snapshots: Independent ones; windows that overlap by half count for less than one.
        build: Makes the environment of the parameters.
        frequencies: In Hz, those of the covariances.

    Example:
        >>> from isr.ocean import pressure, swellex96
        >>> p = pressure(swellex96(), [49.0])[0]
        >>> seen = np.outer(p, p.conj()) / np.mean(np.abs(p) ** 2) + 0.1 * np.eye(21)
        >>> likelihood = bartlett_likelihood(seen[None], 5, swellex96, [49.0])
        >>> likelihood(np.array([216.5]))[0] > likelihood(np.array([217.5]))[0]
        True
    """
    total = np.trace(covariance, axis1=1, axis2=2).real

    def value_and_gradient(parameters: np.ndarray) -> tuple[float, np.ndarray]:
        p, dp = pressure_and_gradient(parameters, build, frequencies)
        size = np.sum(np.abs(p) ** 2, axis=1)
        seen = np.einsum("fij,fj->fi", covariance, p)
        power = np.sum(p.conj() * seen, axis=1).real / size
        rest, weight = total - power, n_snapshots * p.shape[1]
        slope = 2 * np.einsum("fi,kfi->kf", ((seen - power[:, None] * p) / size[:, None]).conj(), dp).real
        return -weight * float(np.sum(np.log(rest))), weight * np.sum(slope / rest, axis=1)

    return value_and_gradient

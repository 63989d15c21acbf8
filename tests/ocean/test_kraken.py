"""KRAKEN's files: what is written, what is read, and the real programs where they are installed."""

import os
import stat
import struct
import sys

import numpy as np
import pytest
from numpy.testing import assert_allclose

from isr.ocean import (
    FREQUENCIES,
    Array,
    Attenuation,
    Environment,
    HalfSpace,
    Layer,
    kraken_reference,
    pressure,
    swellex96,
)
from isr.ocean.kraken import (
    env_text,
    find_programs,
    flp_text,
    kraken_pressure,
    read_mod,
    read_shd,
)

SMALL = Environment(
    (
        Layer((0, 50, 100), (1500, 1490, 1495)),
        Layer((100, 110), (1550, 1600), 1.5, Attenuation(0.5, "dB/wavelength")),
    ),
    HalfSpace(1800.0, 2.0, Attenuation(0.1, "dB/(km Hz)")),
    source_depth=30.0,
    array=Array((80.0, 20.0), 5000.0, tilt=2.0),
    max_phase_speed=1700.0,
)


def test_the_environment_file_says_what_the_environment_holds():
    lines = env_text(SMALL, 100.0, 20).splitlines()
    assert lines[:4] == ["'isr'", "100", "2", "'CVM'"]
    assert lines[4] == "135 0.0 100"  # 100 m at 20 points in 14.9 m
    assert lines[5:8] == ["  0 1500 0.0 1 0 0.0 /", "  50 1490 0.0 1 0 0.0 /", "  100 1495 0.0 1 0 0.0 /"]
    assert lines[8] == "13 0.0 110"
    top, bottom = ([float(v) for v in line.split()[:-1]] for line in lines[9:11])
    assert_allclose(top, [100, 1550, 0, 1.5, 0.5 * 100 / 1550, 0], rtol=1e-9)
    assert_allclose(bottom, [110, 1600, 0, 1.5, 0.5 * 100 / 1600, 0], rtol=1e-9)
    assert lines[11:13] == ["'A' 0.0", "  110 1800 0.0 2 0.01 0.0 /"]
    assert lines[13] == "0 1700"
    assert float(lines[14]) == pytest.approx(SMALL.array.ranges.max() / 1000)
    assert lines[15:] == ["1", "30 /", "2", "20 80 /"]


def test_a_rigid_bottom_has_no_half_space_line():
    lines = env_text(SMALL.replace(bottom="rigid", max_phase_speed=None), 100.0).splitlines()
    assert lines[11] == "'R' 0.0"
    assert lines[12] == "0 1000000000"


def test_the_field_file_asks_for_every_range_of_a_tilted_array_and_no_offsets():
    lines = flp_text(SMALL).splitlines()
    assert lines[:3] == ["/", "'RA  '", "9999"]
    assert lines[3:6] == ["1", "0 /", "2"]
    ranges = [float(v) for v in lines[6].split()[:-1]]
    assert_allclose(ranges, [5.0, 5.0 + 0.06 * np.tan(np.deg2rad(2.0))], rtol=1e-9)
    assert lines[7:] == ["1", "30 /", "2", "20 80 /", "2", "0 0 /"]


def write_records(path, words, records):
    """Direct-access Fortran: every record padded to ``words`` four-byte words."""
    path.write_bytes(b"".join(record.ljust(4 * words, b"\0") for record in records))


def shade_records(words, frequencies, source, receivers, ranges, field):
    header = struct.pack("<i", words) + b"a title".ljust(80)
    counts = struct.pack(
        "<7i2d", len(frequencies), 1, 1, 1, 1, len(receivers), len(ranges), frequencies[0], 0.0
    )
    return [
        header,
        b"rectilin  ",
        counts,
        np.array(frequencies, "<f8").tobytes(),
        np.zeros(1, "<f8").tobytes(),
        np.zeros(1, "<f8").tobytes(),
        np.zeros(1, "<f8").tobytes(),
        np.array([source], "<f4").tobytes(),
        np.array(receivers, "<f4").tobytes(),
        np.array(ranges, "<f8").tobytes(),
        *(row.astype("<c8").tobytes() for row in field),
    ]


def test_a_shade_file_is_read_record_by_record(tmp_path):
    field = (np.arange(6) + 1j * np.arange(6)[::-1]).reshape(3, 2)
    records = shade_records(41, [50.0], 30.0, [10, 20, 40], [1000, 2000], field)
    write_records(tmp_path / "run.shd", 41, records)
    found = read_shd(tmp_path / "run.shd")
    assert found.title == "a title"
    assert_allclose(found.frequencies, [50.0])
    assert_allclose(found.source_depths, [30.0])
    assert_allclose(found.receiver_depths, [10, 20, 40])
    assert_allclose(found.ranges, [1000, 2000])
    assert found.pressure.shape == (1, 1, 1, 3, 2)
    assert_allclose(found.pressure[0, 0, 0], field)


def test_a_short_shade_file_is_refused(tmp_path):
    field = np.ones((3, 2))
    records = shade_records(41, [50.0], 30.0, [10, 20, 40], [1000, 2000], field)
    write_records(tmp_path / "run.shd", 41, records[:-1])
    with pytest.raises(ValueError, match="shorter than its header says"):
        read_shd(tmp_path / "run.shd")
    (tmp_path / "text.shd").write_text("this is no shade file, " * 20)
    with pytest.raises(ValueError, match="is not a KRAKEN mode or shade file"):
        read_shd(tmp_path / "text.shd")


@pytest.mark.parametrize("words", [32, 33])
def test_a_mode_file_is_read_for_every_frequency(tmp_path, words):
    rng = np.random.default_rng(0)
    depths = np.array([10.0, 30.0, 50.0], "<f4")
    sets = []
    for n_modes in (4, 40):  # the second needs several records of wavenumbers
        sets.append(
            (rng.normal(size=(n_modes, 3)) + 0j, rng.normal(size=n_modes) + 1j * rng.normal(size=n_modes))
        )
    records = [
        struct.pack("<i", words) + b"modes".ljust(80) + struct.pack("<4i", 2, 2, 3, 3),
        struct.pack("<i8si8s", 100, b"ACOUSTIC", 20, b"ACOUSTIC"),
        np.array([[0.0, 1.0], [100.0, 1.5]], "<f4").tobytes(),
        np.array([50.0, 75.0], "<f8").tobytes(),
        depths.tobytes(),
    ]
    for shapes, wavenumbers in sets:
        records += [struct.pack("<i", len(shapes)), b"V" + bytes(24) + b"A" + bytes(24)]
        records += [row.astype("<c8").tobytes() for row in shapes]
        each = words // 2
        records += [
            wavenumbers[i : i + each].astype("<c8").tobytes() for i in range(0, len(wavenumbers), each)
        ]
    write_records(tmp_path / "run.mod", words, records)
    found = read_mod(tmp_path / "run.mod")
    assert found.title == "modes"
    assert_allclose(found.frequencies, [50.0, 75.0])
    assert_allclose(found.depths, depths)
    assert_allclose(found.layer_depths, [0, 100])
    assert_allclose(found.densities, [1, 1.5])
    for i, (shapes, wavenumbers) in enumerate(sets):
        assert_allclose(found.shapes[i], shapes, rtol=1e-6)
        assert_allclose(found.wavenumbers[i], wavenumbers, rtol=1e-6)


STAND_IN = """#!{python}
import pathlib, struct, sys
root = pathlib.Path(sys.argv[1])
if "kraken" in sys.argv[0]:
    assert root.with_suffix(".env").read_text().startswith("'isr'")
    root.with_suffix(".mod").write_bytes(b"modes")
elif root.with_suffix(".mod").exists() and {works}:
    # As FIELD does: every list it reads is sorted, the offsets too, and offset i goes with depth i.
    rows = root.with_suffix(".flp").read_text().splitlines()
    lists = [sorted(float(v) for v in row.split()[:-1]) for row in rows[4::2]]
    _, ranges, _, depths, offsets = lists
    assert len(offsets) == len(depths)
    words, n, m = 82, len(depths), len(ranges)
    records = [struct.pack("<i", words) + b"stand-in".ljust(80), b"", struct.pack("<7i", 1, 1, 1, 1, 1, n, m)]
    records += [struct.pack("<d", 1.0), b"", b"", b"", struct.pack("<f", 30), struct.pack(f"<{{n}}f", *depths),
                struct.pack(f"<{{m}}d", *ranges)]
    for z, o in zip(depths, offsets):
        field = [v for r in ranges for v in (z, 1000 * r + o - 5000)]
        records.append(struct.pack(f"<{{2 * m}}f", *field))
    root.with_suffix(".shd").write_bytes(b"".join(r.ljust(4 * words, bytes(1)) for r in records))
"""


def install(directory, monkeypatch, works=True):
    for name in ("kraken.exe", "field.exe"):
        path = directory / name
        path.write_text(STAND_IN.format(python=sys.executable, works=works))
        path.chmod(path.stat().st_mode | stat.S_IEXEC)
    monkeypatch.setenv("PATH", str(directory), prepend=os.pathsep)


@pytest.mark.parametrize("tilt", [2.0, 0.0, -1.0])
def test_every_hydrophone_gets_the_pressure_at_its_own_depth_and_range(tmp_path, monkeypatch, tilt):
    install(tmp_path, monkeypatch)
    tilted = SMALL.replace(array=Array((80.0, 20.0, 50.0, 35.0), 5000.0, tilt=tilt))
    found = pressure(tilted, [50.0, 100.0], engine="kraken")
    expected = np.array(tilted.array.depths) + 1j * (tilted.array.ranges - tilted.array.range)
    assert_allclose(found, np.tile(expected, (2, 1)), rtol=1e-6, atol=1e-6)


def test_a_program_that_writes_nothing_is_reported(tmp_path, monkeypatch):
    install(tmp_path, monkeypatch, works=False)
    with pytest.raises(RuntimeError, match=r"field.exe wrote no .shd file; its last words were"):
        kraken_pressure(SMALL, [50.0])


def test_missing_programs_are_asked_for(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        FileNotFoundError, match=r"needs kraken.exe and field.exe .* on PATH; .* engine='modes'"
    ):
        pressure(SMALL, [50.0], engine="kraken")


@pytest.mark.skipif(find_programs() is None, reason="kraken.exe and field.exe are not on PATH")
def test_the_real_programs_reproduce_the_reference():
    rows = kraken_reference()[: 7 * 21]
    expected = (rows[:, 6] + 1j * rows[:, 7]).reshape(7, 21)
    found = kraken_pressure(swellex96(*rows[0, :4]), FREQUENCIES, points_per_wavelength=40)
    assert np.linalg.norm(found - expected) / np.linalg.norm(expected) < 3e-3

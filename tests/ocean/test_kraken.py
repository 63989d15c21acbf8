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
    Mesh,
    NoModesError,
    kraken,
    kraken_reference,
    pressure,
    swellex96,
)
from isr.ocean.kraken import (
    ProgramError,
    env_text,
    find_programs,
    flp_text,
    kraken_pressure,
    read_mod,
    read_shd,
)
from ocean.waveguides import CASES, frozen

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
# Follows the programs' file rules: records of equal length, and FIELD sorts every list it reads, the offsets too.
import os, pathlib, struct, sys, time
does, root = os.environ.get("STAND_IN_DOES", "works"), pathlib.Path(sys.argv[1])
if "kraken" in pathlib.Path(sys.argv[0]).name:
    assert root.with_suffix(".env").read_text().startswith("'isr'")
    n = 0 if does == "finds no modes" else 1
    records = [struct.pack("<i", 22) + b"modes".ljust(80) + struct.pack("<4i", 1, 1, 1, 1)[:4],
               b"", struct.pack("<2f", 0, 1), struct.pack("<d", 1.0), struct.pack("<f", 10.0), struct.pack("<i", n),
               b"", *[struct.pack("<2f", 1, 0)] * n, struct.pack("<2f", 1, 0)]
    data = bytearray(b"".join(r.ljust(88, bytes(1)) for r in records))
    data[84:100] = struct.pack("<4i", 1, 1, 1, 1)
    root.with_suffix(".mod").write_bytes(data)
    if does == "hangs":
        time.sleep(30)
    if does == "is told of an error":
        root.with_suffix(".prt").write_text(" *** FATAL ERROR ***\\n Generated by READIN\\n")
    sys.exit(3 * (does == "ends badly"))
elif root.with_suffix(".mod").exists() and does != "writes nothing":
    rows = root.with_suffix(".flp").read_text().splitlines()
    lists = [sorted(float(v) for v in row.split()[:-1]) for row in rows[4::2]]
    _, ranges, _, depths, offsets = lists
    assert len(offsets) == len(depths)
    words, n, m = 82, len(depths), len(ranges)
    records = [struct.pack("<i", words) + b"stand-in".ljust(80), b"", struct.pack("<7i", 1, 1, 1, 1, 1, n, m)]
    records += [struct.pack("<d", 1.0), b"", b"", b"", struct.pack("<f", 30), struct.pack(f"<{{n}}f", *depths),
                struct.pack(f"<{{m}}d", *ranges)]
    for z, o in zip(depths, offsets):
        field = [v for r in ranges for v in (z, 1000 * r + o - {centre})]
        records.append(struct.pack(f"<{{2 * m}}f", *field))
    root.with_suffix(".shd").write_bytes(b"".join(r.ljust(4 * words, bytes(1)) for r in records))
"""


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    """Programs on PATH that give the depth and the range (less ``centre``) of every hydrophone as its pressure."""

    def install(does="works", centre=5000):
        for name in ("kraken.exe", "krakenc.exe", "field.exe"):
            path = tmp_path / name
            path.write_text(STAND_IN.format(python=sys.executable, centre=centre))
            path.chmod(path.stat().st_mode | stat.S_IEXEC)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
        monkeypatch.setenv("STAND_IN_DOES", does)

    return install


@pytest.mark.parametrize("tilt", [2.0, 0.0, -1.0])
def test_every_hydrophone_gets_the_pressure_at_its_own_depth_and_range(stand_in, tilt):
    stand_in()
    tilted = SMALL.replace(array=Array((80.0, 20.0, 50.0, 35.0), 5000.0, tilt=tilt))
    found = pressure(tilted, [50.0, 100.0], engine="kraken")
    expected = np.array(tilted.array.depths) + 1j * (tilted.array.ranges - tilted.array.range)
    assert_allclose(found, np.tile(expected, (2, 1)), rtol=1e-6, atol=1e-6)


REFERENCES = list(dict.fromkeys(map(tuple, kraken_reference()[:, :4])))


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("parameters", REFERENCES, ids=lambda p: f"tilt {p[2]:.2f}")
def test_the_tilt_of_every_reference_reaches_the_right_hydrophone(stand_in, parameters, sign):
    stand_in(centre=3000)
    m1, m2, m3, m4 = parameters
    leaning = swellex96(m1, m2, sign * m3, m4)
    density = leaning.density_at(leaning.source_depth)
    expected = np.array(leaning.array.depths) + 1j * (leaning.array.ranges - 3000.0)
    assert_allclose(pressure(leaning, [112.0], engine="kraken")[0] * density, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("does", "error", "message"),
    [
        ("writes nothing", ProgramError, r"field.exe wrote no .shd file; its last words were"),
        ("ends badly", ProgramError, r"kraken.* ended with exit code 3; its last words were"),
        ("is told of an error", ProgramError, r"its last words were:\n \*\*\* FATAL ERROR \*\*\*"),
        ("hangs", ProgramError, r"kraken.* was stopped after 0.5 s"),
        ("finds no modes", NoModesError, r"KRAKEN found no mode at 50 Hz within the phase-speed limits"),
    ],
)
def test_a_program_that_fails_is_reported_or_gives_nan(stand_in, monkeypatch, does, error, message):
    stand_in(does)
    monkeypatch.setattr(kraken, "LONGEST_SECONDS", 0.5)
    with pytest.raises(error, match=message):
        pressure(SMALL, [50.0], engine="kraken")
    assert np.isnan(pressure([SMALL], [50.0, 60.0], engine="kraken", on_error="nan")).all()


def test_kraken_gets_twenty_points_per_wavelength_unless_told_otherwise(stand_in, monkeypatch):
    stand_in()
    asked = []
    monkeypatch.setattr(
        kraken, "env_text", lambda e, f, points: asked.append(points) or env_text(e, f, points)
    )
    pressure(SMALL, [50.0], engine="kraken")
    pressure(SMALL, [50.0], engine="kraken", mesh=Mesh(33))
    assert asked == [20.0, 33.0]


def test_missing_programs_are_asked_for(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        FileNotFoundError, match=r"needs krakenc.exe and field.exe .* on PATH .* engine='modes'"
    ):
        pressure(SMALL, [50.0], engine="kraken")


REAL = pytest.mark.skipif(
    find_programs() is None or find_programs("full") is None,
    reason="kraken.exe, krakenc.exe and field.exe (Acoustics Toolbox) are not on PATH",
)


@REAL
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("parameters", REFERENCES, ids=lambda p: f"tilt {p[2]:.2f}")
def test_the_real_programs_lean_as_ours_and_reproduce_the_reference(parameters, sign):
    m1, m2, m3, m4 = parameters
    leaning = swellex96(m1, m2, sign * m3, m4)
    found = kraken_pressure(leaning, FREQUENCIES, points_per_wavelength=40)
    rows = kraken_reference()
    own = rows[(rows[:, :4] == parameters).all(axis=1)]
    ours = pressure(leaning, FREQUENCIES)
    expected = (own[:, 6] + 1j * own[:, 7]).reshape(7, 21) if sign > 0 else ours
    assert np.linalg.norm(found - expected) / np.linalg.norm(expected) < 3e-3
    assert np.linalg.norm(found - ours) / np.linalg.norm(ours) < 3e-3


@REAL
@pytest.mark.parametrize("name", CASES)
def test_the_real_programs_give_what_is_frozen(name):
    environment, frequencies = CASES[name]
    program = "krakenc" if environment.loss == "full" else "kraken"
    found = kraken_pressure(environment, frequencies, points_per_wavelength=40)
    expected = frozen(program)[name]
    assert np.linalg.norm(found - expected) / np.linalg.norm(expected) < 5e-3

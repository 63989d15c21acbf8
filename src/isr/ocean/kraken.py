"""The KRAKEN and FIELD programs as an alternative engine, through their files.

KRAKEN (Porter 1992, Acoustics Toolbox) reads ``root.env``, writes modes to ``root.mod``; FIELD reads those and
``root.flp``, and writes pressures to ``root.shd``. Each frequency is a run of its own, which any version can do.
Binary files are direct-access Fortran: records of equal length, given in four-byte words by the
first integer of the file.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from isr.ocean.environment import DB_PER_NEPER, Attenuation, Environment, HalfSpace
from isr.ocean.modes import NoModesError

_PROGRAMS = {"first order": "kraken", "full": "krakenc"}
LONGEST_SECONDS = 120.0
"""What a program may take for one frequency before it is stopped."""


class ProgramError(RuntimeError):
    """KRAKEN or FIELD failed; the message has its last words."""


def find_programs(loss: str = "first order") -> tuple[str, str] | None:
    """Return the paths of KRAKEN (KRAKENC for loss in full) and FIELD, or None if one of them is not on PATH."""
    found = [shutil.which(f"{name}.exe") or shutil.which(name) for name in (_PROGRAMS[loss], "field")]
    return (found[0], found[1]) if found[0] and found[1] else None


def kraken_pressure(
    environment: Environment,
    frequencies: Sequence[float] | np.ndarray,
    *,
    points_per_wavelength: float = 20.0,
    on_error: Literal["raise", "nan"] = "raise",
) -> np.ndarray:
    """Return what KRAKEN and FIELD compute, shape (frequencies, hydrophones); NaN where they fail, if wanted."""
    programs = find_programs(environment.loss)
    if programs is None:
        raise FileNotFoundError(
            f"engine='kraken' needs {_PROGRAMS[environment.loss]}.exe and field.exe (Acoustics Toolbox) on PATH for "
            f"loss={environment.loss!r}; install them or use engine='modes'"
        )
    order = np.argsort(environment.array.depths, kind="stable")
    which = np.unique(environment.array.ranges, return_inverse=True)[1][order]
    out = np.empty((len(frequencies), len(order)), dtype=complex)
    with tempfile.TemporaryDirectory(prefix="kraken-") as directory:
        root = Path(directory) / "run"
        for row, frequency in enumerate(frequencies):
            text = env_text(environment, float(frequency), points_per_wavelength)
            root.with_suffix(".env").write_text(text)
            root.with_suffix(".flp").write_text(flp_text(environment))
            try:
                _run(programs[0], root, ".mod")
                if not len(read_mod(root.with_suffix(".mod")).wavenumbers[0]):
                    raise NoModesError(
                        f"KRAKEN found no mode at {frequency:g} Hz within the phase-speed limits"
                    )
                _run(programs[1], root, ".shd")
                field = read_shd(root.with_suffix(".shd"))
            except (ProgramError, ValueError):
                if on_error == "raise":
                    raise
                out[row] = np.nan
                continue
            out[row, order] = field.pressure[0, 0, 0, np.arange(len(order)), which]
    return out / environment.density_at(environment.source_depth)


def _run(program: str, root: Path, product: str) -> None:
    report = root.with_suffix(".prt")
    for left in (root.with_suffix(product), report):
        left.unlink(missing_ok=True)
    try:
        done = subprocess.run(
            [program, root.name], cwd=root.parent, capture_output=True, text=True, errors="replace", check=False,
            timeout=LONGEST_SECONDS, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise ProgramError(f"{program} was stopped after {LONGEST_SECONDS:g} s") from None
    last = (report.read_text(errors="replace") if report.exists() else "") + done.stdout + done.stderr
    wrote = root.with_suffix(product).exists()
    if done.returncode or not wrote or "FATAL ERROR" in last:
        what = f"ended with exit code {done.returncode}" if wrote else f"wrote no {product} file"
        raise ProgramError(f"{program} {what}; its last words were:\n{last[-1000:]}")


def env_text(environment: Environment, frequency: float, points_per_wavelength: float = 20.0) -> str:
    """Return KRAKEN's environment file: linear speed between knots, vacuum above, attenuation in dB/m."""
    lines = ["'isr'", f"{frequency:.10g}", f"{len(environment.layers)}", "'CVM'"]
    for layer in environment.layers:
        wavelength = min(layer.speeds) / frequency
        n = int(np.ceil((layer.bottom - layer.top) * points_per_wavelength / wavelength))
        lines.append(f"{max(n, 5)} 0.0 {layer.bottom:.10g}")
        for depth, speed in zip(layer.depths, layer.speeds, strict=True):
            loss = _db_per_metre(layer.attenuation, frequency, speed)
            lines.append(f"  {depth:.10g} {speed:.10g} 0.0 {layer.density:.10g} {loss:.10g} 0.0 /")
    under = environment.bottom
    if isinstance(under, HalfSpace):
        loss = _db_per_metre(under.attenuation, frequency, under.speed)
        lines += [
            "'A' 0.0",
            f"  {environment.layers[-1].bottom:.10g} {under.speed:.10g} 0.0 {under.density:.10g} {loss:.10g} 0.0 /",
        ]
        fastest = min(under.speed, environment.max_phase_speed or under.speed)
    else:
        lines.append("'R' 0.0")
        fastest = environment.max_phase_speed or 1e9
    lines.append(f"{environment.min_phase_speed:.10g} {fastest:.10g}")
    lines.append(f"{environment.array.ranges.max() / 1000:.10g}")
    lines += _vector([environment.source_depth]) + _vector(sorted(environment.array.depths))
    return "\n".join(lines) + "\n"


def flp_text(environment: Environment) -> str:
    """Return FIELD's parameter file: point source, every depth at every range of a hydrophone.

    FIELD sorts each list it reads, the range offsets of a tilted array too, so an offset that falls with depth would
    reach the wrong hydrophone. Ranges and depths are written ascending and without offsets; the pairs that belong to
    hydrophones are picked from the field.
    """
    array = environment.array
    lines = ["/", "'RA  '", "9999"]
    lines += _vector([0.0]) + _vector(np.unique(array.ranges) / 1000) + _vector([environment.source_depth])
    lines += _vector(sorted(array.depths)) + _vector([0.0] * len(array.depths))
    return "\n".join(lines) + "\n"


def _vector(values: Sequence[float] | np.ndarray) -> list[str]:
    return [f"{len(values)}", " ".join(f"{value:.10g}" for value in values) + " /"]


def _db_per_metre(attenuation: Attenuation, frequency: float, speed: float) -> float:
    return DB_PER_NEPER * attenuation.nepers_per_metre(frequency, speed)


@dataclass(frozen=True)
class ModeFile:
    """Contents of a ``.mod`` file, one entry per frequency in ``wavenumbers`` and ``shapes`` (modes, depths)."""

    title: str
    frequencies: np.ndarray
    depths: np.ndarray
    layer_depths: np.ndarray
    densities: np.ndarray
    wavenumbers: list[np.ndarray]
    shapes: list[np.ndarray]


@dataclass(frozen=True)
class ShadeFile:
    """Contents of a ``.shd`` file; ``pressure`` is (frequencies, bearings, source depths, receiver depths, ranges)."""

    title: str
    frequencies: np.ndarray
    source_depths: np.ndarray
    receiver_depths: np.ndarray
    ranges: np.ndarray
    pressure: np.ndarray


def read_mod(path: str | Path) -> ModeFile:
    """Read the modes KRAKEN wrote."""
    data, words = _records(path)
    title, counts = _title(data), np.frombuffer(data, "<i4", 4, offset=84)
    n_frequencies, n_media, _, n_depths = (int(c) for c in counts)
    media = np.frombuffer(data, "<f4", 2 * n_media, offset=8 * words).reshape(-1, 2)
    frequencies = np.frombuffer(data, "<f8", n_frequencies, offset=12 * words)
    depths = np.frombuffer(data, "<f4", n_depths, offset=16 * words)
    record, wavenumbers, shapes = 5, [], []
    for _ in range(n_frequencies):
        n_modes = int(np.frombuffer(data, "<i4", 1, offset=4 * words * record)[0])
        first = record + 2
        shapes.append(
            np.array([np.frombuffer(data, "<c8", n_depths, 4 * words * (first + m)) for m in range(n_modes)])
        )
        wavenumbers.append(_complex_run(data, words, first + n_modes, n_modes))
        record += 3 + n_modes + (2 * n_modes - 1) // words
    return ModeFile(title, frequencies, depths, media[:, 0], media[:, 1], wavenumbers, shapes)


def _complex_run(data: bytes, words: int, record: int, count: int) -> np.ndarray:
    """Return ``count`` complex numbers that fill as many records as they need, none split between two."""
    each = words // 2
    parts = [
        np.frombuffer(data, "<c8", min(each, count - start), offset=4 * words * (record + start // each))
        for start in range(0, count, each)
    ]
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.complex64)


def read_shd(path: str | Path) -> ShadeFile:
    """Read the pressures FIELD wrote."""
    data, words = _records(path)
    counts = [int(c) for c in np.frombuffer(data, "<i4", 7, offset=8 * words)]
    n_frequencies, n_bearings, _, _, n_sources, n_receivers, n_ranges = counts
    shape = (n_frequencies, n_bearings, n_sources, n_receivers)
    if len(data) < 4 * words * (9 + int(np.prod(shape))) + 8 * n_ranges:
        raise ValueError(f"{path} is shorter than its header says; was FIELD interrupted? Run it again")
    rows = [
        np.frombuffer(data, "<c8", n_ranges, offset=4 * words * (10 + r)) for r in range(int(np.prod(shape)))
    ]
    return ShadeFile(
        title=_title(data),
        frequencies=np.frombuffer(data, "<f8", n_frequencies, offset=12 * words),
        source_depths=np.frombuffer(data, "<f4", n_sources, offset=28 * words),
        receiver_depths=np.frombuffer(data, "<f4", n_receivers, offset=32 * words),
        ranges=np.frombuffer(data, "<f8", n_ranges, offset=36 * words),
        pressure=np.array(rows).reshape(*shape, n_ranges),
    )


def _records(path: str | Path) -> tuple[bytes, int]:
    data = Path(path).read_bytes()
    words = int.from_bytes(data[:4], "little")
    if len(data) < 164 or not 20 < words < 10_000_000:
        raise ValueError(f"{path} is not a KRAKEN mode or shade file: record length {words} words")
    return data, words


def _title(data: bytes) -> str:
    return data[4:84].decode("ascii", errors="replace").strip()

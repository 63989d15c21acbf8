"""Large training sets: parameters from a prior and their pressures, written chunk by chunk as Parquet parts.

A chunk depends only on the seed and its own number, and its file appears whole or not at all. So a run killed at any
moment goes on where it stopped and ends with the same bytes, with any number of workers, on this machine or on
a cluster (``with joblib.parallel_config(backend="dask"): simulate(...)``, given a shared directory).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd

from isr.ocean.environment import Environment
from isr.ocean.field import Engine, pressure
from isr.ocean.modes import DEFAULT_MESH, Mesh
from isr.ocean.swellex import FREQUENCIES, UniformPrior, swellex96
from isr.tables.extras import need
from isr.tables.whole_files import make_folder, write_whole
from isr.tables.workers import as_they_end, progress_bar

_MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Simulation:
    """A finished or unfinished simulation in a directory.

    Attributes:
        directory: Where manifest and parts lie.
        manifest: What was asked for.
    """

    directory: Path
    manifest: dict[str, Any]

    @classmethod
    def open(cls, directory: str | Path) -> Simulation:
        """Return the simulation in ``directory``."""
        path = Path(directory) / _MANIFEST
        if not path.exists():
            raise FileNotFoundError(
                f"no simulation in {directory}: {_MANIFEST} is missing; run simulate first"
            )
        try:
            return cls(Path(directory), dict(json.loads(path.read_text(encoding="utf-8"))))
        except (ValueError, TypeError):
            raise ValueError(f"{path} is damaged; restore it, or simulate into another directory") from None

    @property
    def n_chunks(self) -> int:
        """How many files the rows are divided into."""
        return -(-self.manifest["n"] // self.manifest["chunk_size"])

    def part(self, chunk: int) -> Path:
        """Return the file of one chunk."""
        return self.directory / f"part-{chunk:06d}.parquet"

    def missing(self) -> list[int]:
        """Return the chunks still to be computed; a file that is cut short counts as missing."""
        return [chunk for chunk in range(self.n_chunks) if not _is_whole(self.part(chunk), self._rows(chunk))]

    def chunks(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield parameters (rows, parameters) and complex pressures (rows, frequencies, hydrophones) chunk by chunk.

        Environments that could not be solved are left out.
        """
        names, shape = self.manifest["prior"]["names"], (len(self.manifest["frequencies"]), -1)
        for chunk in range(self.n_chunks):
            table = self._table(chunk)
            good = ~table["failed"].to_numpy()
            values = [
                table[name].combine_chunks().flatten().to_numpy().reshape(len(good), *shape)[good]
                for name in ("pressure_re", "pressure_im")
            ]
            parameters = np.column_stack([table[name].to_numpy() for name in names])[good]
            yield parameters, values[0] + 1j * values[1]

    def load(self) -> tuple[np.ndarray, np.ndarray]:
        """Return all parameters and pressures at once."""
        parameters, pressures = zip(*self.chunks(), strict=True)
        return np.concatenate(parameters), np.concatenate(pressures)

    def failures(self) -> pd.DataFrame:
        """Return the parameters of environments that could not be solved."""
        columns = [*self.manifest["prior"]["names"], "failed"]
        frames = [self._table(chunk, columns).to_pandas() for chunk in range(self.n_chunks)]
        rows = pd.concat(frames, ignore_index=True)
        return rows.loc[rows.pop("failed").to_numpy(dtype=bool)]

    def _table(self, chunk: int, columns: list[str] | None = None) -> Any:
        path = self.part(chunk)
        try:
            return need("pyarrow.parquet").read_table(path, columns=columns, page_checksum_verification=True)
        except FileNotFoundError:
            raise FileNotFoundError(f"{path} is missing; run simulate again to compute it") from None
        except (OSError, need("pyarrow").ArrowInvalid) as error:
            raise ValueError(
                f"{path} is damaged ({error}); delete it and run simulate again, which computes it anew"
            ) from None

    def _rows(self, chunk: int) -> int:
        size = self.manifest["chunk_size"]
        return min(size, self.manifest["n"] - chunk * size)


def simulate(
    n: int,
    directory: str | Path,
    *,
    prior: UniformPrior,
    seed: int = 0,
    frequencies: Sequence[float] = FREQUENCIES,
    build: Callable[..., Environment] = swellex96,
    chunk_size: int = 500,
    mesh: Mesh = DEFAULT_MESH,
    engine: Engine = "modes",
    n_jobs: int = -1,
    progress: bool | None = None,
) -> Simulation:
    """Draw ``n`` parameters from ``prior``, compute their pressures and write them to ``directory``.

    Args:
        n: Number of environments.
        directory: Made if missing; a run found there is continued if it asked for the same things.
        prior: Has ``names``, ``low`` and ``high``; see ``prior(1)`` and ``prior(2)``.
        seed: Fixes every draw.
        frequencies: In Hz.
        build: Makes an environment from one row of parameters; a function that can be imported by name.
        chunk_size: Environments per Parquet part; memory grows with this, not with ``n``.
        mesh: How finely the modes are computed.
        engine: As for ``pressure``.
        n_jobs: Workers, as joblib counts them; the backend is joblib's (threads unless configured).
        progress: Show a progress bar; None for only when standard error is a terminal.
    """
    if n < 1 or chunk_size < 1:
        raise ValueError(f"n and chunk_size must be at least 1, got {n} and {chunk_size}")
    wanted = {
        "format": 1,
        "n": int(n),
        "chunk_size": int(chunk_size),
        "seed": int(seed),
        "prior": asdict(prior),
        "frequencies": [float(f) for f in frequencies],
        "build": f"{build.__module__}.{build.__qualname__}",
        "mesh": asdict(mesh),
        "engine": engine,
    }
    simulation = _claim(Path(directory), json.loads(json.dumps(wanted)))
    todo = simulation.missing()
    jobs = (joblib.delayed(_run_chunk)(simulation, chunk, prior, build, mesh) for chunk in todo)
    with progress_bar(len(todo), "chunks", progress) as advance:
        for _ in as_they_end(jobs, n_jobs=n_jobs, prefer="threads"):
            advance(1)
    return simulation


def _claim(directory: Path, wanted: dict[str, Any]) -> Simulation:
    make_folder(directory)
    path, text = directory / _MANIFEST, json.dumps(wanted, indent=2) + "\n"
    if not path.exists():
        with suppress(FileExistsError):  # of two that begin at the same moment one is first
            write_whole(path, lambda hidden: hidden.write_text(text, encoding="utf-8"), replace=False)
    found = Simulation.open(directory)
    differing = [key for key in wanted if found.manifest.get(key) != wanted[key]]
    if differing:
        detail = "; ".join(
            f"{key}: there {found.manifest.get(key)}, asked {wanted[key]}" for key in differing
        )
        raise ValueError(
            f"{directory} holds another simulation ({detail}); repeat its parameters to continue it, "
            "or choose another directory"
        )
    return found


def _run_chunk(
    simulation: Simulation, chunk: int, prior: UniformPrior, build: Callable[..., Environment], mesh: Mesh
) -> int:
    manifest = simulation.manifest
    rng = np.random.default_rng([manifest["seed"], chunk])
    rows = simulation._rows(chunk)
    parameters = prior.sample(manifest["chunk_size"], rng)[:rows]
    values = pressure(
        [build(*row) for row in parameters],
        manifest["frequencies"],
        mesh=mesh,
        engine=manifest["engine"],
        n_jobs=1,
        progress=False,
        on_error="nan",
    ).reshape(rows, -1)
    pa = need("pyarrow")
    columns = {name: pa.array(parameters[:, i]) for i, name in enumerate(prior.names)}
    columns["failed"] = pa.array(~np.isfinite(values).all(axis=1))
    for name, part in (("pressure_re", np.real(values)), ("pressure_im", np.imag(values))):
        flat = pa.array(np.ascontiguousarray(part, dtype=np.float32).reshape(-1))
        columns[name] = pa.FixedSizeListArray.from_arrays(flat, values.shape[1])
    table = pa.table(columns)
    # A checksum for each page shows damage when it is read; a dictionary of numbers that hardly repeat would be large.
    options: dict[str, Any] = {"write_page_checksum": True, "use_dictionary": False, "compression": "none"}
    write_table = need("pyarrow.parquet").write_table
    write_whole(simulation.part(chunk), lambda hidden: write_table(table, str(hidden), **options))
    return rows


def _is_whole(path: Path, rows: int) -> bool:
    if not path.exists():
        return False
    try:
        return need("pyarrow.parquet").read_metadata(path).num_rows == rows
    except (OSError, need("pyarrow").ArrowInvalid):
        return False

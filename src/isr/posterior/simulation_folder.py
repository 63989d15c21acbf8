"""Simulations on disk: a manifest that says what was asked for, and one Parquet file for each finished chunk.

A file appears whole or not at all, so what a killed run leaves behind can be trusted.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from isr.tables.extras import need
from isr.tables.whole_files import make_folder, write_whole

_MANIFEST = "manifest.json"


class Chunk(NamedTuple):
    """Some rows of x with what the simulator made of them.

    Attributes:
        x: Rows drawn from the prior.
        y: Rows of observations, real or complex; NaN where the simulation failed, no columns if all failed.
        reasons: Why a row failed, None where it did not.
    """

    x: np.ndarray
    y: np.ndarray
    reasons: Sequence[str | None]


@dataclass(frozen=True)
class SimulationFolder:
    """Where the chunks of one simulation lie; made by `claim`."""

    path: Path

    @classmethod
    def claim(cls, path: str | Path, wanted: dict[str, Any]) -> SimulationFolder:
        """Return the folder, made if missing; a `ValueError` says where it holds another simulation than ``wanted``."""
        need("pyarrow")
        folder = cls(Path(path))
        make_folder(folder.path)
        wanted = json.loads(json.dumps(wanted))
        has_chunks = any(folder.path.glob("part-*.parquet"))
        found = folder._manifest()
        if found != wanted and not has_chunks:
            text = json.dumps(wanted, indent=2) + "\n"
            with suppress(FileExistsError):  # of two that begin at the same moment one is first
                write_whole(
                    folder.path / _MANIFEST,
                    lambda hidden: hidden.write_text(text, encoding="utf-8"),
                    replace=found is not None,
                )
            found = folder._manifest()
        if found != wanted:
            raise ValueError(
                f"{path} holds another simulation ({_difference(found or {}, wanted)}); repeat its settings to "
                "continue it, or choose another folder"
            )
        return folder

    def read(self, number: int, n_rows: int) -> Chunk | None:
        """Return the first rows of a chunk; None if its file is missing, damaged or too short."""
        pyarrow, parquet = need("pyarrow"), need("pyarrow.parquet")
        try:
            table = parquet.read_table(self._part(number), page_checksum_verification=True)
        except (OSError, pyarrow.ArrowInvalid):
            return None
        if table.num_rows < n_rows:
            return None
        table = table.slice(0, n_rows)
        x, y, imaginary = (_values(table, start) for start in ("x.", "y.", "im(y)."))
        if imaginary.size:
            # Arithmetic would lose the sign of zeros and turn infinities into NaN.
            y = np.stack([y, imaginary], axis=-1).view(complex)[..., 0]
        return Chunk(x, y, table["reason"].to_pylist())

    def write(self, number: int, chunk: Chunk, names: Sequence[str]) -> None:
        """Write a chunk, one column for each variable."""
        pyarrow = need("pyarrow")
        columns = {f"x.{name}": column for name, column in zip(names, chunk.x.T, strict=True)}
        columns |= {f"y.{i + 1}": column for i, column in enumerate(np.real(chunk.y).T)}
        if np.iscomplexobj(chunk.y):
            columns |= {f"im(y).{i + 1}": column for i, column in enumerate(np.imag(chunk.y).T)}
        arrays = {key: pyarrow.array(np.ascontiguousarray(column)) for key, column in columns.items()}
        table = pyarrow.table(arrays | {"reason": pyarrow.array(chunk.reasons, pyarrow.string())})
        write_whole(self._part(number), lambda hidden: write_parquet(table, hidden))

    def _part(self, number: int) -> Path:
        return self.path / f"part-{number:06d}.parquet"

    def _manifest(self) -> dict[str, Any] | None:
        """What was asked for; None where there is no manifest, empty where it is damaged."""
        try:
            content = json.loads((self.path / _MANIFEST).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except ValueError:
            return {}
        return content if isinstance(content, dict) else {}


def _difference(found: dict[str, Any], wanted: dict[str, Any]) -> str:
    if not found:
        return f"its {_MANIFEST} is missing or damaged"
    differing = [key for key in wanted if found.get(key) != wanted[key]]
    return "; ".join(f"{key}: there {found.get(key)!r}, asked {wanted[key]!r}" for key in differing)


def write_parquet(table: Any, path: Path, **options: Any) -> None:
    """Write an Arrow table as Parquet with a checksum for each page, so that damage is seen when it is read."""
    words = [field.name for field in table.schema if str(field.type) == "string"]
    # A dictionary of numbers that hardly ever repeat makes a file half as large again.
    need("pyarrow.parquet").write_table(
        table, str(path), write_page_checksum=True, use_dictionary=words, **options
    )


def _values(table: Any, start: str) -> np.ndarray:
    columns = [table[name].to_numpy() for name in table.column_names if name.startswith(start)]
    return np.column_stack(columns) if columns else np.empty((table.num_rows, 0))

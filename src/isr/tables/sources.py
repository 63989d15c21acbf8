"""Rows that stay where they are: Parquet files and arrays on disk, read a stretch at a time.

A source knows how many rows it has and reads any stretch of them. It holds no rows itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from isr.tables.arrays import not_a_time
from isr.tables.extras import need
from isr.tables.files import match_columns
from isr.tables.names import check_names


@dataclass(frozen=True)
class ParquetRows:
    """Columns of a Parquet file; memory is needed for one of its row groups, which its writer chose."""

    path: Path
    names: tuple[str, ...]

    def __post_init__(self) -> None:
        check_names(self.names)

    @cached_property
    def _ends(self) -> np.ndarray:
        about = _parquet(self.path).metadata
        return np.cumsum([about.row_group(i).num_rows for i in range(about.num_row_groups)])

    @property
    def n_rows(self) -> int:
        """How many rows there are."""
        return int(self._ends[-1]) if len(self._ends) else 0

    def read(self, start: int, stop: int) -> Float[np.ndarray, "rows columns"]:
        """Return the rows from ``start`` up to ``stop`` as doubles."""
        first, last = (int(np.searchsorted(self._ends, row, side="right")) for row in (start, stop - 1))
        with _parquet(self.path) as file:
            table = file.read_row_groups(list(range(first, last + 1)), columns=list(self.names))
            table = table.slice(start - (int(self._ends[first - 1]) if first else 0), stop - start)
            return np.column_stack([table[name].to_numpy().astype(np.float64) for name in self.names])


@dataclass(frozen=True)
class ArrayRows:
    """Columns of an array that slices, called x1, x2, ... after ``letter``."""

    array: Any
    columns: tuple[int, ...]
    letter: str = "x"

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(f"{self.letter}{i + 1}" for i in range(len(self.columns)))

    @property
    def n_rows(self) -> int:
        """How many rows there are."""
        return int(self.array.shape[0])

    def read(self, start: int, stop: int) -> Float[np.ndarray, "rows columns"]:
        """Return the rows from ``start`` up to ``stop`` as doubles."""
        return np.asarray(self.array[start:stop], dtype=np.float64)[:, list(self.columns)]


RowSource = ParquetRows | ArrayRows


def open_rows(
    source: Any, columns: Sequence[str] | Sequence[int] | None = None, *, letter: str = "x"
) -> RowSource:
    """Return a source of rows: a Parquet file, a ``.npy`` file mapped into memory, or any array that slices.

    ``columns`` are names or patterns such as ``p*`` for Parquet and numbers for an array, whose columns are called
    x1, x2, ... after ``letter``; all when None.
    """
    if isinstance(source, str | Path):
        path = Path(source)
        if not path.exists():
            raise FileNotFoundError(f"there is no file {path}")
        if path.suffix in (".parquet", ".pq"):
            schema = _parquet(path).schema_arrow
            wanted = schema.names
            if columns is not None:
                wanted = match_columns(wanted, [str(c) for c in columns], source=path)
            _refuse_unless_numeric(schema, wanted, path)
            return ParquetRows(path, tuple(wanted))
        if path.suffix != ".npy":
            raise ValueError(f"{path} is neither a Parquet file (.parquet) nor a NumPy array (.npy)")
        source = np.load(path, mmap_mode="r", allow_pickle=False)
    if len(getattr(source, "shape", ())) != 2 or not hasattr(source, "__getitem__"):
        raise TypeError(
            f"a source of rows is a path or an array with rows and columns, got {type(source).__name__}"
        )
    if np.dtype(getattr(source, "dtype", float)).kind in "mM":
        raise not_a_time(source.dtype, name=f"{letter}1", what="the array")
    n = source.shape[1]
    for c in columns or ():
        if isinstance(c, bool) or not isinstance(c, int | np.integer) or not 0 <= c < n:
            raise ValueError(f"columns of an array are numbers from 0 to {n - 1}, got {c!r}")
    return ArrayRows(source, tuple(range(n)) if columns is None else tuple(int(c) for c in columns), letter)


def _parquet(path: Path) -> Any:
    pyarrow, parquet = need("pyarrow"), need("pyarrow.parquet")
    try:
        return parquet.ParquetFile(path)
    except (pyarrow.ArrowInvalid, OSError) as error:
        raise ValueError(f"{path} is not a Parquet file, or damaged: {error}") from None


def _refuse_unless_numeric(schema: Any, names: Sequence[str], path: Path) -> None:
    types = need("pyarrow.types")
    kinds = (types.is_integer, types.is_floating, types.is_decimal, types.is_boolean)
    for name in names:
        kind = schema.field(name).type
        if types.is_temporal(kind):
            raise not_a_time(kind, name=name, what=str(path))
        if not any(is_kind(kind) for is_kind in kinds):
            raise TypeError(
                f"column {name!r} of {path} is not numeric: its type is {kind}; convert it to numbers or leave it out"
            )

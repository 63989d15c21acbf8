"""Files of rows: CSV, Parquet and NumPy files as pandas frames, and the columns a user names in them.

Rows are counted from 1 as in a spreadsheet, the line with the names not counted.
"""

from __future__ import annotations

import csv
import fnmatch
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from isr.tables.arrays import refuse_times
from isr.tables.extras import need
from isr.tables.names import did_you_mean, quoted
from isr.tables.tables import real_columns

if TYPE_CHECKING:
    import pandas as pd

SEPARATORS = ",;\t"
MOST_COLUMNS = 20_000
"""Of a CSV file; far more than a model can be fitted to, and few enough to be read in a moment."""
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


def read_columns(path: str | Path, names: Sequence[str]) -> pd.DataFrame:
    """Return the named columns of a file, as `read_rows` and `numeric_columns` do."""
    return numeric_columns(read_rows(path), names, source=path)


def read_rows(path: str | Path) -> pd.DataFrame:
    """Return the rows of a file as a frame with named columns; how its name ends says what it is.

    CSV (``.csv``, ``.tsv``, ``.txt``) needs a first line of names; commas, semicolons and tabs are told apart. Of a
    NumPy archive (``.npz``) a one-dimensional array is a column, a matrix ``a`` the columns a1, a2, …, and a complex
    column ``p`` becomes ``p_re`` and ``p_im``.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "rows.csv"
        >>> _ = path.write_text("depth;speed\\n200;1500\\n210;1510\\n")
        >>> read_rows(path).columns.tolist()
        ['depth', 'speed']
        >>> read_columns(path, ["s*"])["speed"].tolist()
        [1500.0, 1510.0]
    """
    source = Path(path)
    if source.is_dir():
        raise IsADirectoryError(f"{source} is a folder; name the file inside it")
    if not source.exists():
        folder = source.parent
        similar = did_you_mean(source.name, [p.name for p in folder.iterdir()]) if folder.is_dir() else ""
        lost = similar if folder.is_dir() else f", and no folder {folder}"
        raise FileNotFoundError(f"there is no file {source}{lost}; check its name and folder")
    if source.suffix.lower() not in _READERS:
        raise ValueError(
            f"cannot tell what {source} holds from its ending {source.suffix!r}; known: {', '.join(_READERS)}"
        )
    if not source.stat().st_size:
        raise ValueError(f"{source} is empty; it needs a line of column names and rows below it")
    frame = _READERS[source.suffix.lower()](source)
    if frame.empty:
        raise ValueError(
            f"{source} has {len(frame)} rows and {frame.shape[1]} columns; there is nothing to read"
        )
    return frame


def numeric_columns(frame: pd.DataFrame, names: Sequence[str], *, source: str | Path) -> pd.DataFrame:
    """Return the named columns as finite doubles, in the order of ``names``; ``p*`` stands for all that begin with
    p.
    """
    import pandas as pd

    chosen = match_columns(list(frame.columns), names, source=source)
    return pd.DataFrame({name: _numbers(frame[name], name, source) for name in chosen})


def match_columns(known: Sequence[str], names: Sequence[str], *, source: str | Path) -> list[str]:
    """Return the columns of ``source`` that names and patterns such as ``p*`` stand for, none twice.

    Example:
        >>> match_columns(["depth", "p1", "p2"], ["p*"], source="rows.csv")
        ['p1', 'p2']
    """
    found: dict[str, None] = {}
    exact = set(known)
    for name in names:
        matches = [name] if name in exact else [k for k in known if fnmatch.fnmatchcase(k, name)]
        if not matches:
            raise ValueError(
                f"{source} has no column {name!r}{did_you_mean(name, known)}; its columns are {quoted(list(known))}"
            )
        found |= dict.fromkeys(matches)
    return list(found)


def _numbers(column: Any, name: str, source: str | Path) -> np.ndarray:
    import pandas as pd

    refuse_times(column, name=name, what=str(source))
    converted: Any = pd.to_numeric(column, errors="coerce")
    values = converted.to_numpy(dtype=float, na_value=np.nan)
    bad = np.isnan(values) & column.notna().to_numpy()
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        given = str(column.iloc[row])
        whole, comma, rest = given.strip().lstrip("+-").partition(",")
        is_decimal_comma = comma and whole.isdigit() and rest.isdigit()
        raise ValueError(
            f"column {name!r} of {source} is not numeric: row {row + 1} holds {given!r} "
            f"({int(bad.sum())} of {len(values)} rows are like that); "
            + (
                "write decimal points, not commas"
                if is_decimal_comma
                else "correct it or leave the column out"
            )
        )
    missing = ~np.isfinite(values)
    if missing.any():
        row = int(np.flatnonzero(missing)[0])
        what = "no value" if np.isnan(values[row]) else "an infinite value"
        raise ValueError(
            f"column {name!r} of {source} has {what} in row {row + 1} ({int(missing.sum())} of {len(values)} rows "
            "are like that); drop these rows or fill them in"
        )
    return values


# CSV ----------------------------------------------------------------------------------------------------------------


def as_cell(name: str) -> str:
    """Return a name as it may stand in a spreadsheet: one that would be taken for a formula has an apostrophe first.

    Example:
        >>> as_cell("=2+3"), as_cell("depth"), from_cell(as_cell("=2+3"))
        ("'=2+3", 'depth', '=2+3')
    """
    return f"'{name}" if name.lstrip("'").startswith(_FORMULA_STARTS) else name


def from_cell(text: str) -> str:
    """Return the name that `as_cell` wrote."""
    is_marked = text.startswith("'") and text.lstrip("'").startswith(_FORMULA_STARTS)
    return text[1:] if is_marked else text


def _read_csv(path: Path) -> pd.DataFrame:
    import pandas as pd

    try:
        separator, n_names = _header(path)
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)  # more fields in rows than in the header
            frame = pd.read_csv(
                path, sep=separator, encoding="utf-8-sig", index_col=False, skipinitialspace=True, low_memory=False
            )  # fmt: skip
    except (pd.errors.ParserError, pd.errors.ParserWarning) as error:
        _refuse_ragged(path, separator, n_names)
        raise ValueError(f"{path} cannot be read as a table: {error}") from None
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise ValueError(
            f"{path} is not UTF-8 text (byte 0x{byte:02x} at {error.start}); save it as UTF-8"
        ) from None
    frame.columns = [from_cell(str(c).strip()) for c in frame.columns]
    if len(frame) and frame.iloc[:, -1].isna().any():  # rows that are too short end in missing values
        _refuse_ragged(path, separator, n_names)
    return frame


def _header(path: Path) -> tuple[str, int]:
    """The separator of a CSV file, and how many names its first line has, once they are known to be names."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        first = next((line for line in file if line.strip()), "")
    if "\x00" in first:
        raise ValueError(f"{path} is a binary file, not text; give it the ending of what it is")
    separator = max(SEPARATORS, key=first.count)
    if first.count(separator) >= MOST_COLUMNS:
        raise ValueError(
            f"{path} has {first.count(separator) + 1:,} columns, more than {MOST_COLUMNS:,}; a row is one sample and a "
            "column one variable: perhaps it lies on its side"
        )
    try:
        fields = next(csv.reader([first], delimiter=separator, skipinitialspace=True), [])
    except csv.Error as error:
        raise ValueError(f"the first line of {path} cannot be read as names of columns: {error}") from None
    names = [from_cell(name.strip()) for name in fields]
    repeated = sorted(n for n, count in Counter(names).items() if n and count > 1)
    if repeated:
        raise ValueError(
            f"{path} has several columns called {quoted(repeated)}; give every column its own name"
        )
    if names and all(_is_number(n) for n in names):
        raise ValueError(f"the first line of {path} holds numbers; it must hold the names of the columns")
    return separator, len(names)


def _refuse_ragged(path: Path, separator: str, width: int) -> None:
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, delimiter=separator)
        for fields in reader:
            if fields and len(fields) != width:
                raise ValueError(
                    f"line {reader.line_num} of {path} has {len(fields)} values, but the first line names {width} "
                    "columns; every row needs one value per column"
                )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


# Parquet and NumPy --------------------------------------------------------------------------------------------------


def _read_parquet(path: Path) -> pd.DataFrame:
    import pandas as pd

    need("pyarrow")
    try:
        frame = pd.read_parquet(path)
    except (
        Exception
    ) as error:  # besides pyarrow's errors, damaged notes on the columns fail anywhere in pandas
        raise ValueError(
            f"{path} is not a Parquet file, or damaged: {error or type(error).__name__}"
        ) from None
    frame.columns = [str(c) for c in frame.columns]
    return frame.reset_index(drop=True)


def _read_npz(path: Path) -> pd.DataFrame:
    import pandas as pd

    columns: dict[str, np.ndarray] = {}
    try:
        with path.open("rb") as file:
            archive: Any = np.load(file, allow_pickle=False)
            if isinstance(archive, np.ndarray):
                raise ValueError(
                    "it holds a single array without a name; save it with numpy.savez(path, x=array)"
                )
            for name in archive.files:
                columns |= _array_columns(archive[name], name)
    except Exception as error:  # a damaged archive may fail anywhere
        raise ValueError(
            f"{path} cannot be read as a NumPy archive: {error or type(error).__name__}"
        ) from None
    lengths = {name: len(array) for name, array in columns.items()}
    if len(set(lengths.values())) > 1:
        shown = ", ".join(f"{name} {n}" for name, n in list(lengths.items())[:8])
        raise ValueError(f"the arrays of {path} differ in length ({shown}); all need the same number of rows")
    return pd.DataFrame(columns)


def _array_columns(array: np.ndarray, name: str) -> dict[str, np.ndarray]:
    if array.ndim not in (1, 2):
        raise ValueError(f"array {name!r} has {array.ndim} dimensions, expected one or two")
    columns = {name: array} if array.ndim == 1 else {f"{name}{i + 1}": c for i, c in enumerate(array.T)}
    return {k: part for label, column in columns.items() for k, part in real_columns(column, label).items()}


_READERS: dict[str, Callable[[Path], pd.DataFrame]] = {
    ".csv": _read_csv, ".tsv": _read_csv, ".txt": _read_csv,
    ".parquet": _read_parquet, ".pq": _read_parquet, ".npz": _read_npz,
}  # fmt: skip

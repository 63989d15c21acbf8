"""Files of rows: CSV, Excel, Parquet and NumPy files as pandas frames, and the columns a user names in them.

Rows are counted from 1 as in a spreadsheet, the line with the names not counted.
"""

from __future__ import annotations

import fnmatch
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from isr.tables.arrays import refuse_times
from isr.tables.delimited import Layout, read_csv
from isr.tables.extras import need
from isr.tables.memory import refuse_too_large
from isr.tables.names import did_you_mean, quoted
from isr.tables.tables import real_columns

if TYPE_CHECKING:
    import pandas as pd

_LONGEST_SHOWN = 200


def read_columns(path: str | Path, names: Sequence[str]) -> pd.DataFrame:
    """Return the named columns of a file, as `read_rows` and `numeric_columns` do."""
    return numeric_columns(read_rows(path), names, source=path)


def read_rows(path: str | Path, layout: Layout | None = None) -> pd.DataFrame:
    """Return the rows of a file as a frame with named columns; how its name ends says what it is.

    CSV (``.csv``, ``.tsv``, ``.txt``) and Excel (``.xlsx``, its first sheet) need a first line of names; how text is
    written is guessed unless ``layout`` says it. Of a NumPy archive (``.npz``) a one-dimensional array is a column, a
    matrix ``a`` the columns a1, a2, …, and a complex column ``p`` becomes ``p_re`` and ``p_im``.

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
    if not source.is_file():
        raise ValueError(f"{source} is no plain file (a pipe or a device); write its rows to a file first")
    if source.suffix.lower() not in _READERS:
        raise ValueError(
            f"cannot tell what {source} holds from its ending {source.suffix!r}; known: {', '.join(_READERS)}"
        )
    if not source.stat().st_size:
        raise ValueError(f"{source} is empty; it needs a line of column names and rows below it")
    is_text = _READERS[source.suffix.lower()] is read_csv
    frame = read_csv(source, layout or Layout()) if is_text else _READERS[source.suffix.lower()](source)
    if frame.empty:
        raise ValueError(
            f"{source} has {len(frame)} rows and {frame.shape[1]} columns; there is nothing to read"
        )
    return frame


def numeric_columns(
    frame: pd.DataFrame,
    names: Sequence[str],
    *,
    source: str | Path,
    dropna: bool = False,
    dates: bool = False,
) -> pd.DataFrame:
    """Return the named columns as finite doubles, in the order of ``names``; ``p*`` stands for all that begin with p.

    Args:
        frame: Rows from `read_rows`.
        names: Names or patterns of columns.
        source: What errors call the rows.
        dropna: Leave out rows with no value in one of these columns; those that are left keep their index.
        dates: Make days since the first one of dates and times, which are refused otherwise.
    """
    import pandas as pd

    chosen = match_columns(list(frame.columns), names, source=source)
    if dates:
        frame = frame.assign(**{name: _days(frame[name]) for name in chosen if _are_dates(frame[name])})
    if dropna:
        frame = frame.loc[frame[chosen].notna().all(axis=1)]
    if frame.empty:
        raise ValueError(
            f"every row of {source} lacks a value in {quoted(chosen)}; leave the empty column out"
        )
    numbers = {name: _numbers(frame[name], name, source) for name in chosen}
    return pd.DataFrame(numbers, index=frame.index)


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
    counts = Counter(known)
    repeated = sorted(name for name in found if counts[name] > 1)
    if repeated:
        raise ValueError(
            f"{source} has several columns called {quoted(repeated)}; give every column its own name"
        )
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
        given = given if len(given) <= _LONGEST_SHOWN else f"{given[:_LONGEST_SHOWN]}…"
        if _are_dates(column):
            raise ValueError(
                f"column {name!r} of {source} holds dates or times such as {given!r}, not numbers; leave it out, or "
                "pass --dates (dates=True) to make days since the first one of it"
            )
        whole, comma, rest = given.strip().lstrip("+-").partition(",")
        is_decimal_comma = comma and whole.isdigit() and rest.isdigit()
        raise ValueError(
            f"column {name!r} of {source} is not numeric: row {row + 1} holds {given!r} "
            f"({int(bad.sum())} of {len(values)} rows are like that); "
            + (
                "pass --decimal , if commas stand before decimals"
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
            "are like that); fill them in, or pass --dropna to leave rows without a value out"
        )
    return values


def _are_dates(column: Any) -> bool:
    """Whether a column holds dates or times: by its type, or texts that all read as such and hold a separator."""
    import pandas as pd

    if getattr(column.dtype, "kind", "O") in "mM":
        return True
    some = column.dropna().astype(str).head(50)
    if pd.api.types.is_numeric_dtype(column.dtype) or not some.str.contains(r"\d[-/.:]\d").all():
        return False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # day or month first: both are dates
        return bool(len(some)) and bool(pd.to_datetime(some, errors="coerce", format="mixed").notna().all())


def _days(column: Any) -> Any:
    import pandas as pd

    times = column if column.dtype.kind in "mM" else pd.to_datetime(column, format="mixed")
    return (times - times.min()) / pd.Timedelta("1D")


# Excel, Parquet and NumPy -----------------------------------------------------------------------------------------


def _read_excel(path: Path) -> pd.DataFrame:
    import pandas as pd

    need("openpyxl")
    try:
        frame = pd.read_excel(path, engine="openpyxl")
    except Exception as error:  # a damaged archive of damaged XML may fail anywhere
        raise ValueError(f"{path} is not an Excel file, or damaged: {error}") from None
    return frame.rename(columns=lambda name: str(name).strip())


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
            if zipfile.is_zipfile(file):
                sizes = [entry.file_size for entry in zipfile.ZipFile(file).infolist()]
                refuse_too_large(2 * sum(sizes), f"{len(sizes)} arrays unpacked", "keep fewer rows in it")
            file.seek(0)
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


_READERS: dict[str, Callable[..., pd.DataFrame]] = {
    ".csv": read_csv, ".tsv": read_csv, ".txt": read_csv, ".xlsx": _read_excel,
    ".parquet": _read_parquet, ".pq": _read_parquet, ".npz": _read_npz,
}  # fmt: skip

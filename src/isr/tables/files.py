"""Files of rows: text, Excel, Parquet and NumPy files as pandas frames, and the columns a user names in them.

Rows are counted from 1 as in a spreadsheet, the line with the names not counted.
"""

from __future__ import annotations

import fnmatch
import re
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from isr.tables.arrays import refuse_times
from isr.tables.delimited import Layout, are_units, read_text, units_of
from isr.tables.extras import need
from isr.tables.names import did_you_mean, quoted
from isr.tables.packed import refuse_bomb, refuse_empty_cells
from isr.tables.tables import real_columns

if TYPE_CHECKING:
    import pandas as pd

_LONGEST_SHOWN = 200


def read_columns(path: str | Path, names: Sequence[str], layout: Layout | None = None) -> pd.DataFrame:
    """Return the named columns of a file, as `read_rows` and `numeric_columns` do."""
    return numeric_columns(read_rows(path, layout), names, source=path)


def read_rows(path: str | Path, layout: Layout | None = None) -> pd.DataFrame:
    """Return the rows of a file as a frame with named columns; how its name ends says what it is.

    Text (``.csv``, ``.tsv``, ``.txt``, ``.dat``) and Excel (``.xlsx``) need a line of names, and may have one of units
    below it; how a file is written is guessed unless ``layout`` says it. Of a NumPy archive (``.npz``) a
    one-dimensional array is a column, a matrix ``a`` the columns a1, a2, …, and a complex column ``p`` becomes
    ``p_re`` and ``p_im``.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "rows.csv"
        >>> _ = path.write_text("depth;speed\\nm;m/s\\n200;1500\\n210;1510\\n")
        >>> frame = read_rows(path)
        >>> frame.columns.tolist(), frame.attrs["units"]
        (['depth', 'speed'], {'depth': 'm', 'speed': 'm/s'})
        >>> read_columns(path, ["s*"])["speed"].tolist()
        [1500.0, 1510.0]
    """
    source, layout = Path(path), layout or Layout()
    if source.is_dir():
        raise IsADirectoryError(f"{source} is a folder; name the file inside it")
    if not source.exists():
        folder = source.parent
        similar = did_you_mean(source.name, [p.name for p in folder.iterdir()]) if folder.is_dir() else ""
        lost = similar if folder.is_dir() else f", and no folder {folder}"
        raise FileNotFoundError(f"there is no file {source}{lost}; check its name and folder")
    if not source.is_file():
        raise ValueError(f"{source} is no plain file (a pipe or a device); write its rows to a file first")
    ending = source.suffix.lower()
    if ending not in _READERS:
        raise ValueError(
            f"cannot tell what {source} holds from its ending {source.suffix!r}; known: {', '.join(_READERS)}"
        )
    if not source.stat().st_size:
        raise ValueError(f"{source} is empty; it needs a line of column names and rows below it")
    if layout.sheet is not None and ending != ".xlsx":
        raise ValueError(f"{source} has no sheets; --sheet means nothing here")
    frame = _READERS[ending](source, layout)
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
    since: Mapping[str, str] | None = None,
) -> pd.DataFrame:
    """Return the named columns as finite doubles, in the order of ``names``; ``p*`` stands for all that begin with p.

    Args:
        frame: Rows from `read_rows`.
        names: Names or patterns of columns.
        source: What errors call the rows.
        dropna: Leave out rows with no value in one of these columns; those that are left keep their index.
        dates: Make days of dates and times, which are refused otherwise; since when stands in ``attrs["since"]``.
        since: The first day of columns of dates that were read before; these need no ``dates``.
    """
    import pandas as pd

    chosen = match_columns(list(frame.columns), names, source=source)
    first = dict(since or {})
    columns: dict[str, Any] = {}
    for name in chosen:
        column = frame[name]
        if (dates or name in first) and are_dates(column):
            column, first[name] = _days(column, first.get(name))
        columns[name] = _numbers(column, name, source, frame.attrs)
    numbers = pd.DataFrame(columns, index=frame.index)
    numbers.attrs["since"] = first
    lacking = ~np.isfinite(numbers).all(axis=1)
    if dropna and lacking.all():
        raise ValueError(
            f"every row of {source} lacks a value in {quoted(chosen)}; leave the empty column out"
        )
    numbers = numbers.loc[~lacking] if dropna else numbers
    for name, column in numbers.items():
        missing = ~np.isfinite(column.to_numpy())
        if missing.any():
            row = int(np.flatnonzero(missing)[0])
            what = "no value" if np.isnan(column.iloc[row]) else "an infinite value"
            raise ValueError(
                f"column {name!r} of {source} has {what} in row {row + 1} ({lacking.sum()} of {len(numbers)} rows are "
                "like that in one of the columns used); fill them in, or pass --dropna to leave such rows out"
            )
    return numbers


def match_columns(known: Sequence[str], names: Sequence[str], *, source: str | Path) -> list[str]:
    """Return the columns of ``source`` that names and patterns such as ``p*`` stand for, none twice."""
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
            f"{source} has several columns called {quoted(repeated)}; give every column its own name, "
            "or name those to use with --x"
        )
    return list(found)


# Numbers as people write them, by what stands before decimals: 1,234.50 and 1 234,50
_GROUPED = {".": r"[+-]?\d{1,3}(,\d{3})+(\.\d*)?", ",": r"[+-]?\d{1,3}([.\s]\d{3})+(,\d*)?"}


def _numbers(column: Any, name: str, source: str | Path, about: Mapping[str, Any]) -> np.ndarray:
    """A column as doubles, NaN where there is no value."""

    refuse_times(column, name=name, what=str(source))
    if np.iscomplexobj(column):
        raise ValueError(f"column {name!r} of {source} is complex; name its parts {name}_re and {name}_im")
    plain = column
    if about.get("decimal") == "," and getattr(column.dtype, "kind", "O") not in "biuf":
        # A cell that is no number leaves its whole column as text.
        plain = column.astype(str).str.replace(r"^\s*([+-]?\d*),(\d+)\s*$", r"\1.\2", regex=True)
    values = _coerced(plain).to_numpy(dtype=np.float64, na_value=np.nan).copy()
    bad = np.isnan(values) & column.notna().to_numpy()
    if bad.any():
        read = _as_people_write(column[bad].astype(str).str.strip(), name, about)
        if read is None:
            raise _not_numeric(column, name, source, bad)
        values[bad] = read
    return values


def _coerced(column: Any) -> Any:
    """A column as numbers, with no value where there is none."""
    import pandas as pd

    try:
        return pd.to_numeric(column, errors="coerce")
    except OverflowError:
        too_long = column.astype(str).str.fullmatch(r"\s*[+-]?\d{309,}\s*")  # beyond the largest double
        return pd.to_numeric(column.where(~too_long, np.inf), errors="coerce")


def _as_people_write(texts: Any, name: str, about: Mapping[str, Any]) -> np.ndarray | None:
    """Texts such as 1,234.50 or 12 % as numbers, with a warning; None where some are something else."""
    mark, delimiter = about.get("decimal", "."), about.get("delimiter", ",")
    percent = texts.str.endswith("%").all()
    plain = texts.str.removesuffix("%").str.strip()
    grouped = plain.str.fullmatch(_GROUPED[mark])
    if not (percent or (grouped.all() and (mark == "," or delimiter == ","))):
        return None
    bare = plain.str.replace(r"[.\s]" if mark == "," else ",", "", regex=True)
    try:
        numbers = plain.where(~grouped, bare).str.replace(mark, ".", regex=False).astype(float).to_numpy()
    except ValueError:
        return None
    how = "in percent" if percent else "without the marks between thousands"
    warnings.warn(f"column {name!r} is read {how}: {texts.iloc[0]} is {numbers[0]:.12g}", stacklevel=2)
    return numbers


def _not_numeric(column: Any, name: str, source: str | Path, bad: np.ndarray) -> ValueError:
    """The error for a column with texts in it; it says what may be done about them."""
    row = int(np.flatnonzero(bad)[0])
    given = str(column.iloc[row])
    if are_dates(column):
        return ValueError(
            f"column {name!r} of {source} holds dates or times such as {given!r}, not numbers; leave it out of --x "
            "and --y, or pass --dates to make days since the first one of it"
        )
    remedy = "correct it, or leave the column out: --x and --y name the others"
    if re.fullmatch(r"\d+,\d+", given.strip()):
        remedy = "pass --decimal , if commas stand before decimals"
    elif len(given) < 12 and column[bad].nunique() == 1:
        remedy = f"pass --missing {given} if it stands for no value, or {remedy}"
    shown = given if len(given) <= _LONGEST_SHOWN else f"{given[:_LONGEST_SHOWN]}…"
    return ValueError(
        f"column {name!r} of {source} is not numeric: row {row + 1} holds {shown!r} "
        f"({int(bad.sum())} of {len(column)} rows are like that); {remedy}"
    )


def holds_numbers(column: Any, *, dates: bool = False) -> bool:
    """Return whether at least one cell of a column looks like a number; or like a date where ``dates`` count."""
    import pandas as pd

    if pd.api.types.is_numeric_dtype(column.dtype):
        return bool(column.notna().any())
    if dates and are_dates(column):
        return True
    texts = column.dropna().astype(str)
    is_written = texts.str.fullmatch(r"\s*[+-]?[\d.,\s]*\d[\d.,\s]*%?\s*").any()
    return getattr(column.dtype, "kind", "O") not in "mM" and bool(
        is_written or _coerced(column).notna().any()
    )


def are_dates(column: Any) -> bool:
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


def _days(column: Any, since: str | None) -> tuple[Any, str]:
    """Days since a first one, the earliest of the column where none is given; and that one as text."""
    import pandas as pd

    times = column
    if column.dtype.kind not in "mM":
        # 03.01.2024 is the third of January wherever points are written
        day_first = bool(column.astype(str).str.match(r"\s*\d+\.").any())
        times = pd.to_datetime(column, format="mixed", dayfirst=day_first)
    first = times.min() if since is None else type(times.min())(since)
    return (times - first) / pd.Timedelta("1D"), str(first)


def _read_excel(path: Path, layout: Layout) -> pd.DataFrame:
    import pandas as pd

    need("openpyxl")
    refuse_bomb(path, "parts")
    refuse_empty_cells(path)
    try:
        sheets = pd.read_excel(
            path, engine="openpyxl", sheet_name=None, header=None, na_values=list(layout.missing)
        )
    except Exception as error:  # a damaged archive of damaged XML may fail anywhere
        raise ValueError(f"{path} is not an Excel file, or damaged: {error}") from None
    if layout.sheet is not None and layout.sheet not in sheets:
        raise ValueError(
            f"{path} has no sheet {layout.sheet!r}{did_you_mean(layout.sheet, list(sheets))}; "
            f"its sheets are {quoted(list(sheets))}"
        )
    n_numbers = {
        name: sum(_coerced(column).notna().sum() for _, column in sheet.items())
        for name, sheet in sheets.items()
    }
    best = layout.sheet or max(sheets, key=n_numbers.__getitem__)
    frame = sheets[best].dropna(axis=1, how="all")
    notes = [f"sheet {best!r} of {quoted(list(sheets))}"] if len(sheets) > 1 and not layout.sheet else []
    filled = frame.notna().sum(axis=1).to_numpy()
    fewest = min(2, frame.shape[1])
    is_text = [all(isinstance(v, str) for v in row[row.notna()]) for _, row in frame.head(20).iterrows()]
    many = filled[:20] >= max(fewest, filled[:20].max(initial=0) - 1)
    at = int(np.argmax(many & is_text if any(many & is_text) else filled >= fewest)) if len(frame) else 0
    if at:
        notes.append(f"the first line{'s' if at > 1 else ''}, above the names, left out")
    texts = [
        [("" if pd.isna(v) else str(v).strip()) for v in row] for row in frame.iloc[at : at + 3].to_numpy()
    ]
    names = [name or f"column {i + 1}" for i, name in enumerate(texts[0])] if texts else []
    has_units = len(texts) == 3 and are_units(*texts[1:])
    units = units_of(names, texts[1]) if has_units else {}
    notes += ["units from the line below the names"] if has_units else []
    frame = frame.iloc[at + 1 + has_units :].reset_index(drop=True).infer_objects()
    frame.columns = names
    frame.attrs.update(notes=notes, units=units)
    return frame


def _read_parquet(path: Path, layout: Layout) -> pd.DataFrame:
    import pandas as pd

    need("pyarrow")
    try:
        frame = pd.read_parquet(path)
    except Exception as error:  # besides pyarrow's, damaged notes on the columns fail anywhere in pandas
        raise ValueError(
            f"{path} is not a Parquet file, or damaged: {error or type(error).__name__}"
        ) from None
    frame.columns = [str(c) for c in frame.columns]
    return _without_missing(frame.reset_index(drop=True), layout)


def _read_npz(path: Path, layout: Layout) -> pd.DataFrame:
    import pandas as pd

    columns: dict[str, np.ndarray] = {}
    refuse_bomb(path, "arrays")
    try:
        with path.open("rb") as file:
            archive: Any = np.load(file, allow_pickle=False)
            if isinstance(archive, np.ndarray):
                raise ValueError(
                    "it holds a single array without a name; save it with numpy.savez(path, x=array)"
                )
            for name in archive.files:
                array = archive[name]
                if array.ndim not in (1, 2):
                    raise ValueError(f"array {name!r} has {array.ndim} dimensions, expected one or two")
                numbered = (
                    {f"{name}{i + 1}": c for i, c in enumerate(array.T)} if array.ndim == 2 else {name: array}
                )
                for label, column in numbered.items():
                    columns |= real_columns(column, label)
    except Exception as error:  # a damaged archive may fail anywhere
        raise ValueError(
            f"{path} cannot be read as a NumPy archive: {error or type(error).__name__}"
        ) from None
    lengths = {name: len(array) for name, array in columns.items()}
    if len(set(lengths.values())) > 1:
        shown = ", ".join(f"{name} {n}" for name, n in list(lengths.items())[:8])
        raise ValueError(f"the arrays of {path} differ in length ({shown}); all need the same number of rows")
    return _without_missing(pd.DataFrame(columns), layout)


def _without_missing(frame: pd.DataFrame, layout: Layout) -> pd.DataFrame:
    numbers = [float(m) for m in layout.missing if re.fullmatch(r"[+-]?[\d.]+(e[+-]?\d+)?", m)]
    return frame.replace([*layout.missing, *numbers], np.nan) if layout.missing else frame


_READERS = {
    ".csv": read_text, ".tsv": read_text, ".txt": read_text, ".dat": read_text, ".xlsx": _read_excel,
    ".parquet": _read_parquet, ".pq": _read_parquet, ".npz": _read_npz,
}  # fmt: skip

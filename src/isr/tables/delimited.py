"""Delimited text: CSV and its relatives read as frames; how a file is written is guessed unless it is said."""

from __future__ import annotations

import csv
import re
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

SEPARATORS = ",;\t"
MOST_COLUMNS = 20_000
"""Of a CSV file; far more than a model can be fitted to, and few enough to be read in a moment."""
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


@dataclass(frozen=True)
class Layout:
    """How a text file is written; what is None is guessed, and `read_rows` notes each guess in ``frame.attrs``.

    Args:
        delimiter: What stands between values: a comma, semicolon or tab.
        decimal: What stands before the decimals: a point or a comma.
        encoding: How text is stored, such as ``"cp1252"``.
    """

    delimiter: str | None = None
    decimal: str | None = None
    encoding: str | None = None


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


def read_csv(path: Path, layout: Layout) -> pd.DataFrame:
    """Return the rows of a text file; guesses that were made stand in ``frame.attrs["notes"]``."""
    import pandas as pd

    known = _guessed(path, layout)
    try:
        names = _header(path, known)
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)  # more fields in rows than in the header
            frame = pd.read_csv(
                path, sep=known.delimiter, decimal=known.decimal or ".", encoding=known.encoding, index_col=False,
                skipinitialspace=True, low_memory=False,
            )  # fmt: skip
    except (pd.errors.ParserError, pd.errors.ParserWarning) as error:
        _refuse_ragged(path, known, len(names))
        raise ValueError(f"{path} cannot be read as a table: {error}") from None
    except (UnicodeError, LookupError) as error:
        raise ValueError(
            f"{path} is not text in {known.encoding} ({error}); pass --encoding with the one it has"
        ) from None
    # pandas numbers names that stand there twice; they are refused where one of them is used
    if len(names) == frame.shape[1]:
        frame.columns = [n or str(c) for n, c in zip(names, frame.columns, strict=True)]
    if len(frame) and frame.iloc[:, -1].isna().any():  # rows that are too short end in missing values
        _refuse_ragged(path, known, len(names))
    words = {",": "commas", ";": "semicolons", "\t": "tabs"}
    frame.attrs["notes"] = [
        note for note, guessed in {
            f"{words.get(str(known.delimiter), repr(known.delimiter))} between values": known.delimiter != ","
            and layout.delimiter is None,
            "commas before decimals": known.decimal == "," and layout.decimal is None,
            f"text in {known.encoding}": known.encoding != "utf-8-sig" and layout.encoding is None,
        }.items() if guessed
    ]  # fmt: skip
    return frame


_DECIMAL_COMMA = re.compile(r"[+-]?\d*,\d+(?:[eE][+-]?\d+)?")
_DECIMAL_POINT = re.compile(r"[+-]?\d*\.\d+(?:[eE][+-]?\d+)?")
# What is looked at of a file to guess how it is written.
_HEAD = 65_536


def _guessed(path: Path, layout: Layout) -> Layout:
    """A layout with nothing left open: by the mark at the file's beginning, its first line and its first numbers."""
    with path.open("rb") as file:
        head = file.read(_HEAD)
    encoding = layout.encoding or ("utf-16" if head[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig")
    if layout.encoding is None and encoding != "utf-16":
        try:
            path.read_bytes().decode("utf-8-sig")
        except UnicodeDecodeError:
            encoding = "cp1252"  # what spreadsheets of Western Windows write; names alone depend on it
    try:
        lines = [line for line in head.decode(encoding, errors="ignore").splitlines() if line.strip()]
    except LookupError:
        raise ValueError(
            f"there is no encoding {encoding!r}; such as utf-8, cp1252 or utf-16 are known"
        ) from None
    first = lines[0] if lines else ""
    delimiter = {"tab": "\t", "\\t": "\t"}.get(layout.delimiter or "", layout.delimiter) or max(
        SEPARATORS, key=first.count
    )
    if len(delimiter) != 1 or delimiter == layout.decimal:
        raise ValueError(
            f"the delimiter must be one character, not the one before decimals, got {delimiter!r}; such as ';' or tab"
        )
    fields = [field.strip().strip('"') for line in lines[1:200] for field in line.split(delimiter)]
    commas = delimiter != "," and any(map(_DECIMAL_COMMA.fullmatch, fields))
    is_comma = commas and not any(map(_DECIMAL_POINT.fullmatch, fields))
    return replace(
        layout, delimiter=delimiter, encoding=encoding, decimal=layout.decimal or ("," if is_comma else ".")
    )


def _header(path: Path, layout: Layout) -> list[str]:
    """The names in the first line of a CSV file, once they are known to be names."""
    with path.open(encoding=layout.encoding, newline="") as file:
        first = next((line for line in file if line.strip()), "")
    if "\x00" in first:
        raise ValueError(f"{path} is a binary file, not text; give it the ending of what it is")
    delimiter = str(layout.delimiter)
    if first.count(delimiter) >= MOST_COLUMNS:
        raise ValueError(
            f"{path} has {first.count(delimiter) + 1:,} columns, more than {MOST_COLUMNS:,}; a row is one sample and a "
            "column one variable: perhaps it lies on its side"
        )
    try:
        fields = next(csv.reader([first], delimiter=delimiter, skipinitialspace=True), [])
    except csv.Error as error:
        raise ValueError(f"the first line of {path} cannot be read as names of columns: {error}") from None
    names = [from_cell(name.strip()) for name in fields]
    if names and all(_is_number(n) for n in names):
        raise ValueError(f"the first line of {path} holds numbers; it must hold the names of the columns")
    return names


def _refuse_ragged(path: Path, layout: Layout, width: int) -> None:
    with path.open(encoding=layout.encoding, newline="") as file:
        reader = csv.reader(file, delimiter=str(layout.delimiter))
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

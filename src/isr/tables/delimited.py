"""Delimited text: CSV and its relatives read as frames; how a file is written is guessed unless it is said."""

from __future__ import annotations

import csv
import re
import warnings
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars", " ": "spaces"}
MOST_COLUMNS = 20_000
"""Of a CSV file; far more than a model can be fitted to, and few enough to be read in a moment."""


@dataclass(frozen=True)
class Layout:
    """How a file of rows is written; what is None is guessed, and each guess is noted in ``frame.attrs``.

    Args:
        delimiter: What stands between values: one character, ``"tab"`` or ``"space"``.
        decimal: What stands before the decimals: a point or a comma.
        encoding: How text is stored, such as ``"cp1252"``.
        sheet: Which sheet of an Excel file.
        missing: Texts and numbers that stand for no value, such as ``-999``.
    """

    delimiter: str | None = None
    decimal: str | None = None
    encoding: str | None = None
    sheet: str | None = None
    missing: tuple[str, ...] = ()


_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


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


@dataclass(frozen=True)
class _Head:
    """What the first lines of a file say: names and units of columns, and how many lines stand before the rows."""

    names: list[str]
    units: dict[str, str]
    n_lines: int
    n_comments: int


def read_text(path: Path, layout: Layout) -> pd.DataFrame:
    """Return the rows of a text file; guesses stand in ``frame.attrs["notes"]``, units in ``frame.attrs["units"]``."""
    import pandas as pd

    known, head = _guessed(path, layout)
    try:
        with warnings.catch_warnings(), path.open(encoding=known.encoding, newline="") as file:
            warnings.simplefilter("error", pd.errors.ParserWarning)  # more fields in rows than in the header
            for _ in range(head.n_lines):
                file.readline()
            frame = pd.read_csv(
                file, sep=r"\s+" if known.delimiter == " " else known.delimiter, decimal=known.decimal or ".",
                header=None, names=range(len(head.names)), index_col=False, skipinitialspace=True, low_memory=False,
                na_values=list(layout.missing),
            )  # fmt: skip
    except (pd.errors.ParserError, pd.errors.ParserWarning) as error:
        _refuse_ragged(path, known, head)
        raise ValueError(f"{path} cannot be read as a table: {error}") from None
    except UnicodeError as error:
        raise ValueError(
            f"{path} is not text in {known.encoding} ({error}); pass --encoding with the one it has"
        ) from None
    if len(frame) and frame.iloc[:, -1].isna().any():  # rows that are too short end in missing values
        _refuse_ragged(path, known, head)
    frame.columns = head.names
    counts = head.names[0] == "" and frame.shape[1] > 1 and _counts_rows(frame.iloc[:, 0])
    if counts:  # as pandas writes it
        frame = frame.iloc[:, 1:]
    frame.columns = [name or f"column {i + 1}" for i, name in enumerate(frame.columns)]
    n = head.n_comments
    notes = {
        f"{SEPARATORS.get(str(known.delimiter), repr(known.delimiter))} between values": known.delimiter
        != ","
        and layout.delimiter is None,
        "commas before decimals": known.decimal == "," and layout.decimal is None,
        f"text in {known.encoding}": known.encoding != "utf-8-sig" and layout.encoding is None,
        f"{n} line{'s' if n > 1 else ''} that begin{'' if n > 1 else 's'} with # left out": n > 0,
        f"units from line {head.n_lines}": bool(head.units),
        "the first column, which has no name and counts the rows, left out": counts,
    }
    frame.attrs.update(
        notes=[note for note, is_so in notes.items() if is_so],
        units=head.units,
        decimal=known.decimal,
        delimiter=known.delimiter,
    )
    return frame


# What is looked at of a file to guess how it is written.
_HEAD = 65_536
_DECIMAL_COMMA = re.compile(r"[+-]?(\d*|\d{1,3}(\.\d{3})+),\d+([eE][+-]?\d+)?")
_DECIMAL_POINT = re.compile(r"[+-]?\d*\.\d+([eE][+-]?\d+)?")


def _guessed(path: Path, layout: Layout) -> tuple[Layout, _Head]:
    """A layout with nothing left open: by the mark at the file's beginning, its first lines and first numbers."""
    with path.open("rb") as file:
        start = file.read(_HEAD)
    encoding = layout.encoding or _encoding(path, start)
    try:
        lines = start.decode(encoding, errors="ignore").splitlines()
    except LookupError:
        raise ValueError(
            f"there is no encoding {encoding!r}; such as utf-8, cp1252 or utf-16 are known"
        ) from None
    comments = [i for i, line in enumerate(lines) if line.startswith("#") and lines[0].startswith("#")]
    comments = [i for at, i in enumerate(comments) if i == at]
    at = next((i for i, line in enumerate(lines) if line.strip() and i >= len(comments)), len(lines))
    first = lines[at] if at < len(lines) else ""
    while first.count('"') % 2 and at + 1 < len(lines):  # a name with a line end in it
        at, first = at + 1, f"{first} {lines[at + 1]}"
    rest = lines[at + 1 : at + 200]
    delimiter = _delimiter(layout, first, rest)
    if comments and _are_numbers(_fields(first, delimiter)):
        # NumPy writes the names behind a # too
        first, rest, at = lines[comments[-1]].lstrip("# "), lines[at : at + 200], comments.pop()
        delimiter = _delimiter(layout, first, rest)
    fields = [field for line in rest for field in _fields(line, delimiter)]
    commas = delimiter != "," and any(map(_DECIMAL_COMMA.fullmatch, fields))
    is_comma = commas and not any(map(_DECIMAL_POINT.fullmatch, fields))
    decimal = layout.decimal or ("," if is_comma else ".")
    known = replace(layout, delimiter=delimiter, encoding=encoding, decimal=decimal)
    names = _names(path, known, at, len(lines) > at, first)
    below = [[f.replace(decimal, ".") for f in _fields(line, delimiter)] for line in rest[:2]]
    has_units = len(below) == 2 and are_units(*below)
    units = {n: u.strip("[]()") for n, u in zip(names, below[0], strict=False) if u} if has_units else {}
    return known, _Head(names, units, at + 1 + has_units, len(comments))


def _encoding(path: Path, start: bytes) -> str:
    if start[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "utf-16"
    try:
        with path.open(encoding="utf-8-sig") as file:
            while file.read(1 << 20):
                pass
    except UnicodeDecodeError:
        return "cp1252"  # what spreadsheets of Western Windows write; names alone depend on it
    return "utf-8-sig"


def _delimiter(layout: Layout, first: str, rest: list[str]) -> str:
    given = {"tab": "\t", "\\t": "\t", "space": " "}.get(layout.delimiter or "", layout.delimiter)
    if given is None:
        bare = re.sub(r'"[^"]*"', "", first)
        given = max(",;\t|", key=bare.count)
        n = len(first.split())
        if given not in bare and n > 1 and rest and len(rest[0].split()) == n:
            given = " "
    if len(given) != 1 or given == layout.decimal:
        raise ValueError(
            f"the delimiter must be one character, not the one before decimals, got {given!r}; such as ';' or tab"
        )
    return given


def _fields(line: str, delimiter: str) -> list[str]:
    if delimiter == " ":
        return line.split()
    try:
        fields = next(csv.reader([line], delimiter=delimiter, skipinitialspace=True), [])
    except csv.Error:
        fields = line.split(delimiter)
    return [field.strip() for field in fields]


def _names(path: Path, layout: Layout, at: int, is_there: bool, first: str) -> list[str]:
    """The names in the first line of a file, once they are known to be names."""
    if "\x00" in first:
        raise ValueError(f"{path} is a binary file, not text; give it the ending of what it is")
    if is_there and len(first) > _HEAD // 4:  # the beginning of the file may not hold all of it
        with path.open(encoding=layout.encoding, errors="ignore") as file:
            first = next(islice(file, at, None), first)
    n = first.count(str(layout.delimiter)) + 1
    if n > MOST_COLUMNS:
        raise ValueError(
            f"{path} has {n:,} columns, more than {MOST_COLUMNS:,}; a row is one sample and a column one variable: "
            "perhaps it lies on its side"
        )
    names = [from_cell(name) for name in _fields(first, str(layout.delimiter))]
    if names and _are_numbers(names):
        example = str(layout.delimiter).join(f"x{i + 1}" for i in range(min(len(names), 3)))
        raise ValueError(
            f"the first line of {path} holds numbers; it must hold the names of the columns: put a line such as "
            f"{example!r} before it"
        )
    return names


def are_units(below: list[str], then: list[str]) -> bool:
    """Return whether the line below the names holds units: texts only, where the next one has numbers.

    Example:
        >>> are_units(["m", "", "m/s"], ["1.5", "3", "2"]), are_units(["n/a", "1"], ["2", "3"])
        (True, False)
    """
    values = ("nan", "na", "n/a", "null", "none", "-", "--", "?", "")
    texts = [text.lower() not in values for text in below]
    no_numbers = not any(map(_is_number, below)) and not any(re.search(r"\d[-/.:]\d", t) for t in below)
    return no_numbers and any(is_text and _is_number(t) for is_text, t in zip(texts, then, strict=False))


def _counts_rows(column: pd.Series) -> bool:
    return column.dtype.kind == "i" and bool((column.diff().iloc[1:] == 1).all())


def _refuse_ragged(path: Path, layout: Layout, head: _Head) -> None:
    with path.open(encoding=layout.encoding, newline="") as file:
        lines = islice(file, head.n_lines, None)
        reader = (
            map(str.split, lines)
            if layout.delimiter == " "
            else csv.reader(lines, delimiter=str(layout.delimiter))
        )
        for i, fields in enumerate(reader):
            number = head.n_lines + (i + 1 if layout.delimiter == " " else reader.line_num)  # type: ignore[union-attr]
            if fields and len(fields) != len(head.names):
                raise ValueError(
                    f"line {number} of {path} has {len(fields)} values, but the first line names {len(head.names)} "
                    "columns; every row needs one value per column"
                )


def _are_numbers(texts: list[str]) -> bool:
    return bool(texts) and all(map(_is_number, texts))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True

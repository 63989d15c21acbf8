"""Delimited text: CSV and its relatives read as frames; how a file is written is guessed unless it is said."""

from __future__ import annotations

import csv
import re
import warnings
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    import pandas as pd

SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars", " ": "spaces"}
# Far more columns than a model can be fitted to, and few enough to be read in a moment.
MOST_COLUMNS = 20_000
# Lines that are looked at to guess how a file is written.
N_LOOKED_AT = 200
_DECIMAL_COMMA = re.compile(r"[+-]?(\d*|\d{1,3}(\.\d{3})+),\d+([eE][+-]?\d+)?")
_DECIMAL_POINT = re.compile(r"[+-]?\d*\.\d+([eE][+-]?\d+)?")


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
    """Return a name as it may stand in a spreadsheet: one that would be taken for a formula has an apostrophe first."""
    return f"'{name}" if name.lstrip("'").startswith(_FORMULA_STARTS) else name


def from_cell(text: str) -> str:
    """Return the name that `as_cell` wrote."""
    is_marked = text.startswith("'") and text.lstrip("'").startswith(_FORMULA_STARTS)
    return text[1:] if is_marked else text


@dataclass(frozen=True)
class _Head:
    """How a file is written, and what its first lines say: names and units of columns, lines before the rows."""

    delimiter: str
    decimal: str
    names: list[str]
    units: dict[str, str]
    n_lines: int
    n_comments: int
    n_title: int


def read_text(path: Path, layout: Layout) -> pd.DataFrame:
    """Return the rows of a text file; guesses stand in ``frame.attrs["notes"]``, units in ``frame.attrs["units"]``."""
    import pandas as pd

    encoding = layout.encoding or _encoding(path)
    try:
        with _opened(path, encoding) as file:
            head = _guessed(path, [line.rstrip("\r\n") for line in islice(file, N_LOOKED_AT)], layout)
        with warnings.catch_warnings(), _opened(path, encoding, head.n_lines) as file:
            warnings.simplefilter("error", pd.errors.ParserWarning)  # more fields in rows than in the header
            frame = pd.read_csv(
                file, sep=r"\s+" if head.delimiter == " " else head.delimiter, decimal=head.decimal, header=None,
                names=range(len(head.names)), index_col=False, skipinitialspace=True, low_memory=False,
                na_values=list(layout.missing),
            )  # fmt: skip
    except UnicodeError as error:
        raise ValueError(
            f"{path} is not text in {encoding} ({error}); pass --encoding with the one it has"
        ) from None
    except (pd.errors.ParserError, pd.errors.ParserWarning) as error:
        _refuse_ragged(path, encoding, head)
        raise ValueError(f"{path} cannot be read as a table: {error}") from None
    if len(frame) and frame.iloc[:, -1].isna().any():  # rows that are too short end in missing values
        _refuse_ragged(path, encoding, head)
    frame.columns = head.names
    first = frame.iloc[:, 0]
    counts = (
        head.names[0] == ""
        and frame.shape[1] > 1
        and first.dtype.kind == "i"
        and first.diff()[1:].eq(1).all()
    )
    if counts:  # as pandas writes it
        frame = frame.iloc[:, 1:]
    frame.columns = [name or f"column {i + 1}" for i, name in enumerate(frame.columns)]
    n, between = head.n_comments, SEPARATORS.get(head.delimiter, repr(head.delimiter))
    notes = {
        f"{between} between values": head.delimiter != "," and layout.delimiter is None,
        "commas before decimals": head.decimal == "," and layout.decimal is None,
        f"text in {encoding}": encoding != "utf-8-sig" and layout.encoding is None,
        f"{n} line{'s' if n > 1 else ''} that begin{'' if n > 1 else 's'} with # left out": n > 0,
        f"the first line{'s' if head.n_title > 1 else ''}, above the names, left out": head.n_title > 0,
        f"units from line {head.n_lines}": bool(head.units),
        "the first column, which has no name and counts the rows, left out": counts,
    }
    noted = [note for note, is_so in notes.items() if is_so]
    frame.attrs.update(notes=noted, units=head.units, decimal=head.decimal, delimiter=head.delimiter)
    return frame


def _opened(path: Path, encoding: str, start: int = 0) -> TextIO:
    """A text file from one of its lines on."""
    try:
        file = path.open(encoding=encoding, newline="")
    except LookupError:
        raise ValueError(
            f"there is no encoding {encoding!r}; such as utf-8, cp1252 or utf-16 are known"
        ) from None
    for _ in range(start):
        file.readline()
    return file


def _encoding(path: Path) -> str:
    with path.open("rb") as raw:
        if raw.read(2) in (b"\xff\xfe", b"\xfe\xff"):
            return "utf-16"
    try:
        with path.open(encoding="utf-8-sig") as file:
            while file.read(1 << 20):
                pass
    except UnicodeDecodeError:
        return "cp1252"  # what spreadsheets of Western Windows write; names alone depend on it
    return "utf-8-sig"


def _guessed(path: Path, lines: list[str], layout: Layout) -> _Head:
    """What the first lines tell; what the layout states is not guessed."""
    n_comments = next((i for i, line in enumerate(lines) if not line.startswith("#")), len(lines))
    at = next((i for i, line in enumerate(lines) if line.strip() and i >= n_comments), len(lines))
    title = sum(bool(line.strip()) for line in lines[at : _after_title(lines, at)])
    at = _after_title(lines, at)
    first = lines[at] if at < len(lines) else ""
    while first.count('"') % 2 and at + 1 < len(lines):  # a name with a line end in it
        at, first = at + 1, f"{first} {lines[at + 1]}"
    rest = lines[at + 1 :]
    delimiter = _delimiter(layout, first, rest)
    if n_comments and _are_numbers(_fields(first, delimiter)):
        # NumPy writes the names behind a # too
        n_comments -= 1
        first, rest, at = lines[n_comments].lstrip("# "), lines[at:], n_comments
        delimiter = _delimiter(layout, first, rest)
    fields = [field for line in rest for field in _fields(line, delimiter)]
    is_comma = delimiter != "," and any(map(_DECIMAL_COMMA.fullmatch, fields))
    is_comma = is_comma and not any(map(_DECIMAL_POINT.fullmatch, fields))
    decimal = layout.decimal or ("," if is_comma else ".")
    names = _names(path, first, delimiter)
    below = [[f.replace(decimal, ".") for f in _fields(line, delimiter)] for line in rest[:2]]
    has_units = len(below) == 2 and are_units(*below)
    units = units_of(names, below[0]) if has_units else {}
    return _Head(delimiter, decimal, names, units, at + 1 + has_units, n_comments, title)


def _after_title(lines: list[str], at: int) -> int:
    """The line of the names, where lines with fewer entries, such as a title, stand above it."""
    filled = [i for i in range(at, len(lines)) if lines[i].strip()][:10]
    if filled and lines[filled[0]].count('"') % 2:
        return at  # a name with a line end in it
    found: dict[int, int] = {}
    for delimiter in ",;\t|":
        rows = [_fields(lines[i], delimiter) for i in filled]
        entries = [[field for field in row if field] for row in rows]
        most = max(map(len, entries), default=0)
        for k, row in enumerate(entries[:-1]):
            is_text = all(re.search(r"[^\W\d]", field) for field in row)
            if len(row) >= max(2, most - 1) and is_text and len(rows[k]) == len(rows[k + 1]):
                found[most] = min(filled[k], found.get(most, len(lines)))
                break
    return at if at in found.values() or not found else found[max(found)]


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


def _names(path: Path, first: str, delimiter: str) -> list[str]:
    """The names in the first line of a file, once they are known to be names."""
    if "\x00" in first:
        raise ValueError(f"{path} is a binary file, not text; give it the ending of what it is")
    n = first.count(delimiter) + 1
    if n > MOST_COLUMNS:
        raise ValueError(
            f"{path} has {n:,} columns, more than {MOST_COLUMNS:,}; a row is one sample and a column one variable: "
            "perhaps it lies on its side"
        )
    names = [from_cell(name) for name in _fields(first, delimiter)]
    if not names:
        raise ValueError(f"the first line of {path} is empty; it must hold the names of the columns")
    if _are_numbers(names):
        example = delimiter.join(f"x{i + 1}" for i in range(min(len(names), 3)))
        raise ValueError(
            f"the first line of {path} holds numbers; it must hold the names of the columns: put a line such as "
            f"{example!r} before it"
        )
    return names


def units_of(names: list[str], below: list[str]) -> dict[str, str]:
    """Return the units below names, without those that a name says itself, as in ``Temp (K)``."""
    units = {name: unit.strip("[]()") for name, unit in zip(names, below, strict=False)}
    return {n: u for n, u in units.items() if u.strip("-–") and not n.endswith((f"({u})", f"[{u}]"))}


def are_units(below: list[str], then: list[str]) -> bool:
    """Return whether the line below the names holds units: texts only, where the next one has numbers."""
    values = ("nan", "na", "n/a", "null", "none", "-", "--", "?", "")
    texts = [text.lower() not in values for text in below]
    no_numbers = not any(map(_is_number, below)) and not any(re.search(r"\d[-/.:]\d", t) for t in below)
    return no_numbers and any(is_text and _is_number(t) for is_text, t in zip(texts, then, strict=False))


def _refuse_ragged(path: Path, encoding: str, head: _Head) -> None:
    with _opened(path, encoding, head.n_lines) as rows:
        reader = csv.reader(rows, delimiter=head.delimiter)
        for i, fields in enumerate(map(str.split, rows) if head.delimiter == " " else reader):
            number = head.n_lines + (i + 1 if head.delimiter == " " else reader.line_num)
            if fields and len(fields) != len(head.names):
                n = len(head.names)
                hint = "; where commas stand before decimals, pass --delimiter ';'" if n == 1 else ""
                raise ValueError(
                    f"line {number} of {path} has {len(fields)} values, but the first line names {n} "
                    f"column{'s' * (n != 1)}; every row needs one value per column{hint}"
                )


def _are_numbers(texts: list[str]) -> bool:
    return bool(texts) and all(map(_is_number, texts))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True

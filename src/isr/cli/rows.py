"""The rows that commands read: columns as numbers, with a sentence for all that was guessed or is odd."""

from __future__ import annotations

import shlex
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple

from isr.cli.options import asked, names_in
from isr.cli.output import say
from isr.tables.memory import refuse_too_large

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Reading:
    """How a file of rows is read."""

    PANEL: ClassVar[str] = "How the file of rows is written"

    delimiter: Annotated[
        str | None, asked("Between values: ',' ';' tab or space. Guessed if left out.", "SIGN")
    ] = None
    decimal: Annotated[str | None, asked("Before decimals: '.' or ','. Guessed if left out.", "SIGN")] = None
    encoding: Annotated[str | None, asked("Of the text, such as cp1252. Guessed if left out.", "NAME")] = None
    sheet: Annotated[str | None, asked("Of an Excel file; that with most numbers if left out.", "NAME")] = (
        None
    )
    missing: Annotated[str | None, asked("What means no value, besides empty cells: -999,none.", "LIST")] = (
        None
    )
    dropna: Annotated[bool, asked("Leave out rows without a value.", None, "--dropna")] = False
    dates: Annotated[bool, asked("Make days since the first one of dates.", None, "--dates")] = False

    def flags(self) -> str:
        """Return these options as they stand on a command line."""
        texts = [f"--{n} {shlex.quote(v)}" for n, v in vars(self).items() if isinstance(v, str)]
        return "".join(f" {t}" for t in [*texts, *(["--dropna"] if self.dropna else [])])

    def rows(self, path: Path) -> pd.DataFrame:
        """Return all columns as they are in the file; what was guessed is said on stderr."""
        from isr.tables.delimited import Layout
        from isr.tables.files import read_rows

        missing = tuple(names_in(self.missing or ""))
        frame = read_rows(path, Layout(self.delimiter, self.decimal, self.encoding, self.sheet, missing))
        if frame.attrs.get("notes"):
            say(f"{path}: read with {', '.join(frame.attrs['notes'])}", err=True)
        return frame

    def numbers(
        self, frame: pd.DataFrame, names: Sequence[str], path: Path, since: Any = None
    ) -> pd.DataFrame:
        """Return columns as numbers; how many rows were left out is said on stderr."""
        from isr.tables.files import numeric_columns

        known = since if isinstance(since, Mapping) else None
        found = numeric_columns(frame, names, source=path, dropna=self.dropna, dates=self.dates, since=known)
        if len(found) < len(frame):
            lost = len(frame) - len(found)
            say(f"{path}: {lost:,} of {len(frame):,} rows lack a value and are left out", err=True)
        return found

    def columns(self, path: Path, names: Sequence[str], bundle: Any) -> pd.DataFrame:
        """Return the columns that a saved model needs, dates as it knows them."""
        return self.numbers(self.rows(path), names, path, bundle.metadata.get("since"))


BYTES_PER_NUMBER = 100
"""Of the data, while it is fitted to."""


class Pairs(NamedTuple):
    """Rows of x, rows of y or None, the units that the file gives, and the first day of each column of dates."""

    x: pd.DataFrame
    y: pd.DataFrame | None
    units: dict[str, str]
    since: dict[str, str]


def read_pairs(path: Path, x: str | None, y: str | None, reading: Reading) -> Pairs:
    """Return the columns of x and y that the user names; y is None where no name is given."""
    from isr.tables.arrays import oddities
    from isr.tables.files import holds_numbers, match_columns

    frame = reading.rows(path)
    known = list(frame.columns)

    def named(text: str) -> list[str]:
        return [text] if text in known else names_in(text)

    y_names = [] if y is None else match_columns(known, named(y), source=path)
    if x is None:
        is_number = [holds_numbers(frame.iloc[:, i], dates=reading.dates) for i in range(len(known))]
        others = [
            (name, is_one) for name, is_one in zip(known, is_number, strict=True) if name not in y_names
        ]
        x_names = match_columns(known, [name for name, is_one in others if is_one], source=path)
        idle = [name for name, is_one in others if not is_one]
        if idle:
            say(f"{path}: columns without numbers are left out: {', '.join(map(repr, idle))}", err=True)
    else:
        x_names = match_columns(known, named(x), source=path)
        x_names = [n for n in x_names if n not in y_names or n in named(x)]
    shared = [name for name in x_names if name in y_names]
    if shared or not x_names:
        what = f"{shared[0]!r} stands in --x and in --y" if shared else "no column is left for x"
        raise ValueError(f"{what}; a column is either unknown or measured")
    numbers = reading.numbers(frame, [*x_names, *y_names], path)
    refuse_too_large(
        BYTES_PER_NUMBER * numbers.size, f"a fit to {len(numbers):,} rows",
        "fit to some of the rows, or to a folder of Parquet files from Python",
    )  # fmt: skip
    for sentence in oddities(numbers.to_numpy(), list(numbers.columns)):
        warnings.warn(sentence, stacklevel=2)
    since = {name: day for name, day in numbers.attrs["since"].items() if name in numbers}
    units = {n: u for n, u in frame.attrs.get("units", {}).items() if n in numbers}
    units |= {name: f"days since {day.removesuffix(' 00:00:00')}" for name, day in since.items()}
    numbers = numbers.reset_index(drop=True)
    return Pairs(numbers[x_names], numbers[y_names] if y_names else None, units, since)

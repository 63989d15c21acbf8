"""What commands read: files of rows, with a sentence for all that was guessed or is odd, and saved models."""

from __future__ import annotations

import re
import shlex
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple

from isr.cli.options import asked, names_in, numbers_in
from isr.cli.output import say
from isr.tables.memory import refuse_small_address_space, refuse_too_large
from isr.tables.names import did_you_mean

if TYPE_CHECKING:
    import pandas as pd

    from isr.storage import Bundle

# Bytes that JAX takes to load a model and draw from it; and of each number of the data, while it is fitted to.
LEAST_ADDRESS_SPACE, BYTES_PER_NUMBER = 2.5e9, 100


@dataclass(frozen=True)
class Reading:
    """How a file of rows is read."""

    PANEL: ClassVar[str] = "How the file of rows is written"

    delimiter: Annotated[
        str | None, asked("Between values: ',' ';' tab or space. Guessed if left out.", "SIGN")
    ] = None
    decimal: Annotated[str | None, asked("Before decimals: '.' or ','. Guessed if left out.", "SIGN")] = None
    encoding: Annotated[str | None, asked("Of the text, such as cp1252. Guessed if left out.", "NAME")] = None
    sheet: Annotated[
        str | None, asked("Of an Excel file; that with most numbers if left out.", "NAME")
    ] = None  # fmt: skip
    missing: Annotated[
        str | None, asked("What means no value, besides empty cells: -999,none.", "LIST")
    ] = None  # fmt: skip
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


class Pairs(NamedTuple):
    """Rows of x, rows of y or None, the units that the file gives, and the first day of each column of dates."""

    x: pd.DataFrame
    y: pd.DataFrame | None
    units: dict[str, str]
    since: dict[str, str]


def read_pairs(path: Path, x: str | None, y: str | None, reading: Reading) -> Pairs:
    """Return the columns of x and y that the user names; y is None where no name is given."""
    from isr.tables.arrays import oddities
    from isr.tables.files import are_dates, holds_numbers, match_columns

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
            dated = any(are_dates(frame[name]) for name in idle) and "; --dates makes numbers of dates"
            say(
                f"{path}: columns without numbers are left out: {', '.join(map(repr, idle))}{dated or ''}",
                err=True,
            )
    else:
        x_names = match_columns(known, named(x), source=path)
        x_names = [n for n in x_names if n not in y_names or n in named(x)]
    shared = [name for name in x_names if name in y_names]
    if shared or not x_names:
        what = f"{shared[0]!r} stands in --x and in --y" if shared else "no column with numbers is left for x"
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


def open_model(path: Path, complexity: int | None = None) -> Bundle:
    """Return a saved model; with ``complexity``, the best of its front no more complex than that."""
    if not path.exists():
        near = [p.name for p in path.parent.glob("*.isr") if p.exists()] if path.parent.is_dir() else []
        raise FileNotFoundError(f"there is no file {path}{did_you_mean(path.name, near)}; isr fit makes one")
    refuse_small_address_space(LEAST_ADDRESS_SPACE)
    from isr.storage import load

    return load(path) if complexity is None else load(path).choose(complexity)


def example(names: Sequence[str], values: Iterable[float] | None = None) -> str:
    """Return how values of these variables are written on the command line; of many, the first when none are given."""
    shown = names[:4] if values is None else names
    numbers = [0.1] * len(shown) if values is None else values
    texts = [f"{name}={v:.4g}" for name, v in zip(shown, numbers, strict=True)]
    text = ",".join(f'"{t}"' if "," in t else t for t in texts)
    return shlex.quote(text) + (",…" if len(shown) < len(names) else "")


def observation(bundle: Bundle, texts: list[str]) -> list[float]:
    """Return what the user gave as ``--y p1=0.1,p2=0.3``, one number for every observed variable, in order."""
    if "posterior" not in bundle.abilities:
        raise ValueError(f"this {bundle.title} observes nothing; leave --y out")
    return values_in(texts, "--y", bundle.y_names)


def values_in(texts: list[str], option: str, names: Sequence[str]) -> list[float]:
    """Return one number for each name, in order, from texts such as ``p1=0.1,p2=0.3``."""
    way = f"write {option} {example(names)}"
    if any(re.search(r"=\s*[+-]?\d+,\d+\s*(,|$)", text) for text in texts):
        raise ValueError(
            f"{option} {' '.join(texts)!r}: numbers need a point, since commas stand between names; {way}"
        )
    values = numbers_in(texts, option, example(names))
    for name in values:
        if name not in names:
            raise ValueError(
                f"{option} names {name!r}, which this model does not have there{did_you_mean(name, names)}; {way}"
            )
    missing = [name for name in names if name not in values]
    if missing:
        raise ValueError(f"{option} has no value for {', '.join(map(repr, missing))}; {way}")
    return [values[name] for name in names]

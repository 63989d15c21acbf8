"""The rows of ``isr fit``: columns read as numbers, with a sentence for all that was guessed or is odd."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from isr.cli.options import names_in

if TYPE_CHECKING:
    import pandas as pd

    from isr.tables.delimited import Layout

Delimiter = Annotated[str | None, typer.Option(help="Between values: ',' ';' or tab. Guessed if left out.")]
Decimal = Annotated[str | None, typer.Option(help="Before decimals: '.' or ','. Guessed if left out.")]
Encoding = Annotated[str | None, typer.Option(help="Of the text, such as cp1252. Guessed if left out.")]
Dropna = Annotated[bool, typer.Option("--dropna", help="Leave out rows without a value, and say how many.")]
Dates = Annotated[bool, typer.Option("--dates", help="Make days since the first one of dates.")]


def read_pairs(
    path: Path, x: str | None, y: str | None, layout: Layout, *, dropna: bool = False, dates: bool = False
) -> tuple[pd.DataFrame, pd.DataFrame | None]:
    """Return the columns of x and y, y None without any; what was guessed of the file is said on stderr."""
    from isr.tables.files import match_columns, numeric_columns, read_rows

    frame = read_rows(path, layout)
    if frame.attrs.get("notes"):
        typer.echo(f"{path}: read with {', '.join(frame.attrs['notes'])}", err=True)
    known = list(frame.columns)
    y_names = [] if y is None else match_columns(known, names_in(y), source=path)
    if x is None:
        x_names = [name for name in known if name not in y_names]
    else:
        x_names = match_columns(known, names_in(x), source=path)
        x_names = [n for n in x_names if n not in y_names or n in names_in(x)]
    shared = [name for name in x_names if name in y_names]
    if shared or not x_names:
        what = f"{shared[0]!r} stands in --x and in --y" if shared else "no column is left for x"
        raise ValueError(f"{what}; a column is either unknown or measured")
    numbers = numeric_columns(frame, [*x_names, *y_names], source=path, dropna=dropna, dates=dates)
    if len(numbers) < len(frame):
        lost = len(frame) - len(numbers)
        typer.echo(f"{path}: {lost:,} of {len(frame):,} rows lack a value and are left out", err=True)
    _warn_of_oddities(numbers)
    numbers = numbers.reset_index(drop=True)
    return numbers[x_names], numbers[y_names] if y_names else None


def _warn_of_oddities(numbers: pd.DataFrame) -> None:
    from isr.tables.arrays import oddities

    for sentence in oddities(numbers.to_numpy(), list(numbers.columns)):
        warnings.warn(sentence, stacklevel=3)

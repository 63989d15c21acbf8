"""What commands print and write: headings, tables and JSON on stdout, files in one step and never over others."""

from __future__ import annotations

import json
import math
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from isr.tables.extras import need
from isr.tables.names import visible
from isr.tables.whole_files import refuse_unwritable, write_whole

if TYPE_CHECKING:
    import pandas as pd

TABLE_ENDINGS = (".csv", ".parquet")
# Packages that write files with these endings.
_WRITERS = {
    ".parquet": "pyarrow", ".nc": "h5netcdf", ".png": "matplotlib", ".pdf": "matplotlib", ".svg": "matplotlib",
}  # fmt: skip


def say(text: str, **options: Any) -> None:
    """Print text; whatever in it would steer a terminal is written out."""
    typer.echo(visible(text, keep="\n\t"), **options)


@contextmanager
def heartbeat(what: str, *, most: float | None = None, every: float = 10.0) -> Iterator[None]:
    """Say every so many seconds that ``what`` goes on, and how long it may take at most, until the block ends."""
    ended, begun = threading.Event(), time.monotonic()

    def beat() -> None:
        while not ended.wait(every):
            spent = time.monotonic() - begun
            left = "" if most is None else f", at most {max(0.0, most - spent):.0f} s left"
            say(f"{what}: {spent:.0f} s so far{left}", err=True)

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def section(title: str, text: str) -> None:
    """Print text below a heading, bold on a terminal, two columns in; long lines are left to the terminal."""
    typer.secho(f"\n{visible(title)}", bold=True)
    for line in text.splitlines():
        say(f"  {line}")


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows as text under their keys, numbers to the right with four digits."""

    def cell(value: Any) -> str:
        if isinstance(value, bool):
            return "*" if value else ""
        return f"{value:.4g}" if isinstance(value, float) else visible(str(value))

    keys = list(rows[0])
    lines = [keys, *([cell(row[k]) for k in keys] for row in rows)]
    right = [all(isinstance(row[k], int | float) for row in rows) for k in keys]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    padded = (
        [c.rjust(w) if r else c.ljust(w) for c, w, r in zip(line, widths, right, strict=True)]
        for line in lines
    )
    return "\n".join("  ".join(line).rstrip() for line in padded)


def print_json(content: Any) -> None:
    """Print one JSON object; numbers that are not finite become null."""
    text = json.dumps(_plain(content), ensure_ascii=False, allow_nan=False)
    typer.echo(visible(text))  # what it writes out is JSON too


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if hasattr(value, "tolist"):  # arrays and scalars of NumPy
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, str | int | float) else str(value)


def refuse_existing(path: Path | None, force: bool, known: Sequence[str] = (), option: str = "--out") -> None:
    """Raise before any work where a file could not be written, or its ending is none of those known."""
    if path is None:
        return
    refuse_unwritable(path)
    if path.exists() and not force:
        raise FileExistsError(f"{path} exists already; choose another name or pass --force")
    ending = path.suffix.lower()
    if known and ending not in known:
        raise ValueError(
            f"{option} cannot write {path.suffix or 'a file without ending'!r}; known: {', '.join(known)}"
        )
    if known and ending in _WRITERS:
        need(_WRITERS[ending])


def say_written(path: Path, as_json: bool, about: str, **facts: Any) -> None:
    """Tell that a file was written: in words with ``about``, or as JSON with ``facts``."""
    if as_json:
        print_json({"out": str(path), **facts})
    else:
        say(f"written: {path} ({about})")


def write_text(path: Path, text: str) -> None:
    """Write a text file, whole or not at all."""
    write_whole(path, lambda target: target.write_text(text, encoding="utf-8"))


def write_frame(frame: pd.DataFrame, path: Path) -> None:
    """Write a frame as CSV with every digit, or as Parquet, by the ending of the name."""
    if path.suffix.lower() == ".parquet":
        write_whole(path, lambda target: frame.to_parquet(target, index=False))
    else:
        write_text(path, _csv(frame))


def hand_over(frame: pd.DataFrame, out: Path | None, as_json: bool) -> None:
    """Write rows to a file and say so, or print them where there is none."""
    if out is not None:
        write_frame(frame, out)
        about = f"{len(frame):,} rows of {', '.join(frame.columns)}"
        say_written(out, as_json, about, rows=len(frame), columns=list(frame.columns))
    elif as_json:
        print_json(frame.to_dict("list"))
    else:
        (say if sys.stdout.isatty() else typer.echo)(_csv(frame), nl=False)


def _csv(frame: pd.DataFrame) -> str:
    from isr.tables.delimited import as_cell

    return frame.rename(columns=as_cell).to_csv(index=False, lineterminator="\n")

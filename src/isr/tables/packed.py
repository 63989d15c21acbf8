"""Packed tables, refused where they would not fit into memory once unpacked, or are hardly more than empty cells."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

from isr.tables.memory import refuse_too_large


def refuse_bomb(path: Path, what: str) -> None:
    """Raise if a packed file would not fit into memory once it is unpacked."""
    try:
        with zipfile.ZipFile(path) as archive:
            sizes = [entry.file_size for entry in archive.infolist()]
    except Exception:  # not packed, or damaged: its reader says so
        return
    refuse_too_large(2 * sum(sizes), f"{len(sizes)} {what} unpacked", "keep fewer rows in it")


# Cells of a sheet that may be empty, for each that is not and beside them.
EMPTY_CELLS, SPARE_CELLS = 200, 10_000_000


def refuse_empty_cells(path: Path) -> None:
    """Raise if a cell far off makes a sheet of almost nothing but empty cells, each of which would be read."""
    try:
        with zipfile.ZipFile(path) as archive:
            sheets = [name for name in archive.namelist() if re.fullmatch(r"xl/worksheets/[^/]+\.xml", name)]
            for name in sheets:
                n, width, height, rest = 0, 0, 0, b""
                with archive.open(name) as file:
                    while chunk := file.read(1 << 22):
                        text = rest + chunk
                        found = re.findall(rb'<c [^>]*?r="([A-Z]{1,3})(\d{1,7})"', text)
                        n += len(found)
                        width = max([width, *(_column(letters) for letters in {a for a, _ in found})])
                        height = max([height, *(int(row) for row in {b for _, b in found})])
                        rest = text[text.rfind(b"<") :]
                if width * height > EMPTY_CELLS * n + SPARE_CELLS:
                    raise ValueError(
                        f"a sheet of {path} reaches to row {height:,} and column {width:,}, but holds only {n:,} "
                        "cells; delete the one far off, or save the table as .csv"
                    )
    except (OSError, zipfile.BadZipFile):  # its reader says so
        return


def _column(letters: bytes) -> int:
    number = 0
    for letter in letters:
        number = 26 * number + letter - 64
    return number

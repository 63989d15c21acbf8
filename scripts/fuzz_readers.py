"""Coverage-guided search for files that the readers neither read nor refuse: ``fuzz_readers.py -runs=20000``.

Needs Atheris. Each input's first byte says which reader gets the rest; a case that fails is left in ``crash-…``.
"""

import sys
import tempfile
import warnings
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["isr.data", "isr.storage"]):
    from isr.data.files import numeric_columns, read_rows
    from isr.storage import ModelFileError, from_bytes

ENDINGS = ("csv", "tsv", "npz", "parquet")
FOLDER = Path(tempfile.mkdtemp())


def try_one(data: bytes) -> None:
    """Read what a file may hold; an error that is no sentence for the user ends the search."""
    which, content = (data[0] % (len(ENDINGS) + 1), data[1:]) if data else (0, b"")
    if which == len(ENDINGS):
        try:
            from_bytes(content)
        except ModelFileError:
            return
        raise AssertionError("a file that isr did not write was taken for a model")
    path = FOLDER / f"rows.{ENDINGS[which]}"
    path.write_bytes(content)
    try:
        frame = read_rows(path)
        numeric_columns(frame, list(frame.columns), source=path)
    except (ValueError, TypeError, OSError):
        return


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    atheris.Setup(sys.argv, try_one)
    atheris.Fuzz()

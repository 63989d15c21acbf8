"""Coverage-guided search for files that the readers neither read nor refuse: ``fuzz_readers.py -runs=20000 -seed=1``.

Needs Atheris. Each input's first byte says which reader gets the rest. The search begins with a whole file for every
reader; one of them is a model whose checksum is made right again after every change. A case that fails is left in
``crash-…``.
"""

import hashlib
import io
import sys
import tempfile
import warnings
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["isr.tables", "isr.storage"]):
    from isr.storage import Bundle, ModelFileError, from_bytes, layout, to_bytes
    from isr.tables.files import numeric_columns, read_rows

import jax.numpy as jnp
import numpy as np
import pandas as pd

from isr.bijections.formula import Formulas

ENDINGS = ("csv", "tsv", "npz", "parquet")
FOLDER = Path(tempfile.mkdtemp())


def whole_files() -> list[bytes]:
    """A file that can be read for each of the readers, the model twice: as it is, and with its checksum made right."""
    frame = pd.DataFrame({"depth": [1.0, 2.0], "speed": [1500.0, 1510.0]})
    archive, parquet = io.BytesIO(), io.BytesIO()
    np.savez(archive, **{name: frame[name].to_numpy() for name in frame})
    frame.to_parquet(parquet)
    law = ("add", ("constant", 0), ("mul", ("constant", 1), ("call", "sin", ("input", 0))))
    model = to_bytes(
        Bundle(Formulas(jnp.array([1.0, 2.0]), (law,), 1, 2), x_names=("a", "b"), kind="EQLRegressor")
    )
    tables = [frame.to_csv(index=False, sep=separator).encode() for separator in ",\t"]
    return [*tables, archive.getvalue(), parquet.getvalue(), model, model]


WHOLE = whole_files()


def try_one(data: bytes) -> None:
    """Read what a file may hold; an error that is no sentence for the user ends the search."""
    which, content = (data[0] % len(WHOLE), data[1:]) if data else (0, b"")
    if which >= len(ENDINGS):
        try_model(content, forge=which > len(ENDINGS))
        return
    path = FOLDER / f"rows.{ENDINGS[which]}"
    path.write_bytes(content)
    try:
        frame = read_rows(path)
        numeric_columns(frame, list(frame.columns), source=path)
    except (ValueError, TypeError, OSError) as error:
        if not str(error).strip():
            raise


def try_model(content: bytes, *, forge: bool) -> None:
    """A changed model is refused; one whose checksum is right all the same is refused or read."""
    if forge:
        content = with_right_checksum(content)
    try:
        from_bytes(content)
    except ModelFileError:
        return
    if not forge and content not in WHOLE:
        raise AssertionError("a file that isr did not write was taken for a model")


def with_right_checksum(content: bytes) -> bytes:
    if len(content) < layout._DIGITS.stop:
        return content
    data = bytearray(content)
    data[layout._DIGITS] = layout._NO_DIGITS
    data[layout._DIGITS] = hashlib.sha256(data).hexdigest().encode()
    return bytes(data)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    corpus = FOLDER / "corpus"
    corpus.mkdir()
    for number, file in enumerate(WHOLE):
        (corpus / str(number)).write_bytes(bytes([number]) + file)
    atheris.Setup([*sys.argv, str(corpus)], try_one)
    atheris.Fuzz()

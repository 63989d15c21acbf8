"""Hostile files of rows: odd text, odd cells, whole files of every kind with damage; for the tests and the long run."""

import io
import json
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd

from isr.tables.files import numeric_columns, read_rows

NAMES = (
    "a", "b", "=2+5", "@x", "-x", "'=x", "", " a", "a\n", '"', "'", "1", "nan", "é", "\u202e", "\x00", "x" * 300,
    "__class__", "\x1b[2J", "\ufeff", "#", "a,b",
)  # fmt: skip
CELLS = (
    *NAMES, "0", "1.5", "-3", "1e309", "inf", "NaN", "1,5", "0x10", "1_000", "١", "=1+1", "True", "2020-01-01", "-999",
    "12 %", "1,234.50", "1 234,5", "12:30", "2020-01-01T00:00:00+05:00", "99999-12-31", "1e-310", "9" * 400, "m/s",
    "NA", "(1+2j)", "½", "１２", "1" * 5000,
)  # fmt: skip
ENCODINGS = ("utf-8", "utf-8-sig", "utf-16", "utf-16-be", "utf-32", "latin-1", "cp1252", "utf-7")
WORDS = (
    b'"',
    b"\x00",
    b"\r",
    b",",
    b"\n\n",
    b"\xff\xfe",
    b"PK\x03\x04",
    b"PAR1",
    b"#",
    b"=",
    b"\xef\xbb\xbf",
    b"e9999",
)
TEXTS = ("csv", "tsv", "txt", "dat", "json", "CSV")


def hostile_table(rng: np.random.Generator, wholes: list[tuple[bytes, str]]) -> tuple[bytes, str]:
    """Return the bytes of a file and how its name ends."""
    if rng.random() < 0.6:
        data, ending = _text(rng), TEXTS[rng.integers(len(TEXTS))]
    else:
        data, ending = wholes[rng.integers(len(wholes))]
    if rng.random() < 0.5 or ending not in TEXTS:
        data = damaged(rng, data)
    if not rng.integers(50):
        ending = ("csv", "parquet", "npz", "xlsx", "pq", "xyz")[rng.integers(6)]
    return data, ending


def _text(rng: np.random.Generator) -> bytes:
    if not rng.integers(8):
        return rng.bytes(int(rng.integers(200)))
    separator, end = ",;\t |"[rng.integers(5)], ("\n", "\r\n", "\r", "\n\n")[rng.integers(4)]
    n = int(rng.integers(6))
    is_ragged, plain = rng.random() < 0.2, rng.random() < 0.5

    def line(known: tuple[str, ...]) -> str:
        m = int(rng.integers(6)) if is_ragged else n
        cells = [known[i] for i in rng.integers(len(known), size=m)]
        quote = "" if rng.random() < 0.8 else '"'
        return separator.join(f"{quote}{cell}{quote}" for cell in cells)

    def numbers() -> str:
        return separator.join(f"{v:.3g}" for v in rng.normal(size=n))

    names = separator.join(f"c{i}" for i in range(n)) if plain else line(NAMES)
    rows = [numbers() if rng.random() < 0.6 else line(CELLS) for _ in range(rng.integers(6))]
    head = ("", "# by hand" + end, end)[rng.choice(3, p=[0.8, 0.1, 0.1])]
    text = head + end.join([names, *rows])
    return text.encode(ENCODINGS[rng.integers(len(ENCODINGS))], "replace")


def damaged(rng: np.random.Generator, whole: bytes) -> bytes:
    """Return a file with some bytes changed, cut out, put in or repeated."""
    data = bytearray(whole)
    for _ in range(rng.integers(1, 5)):
        place, how = int(rng.integers(len(data) + 1)), rng.integers(6)
        if how == 0 and place < len(data):
            data[place] ^= int(rng.integers(1, 256))
        elif how == 1:
            del data[place : place + int(rng.integers(1, 20))]
        elif how == 2:
            data[place:place] = rng.bytes(int(rng.integers(1, 8)))
        elif how == 3:
            data[place:place] = WORDS[rng.integers(len(WORDS))]
        elif how == 4:
            data[place:place] = data[place : place + 40] * int(rng.integers(1, 5))
        elif not rng.integers(4):
            del data[place:]
    return bytes(data)


def whole_tables() -> list[tuple[bytes, str]]:
    """Return small whole files of every kind that is read, with numbers, texts, dates and gaps in them."""
    plain = pd.DataFrame({"a": np.arange(5.0), "b": np.arange(5)})
    odd = pd.DataFrame({
        "t": pd.date_range("2020", periods=5, tz="Asia/Tokyo"), "c": pd.Categorical(list("xyxyx")),
        "n": pd.array([1, None, 3, 4, 5], dtype="Int64"), "s": list("12a45"), "z": [True, False, True, True, False],
        "d": pd.to_timedelta(range(5), unit="h"), "l": [[1.0]] * 5,
    })  # fmt: skip
    found: list[tuple[bytes, str]] = []
    for frame, ending in ((plain, "parquet"), (odd, "parquet"), (odd.set_index(["s", "n"]), "pq")):
        buffer = io.BytesIO()
        frame.to_parquet(buffer)
        found.append((buffer.getvalue(), ending))
    sheet = odd.drop(columns="l").assign(t=odd.t.dt.tz_localize(None))
    buffer = io.BytesIO()
    with pd.ExcelWriter(buffer, engine="openpyxl") as book:
        plain.to_excel(book, sheet_name="one", index=False)
        sheet.to_excel(book, sheet_name="two")
    found.append((buffer.getvalue(), "xlsx"))
    # A workbook is packed; unpacked parts with damage in them reach further than damage to a whole one.
    found.append((_stored(buffer.getvalue()), "xlsx"))
    arrays = {
        "a": np.arange(5.0), "b": np.arange(5), "z": np.arange(5) * 1j, "m": np.ones((5, 2)),
        "s": np.array(list("abcde")),
    }  # fmt: skip
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    found.append((buffer.getvalue(), "npz"))
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **{name: arrays[name] for name in "ab"})
    found.append((buffer.getvalue(), "npz"))
    buffer = io.BytesIO()
    np.save(buffer, np.arange(5.0))
    found.append((buffer.getvalue(), "npz"))
    found.append((json.dumps(plain.to_dict("records")).encode(), "json"))
    found.append((plain.to_csv(index=True).encode(), "csv"))
    found.append((b"depth;speed\nm;m/s\n200;1500,5\n210;1510,25\n", "csv"))
    return found


def _stored(archive: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive)) as old, zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as new:
        for name in old.namelist():
            new.writestr(name, old.read(name))
    return buffer.getvalue()


def read_all(path: Path) -> bool:
    """Read a file of rows as the command line does; return whether it was read, not refused in a sentence."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy's and pandas' own about odd values
        try:
            frame = read_rows(path)
            frame = numeric_columns(frame, list(frame.columns), source=path)
        except (ValueError, TypeError, OSError) as error:
            if not str(error).strip():
                raise
            return False
    assert np.isfinite(frame.to_numpy()).all()
    assert len(set(frame.columns)) == frame.shape[1]
    return True

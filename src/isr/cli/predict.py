"""``isr predict``: y from x, by the surrogate of an ISR model or the formulas of a regressor."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from isr.cli.models import open_model, predict_rows
from isr.cli.options import Force, Json, ModelFile, numbers_in
from isr.cli.output import TABLE_ENDINGS, hand_over, refuse_ending, refuse_existing


def predict(
    model: ModelFile,
    data: Annotated[
        Path | None, typer.Argument(help="Rows of x: CSV, Parquet or .npz.", show_default=False)
    ] = None,
    x: Annotated[
        list[str] | None, typer.Option("--x", help="One row instead of a file: depth=200,speed=1500.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="CSV or Parquet file; CSV on stdout when left out.")
    ] = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Print or write y for rows of x, for models of --method isr, inn and eql.

    Example: isr predict model.isr new.csv --out predicted.csv
    """
    import warnings

    import numpy as np
    import pandas as pd

    refuse_existing(out, force)
    refuse_ending(out, TABLE_ENDINGS, "--out")
    if (data is None) == (x is None):
        raise ValueError("give rows of x as a file, or one row with --x depth=200,speed=1500; not both")
    bundle = open_model(model)
    names = bundle.x_names
    rows = _given(x, names) if x is not None else _read(data, names)
    predicted = predict_rows(bundle, rows)
    n_bad = int(np.sum(~np.isfinite(predicted).all(axis=1)))
    if n_bad:
        warnings.warn(
            f"{n_bad} of {len(predicted)} predictions are not finite; their x lies outside of the model's domain",
            stacklevel=1,
        )
    frame = pd.DataFrame(predicted, columns=list(bundle.y_names))
    hand_over(frame, out, json)


def _given(texts, names):
    from isr.tables.tables import Columns, read_row

    values = numbers_in(texts, "--x", ",".join(f"{n}=0" for n in names[:3]))
    return read_row(values, like=Columns(names, (None,) * len(names)), what="--x")[None]


def _read(path, names):
    from isr.tables.files import numeric_columns, read_rows

    return numeric_columns(read_rows(path), names, source=path).to_numpy()

"""``isr predict``: y from x, by the surrogate of an ISR model or the formulas of a regressor."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Annotated

import typer

from isr.cli.models import example, open_model
from isr.cli.options import Force, Json, ModelFile, TableFile, numbers_in
from isr.cli.output import TABLE_ENDINGS, hand_over, refuse_ending, refuse_existing


def predict(
    model: ModelFile,
    data: Annotated[
        Path | None, typer.Argument(help="Rows of x: CSV, Excel, Parquet or .npz.", show_default=False)
    ] = None,
    x: Annotated[
        list[str] | None, typer.Option("--x", help="One row instead of a file: depth=200,speed=1500.")
    ] = None,
    out: TableFile = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Print or write y for rows of x, for models of --method isr, inn and eql.

    Example: isr predict model.isr new.csv --out predicted.csv
    """
    import numpy as np
    import pandas as pd

    from isr.tables.files import read_columns
    from isr.tables.tables import read_row

    refuse_existing(out, force)
    refuse_ending(out, TABLE_ENDINGS, "--out")
    bundle = open_model(model)
    if x is not None and data is None:
        values = numbers_in(x, "--x", example(bundle.x_names))
        rows = read_row(values, like=bundle.columns("x"), what="--x")[None]
    elif data is not None and x is None:
        rows = read_columns(data, bundle.x_names)
    else:
        raise ValueError("give rows of x as a file, or one row with --x depth=200,speed=1500; not both")
    predicted = bundle.predict(rows)
    n_bad = int(np.sum(~np.isfinite(predicted).all(axis=1)))
    if n_bad:
        warnings.warn(
            f"{n_bad} of {len(predicted)} predictions are not finite; their x lies outside of the model's domain",
            stacklevel=1,
        )
    hand_over(pd.DataFrame(predicted, columns=list(bundle.y_names)), out, json)

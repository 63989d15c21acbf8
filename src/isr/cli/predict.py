"""``isr predict``: y from x, by the law of an inversion, the surrogate of an ISR model or a regressor's formulas."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Annotated

import typer

from isr.cli.models import example, open_model, values_in
from isr.cli.options import Force, Json, ModelFile, TableFile, asked, with_groups
from isr.cli.output import TABLE_ENDINGS, hand_over, refuse_ending, refuse_existing
from isr.cli.rows import Reading


@with_groups
def predict(
    model: ModelFile,
    data: Annotated[
        Path | None,
        typer.Argument(metavar="ROWS", help="Rows of x: CSV, Excel, Parquet or .npz.", show_default=False),
    ] = None,
    x: Annotated[
        list[str] | None, asked("One row instead of a file: depth=200,speed=1500.", "VALUES", "--x")
    ] = None,
    out: TableFile = None,
    *,
    reading: Reading,
    force: Force = False,
    json: Json = False,
) -> None:
    """Print or write y for rows of x, for models of --method law, formula, isr, inn and eql.

    Example: isr predict model.isr new.csv --out predicted.csv
    """
    import numpy as np
    import pandas as pd

    refuse_existing(out, force)
    refuse_ending(out, TABLE_ENDINGS, "--out")
    bundle = open_model(model)
    bundle.require("predict")
    if x is not None and data is None:
        rows = np.array([values_in(x, "--x", bundle.x_names)])
    elif data is not None and x is None:
        rows = reading.columns(data, bundle.x_names, bundle)
    else:
        raise ValueError(f"give rows of x as a file, or one row with --x {example(bundle.x_names)}; not both")
    predicted = bundle.predict(rows)
    n_bad = int(np.sum(~np.isfinite(predicted).all(axis=1)))
    if n_bad:
        warnings.warn(
            f"{n_bad} of {len(predicted)} predictions are not finite; their x lies outside of the model's domain",
            stacklevel=1,
        )
    hand_over(pd.DataFrame(predicted, columns=list(bundle.y_names)), out, json)

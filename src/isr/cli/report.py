"""``isr report``: a saved model as one HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from isr.cli.models import open_model
from isr.cli.options import Force, Json, ModelFile, numbers_in
from isr.cli.output import print_json, refuse_existing, write_in_one_step


def report(
    model: ModelFile,
    out: Annotated[Path | None, typer.Option(help="HTML file; named after the model when left out.")] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="Rows to compare with, columns named as in the model: CSV, Parquet, .npz."),
    ] = None,
    y: Annotated[
        list[str] | None, typer.Option("--y", help="The observation the explorer starts with: p1=0.1,p2=0.3.")
    ] = None,
    title: Annotated[str | None, typer.Option(help="Heading of the page.")] = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Write one self-contained HTML page with equations, front, checks and a live posterior explorer.

    Example: isr report model.isr --data data.csv --out report.html
    """
    target = Path(f"{model.stem}.html") if out is None else out
    refuse_existing(target, force)
    from isr.report import gather, render

    bundle = open_model(model)
    page = render(
        gather(
            bundle, data=None if data is None else _frame(bundle, data), title=title or model.stem,
            y_star=None if y is None else _observed(bundle, y),
        )
    )  # fmt: skip
    write_in_one_step(target, lambda path: path.write_text(page, encoding="utf-8"))
    if json:
        print_json({"out": str(target), "bytes": len(page.encode())})
    else:
        typer.echo(
            f"written: {target} ({len(page.encode()) / 1e6:.1f} MB); open it in a browser, no network needed"
        )


def _frame(bundle, path: Path):
    from isr.data.files import numeric_columns, read_rows

    return numeric_columns(read_rows(path), [*bundle.x_names, *bundle.y_names], source=path)


def _observed(bundle, texts: list[str]) -> list[float]:
    from isr.data.tables import Columns, read_row

    if not bundle.y_names:
        raise ValueError(f"this {bundle.kind} observes nothing; leave --y out")
    values = numbers_in(texts, "--y", ",".join(f"{n}=0" for n in bundle.y_names[:3]))
    return read_row(values, like=Columns(bundle.y_names, (None,) * len(bundle.y_names)), what="--y").tolist()

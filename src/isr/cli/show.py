"""``isr show`` and ``isr check``: a saved model's equations, and whether they hold."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isr.cli.exits import CheckFailedError
from isr.cli.models import check_model, errors_of, front_of, open_model, written
from isr.cli.options import Complexity, Json, ModelFile
from isr.cli.output import heading, indented, print_json, table

if TYPE_CHECKING:
    from isr.equations.check import CheckResult
    from isr.storage import Bundle


def show(
    model: ModelFile,
    latex: Annotated[bool, typer.Option("--latex", help="The equations alone, as LaTeX.")] = False,
    text: Annotated[
        bool, typer.Option("--text", help="The equations alone, as plain text SymPy can read.")
    ] = False,
    inverse: Annotated[bool, typer.Option("--inverse", help="From the latent back to x.")] = False,
    complexity: Complexity = None,
    json: Json = False,
) -> None:
    """Print the equations of a saved model, its variables and its front.

    Example: isr show model.isr --inverse --latex
    """
    if latex + text + json > 1:
        raise ValueError("--latex, --text and --json exclude each other; give one of them")
    bundle = open_model(model, complexity)
    if latex or text:
        direction = "inverse" if inverse else "forward"
        typer.echo(written(bundle.expressions, direction, "latex" if latex else "text"))
    elif json:
        print_json(described(bundle))
    else:
        describe(bundle, ["inverse"] if inverse else ["forward"])


def describe(bundle: Bundle, directions: list[str]) -> None:
    """Print what a model is, its equations and its front."""
    equations = bundle.expressions
    texts = {direction: written(equations, direction, "pretty") for direction in directions}
    typer.echo(bundle.title)
    typer.echo(f"complexity {equations.complexity}, {equations.n_constants} numbers in the equations")
    for direction, text in texts.items():
        heading(f"Equations, {_WAYS[direction]}" if hasattr(equations, "inverse") else "Equations")
        indented(text)
    print_errors(errors_of(bundle))
    print_front(front_of(bundle))


_WAYS = {"forward": "from x to the latent", "inverse": "from the latent to x"}


def print_errors(errors: dict[float, float]) -> None:
    """Print the constants of the equations that were estimated, each with its standard error."""
    if not errors:
        return
    heading("Constants with their standard errors, signs left out")
    table([{"constant": value, "standard error": float(f"{error:.2g}")} for value, error in errors.items()])


def print_front(rows: list[dict[str, Any]], most: int = 12) -> None:
    """Print a front as a table; of a long one, points around the chosen one and both ends."""
    if not rows:
        return
    chosen = next((i for i, row in enumerate(rows) if row.get("chosen")), 0)
    nearest = sorted(range(len(rows)), key=lambda i: (i not in (0, len(rows) - 1), abs(i - chosen)))
    shown = sorted(nearest[:most])
    more = f", {len(shown)} of {len(rows)} models" if len(shown) < len(rows) else ""
    heading(f"Accuracy against complexity{more}")
    table(
        [
            {"complexity": r["complexity"], "learned constants": r["n_parameters"], "held-out nats": float(r["nll"]),
             "chosen": bool(r["chosen"])}
            for r in (rows[i] for i in shown)
        ]
    )  # fmt: skip


NOT_SHOWN = ("front", "training", "history", "constants")
"""Entries of a model's metadata that are data, too long to print."""


def described(bundle: Bundle) -> dict[str, Any]:
    """Return a model's equations, variables and front as plain data."""
    from isr.equations.formulas import FormulaExpressions

    equations = bundle.expressions
    both = ["forward"] if isinstance(equations, FormulaExpressions) else ["forward", "inverse"]
    return {
        "kind": bundle.kind,
        "x": list(bundle.x_names),
        "y": list(bundle.y_names),
        "units": dict(bundle.units),
        "complexity": equations.complexity,
        "n_constants": equations.n_constants,
        "equations": {way: written(equations, way) for way in both},
        "latex": {way: written(equations, way, "latex") for way in both},
        "constants": [{"value": value, "error": error} for value, error in errors_of(bundle).items()],
        "front": front_of(bundle),
        "metadata": {k: v for k, v in bundle.metadata.items() if k not in NOT_SHOWN},
    }


def check(
    model: ModelFile,
    data: Annotated[
        Path | None, typer.Option(help="Rows to check at instead of drawn ones: CSV, Parquet or .npz.")
    ] = None,
    json: Json = False,
) -> None:
    """Check the equations of a saved model: against the model, the inverse, and autodiff.

    Leaves with exit code 4 where they disagree.

    Example: isr check model.isr --data rows.csv
    """
    bundle = open_model(model)
    rows, y = (None, None) if data is None else _rows_of(bundle, data)
    result = check_model(bundle, rows, y)
    print_checks(result, json)
    raise_if_failed(result)


def _rows_of(bundle: Bundle, path: Path) -> tuple[Any, Any]:
    from isr.tables.files import numeric_columns, read_rows

    frame = read_rows(path)
    x = numeric_columns(frame, bundle.x_names, source=path).to_numpy()
    if getattr(bundle.model, "condition_map", None) is None:
        return x, None
    return x, numeric_columns(frame, bundle.y_names, source=path).to_numpy()


def print_checks(result: CheckResult, as_json: bool) -> None:
    """Print what was compared and how far it is apart."""
    if as_json:
        print_json(checks_as_data(result))
    else:
        indented(str(result))


def checks_as_data(result: CheckResult) -> dict[str, Any]:
    """Return a check as plain data."""
    rows = [
        {"comparison": r.name, "error": r.error, "tolerance": r.tolerance, "n": r.n, "passed": r.passed}
        for r in result.rows
    ]
    return {"passed": result.passed, "rows": rows}


def raise_if_failed(result: CheckResult) -> None:
    """Raise where equations and model disagree."""
    from isr.equations.check import CheckFailed

    try:
        result.raise_if_failed()
    except CheckFailed as error:
        raise CheckFailedError(f"{error}; do not trust the printed equations, and report this") from None

"""``isr show`` and ``isr check``: a saved model's equations, and whether they hold."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from isr.cli.models import check_model, errors_of, front_of, open_model
from isr.cli.options import CheckFailedError, Complexity, Json, ModelFile, asked, with_groups
from isr.cli.output import heading, indented, print_json, say, table
from isr.cli.rows import Reading

if TYPE_CHECKING:
    from isr.equations.check import CheckResult
    from isr.storage import Bundle

NOT_SHOWN = ("front", "training", "history", "constants")
"""Entries of a model's metadata that are data, too long to print."""
_WAYS = {"forward": "from x to the latent", "inverse": "from the latent to x"}


def show(
    model: ModelFile,
    latex: Annotated[bool, asked("The equations alone, as LaTeX.", None, "--latex")] = False,
    text: Annotated[bool, asked("The equations alone, as text that SymPy reads.", None, "--text")] = False,
    inverse: Annotated[bool, asked("From the latent back to x.", None, "--inverse")] = False,
    complexity: Complexity = None,
    json: Json = False,
) -> None:
    """Print the equations of a saved model, its variables and its front.

    Example: isr show model.isr --inverse --latex
    """
    if latex + text + json > 1:
        raise ValueError("--latex, --text and --json exclude each other; give one of them")
    bundle = open_model(model, complexity)
    direction = "inverse" if inverse else "forward"
    if latex or text:
        equations = bundle.expressions
        say(equations.latex(direction, errors=errors_of(bundle)) if latex else equations.text(direction))
    elif json:
        print_json(described(bundle))
    else:
        describe(bundle, direction)


def describe(bundle: Bundle, direction: str) -> None:
    """Print what a model is, its equations in one direction and its front."""
    if bundle.sections:  # of an `Inversion`
        say(bundle.title)
        for title, text in bundle.sections:
            heading(title)
            indented(text)
        return
    equations, errors = bundle.expressions, errors_of(bundle)
    lines = equations.text(direction, unicode=True, errors=errors)
    say(bundle.title)
    say(f"complexity {equations.complexity}, {equations.n_constants} numbers in the equations")
    heading("Equations" if equations.inverse is None else f"Equations, {_WAYS[direction]}")
    indented(lines)
    if errors:
        say("  (digits in parentheses: standard error of the last ones)")
    print_front(bundle)


def print_front(bundle: Bundle, most: int = 12) -> None:
    """Print a front as a table; of a long one, models around the chosen one and both ends."""
    rows = front_of(bundle)
    if not rows:
        return
    chosen = next((i for i, row in enumerate(rows) if row["chosen"]), 0)
    nearest = sorted(range(len(rows)), key=lambda i: (i not in (0, len(rows) - 1), abs(i - chosen)))
    shown = sorted(nearest[:most])
    heading(
        "Accuracy against complexity"
        + (f", {len(shown)} of {len(rows)} models" if len(shown) < len(rows) else "")
    )
    names = ("complexity", "learned constants", "held-out nats", "chosen")
    table(
        [
            dict(zip(names, (r["complexity"], r["n_parameters"], float(r["nll"]), r["chosen"]), strict=True))
            for r in (rows[i] for i in shown)
        ]
    )


def described(bundle: Bundle) -> dict[str, Any]:
    """Return a model's equations, variables and front as plain data."""
    equations = bundle.expressions
    return {
        **({"laws": dict(bundle.sections)} if bundle.sections else {}),
        "kind": bundle.kind,
        "x": list(bundle.x_names),
        "y": list(bundle.y_names),
        "units": dict(bundle.units),
        "complexity": equations.complexity,
        "n_constants": equations.n_constants,
        "equations": {way: equations.text(way) for way in equations.directions},
        "latex": {way: equations.latex(way) for way in equations.directions},
        "constants": [{"value": value, "error": error} for value, error in errors_of(bundle).items()],
        "front": front_of(bundle),
        "metadata": {k: v for k, v in bundle.metadata.items() if k not in NOT_SHOWN},
    }


@with_groups
def check(
    model: ModelFile,
    data: Annotated[
        Path | None, asked("Rows to check at instead of drawn ones: CSV, Excel, …", "ROWS")
    ] = None,
    *,
    reading: Reading,
    json: Json = False,
) -> None:
    """Check the equations of a saved model: against the model, the inverse, and autodiff.

    Leaves with exit code 4 where they disagree.

    Example: isr check model.isr --data rows.csv
    """
    bundle = open_model(model)
    x, y = None, None
    if data is not None:
        y_names = bundle.y_names if getattr(bundle.model, "condition_map", None) is not None else ()
        rows = reading.columns(data, [*bundle.x_names, *y_names], bundle)
        x, y = (rows[list(names)].to_numpy() if names else None for names in (bundle.x_names, y_names))
    result = check_model(bundle, x, y)
    if json:
        print_json(checks_as_data(result))
    else:
        indented(str(result))
    raise_if_failed(result)


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
